"""A terminal line for tests: a program on a real pseudo-terminal, its screen, its keys, its modes.

Everything that waits is bounded and fails with what was on the screen; nothing waits for a time to pass.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentd.linux import proc

PATIENCE = 15.0
"""Seconds after which something that should have happened has not."""

PROMPT = r"<(\d+)>\$ "
"""What an interactive shell of `Line.shell` asks with: the status of its last command."""


class Line:
    """``argv`` as the leader of a session whose controlling terminal is ours: its Ctrl-C, its hang-up.

    The tests hold the master, and a descriptor of the terminal itself to look at its modes.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        rows: int = 24,
        columns: int = 80,
        env: Mapping[str, str] | None = None,
        stdin: int | None = None,
        stdout: int | None = None,
    ) -> None:
        self.master, self.slave = os.openpty()
        self.resize(rows, columns)
        self.output = b""
        self._seen = 0
        variables = {**os.environ, "TERM": "xterm", "LC_ALL": "C.UTF-8", **(env or {})}
        for size in ("LINES", "COLUMNS"):
            variables.pop(size, None)
        slave = self.slave
        self.process = subprocess.Popen(
            argv,
            stdin=slave if stdin is None else stdin,
            stdout=slave if stdout is None else stdout,
            stderr=slave,
            env=variables,
            start_new_session=True,
            pass_fds=(slave,),
            preexec_fn=lambda: _own_terminal(slave),
        )
        self.pid = self.process.pid
        self._pidfd = os.pidfd_open(self.pid)

    @classmethod
    def shell(cls, *, editing: bool = False) -> Line:
        """An interactive bash, with job control; with ``editing`` it reads its lines in raw mode."""
        options = ["--norc", "--noprofile", *([] if editing else ["--noediting"])]
        env = {"PS1": "<$?>$ ", "HISTFILE": "", "INPUTRC": "/dev/null"}
        line = cls(["bash", *options, "-i"], env=env)
        line.expect(PROMPT)
        return line

    # -- what is on the screen ---------------------------------------------------------------------------

    def expect(self, pattern: str, seconds: float = PATIENCE) -> re.Match[str]:
        """The first match in what was not matched before; later calls go on behind it."""
        until = time.monotonic() + seconds
        while True:
            text = self.output.decode("latin-1")  # a byte a character: positions stay
            if match := re.compile(pattern, re.DOTALL).search(text, self._seen):
                self._seen = match.end()
                return match
            if not self._read(until):
                raise AssertionError(f"{pattern!r} did not come; the screen: {text[self._seen :]!r}")

    def _read(self, until: float) -> bool:
        """False when nothing more comes: the time is over, or the leader is dead and all is read."""
        poller = select.poll()
        poller.register(self.master, select.POLLIN)
        poller.register(self._pidfd, select.POLLIN)
        ready = [fd for fd, _ in poller.poll(max(0.0, until - time.monotonic()) * 1000)]
        if self.master not in ready:
            return False
        self.output += os.read(self.master, 65536)
        return True

    # -- keys, window, modes -----------------------------------------------------------------------------

    def send(self, keys: str) -> None:
        data = keys.encode()
        while data:
            data = data[os.write(self.master, data) :]

    def ctrl(self, letter: str) -> None:
        self.send(chr(ord(letter) & 0x1F))

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def modes(self) -> list[Any]:
        return termios.tcgetattr(self.slave)

    @property
    def echoes(self) -> bool:
        return bool(self.modes()[3] & termios.ECHO)

    @property
    def foreground(self) -> int:
        return os.tcgetpgrp(self.master)

    # -- its end -----------------------------------------------------------------------------------------

    def wait(self, seconds: float = PATIENCE) -> int:
        """The exit status (negative: a signal), reading what is written until then."""
        if self.master >= 0:
            until = time.monotonic() + seconds
            while self._read(until):
                pass
            seconds = until - time.monotonic()
        try:
            return self.process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it runs on; the screen: {self.output[self._seen :]!r}") from None

    def hang_up(self) -> None:
        """The terminal is closed: its window, its connection."""
        os.close(self.slave)
        os.close(self.master)
        self.slave = self.master = -1

    def close(self) -> None:
        """End what is left of the session."""
        if self.master >= 0:
            self.hang_up()
        # The leader is not reaped yet, so that its number, the session's, still is its own.
        others = [stat.pid for stat in proc.all_stats() if stat.session == self.pid and stat.pid != self.pid]
        for pid in others:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in others:
            wait_until_gone(pid)
        self.process.kill()
        self.process.wait()
        os.close(self._pidfd)


def _own_terminal(slave: int) -> None:
    """In the child, which leads a new session by now. What our own caller ignored, as a shell's background
    does, is no concern of the tests."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    os.close(slave)


def wait_until(holds: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
    """For what the kernel has no event for, as another process's state: look until it holds."""
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            raise AssertionError(f"it never came to this: {what}")
        time.sleep(0.002)


def state(pid: int) -> str:
    """The letter of /proc/PID/stat: R, S, T for stopped, Z; "" when there is no such process."""
    stat = proc.stat(pid)
    return stat.state if stat else ""


def blocks(pid: int, number: int) -> bool:
    """Whether its main thread has the signal blocked."""
    status = proc.read(pid, "status") or ""
    masks = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigBlk:")]
    return bool(masks and masks[0] >> (number - 1) & 1)


def wait_until_held(pid: int, number: int) -> None:
    """Until agentd holds its signals: from then on none is lost."""
    wait_until(lambda: blocks(pid, number), f"process {pid} blocks signal {number}")


def wait_for_state(pid: int, letters: str) -> None:
    wait_until(lambda: state(pid) in tuple(letters), f"process {pid} is in state {letters}, not {state(pid)}")


def wait_until_gone(pid: int) -> None:
    wait_until(lambda: state(pid) in ("", "Z"), f"process {pid} is gone")
