"""Ctrl-Z, fg, bg and the background, below a real shell with job control."""

from __future__ import annotations

import os
import shlex
import signal
from pathlib import Path
from typing import Any

import pytest

from agentd.linux import proc
from agentd.process.members import descendants
from tests.terminal.conftest import Start, program, prompt
from tests.terminal.line import Line, state, wait_for_state, wait_until, wait_until_gone


def group_of(pid: int) -> int:
    stat = proc.stat(pid)
    assert stat is not None
    return stat.group


def parent_of(pid: int) -> int:
    stat = proc.stat(pid)
    assert stat is not None
    return stat.ppid


def ready(line: Line) -> tuple[int, int]:
    """COMMAND's pid, once it says so, and agentd's."""
    child = int(line.expect(r"ready (\d+)")[1])
    return child, parent_of(child)


def wait_until_told(shell: Line) -> None:
    """Until the shell knows that its job has stopped: fg does not continue one that it believes to run."""
    wait_until(lambda: jobs(shell) == "Stopped", "the shell knows that its job has stopped")


def notices(shell: Line) -> str:
    """What the shell has said until its next prompt."""
    shell.send("\n")
    prompt(shell)
    return shell.output.decode()


def jobs(shell: Line) -> str:
    shell.send("jobs\n")
    word = shell.expect(r"\[1\]\+? +(\w+)")[1]
    prompt(shell)
    return word


# In one process: a shell that Ctrl-Z meets between its vfork and its child's exec sits in state D.
CAT = """bash -c 'echo ready $$; while read -r line; do echo "$line"; done; exit 5'"""


def test_the_command_shares_the_callers_group(shell: Line, agentd_run: str) -> None:
    shell.send(f"{agentd_run} -- {CAT}\n")
    child, supervisor = ready(shell)
    assert group_of(child) == group_of(supervisor) == supervisor == shell.foreground


def test_ctrl_z_stops_both_and_fg_continues_both(shell: Line, agentd_run: str, report: Any) -> None:
    shell.send(f"{agentd_run} -- {CAT}\n")
    child, supervisor = ready(shell)
    for word in ("once", "twice"):
        shell.ctrl("Z")
        shell.expect("Stopped")
        assert prompt(shell) == 128 + signal.SIGTSTP
        wait_for_state(supervisor, "T")
        wait_for_state(child, "T")
        shell.send("fg\n")
        shell.expect("agentd run")
        wait_for_state(child, "SR")
        wait_for_state(supervisor, "SR")
        shell.send(f"{word}\n")
        shell.expect(f"{word}\r\n{word}\r\n")  # the terminal's echo, and cat's
    shell.ctrl("D")
    assert prompt(shell) == 5
    assert report()["verdict"]["code"] == 5


def test_bg_continues_both_until_the_terminal_is_read(shell: Line, agentd_run: str) -> None:
    shell.send(f"{agentd_run} -- {CAT}\n")
    child, supervisor = ready(shell)
    shell.ctrl("Z")
    shell.expect("Stopped")
    prompt(shell)
    shell.send("bg\n")
    prompt(shell)
    wait_for_state(child, "T")  # it reads: SIGTTIN
    wait_for_state(supervisor, "T")
    wait_until_told(shell)
    shell.send("fg\n")
    shell.expect("agentd run")
    wait_for_state(child, "SR")
    shell.send("again\n")
    shell.expect("again\r\nagain\r\n")
    shell.ctrl("D")
    assert prompt(shell) == 5


def test_bg_runs_a_command_that_reads_nothing_to_its_end(
    shell: Line, agentd_run: str, tmp_path: Path
) -> None:
    fifo = tmp_path / "go"
    os.mkfifo(fifo)
    shell.send(f"{agentd_run} -- bash -c 'echo ready $$; read -r _ <{fifo}; exit 5'\n")
    child, supervisor = ready(shell)
    shell.ctrl("Z")
    shell.expect("Stopped")
    prompt(shell)
    shell.send("bg\n")
    prompt(shell)
    wait_for_state(child, "S")
    fifo.write_text("go")
    shell.expect("agentd: failed")
    wait_until_gone(supervisor)
    shell.send("wait %1\n")
    assert prompt(shell) in (5, 127)  # 127: the shell has told us already and forgotten it


