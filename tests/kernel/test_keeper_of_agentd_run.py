"""`agentd run` is killed, or its terminal goes: nothing of its command is left."""

from __future__ import annotations

import shlex
import signal
import sys
import time
from collections.abc import Callable

import pytest

from tests.support import doomed, embedding
from tests.support.doomed import Doomed
from tests.support.runs import AGENTD, Agentd
from tests.terminal.line import Line

Program = Callable[[str], str]


@pytest.mark.parametrize("stopped", [False, True], ids=["running", "stopped"])
def test_b18_a_killed_agentd_run(agentd: Agentd, program: Program, stopped: bool) -> None:
    agentd.orphans_are_for_pid_1 = True
    run = agentd.start("--", program("stubborn"), "40")
    assert run.read_line() == "ready"
    if stopped:
        run.signal(signal.SIGSTOP)
    since = time.monotonic()
    run.signal(signal.SIGKILL)
    elapsed = doomed.until_empty(agentd.root, since)
    assert run.finish().code == -signal.SIGKILL
    assert elapsed <= 2 * doomed.IN_TIME


@pytest.mark.parametrize("options", ["", "--tty"])
def test_b18_its_terminal_is_closed(cgroup_root: str, program: Program, options: str) -> None:
    command = f"{AGENTD} run {options} --grace 50ms --cgroup {cgroup_root} -- {program('stubborn')}"
    line = Line(shlex.split(command))
    try:
        line.expect("ready")
        line.hang_up()
        # TERM first; they ignore it.
        assert doomed.until_empty(cgroup_root, time.monotonic()) <= 2 + doomed.IN_TIME
        assert doomed.gone(line.pid)
    finally:
        line.close()


def test_b18_the_terminal_of_a_program_that_does_not_mind(cgroup_root: str, program: Program) -> None:
    """The hang-up kills it, as it kills any program."""
    script = embedding.program(doomed.PROGRAM, cgroup_root, "3", program("stubborn"))
    assert script[0] == sys.executable
    line = Line(script, env=embedding.environment())
    try:
        line.expect(r"\[\d+, \d+\]\r\n")
        since = time.monotonic()
        line.hang_up()
        assert doomed.until_empty(cgroup_root, since) <= 2 * doomed.IN_TIME
        assert doomed.gone(line.pid)
    finally:
        line.close()


def test_a_doomed_supervisor_that_is_not_killed_ends_all_too(cgroup_root: str, program: Program) -> None:
    with Doomed(cgroup_root, 3, program("stubborn")) as supervisor:
        keeper = supervisor.keeper
        assert supervisor.end() == 0
        assert doomed.until_empty(cgroup_root, time.monotonic()) <= doomed.IN_TIME
    assert doomed.gone(keeper)
