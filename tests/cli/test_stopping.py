"""Signals to agentd: passed on, or the request to end, with a grace and without."""

from __future__ import annotations

import signal
import time

import pytest

from tests.support.runs import Agentd

LISTENER = """
import os, signal
def say(number, frame):
    os.write(1, signal.Signals(number).name.encode() + b"\\n")
for name in ("HUP", "INT", "TERM", "USR1", "USR2", "WINCH", "QUIT"):
    signal.signal(getattr(signal, "SIG" + name), say)
print("ready", flush=True)
while True:
    signal.pause()
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


@pytest.mark.parametrize("name", ["HUP", "INT", "USR1", "USR2", "WINCH", "QUIT"])
def test_b75_each_signal_arrives_once(agentd: Agentd, name: str) -> None:
    number = getattr(signal, f"SIG{name}")
    run = agentd.start("--", "python3", "-c", LISTENER)
    assert run.read_line() == "ready"
    run.signal(number)
    assert run.read_line() == f"SIG{name}"
    run.signal(
        signal.SIGUSR1 if name != "USR1" else signal.SIGUSR2
    )  # a second one before it would show by now
    assert run.read_line() in ("SIGUSR1", "SIGUSR2")
    run.signal(signal.SIGTERM)
    if name != "INT":  # after which TERM is the second request already
        assert run.read_line() == "SIGTERM"
        run.signal(signal.SIGTERM)
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


@pytest.mark.parametrize("options", [(), ("--idle-timeout", "1h")], ids=["straight through", "relayed"])
def test_b88_a_reader_that_reads_nothing(agentd: Agentd, options: tuple[str, ...]) -> None:
    run = agentd.start(*options, "--grace", "200ms", "--", "sh", "-c", "echo ready; exec yes")
    assert run.read_line() == "ready"
    run.signal(signal.SIGTERM)
    asked = time.monotonic()
    done = run.finish(read_output=False)
    assert done.code == 143
    assert done.ended_at - asked < 0.2 + 2.0 + 2.0  # grace, drain, and what a busy machine takes