def test_a_background_job_that_reads_the_terminal_stops_and_goes_on_by_fg(
    shell: Line, agentd_run: str
) -> None:
    shell.send(f"{agentd_run} -- sh -c 'echo ready $$; exec cat' &\n")
    child, supervisor = ready(shell)
    wait_for_state(child, "T")
    wait_for_state(supervisor, "T")
    wait_until_told(shell)
    shell.send("fg\n")
    shell.expect("agentd run")
    wait_for_state(child, "SR")
    shell.send("hello\n")
    shell.expect("hello\r\nhello\r\n")
    shell.ctrl("D")
    assert prompt(shell) == 0


def test_the_shells_kill_ends_a_stopped_job(shell: Line, agentd_run: str) -> None:
    shell.send(f"{agentd_run} -- {CAT}\n")
    child, supervisor = ready(shell)
    shell.ctrl("Z")
    shell.expect("Stopped")
    prompt(shell)
    shell.send("kill %1\n")  # bash continues it, too
    prompt(shell)
    wait_until_gone(supervisor)
    wait_until_gone(child)
    wait_until(lambda: "Exit 143" in notices(shell), "the shell says how its job ended")


def test_a_stopped_command_is_ended_by_agentds_term(shell: Line, agentd_run: str, report: Any) -> None:
    shell.send(f"{agentd_run} --tty -- {CAT}\n")
    child, supervisor = ready(shell)
    os.kill(child, signal.SIGSTOP)
    wait_for_state(child, "T")
    os.kill(supervisor, signal.SIGTERM)
    wait_until_gone(child)
    assert report_when_written(report)["verdict"]["cause"] == "operator"


def test_where_nobody_could_continue_it_agentd_does_not_stop(start: Start) -> None:
    """As the leader of a session: it would sleep through its command's limits for ever."""
    line = start("sh", "-c", "echo ready $$; kill -STOP $$", options="--timeout 500ms --grace 0")
    child, _ = ready(line)
    wait_for_state(child, "T")
    assert line.wait() == 124


def report_when_written(report: Any) -> Any:
    found: list[Any] = []

    def written() -> bool:
        try:
            found.append(report())
        except ValueError:
            return False
        return True

    wait_until(written, "there is a report")
    return found[-1]


def test_a_deadline_in_the_background_leaves_the_terminal_to_the_shell(
    editing_shell: Line, agentd_run: str
) -> None:
    """A killed command is what agentd puts the terminal back after; but here the shell has it."""
    shell = editing_shell
    shell.send(f"{agentd_run} --grace 0 --timeout 500ms -- sh -c 'echo ready $$; exec sleep 1000' &\n")
    _, supervisor = ready(shell)
    wait_until(lambda: shell.foreground == shell.pid and not shell.echoes, "the shell edits its next line")
    shell.expect("agentd: failed .deadline")
    wait_until_gone(supervisor)
    assert shell.foreground == shell.pid
    assert not shell.echoes
    shell.send("echo still $((1 + 1)) here\n")
    shell.expect("still 2 here")


