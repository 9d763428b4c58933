"""--tty: a pseudo-terminal, session and group of COMMAND's own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agentd import Supervisor
from agentd.cgroup.limits import Limits
from agentd.linux import proc
from agentd.process.members import descendants
from agentd.process.streams import Capture
from tests.terminal.conftest import Start, program, prompt
from tests.terminal.line import Line, state, wait_until, wait_until_gone


def test_it_is_a_terminal_with_the_command_in_its_foreground(start: Start) -> None:
    line = start("sh", "-c", "tty && ps -o pgid=,tpgid=,sid= -p $$", options="--tty")
    assert line.wait() == 0
    found = re.search(r"/dev/pts/\d+\r\n *(\d+) +(\d+) +(\d+)\r\n", line.output.decode())
    assert found, line.output
    assert found[1] == found[2] == found[3]
    assert os.ttyname(line.slave) not in line.output.decode()


def test_all_three_streams_and_dev_tty_are_it(start: Start) -> None:
    line = start("sh", "-c", "test -t 0 && test -t 1 && test -t 2 && echo yes >/dev/tty", options="--tty")
    line.expect("yes")
    assert line.wait() == 0


@pytest.mark.parametrize("script", ["exit 0", "exit 3", "kill -TERM $$", "kill -INT $$"])
def test_exit_codes_pass(start: Start, script: str) -> None:
    line = start("sh", "-c", script, options="--tty")
    assert line.wait() == {"exit 0": 0, "exit 3": 3, "kill -TERM $$": 143, "kill -INT $$": 130}[script]


def test_a_failed_exec_is_one_line(start: Start) -> None:
    line = start("/no/such/program", options="--tty")
    assert line.wait() == 127
    assert line.output.count(b"\n") == 1


def test_control_keys_are_the_inner_terminals(start: Start) -> None:
    """Twice: agentd sees bytes, and no interrupt."""
    line = start(*program("counter"), options="--tty --grace 60s")
    child = int(line.expect(r"ready (\d+)")[1])
    wait_until(lambda: not line.echoes, "keys pass")
    for times in (1, 2, 3):
        line.ctrl("C")
        line.expect(f"SIGINT {times}")
        line.ctrl("\\")
        line.expect(f"SIGQUIT {times}")
    assert state(line.pid) == "S"
    os.kill(child, signal.SIGRTMIN)
    assert line.wait() == 7


def test_ctrl_c_ends_a_command_by_its_own_signal(start: Start, report: Any) -> None:
    line = start("sh", "-c", "echo ready; exec sleep 1000", options="--tty")
    line.expect("ready")
    wait_until(lambda: not line.echoes, "keys pass")
    line.ctrl("C")
    assert line.wait() == 130
    assert report()["verdict"]["signal"] == signal.SIGINT


def test_ctrl_d_is_an_end_of_file(start: Start) -> None:
    line = start("sh", "-c", "echo ready; cat; echo end; exit 6", options="--tty")
    line.expect("ready")
    wait_until(lambda: not line.echoes, "keys pass")
    line.send("words\r")
    line.expect("words\r\nwords\r\n")
    line.ctrl("D")
    line.expect("end")
    assert line.wait() == 6


def test_ctrl_z_works_in_a_shell_inside(start: Start) -> None:
    line = start("env", "PS1=<$?>$ ", "bash", "--norc", "--noprofile", "--noediting", "-i", options="--tty")
    prompt(line)
    wait_until(lambda: not line.echoes, "keys pass")
    line.send("cat\r")
    line.expect("cat\r\n")
    wait_until(lambda: any(stat.name == "cat" and stat.terminal for stat in below(line.pid)), "cat runs")
    line.ctrl("Z")
    line.expect("Stopped")
    assert prompt(line) == 148
    assert state(line.pid) == "S"
    line.send("fg\r")
    line.expect("fg\r\ncat")
    wait_until(lambda: any(stat.name == "cat" and stat.state == "S" for stat in below(line.pid)), "cat reads")
    line.ctrl("C")
    assert prompt(line) == 130
    line.send("exit 9\r")
    assert line.wait() == 9


def below(pid: int) -> list[proc.Stat]:
    stats = proc.all_stats()
    found = descendants(stats, pid)
    return [stat for stat in stats if stat.pid in found]


def test_output_is_exact(start: Start, tmp_path: Path) -> None:
    """1 MiB of every byte, by way of a terminal that changes none."""
    data = bytes(range(256)) * 4096
    (tmp_path / "data").write_bytes(data)
    reading, writing = os.pipe()
    line = start("sh", "-c", f"stty raw; cat {tmp_path}/data", options="--tty --quiet", stdout=writing)
    os.close(writing)
    with open(reading, "rb") as file:
        assert file.read() == data
    assert line.wait() == 0


def test_the_last_words_of_a_killed_command_are_passed_on(start: Start) -> None:
    words = "word " * 600
    line = start("sh", "-c", f"echo '{words}end.'; kill -KILL $$", options="--tty")
    assert line.wait() == 137
    assert b"end." in line.output


def test_term_and_deadline_end_it(start: Start) -> None:
    line = start("sh", "-c", "trap '' HUP; echo ready $$; while :; do sleep 1; done", options="--tty")
    child = int(line.expect(r"ready (\d+)")[1])
    os.kill(line.pid, signal.SIGTERM)
    assert line.wait() == 143
    wait_until_gone(child)


@pytest.mark.parametrize("text", ["one\ntwo\n", "one\ntwo", ""])
def test_the_end_of_a_pipe_is_an_end_of_file(start: Start, text: str) -> None:
    reading, writing = os.pipe()
    os.write(writing, text.encode())
    os.close(writing)
    line = start("sh", "-c", "stty -echo; cat; echo end", options="--tty", stdin=reading)
    os.close(reading)
    assert line.wait() == 0
    # The terminal echoes what comes before stty has run.
    assert re.search(r"(two\r?\n?)?end\r\n", line.output.decode())


def test_the_end_of_a_pipe_is_typed_with_the_terminals_own_key(start: Start) -> None:
    reading, writing = os.pipe()
    line = start("sh", "-c", "stty eof ^X; echo ready; cat; echo end", options="--tty", stdin=reading)
    os.close(reading)
    line.expect("ready")
    os.write(writing, b"unfinished")
    os.close(writing)
    line.expect("end")
    assert line.wait() == 0


def test_without_a_terminal_of_ours(agentd_run: str) -> None:
    """In a pipe, and in a session that has none."""
    done = subprocess.run(
        [*agentd_run.split(), "--tty", "--", "sh", "-c", "tty; exit 3"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        start_new_session=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 3
    assert done.stdout.startswith("/dev/pts/")


def test_in_the_background_it_runs_on_and_takes_the_terminal_with_fg(shell: Line, agentd_run: str) -> None:
    before = shell.modes()
    script = "echo ready $$; read -r line; echo got $line; exit 3"
    shell.send(f"{agentd_run} --tty -- bash -c '{script}' &\n")
    child = int(shell.expect(r"ready (\d+)")[1])
    supervisor = next(stat.ppid for stat in proc.all_stats() if stat.pid == child)
    assert shell.modes() == before  # the shell's, and its line is not ours to read
    shell.send("echo typed to the shell\n")
    shell.expect("\r\ntyped to the shell")
    assert state(supervisor) != "T"
    shell.send("fg\n")
    wait_until(lambda: not shell.echoes, "the terminal is raw")
    shell.send("this\r")
    shell.expect("got this")
    assert prompt(shell) == 3
    assert shell.modes() == before


def test_closing_the_terminal_ends_a_pseudo_terminals_command(start: Start) -> None:
    line = start("sh", "-c", "trap '' HUP TERM; echo ready $$; while :; do sleep 1; done",
                 options="--tty --grace 200ms")  # fmt: skip
    child = int(line.expect(r"ready (\d+)")[1])
    line.hang_up()
    line.wait()
    wait_until_gone(child)


def open_descriptors() -> list[str]:
    return sorted(os.listdir("/proc/self/fd"))


def pty_runs(cgroup: str, count: int) -> None:
    """Each ends by its deadline, in the middle of writing; its terminal goes with it."""
    with Supervisor(cgroup) as supervisor:
        supervisor.spawn(["true"], tty=True).wait(30)
        before = open_descriptors()
        for _ in range(0, count, 10):
            runs = [
                supervisor.spawn(
                    ["sh", "-c", "while :; do echo y; sleep 0.01; done"],
                    tty=True,
                    stdout=Capture(tail=100),
                    limits=Limits(wall=0.05),
                    grace=0,
                )
                for _ in range(10)
            ]
            for run in runs:
                assert run.wait(30).verdict.cause == "deadline"
        wait_until(lambda: len(open_descriptors()) <= len(before), "descriptors are closed")
        assert len(open_descriptors()) == len(before)


def test_no_descriptor_stays_from_50_killed_runs(cgroup_root: str) -> None:
    pty_runs(cgroup_root, 50)


@pytest.mark.default
def test_no_descriptor_stays_from_500_killed_runs(cgroup_root: str) -> None:
    pty_runs(cgroup_root, 500)
