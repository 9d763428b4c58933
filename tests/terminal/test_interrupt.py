"""Ctrl-C on a terminal that agentd shares with COMMAND."""

from __future__ import annotations

import os
import shlex
import signal
from typing import Any

from agentd.linux import proc
from tests.terminal.conftest import Start, program
from tests.terminal.line import Line, state, wait_until_gone, wait_until_held

SLEEPER = ("sh", "-c", "echo ready $$; exec sleep 1000")


def child_of(line: Line) -> int:
    return int(line.expect(r"ready (\d+)")[1])


def settle(line: Line) -> None:
    """Return when agentd has dealt with what it was sent before: it has passed on a later signal."""
    os.kill(line.pid, signal.SIGUSR1)
    line.expect("SIGUSR1")


def test_ctrl_c_ends_a_command_that_does_not_handle_it(start: Start, report: Any) -> None:
    line = start(*SLEEPER)
    child = child_of(line)
    line.ctrl("C")
    assert line.wait() == 130
    assert state(child) == ""
    verdict = report()["verdict"]
    assert (verdict["exit"], verdict["cause"], verdict["signal"]) == ("cancelled", "operator", signal.SIGINT)


def test_ctrl_c_arrives_exactly_once(start: Start) -> None:
    # Without a grace no second Ctrl-C kills. A forwarded one might melt into the terminal's own while that
    # is pending, so there are several tries.
    line = start(*program("counter"), options="--grace 0")
    child = child_of(line)
    for times in range(1, 11):
        line.ctrl("C")
        assert line.expect(r"SIGINT (\d+)")[1] == str(times)
        # What agentd did about the interrupt, it did before it forwarded this one.
        os.kill(line.pid, signal.SIGUSR1)
        assert line.expect(r"SIG(\w+ \d+)")[1] == f"USR1 {times}"
    os.kill(child, signal.SIGRTMIN)
    assert line.wait() == 7


def test_a_program_that_handles_ctrl_c_goes_on(start: Start, report: Any) -> None:
    """One Ctrl-C starts no ladder, however short the grace is, and does not colour the verdict."""
    line = start(*program("counter"), options="--grace 100ms")
    child = child_of(line)
    line.ctrl("C")
    line.expect("SIGINT 1")
    line.ctrl("\\")
    line.expect("SIGQUIT 1")
    assert "SIGTERM" not in line.output.decode()
    os.kill(child, signal.SIGRTMIN)
    assert line.wait() == 7
    verdict = report()["verdict"]
    assert (verdict["exit"], verdict["cause"], verdict["code"]) == ("failed", "error", 7)
    assert not [event for event in report()["events"] if event["kind"] in ("term", "kill")]


def test_a_second_ctrl_c_kills(start: Start, report: Any) -> None:
    line = start(*program("counter"), options="--grace 60s")
    child = child_of(line)
    line.ctrl("C")
    line.expect("SIGINT 1")
    settle(line)
    line.ctrl("C")
    assert line.wait() == 130
    wait_until_gone(child)
    verdict = report()["verdict"]
    assert (verdict["exit"], verdict["cause"], verdict["signal"]) == ("cancelled", "operator", signal.SIGKILL)


def test_a_second_ctrl_c_kills_what_the_command_started(start: Start, report: Any) -> None:
    script = """
        trap '' TERM
        trap 'echo interrupted' INT
        trap 'echo SIGUSR1' USR1
        setsid sleep 1000 &
        (trap '' INT; echo ready $$; while :; do sleep 1; done) &
        while :; do wait; done
    """
    line = start("bash", "-c", script)
    child_of(line)
    line.ctrl("C")
    line.expect("interrupted")
    settle(line)
    line.ctrl("C")
    assert line.wait() == 130
    assert report()["teardown"]["complete"]
    assert report()["teardown"]["killed"] >= 3


def test_ctrl_backslash_quits_with_the_commands_status(start: Start, report: Any) -> None:
    line = start("sh", "-c", "ulimit -c 0; echo ready $$; exec sleep 1000")
    child_of(line)
    line.ctrl("\\")
    assert line.wait() == 128 + signal.SIGQUIT
    assert report()["verdict"]["cause"] == "signal"


def test_an_interrupt_before_the_command_was_born_reaches_it(start: Start, report: Any) -> None:
    """The terminal's Ctrl-C reached nobody else then: agentd passes it on."""
    for _ in range(3):
        line = start("sleep", "1000")
        wait_until_held(line.pid, signal.SIGINT)
        line.ctrl("C")
        assert line.wait() == 130
        assert report()["verdict"]["cause"] == "operator"


def test_an_ignored_interrupt_stays_ignored(shell: Line, agentd_run: str) -> None:
    """As in the background of a script, where nothing that reads this terminal's keys is meant to be."""
    script = f"trap '' INT; {agentd_run} -- {' '.join(program('counter'))}; echo status $?"
    shell.send(f"bash -c {shlex.quote(script)}\n")
    child = child_of(shell)
    supervisor = parent_of(child)
    for _ in range(3):
        shell.ctrl("C")
        shell.expect(r"SIGINT \d")  # the counter looks at it nevertheless
        os.kill(supervisor, signal.SIGUSR1)
        shell.expect("SIGUSR1")
    os.kill(child, signal.SIGRTMIN)
    shell.expect("status 7")


def parent_of(pid: int) -> int:
    stat = proc.stat(pid)
    assert stat is not None
    return stat.ppid
