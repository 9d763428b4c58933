"""A child's standard streams from what was asked: descriptors, pipes to read, or a pseudo-terminal."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator

from agentd.errors import StartError
from agentd.linux.stages import remedy
from agentd.process.streams import DEVNULL, STDOUT, Capture, Reading, Target


class Stdio:
    """``child_side`` are the three descriptors for the child, -1 to inherit. What only the child needs is
    closed by `open_stdio`; what agentd reads lives on in `readings`."""

    def __init__(self) -> None:
        self.child_side = (-1, -1, -1)
        self.terminal_fd = -1
        self._theirs: list[int] = []
        self._ours: dict[str, tuple[int, Capture]] = {}

    def readings(self, touched: Callable[[], None]) -> dict[str, Reading]:
        """Hands over the captured streams; from here on the Readings close them."""
        ours, self._ours = self._ours, {}
        return {name: Reading(fd, capture, touched) for name, (fd, capture) in ours.items()}

    def close_theirs(self) -> None:
        for fd in self._theirs:
            os.close(fd)
        self._theirs.clear()

    def close_ours(self) -> None:
        for fd, _ in self._ours.values():
            os.close(fd)
        self._ours.clear()

    def devnull(self) -> int:
        fd = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        self._theirs.append(fd)
        return fd

    def pipe(self, name: str, capture: Capture) -> int:
        read, write = os.pipe()
        self._theirs.append(write)
        self._ours[name] = (read, capture)
        return write

    def pseudo_terminal(self, capture: Capture) -> int:
        master, slave = os.openpty()
        self._theirs.append(slave)
        self._ours["terminal"] = (master, capture)
        self.terminal_fd = master
        return slave


@contextlib.contextmanager
def open_stdio(stdin: int | None, stdout: Target, stderr: Target, tty: bool) -> Iterator[Stdio]:
    """The streams while a child is spawned; the child's side is closed at the end, ours too if it failed.

    They are without `problems`. Raises StartError when this process may open no more descriptors.
    """
    stdio = Stdio()
    try:
        try:
            _open(stdio, stdin, stdout, stderr, tty)
        except OSError as error:
            number = error.errno or errno.EIO
            raise StartError(
                f"cannot open its standard streams: {os.strerror(number)}",
                stage="pipe",
                errno=number,
                remedy=remedy("pipe", number),
            ) from error
        yield stdio
    finally:
        stdio.close_theirs()
        stdio.close_ours()


def _open(stdio: Stdio, stdin: int | None, stdout: Target, stderr: Target, tty: bool) -> None:
    if tty:
        capture = stdout if isinstance(stdout, Capture) else Capture()
        slave = stdio.pseudo_terminal(capture)
        stdio.child_side = (slave, slave, slave)
    elif stdin is not None or stdout is not None or stderr is not None:
        given_in = stdio.devnull() if stdin == DEVNULL else -1 if stdin is None else stdin
        given_out = _output(stdio, "stdout", stdout)
        if stderr == STDOUT and not isinstance(stderr, Capture):
            given_err = given_out if given_out >= 0 else 1
        else:
            given_err = _output(stdio, "stderr", stderr)
        stdio.child_side = (given_in, given_out, given_err)


def _output(stdio: Stdio, name: str, target: Target) -> int:
    if target is None:
        return -1
    if isinstance(target, Capture):
        return stdio.pipe(name, target)
    return stdio.devnull() if target == DEVNULL else target


def problems(stdin: object, stdout: object, stderr: object, tty: bool) -> list[str]:
    """What is wrong with the streams that were asked for, a line each."""
    problems = []
    if stdin is not None and not _descriptor(stdin):
        problems.append(f"stdin {stdin!r} is neither a descriptor, DEVNULL nor None")
    for name, target in (("stdout", stdout), ("stderr", stderr)):
        allowed = target is None or isinstance(target, Capture) or _descriptor(target)
        if not allowed and not (name == "stderr" and target == STDOUT):
            problems.append(f"{name} {target!r} is neither a descriptor, DEVNULL, a Capture nor None")
    if tty and (stdin is not None or stderr is not None or not (stdout is None or isinstance(stdout, Capture))):
        problems.append("a child with tty has its terminal for all three streams: give at most a Capture as stdout")
    return problems


def _descriptor(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and (value >= 0 or value == DEVNULL)
