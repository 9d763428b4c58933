"""Signals to agentd: passed on, or the request to end, with a grace and without."""

from __future__ import annotations

import signal
import sys
import time

import pytest

from tests.support.runs import Agentd

# No shell: one that waits for a child may miss a signal that comes just before.
LISTENER = """
import signal
heard = {getattr(signal, f"SIG{name}") for name in "HUP INT QUIT USR1 USR2 WINCH TERM".split()}
signal.pthread_sigmask(signal.SIG_BLOCK, heard)
print("ready", flush=True)
while True:
    print(signal.Signals(signal.sigwait(heard)).name.removeprefix("SIG"), flush=True)
"""


def test_b23_a_server_that_ignores_the_end_of_its_input(agentd: Agentd) -> None:
    script = "trap '' TERM; echo ready; cat; sleep 987654"
    run = agentd.start("--grace", "300ms", "--", "sh", "-c", script)
    assert run.read_line() == "ready"
    asked = time.monotonic()
    run.signal(signal.SIGTERM)
    done = run.finish()
    assert 0.3 <= done.ended_at - asked < 3
    verdict = done.report["verdict"]
    assert (verdict["exit"], verdict["cause"]) == ("cancelled", "operator")
    assert verdict["signal"] == signal.SIGKILL
    assert [event["kind"] for event in done.report["events"]][:3] == ["asked to end", "term", "kill"]
    assert done.code == 143


def test_b75_each_signal_arrives_once(agentd: Agentd) -> None:
    run = agentd.start("--", sys.executable, "-I", "-S", "-c", LISTENER)
    assert run.read_line() == "ready"
    for name in ("HUP", "QUIT", "USR1", "USR2", "WINCH", "HUP", "INT"):
        run.signal(getattr(signal, f"SIG{name}"))
        assert run.read_line() == name  # a second one of the signal before would stand here
    run.signal(signal.SIGTERM)  # after INT the second request
    assert run.finish().stdout == ""


def test_b75_the_code_is_the_commands(agentd: Agentd) -> None:
    run = agentd.start(
        "--", "sh", "-c", "trap 'exit 42' TERM; echo ready; while :; do sleep 987654 & wait; done"
    )
    assert run.read_line() == "ready"
    run.signal(signal.SIGTERM)
    assert run.finish().code == 42


def test_b81_a_second_term_kills_at_once(agentd: Agentd) -> None:
    script = "trap 'echo heard' TERM; echo ready; while :; do sleep 987654 & wait; done"
    run = agentd.start("--grace", "1h", "--", "sh", "-c", script)
    assert run.read_line() == "ready"
    run.signal(signal.SIGTERM)
    assert run.read_line() == "heard"
    again = time.monotonic()
    run.signal(signal.SIGTERM)
    done = run.finish()
    assert done.ended_at - again < 2
    assert done.code == 143
    assert done.report["verdict"]["cause"] == "operator"


@pytest.mark.parametrize(
    "options",
    [
        pytest.param((), id="straight through"),
        pytest.param(("--idle-timeout", "1h"), id="relayed", marks=pytest.mark.default),
    ],
)
def test_b88_a_reader_that_reads_nothing(agentd: Agentd, options: tuple[str, ...]) -> None:
    run = agentd.start(*options, "--grace", "200ms", "--", "sh", "-c", "echo ready; exec yes")
    assert run.read_line() == "ready"
    run.signal(signal.SIGTERM)
    asked = time.monotonic()
    done = run.finish(read_output=False)
    assert done.code == 143
    assert done.ended_at - asked < 0.2 + 2.0 + 2.0  # grace, drain, and what a busy machine takes
