"""The terminal's modes after a run: as they were, unless COMMAND ended by itself and meant to change them."""

from __future__ import annotations

import os
import signal
import termios
from typing import Any

import pytest

from tests.terminal.conftest import Start, program, prompt
from tests.terminal.line import Line, wait_until

MESS = "stty raw -echo; echo ready $$; exec sleep 1000"


def test_modes_are_restored_after_a_deadline(start: Start) -> None:
    line = start("sh", "-c", MESS, options="--timeout 300ms --grace 0")
    before = line.modes()
    line.expect("ready")
    assert line.modes() != before
    assert line.wait() == 124
    assert line.modes() == before


def test_modes_are_restored_after_term(start: Start) -> None:
    line = start("sh", "-c", MESS)
    before = line.modes()
    line.expect("ready")
    os.kill(line.pid, signal.SIGTERM)
    assert line.wait() == 143
    assert line.modes() == before


def test_modes_are_restored_after_a_second_ctrl_c(start: Start) -> None:
    """With signals left on: a terminal in raw mode makes none."""
    counter = " ".join(program("counter"))
    line = start("sh", "-c", f"stty -echo -icanon; exec {counter}")
    before = line.modes()
    line.expect("ready")
    line.ctrl("C")
    line.expect("SIGINT 1")
    os.kill(line.pid, signal.SIGUSR1)
    line.expect("SIGUSR1 1")
    line.ctrl("C")
    assert line.wait() == 130
    assert line.modes() == before


def test_modes_are_restored_after_a_crash(start: Start) -> None:
    line = start("sh", "-c", "stty raw -echo; kill -SEGV $$")
    before = line.modes()
    assert line.wait() == 128 + signal.SIGSEGV
    assert line.modes() == before


def test_a_command_that_cannot_be_executed_changes_no_modes(start: Start) -> None:
    line = start("/no/such/program")
    before = line.modes()
    assert line.wait() == 127
    assert line.modes() == before


def test_what_a_command_set_on_purpose_stays(start: Start) -> None:
    line = start("stty", "-echo", "-ixon")
    assert line.wait() == 0
    assert not line.echoes
    assert not line.modes()[0] & termios.IXON


def test_what_was_set_when_agentd_started_is_what_is_restored(shell: Line, agentd_run: str) -> None:
    """And not some idea of sane modes; the shell's own stay under it."""
    shell.send("stty -echo -ixon\n")
    prompt(shell)
    shell.send(f"{agentd_run} --timeout 300ms --grace 0 -- sh -c 'stty raw echo; exec sleep 1000'; stty -a\n")
    shell.expect("agentd: failed .deadline")
    assert "-echo " in shell.expect(r"-isig|isig.* -echo ")[0]
    assert prompt(shell) == 0


@pytest.mark.parametrize("how", ["exit", "deadline", "term", "kill of the command"])
def test_modes_are_restored_after_a_pseudo_terminal(start: Start, how: str) -> None:
    options = "--tty --grace 0" + (" --timeout 500ms" if how == "deadline" else "")
    line = start("sh", "-c", "echo ready $$; read -r line; exit 4", options=options)
    before = line.modes()
    child = int(line.expect(r"ready (\d+)")[1])
    wait_until(lambda: not line.echoes, "the terminal is raw: the inner one echoes")
    if how == "exit":
        line.send("go\r")
        expected = 4
    elif how == "deadline":
        expected = 124
    elif how == "term":
        os.kill(line.pid, signal.SIGTERM)
        expected = 143
    else:
        os.kill(child, signal.SIGKILL)
        expected = 137
    assert line.wait() == expected
    assert line.modes() == before


def test_a_pseudo_terminals_modes_are_not_ours(start: Start) -> None:
    """What COMMAND sets on purpose, it sets on its own terminal."""
    line = start("stty", "-echo", options="--tty")
    before = line.modes()
    assert line.wait() == 0
    assert line.modes() == before


def test_the_terminal_is_restored_before_agentd_speaks(start: Start, report: Any) -> None:
    """The closing line is written in the modes that it is read in."""
    line = start("sh", "-c", MESS, options="--tty --timeout 300ms --grace 0")
    assert line.wait() == 124
    assert line.output.endswith(b"cpu\r\n") or line.output.endswith(b"peak\r\n")
