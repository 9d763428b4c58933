"""Signals that somebody sends to agentd; with a terminal that is shared, one of COMMAND's own, and none."""

from __future__ import annotations

import os
import select
import shlex
import signal
import subprocess
from typing import Any

import pytest

from agentd.linux import proc
from tests.terminal.conftest import Start, program, prompt
from tests.terminal.line import (
    PATIENCE,
    Line,
    state,
    wait_until,
    wait_until_gone,
    wait_until_held,
)

# In the order of their numbers: what is pending together is read in it.
FORWARDED = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH")


class Piped:
    """agentd in a session without a terminal, read line by line."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            restore_signals=True,
            preexec_fn=attend,
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        ready = select.poll()
        ready.register(self.process.stdout, select.POLLIN)
        assert ready.poll(PATIENCE * 1000), "no line came"
        return self.process.stdout.readline().decode().rstrip()

    def rest(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.read().decode()


def attend() -> None:
    """In the child: what the tests' own caller ignored is to be seen here."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@pytest.fixture
def counting(agentd_run: str) -> Any:
    run = Piped([*shlex.split(agentd_run), "--grace", "0", "--", *program("counter")])
    yield run
    run.process.kill()
    run.process.wait()
    assert run.process.stdout is not None
    run.process.stdout.close()


def test_without_a_terminal_the_command_has_its_own_session(counting: Piped) -> None:
    child = int(counting.line().split()[1])
    stat = proc.stat(child)
    assert stat is not None
    assert stat.session == stat.group == child
    os.kill(child, signal.SIGRTMIN)
    assert counting.process.wait(PATIENCE) == 7


def test_each_signal_reaches_the_command_once(counting: Piped) -> None:
    """Without a grace, so that no second INT is a kill."""
    child = int(counting.line().split()[1])
    for times in (1, 2):
        for name in FORWARDED:
            os.kill(counting.process.pid, signal.Signals[name])
            assert counting.line() == f"{name} {times}"
    os.kill(child, signal.SIGRTMIN)
    assert counting.process.wait(PATIENCE) == 7
    assert counting.rest() == ""


def test_term_reaches_the_command_once_and_its_code_stands(agentd_run: str) -> None:
    run = Piped([*shlex.split(agentd_run), "--", *program("counter", "--stop-at", "SIGTERM")])
    run.line()
    os.kill(run.process.pid, signal.SIGTERM)
    assert run.process.wait(PATIENCE) == 8
    assert run.rest() == "SIGTERM 1\n"


def test_a_second_term_kills(agentd_run: str, report: Any) -> None:
    run = Piped([*shlex.split(agentd_run), "--grace", "60s", "--", *program("counter")])
    child = int(run.line().split()[1])
    os.kill(run.process.pid, signal.SIGTERM)
    assert run.line() == "SIGTERM 1"
    os.kill(run.process.pid, signal.SIGTERM)
    assert run.process.wait(PATIENCE) == 143
    wait_until_gone(child)
    assert report()["verdict"]["signal"] == signal.SIGKILL


@pytest.mark.parametrize(("first", "second"), [("SIGINT", "SIGTERM"), ("SIGTERM", "SIGINT")])
def test_int_and_term_count_together(agentd_run: str, first: str, second: str) -> None:
    run = Piped([*shlex.split(agentd_run), "--grace", "60s", "--", *program("counter")])
    child = int(run.line().split()[1])
    os.kill(run.process.pid, signal.Signals[first])
    assert run.line() == f"{first} 1"
    os.kill(run.process.pid, signal.Signals[second])
    assert run.process.wait(PATIENCE) == 128 + signal.Signals[first if first == "SIGTERM" else second]
    wait_until_gone(child)


def test_after_the_grace_term_becomes_a_kill(agentd_run: str) -> None:
    run = Piped([*shlex.split(agentd_run), "--grace", "200ms", "--", *program("counter")])
    run.line()
    os.kill(run.process.pid, signal.SIGTERM)
    assert run.line() == "SIGTERM 1"
    assert run.process.wait(PATIENCE) == 143


def test_on_a_shared_terminal_what_somebody_sends_is_passed_on_once(start: Start) -> None:
    line = start(*program("counter"), options="--grace 0")
    child = int(line.expect(r"ready (\d+)")[1])
    for times in (1, 2):
        for name in FORWARDED:
            os.kill(line.pid, signal.Signals[name])
            assert line.expect(r"SIG(\w+ \d)")[1] == f"{name[3:]} {times}"
    os.kill(child, signal.SIGRTMIN)
    assert line.wait() == 7


