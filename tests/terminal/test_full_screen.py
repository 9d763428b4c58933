"""Programs that take the whole screen, on the caller's terminal and on one of their own."""

from __future__ import annotations

import shlex
import shutil
import signal
from pathlib import Path

import pytest

from agentd.linux import proc
from tests.terminal.conftest import Start, program, prompt
from tests.terminal.line import Line, wait_until

# Without settings of the user's, and without the name of the file, which may be longer than the line.
VIM = ("vim", "-N", "-u", "NONE", "-i", "NONE", "-n", "--cmd", "set shortmess=aFTI")

plainly_and_with_tty = pytest.mark.parametrize("options", ["", "--tty"], ids=["plain", "tty"])


@pytest.fixture
def text(tmp_path: Path) -> Path:
    file = tmp_path / "text"
    file.write_text("".join(f"this is line {number}\n" for number in range(1, 1001)))
    return file


def need(name: str) -> None:
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")


@plainly_and_with_tty
def test_less(start: Start, text: Path, options: str) -> None:
    need("less")
    line = start("less", str(text), options=options)
    before = line.modes()
    line.expect(r"line 23\D")
    line.send("G")
    line.expect("line 1000")
    line.send("g")
    line.expect(r"line 23\D")
    line.send("/line 500\r")
    line.expect("line 522")
    line.send("q")
    assert line.wait() == 0
    assert line.modes() == before


@plainly_and_with_tty
def test_vim(start: Start, text: Path, options: str) -> None:
    need("vim")
    line = start(*VIM, str(text), options=options)
    before = line.modes()
    line.expect("this is line 1")
    line.expect("line 23")
    line.send("Ohello from the test\x1b")
    line.expect("hello from the test")
    line.send(":wq\r")
    assert line.wait() == 0
    assert text.read_text().startswith("hello from the test\nthis is line 1\n")
    assert line.modes() == before


def test_vim_handles_ctrl_c_as_a_key(start: Start, text: Path) -> None:
    """In vim's mode it is no signal, and nothing that ends it."""
    need("vim")
    line = start(*VIM, str(text))
    line.expect("line 23")
    line.send("i")
    line.expect("INSERT")
    line.ctrl("C")
    line.expect(r"\x1b\[24;1H\x1b\[K.*\x1b\[\?25h")  # the mode is left
    line.send(":cquit 3\r")
    assert line.wait() == 3


def test_vim_suspends_and_resumes(shell: Line, text: Path, agentd_run: str) -> None:
    need("vim")
    before = shell.modes()
    shell.send(f"{agentd_run} -- {shlex.join(VIM)} {text}\n")
    shell.expect("line 23")
    job = shell.foreground
    shell.ctrl("Z")
    shell.expect("Stopped")
    assert prompt(shell) == 128 + signal.SIGTSTP
    members = [stat for stat in proc.all_stats() if stat.group == job]
    assert [stat.state for stat in members] == ["T", "T"]
    assert shell.modes() == before
    shell.send("fg\n")
    shell.expect("line 23")
    shell.send(":cquit 3\r")
    assert prompt(shell) == 3
    assert shell.modes() == before


def test_less_suspends_and_resumes(shell: Line, text: Path, agentd_run: str) -> None:
    need("less")
    shell.send(f"{agentd_run} -- less {text}\n")
    shell.expect(r"line 23\D")
    # One that comes while less draws, it may miss, agentd or not: then it is pressed again, as one does.
    stopped = press_until(shell, "Z", "Stopped")
    assert stopped
    prompt(shell)
    shell.send("fg\n")
    shell.expect(r"line 23\D")
    shell.send("q")
    assert prompt(shell) == 0


def press_until(line: Line, letter: str, pattern: str) -> bool:
    for _ in range(20):
        line.ctrl(letter)
        try:
            line.expect(pattern, seconds=0.5)
        except AssertionError:
            continue
        return True
    return False


@plainly_and_with_tty
def test_a_changed_window_reaches_the_command(start: Start, options: str) -> None:
    line = start(*program("window"), options=options, rows=31, columns=101)
    line.expect("size 31 101")
    for rows, columns in ((40, 120), (10, 20), (24, 80)):
        line.resize(rows, columns)
        line.expect(f"size {rows} {columns}")
    line.send("\r")
    assert line.wait() == 0


def test_the_window_is_right_from_the_first_instruction(start: Start) -> None:
    for rows in (20, 31):
        line = start("stty", "size", options="--tty", rows=rows, columns=99)
        line.expect(f"{rows} 99")
        assert line.wait() == 0


def test_the_pseudo_terminal_begins_with_our_modes(shell: Line, agentd_run: str) -> None:
    shell.send("stty erase ^H iutf8 -ixon\n")
    prompt(shell)
    shell.send(f"{agentd_run} --tty -- stty -a\n")
    shown = shell.expect(r"speed.*agentd: completed")[0]
    assert "erase = ^H" in shown
    assert " iutf8" in shown
    assert "-ixon" in shown
    assert " echo " in shown


def test_a_window_that_changed_before_the_first_look_arrives(start: Start) -> None:
    """Between agentd's start and the command's birth."""
    line = start(*program("window"), options="--tty")
    wait_until(lambda: _has_started(line.pid), "agentd executes")
    line.resize(33, 99)
    line.expect("size 33 99")
    line.send("\r")
    assert line.wait() == 0


def _has_started(pid: int) -> bool:
    return "agentd" in " ".join(proc.argv(pid))
