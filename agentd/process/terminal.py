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


class Modes:
    """The modes of a terminal as they were. `restore` puts them back, `raw` takes input byte by byte."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._saved: list[Any] | None = None
        with contextlib.suppress(termios.error):
            self._saved = termios.tcgetattr(fd)

    def restore(self) -> None:
        """Put the modes back. Not from the background: they are those of whoever has the terminal now, as a
        shell that edits its next line. Raises nothing."""
        if self._saved is not None and in_foreground(self.fd):
            with _no_stop(), contextlib.suppress(termios.error):
                termios.tcsetattr(self.fd, termios.TCSADRAIN, self._saved)

    def raw(self) -> None:
        """Hand every byte through unread. Not from the background: there another program has the terminal."""
        if self._saved is None or not in_foreground(self.fd):
            return
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


def in_foreground(fd: int) -> bool:
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return False


def take_back_foreground(fd: int) -> None:
    """Make our group the terminal's foreground again if the one that is has died out: a child that had moved
    it to a group of its own was killed. A live one keeps it: there we are in the background. Raises nothing."""
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