def test_a_signal_before_the_birth_is_passed_on(agentd_run: str) -> None:
    """Here the command's own disposition shows it: sleep dies of it."""
    for name in ("SIGUSR1", "SIGTERM", "SIGINT"):
        run = Piped([*shlex.split(agentd_run), "--", "sh", "-c", "ulimit -c 0; exec sleep 1000"])
        wait_until_held(run.process.pid, signal.Signals[name])
        os.kill(run.process.pid, signal.Signals[name])
        assert run.process.wait(PATIENCE) == 128 + signal.Signals[name]


def test_without_the_terminal_among_the_streams_ctrl_c_arrives_once(
    shell: Line, agentd_run: str, tmp_path: Any
) -> None:
    """COMMAND has its own session then, which the terminal's keys do not reach."""
    out = tmp_path / "out"
    counter = shlex.join(program("counter"))
    shell.send(f"{agentd_run} --grace 0 -- {counter} </dev/null >{out} 2>&1\n")
    wait_until(lambda: out.exists() and "ready" in out.read_text(), "the command is ready")
    child = int(out.read_text().split()[1])
    for times in (1, 2, 3):
        shell.ctrl("C")
        wait_until(lambda times=times: f"SIGINT {times}\n" in out.read_text(), "it arrives")  # type: ignore[misc]
    os.kill(child, signal.SIGRTMIN)
    assert prompt(shell) == 7
    assert out.read_text().count("SIGINT") == 3


class TestHangUp:
    """The terminal is closed: nothing of the run stays for longer than the grace."""

    STUBBORN = "trap '' HUP TERM INT; setsid sleep 1000 & echo ready $$; while :; do sleep 1; done"

    def test_of_the_foreground(self, start: Start) -> None:
        line = start("sh", "-c", self.STUBBORN, options="--grace 200ms")
        child = int(line.expect(r"ready (\d+)")[1])
        line.hang_up()
        line.wait()
        wait_until_gone(child)

    def test_below_a_shell(self, shell: Line, agentd_run: str, report: Any) -> None:
        shell.send(f"{agentd_run} --grace 200ms -- sh -c {shlex.quote(self.STUBBORN)}\n")
        child = int(shell.expect(r"ready (\d+)")[1])
        supervisor = parent_of(child)
        shell.hang_up()
        wait_until_gone(supervisor)
        wait_until_gone(child)
        assert report()["verdict"]["cause"] == "operator"
        assert report()["teardown"]["complete"]

    def test_of_a_stopped_job(self, shell: Line, agentd_run: str) -> None:
        shell.send(f"{agentd_run} --grace 200ms -- bash -c 'echo ready $$; read -r line'\n")
        child = int(shell.expect(r"ready (\d+)")[1])
        supervisor = parent_of(child)
        shell.ctrl("Z")
        shell.expect("Stopped")
        prompt(shell)
        assert state(supervisor) == "T"
        shell.hang_up()
        wait_until_gone(supervisor)
        wait_until_gone(child)

    def test_of_a_background_job(self, shell: Line, agentd_run: str) -> None:
        shell.send(f"{agentd_run} --grace 200ms -- sh -c {shlex.quote(self.STUBBORN)} &\n")
        child = int(shell.expect(r"ready (\d+)")[1])
        supervisor = parent_of(child)
        shell.hang_up()
        wait_until_gone(supervisor)
        wait_until_gone(child)

    def test_hup_alone_is_for_the_command(self, shell: Line, agentd_run: str) -> None:
        """It may mean a new configuration."""
        shell.send(f"{agentd_run} -- {shlex.join(program('counter'))}\n")
        child = int(shell.expect(r"ready (\d+)")[1])
        os.kill(parent_of(child), signal.SIGHUP)
        shell.expect("SIGHUP 1")
        os.kill(child, signal.SIGRTMIN)
        assert prompt(shell) == 7

    def test_below_nohup_it_runs_on(self, shell: Line, agentd_run: str, tmp_path: Any) -> None:
        fifo = tmp_path / "go"
        os.mkfifo(fifo)
        script = f"echo ready $$ >{tmp_path}/pid; read -r _ <{fifo}; exit 5"
        shell.send(f"nohup {agentd_run} -- bash -c '{script}' >/dev/null 2>&1\n")
        wait_until(lambda: "ready" in read(tmp_path / "pid"), "it runs")
        child = int(read(tmp_path / "pid").split()[1])
        supervisor = parent_of(child)
        shell.hang_up()
        wait_until_gone(shell.pid)
        # Only one that still runs answers it with its own code.
        fifo.write_text("go\n")
        wait_until_gone(supervisor)
        assert '"code": 5' in read(tmp_path / "report.json")


def read(path: Any) -> str:
    return path.read_text() if path.exists() else ""


def parent_of(pid: int) -> int:
    stat = proc.stat(pid)
    assert stat is not None
    return stat.ppid