@pytest.mark.parametrize("end", ["kill", "exit"])
def test_the_foreground_comes_back_from_a_command_that_moved_it(
    shell: Line, agentd_run: str, end: str, report: Any
) -> None:
    """An interactive shell takes a group of its own and gives it the terminal."""
    script = f"{agentd_run} --grace 0 -- bash --norc --noprofile -i; echo inner $?; cat"
    shell.send(f"sh -c '{script}'\n")
    wait_until(lambda: shell.foreground != shell.pid, "the job has the terminal")
    outer = shell.foreground
    prompt(shell)
    inner = shell.foreground
    assert inner != outer
    if end == "kill":
        os.kill(parent_of(inner), signal.SIGTERM)
        shell.expect(f"inner {128 + signal.SIGTERM}")
    else:
        shell.send("exit 3\n")
        shell.expect("inner 3")
    # The script goes on in the foreground: its cat may read.
    shell.send("read this\n")
    shell.expect("read this\r\nread this\r\n")
    assert shell.foreground == outer
    shell.ctrl("D")
    assert prompt(shell) == 0


def test_the_shell_has_the_terminal_when_the_command_has_let_go_of_it(
    shell: Line, agentd_run: str, tmp_path: Path
) -> None:
    """A program that Ctrl-Z finds with a screen to put in order stops when it is done, and agentd with it."""
    fifo = tmp_path / "go"
    os.mkfifo(fifo)
    shell.send(f"{agentd_run} -- {shlex.join(program('suspend', '--when', str(fifo)))}\n")
    child, supervisor = ready(shell)
    shell.ctrl("Z")
    shell.expect("asked")
    assert state(supervisor) != "T"
    fifo.write_text("go")
    shell.expect("Stopped")
    assert prompt(shell) == 128 + signal.SIGTSTP
    assert (state(child), state(supervisor)) == ("T", "T")
    shell.send("fg\n")
    shell.expect("continued")
    shell.ctrl("C")
    assert prompt(shell) == 130


def test_a_command_that_stays_on_at_ctrl_z_keeps_agentd(shell: Line, agentd_run: str) -> None:
    shell.send(f"{agentd_run} -- {shlex.join(program('suspend'))}\n")
    _, supervisor = ready(shell)
    for _ in range(3):
        shell.ctrl("Z")
        shell.expect("asked")
    assert state(supervisor) != "T"
    shell.ctrl("C")
    assert prompt(shell) == 130


def test_a_command_that_stops_itself_alone_stops_agentd_too(shell: Line, agentd_run: str) -> None:
    """As one does that reads Ctrl-Z as a key: the shell waits for agentd, and would wait for ever."""
    shell.send(f"{agentd_run} -- sh -c 'echo ready $$; kill -STOP $$; echo continued; exit 5'\n")
    child, supervisor = ready(shell)
    shell.expect("Stopped")
    prompt(shell)
    assert (state(child), state(supervisor)) == ("T", "T")
    shell.send("fg\n")
    shell.expect("continued")
    assert prompt(shell) == 5


@pytest.mark.parametrize("options", ["", "--tty"])
def test_a_command_in_its_own_session_stops_with_agentd(
    shell: Line, agentd_run: str, options: str, tmp_path: Path
) -> None:
    """Ctrl-Z, where no standard stream is the terminal; with --tty, somebody's kill."""
    away = "" if options else f"</dev/null >{tmp_path}/out 2>&1"
    shell.send(f"{agentd_run} {options} -- sleep 1000 {away}\n")
    wait_until(lambda: len(named("sleep", below=shell.pid)) == 1, "it runs")
    (child,) = named("sleep", below=shell.pid)
    supervisor = parent_of(child)
    assert group_of(child) == child
    if options:
        os.kill(supervisor, signal.SIGTSTP)
    else:
        shell.ctrl("Z")
    shell.expect("Stopped")
    prompt(shell)
    wait_for_state(child, "T")
    wait_for_state(supervisor, "T")
    shell.send("fg\n")
    wait_for_state(child, "SR")
    if options:
        wait_until(lambda: not shell.echoes, "the terminal is raw again")
    shell.ctrl("C")
    assert prompt(shell) == 130


def named(name: str, below: int) -> list[int]:
    """The descendants of a process that have this name."""
    stats = proc.all_stats()
    found = descendants(stats, below)
    return [stat.pid for stat in stats if stat.pid in found and stat.name == name]
