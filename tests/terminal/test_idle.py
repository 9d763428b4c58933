"""--idle-timeout, on a terminal and in pipes."""

from __future__ import annotations

import shlex
import subprocess

from tests.terminal.conftest import Start, prompt
from tests.terminal.line import PROMPT, Line

TICKS = "for i in 1 2 3 4; do echo tick $i; sleep 0.2; done"


def test_on_a_terminal_silence_ends_it(start: Start) -> None:
    line = start("sh", "-c", "test -t 1 && echo terminal; exec sleep 1000", options="--idle-timeout 300ms")
    before = line.modes()
    line.expect("terminal")
    assert line.wait() == 124
    assert b"(idle)" in line.output
    assert line.modes() == before


def test_on_a_terminal_output_keeps_it(start: Start) -> None:
    line = start("sh", "-c", f"{TICKS}; exit 3", options="--idle-timeout 500ms")
    assert line.wait() == 3


def test_on_a_terminal_keys_arrive_and_their_echo_is_output(start: Start) -> None:
    line = start("bash", "-c", "read -r line; echo got $line; exit 3", options="--idle-timeout 10s")
    line.send("this\r")
    line.expect("got this")
    assert line.wait() == 3


def piped(agentd_run: str, script: str, *, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*shlex.split(agentd_run), "--grace", "0", "--idle-timeout", "500ms", "--", "sh", "-c", script],
        input=data,
        capture_output=True,
        start_new_session=True,
        timeout=60,
        check=False,
    )


def test_in_a_pipe_silence_ends_it(agentd_run: str) -> None:
    done = piped(agentd_run, "echo out; echo err >&2; exec sleep 1000")
    assert done.returncode == 124
    assert done.stdout == b"out\n"
    assert done.stderr.startswith(b"err\n")
    assert b"(idle)" in done.stderr


def test_in_a_pipe_output_on_either_stream_keeps_it(agentd_run: str) -> None:
    done = piped(
        agentd_run, "for i in 1 2 3 4; do echo out; sleep 0.2; echo err >&2; sleep 0.2; done; exit 3"
    )
    assert done.returncode == 3


def test_in_a_pipe_the_bytes_are_exact_and_the_streams_apart(agentd_run: str) -> None:
    data = bytes(range(256)) * 1024
    done = piped(agentd_run, "cat; echo aside >&2", data=data)
    assert done.returncode == 0
    assert done.stdout == data
    assert done.stderr.startswith(b"aside\n")


def test_in_the_background_it_needs_no_terminal(shell: Line, agentd_run: str) -> None:
    """Nor does it touch the shell's."""
    before = shell.modes()
    shell.send(
        f"{agentd_run} --idle-timeout 300ms --grace 0 -- sh -c 'test -t 1 || echo pipe; sleep 1000' &\n"
    )
    shell.expect("pipe\r\n")
    shell.expect("agentd: failed .idle")
    assert shell.modes() == before
    shell.send("wait %1; echo\n")
    shell.expect(PROMPT)
    assert shell.foreground == shell.pid


def test_ctrl_c_with_a_pipe_for_output(shell: Line, agentd_run: str) -> None:
    shell.send(f"{agentd_run} --idle-timeout 60s -- sh -c 'echo ready; exec sleep 1000' | cat\n")
    shell.expect("ready\r\n")
    shell.ctrl("C")
    prompt(shell)
    shell.send('echo "agentd: ${PIPESTATUS[0]}"\n')
    shell.expect("agentd: 130")
