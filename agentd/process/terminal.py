"""The caller's terminal: whether we share one, its modes, its size (termios(3), tty_ioctl(4))."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import struct
import termios
from collections.abc import Iterator
from typing import Any

from agentd.errors import AgentdError
from agentd.linux import proc


def shared_terminal() -> int | None:
    """The first standard stream that is our controlling terminal, None when there is none."""
    for fd in (0, 1, 2):
        try:
            os.tcgetpgrp(fd)  # ENOTTY for every other file, another session's terminal among them
        except OSError:
            continue
        return fd
    return None


class PseudoTerminal:
    """A new pseudo-terminal: ``master`` is ours, ``slave`` the child's. It begins with the size and the modes
    of the terminal ``like``, so that the child finds them from its first instruction. Raises AgentdError."""

    def __init__(self, like: int | None = None) -> None:
        try:
            self.master, self.slave = os.openpty()
        except OSError as error:
            raise AgentdError(
                f"cannot open a pseudo-terminal: {error.strerror}",
                remedy="mount devpts at /dev/pts, or run without --tty",
            ) from error
        if like is not None:
            copy_size(like, self.master)
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self.slave, termios.TCSANOW, termios.tcgetattr(like))

    def close_slave(self) -> None:
        """Once the child has it: the end of its output is that nobody holds it any more."""
        os.close(self.slave)
        self.slave = -1


class Modes:
    """The modes of a terminal as they were. `restore` puts them back, `raw` takes input byte by byte."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._saved: list[Any] | None = None
        self._raw: list[Any] | None = None
        with contextlib.suppress(termios.error):
            self._saved = termios.tcgetattr(fd)

    @property
    def changed(self) -> bool:
        """Whether `raw` changed them."""
        return self._raw is not None

    def restore(self) -> None:
        """Put the modes back. Not from the background: they are those of whoever has the terminal now, as a
        shell that edits its next line. Raises nothing."""
        if self._saved is not None and in_foreground(self.fd):
            with _no_stop(), contextlib.suppress(termios.error):
                termios.tcsetattr(self.fd, termios.TCSADRAIN, self._saved)

    def raw(self) -> None:
        """Hand every byte through unread. Not from the background: there another program has the terminal.
        May be called again when the terminal is ours again: what it is now is what will be restored."""
        if self._saved is None or not in_foreground(self.fd):
            return
        with contextlib.suppress(termios.error):
            now = termios.tcgetattr(self.fd)
            if now != self._raw:
                self._saved = now
        modes = [*self._saved[:6], list(self._saved[6])]
        modes[0] &= ~(
            termios.BRKINT
            | termios.ICRNL
            | termios.INPCK
            | termios.ISTRIP
            | termios.IXON
            | termios.INLCR
            | termios.IGNCR
        )
        modes[1] &= ~termios.OPOST
        modes[2] = (modes[2] & ~(termios.CSIZE | termios.PARENB)) | termios.CS8
        modes[3] &= ~(termios.ECHO | termios.ECHONL | termios.ICANON | termios.IEXTEN | termios.ISIG)
        with contextlib.suppress(termios.error):
            termios.tcsetattr(self.fd, termios.TCSANOW, modes)
            self._raw = termios.tcgetattr(self.fd)


def in_foreground(fd: int) -> bool:
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return False


def is_gone(fd: int) -> bool:
    """Whether what was our terminal has been hung up."""
    try:
        os.tcgetpgrp(fd)
    except OSError:
        return True
    return False


def in_background(fd: int) -> bool:
    """Whether another group has the terminal; False, too, when it is not ours any more."""
    try:
        return os.tcgetpgrp(fd) != os.getpgrp()
    except OSError:
        return False


def end_of_input(fd: int, whole_line: bool) -> bytes:
    """What to type on the terminal of master ``fd`` for its reader to see an end of file. The first one only
    hands over a line that was begun; a reader that takes key by key knows Ctrl-D itself."""
    key = b"\x04"
    with contextlib.suppress(termios.error):
        modes = termios.tcgetattr(fd)
        if modes[3] & termios.ICANON:
            key = modes[6][termios.VEOF]
    return key if whole_line else key * 2


def take_back_foreground(fd: int) -> None:
    """Make our group the terminal's foreground again if the one that is has died out: a child that had moved
    it to a group of its own was killed. A live group keeps it, for we are in the background then. Raises
    nothing."""
    if in_foreground(fd):
        return
    with _no_stop(), contextlib.suppress(OSError):
        group = os.tcgetpgrp(fd)
        if not any(stat.group == group and stat.state not in "ZX" for stat in proc.all_stats()):
            os.tcsetpgrp(fd, os.getpgrp())


def copy_size(source: int, target: int) -> None:
    """Give ``target`` the window size of ``source``. Raises nothing."""
    with contextlib.suppress(OSError):
        size = fcntl.ioctl(source, termios.TIOCGWINSZ, struct.pack("HHHH", 0, 0, 0, 0))
        fcntl.ioctl(target, termios.TIOCSWINSZ, size)


@contextlib.contextmanager
def _no_stop() -> Iterator[None]:
    """Changing a terminal from the background stops the process with SIGTTOU, unless that is blocked."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
