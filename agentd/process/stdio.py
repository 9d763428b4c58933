"""A child's standard streams from what was asked: descriptors, pipes to read, or a pseudo-terminal."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from agentd.errors import StartError
from agentd.linux.stages import remedy
from agentd.process.streams import DEVNULL, STDOUT, Capture, Reading, Target
from agentd.process.terminal import PseudoTerminal


class Stdio:
    """``child_side`` are the three descriptors for the child, -1 to inherit. `close` closes what only the
    child needs; what agentd reads passes to `readings`. The arguments are without `problems`. Raises
    StartError when this process may open no more descriptors."""

    def __init__(self, stdin: int | None, stdout: Target, stderr: Target, tty: bool | PseudoTerminal) -> None:
        self.terminal_fd = -1
        self._theirs: list[int] = []
        self._ours: dict[str, tuple[int, Capture]] = {}
        try:
            if tty:
                capture = stdout if isinstance(stdout, Capture) else Capture()
                self.child_side = self._pseudo_terminal(capture, tty)
            else:
                given_out = self._output("stdout", stdout)
                merged = isinstance(stderr, int) and stderr == STDOUT
                given_err = (given_out if given_out >= 0 else 1) if merged else self._output("stderr", stderr)
                given_in = self._devnull() if stdin == DEVNULL else -1 if stdin is None else stdin
                self.child_side = (given_in, given_out, given_err)
        except OSError as error:
            self.close()
            number = error.errno or errno.EIO
            raise StartError(
                f"cannot open its standard streams: {os.strerror(number)}",
                stage="pipe",
                errno=number,
                remedy=remedy("pipe", number),
            ) from error

    def readings(self, touched: Callable[[], None]) -> dict[str, Reading]:
        """Hands over the captured streams; from here on the Readings close them."""
        ours, self._ours = self._ours, {}
        return {name: Reading(fd, capture, touched) for name, (fd, capture) in ours.items()}

    def close(self) -> None:
        """The child's side; and ours, if it was not handed over."""
        for fd in self._theirs:
            os.close(fd)
        for fd, _ in self._ours.values():
            os.close(fd)
        self._theirs.clear()
        self._ours.clear()

    def _devnull(self) -> int:
        fd = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        self._theirs.append(fd)
        return fd

    def _output(self, name: str, target: Target) -> int:
        if target is None:
            return -1
        if isinstance(target, Capture):
            read, write = os.pipe()
            self._theirs.append(write)
            self._ours[name] = (read, target)
            return write
        return self._devnull() if target == DEVNULL else target

    def _pseudo_terminal(self, capture: Capture, given: bool | PseudoTerminal) -> tuple[int, int, int]:
        if isinstance(given, PseudoTerminal):
            master, slave = os.dup(given.master), given.slave
            self.terminal_fd = given.master
        else:
            master, slave = os.openpty()
            self._theirs.append(slave)
            self.terminal_fd = master
        self._ours["terminal"] = (master, capture)
        return slave, slave, slave


def problems(stdin: object, stdout: object, stderr: object, tty: bool | PseudoTerminal) -> list[str]:
    """What is wrong with the streams that were asked for, a line each."""
    problems = []
    if stdin is not None and not _descriptor(stdin):
        problems.append(f"stdin {stdin!r} is neither a descriptor, DEVNULL nor None")
    for name, target in (("stdout", stdout), ("stderr", stderr)):
        allowed = target is None or isinstance(target, Capture) or _descriptor(target)
        if not allowed and not (name == "stderr" and target == STDOUT):
            problems.append(f"{name} {target!r} is neither a descriptor, DEVNULL, a Capture nor None")
    if tty and (
        stdin is not None or stderr is not None or not (stdout is None or isinstance(stdout, Capture))
    ):
        problems.append(
            "a child with tty has its terminal for all three streams: give at most a Capture as stdout"
        )
    return problems


def _descriptor(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and (value >= 0 or value == DEVNULL)


INHERIT = Stdio(None, None, None, False)
"""All three streams are those of this process."""
