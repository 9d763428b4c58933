"""Descriptors held back for the ends of runs: a program that has used up its own must still be able to kill."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Iterator

_COUNT = 3
"""Enough to go through a leaf with cgroups below it: one descriptor for where we are, one for what is next,
one for the file that is read."""


class Spares:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: list[int] = []
        self._refill()

    def fill(self) -> None:
        """Take back what was lent, if there is room by now."""
        if len(self._held) < _COUNT:
            with self._lock:
                self._refill()

    @property
    def held(self) -> tuple[int, ...]:
        return tuple(self._held)

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        """Within it there is room for a few more descriptors, unless other threads are quicker to take it."""
        with self._lock:
            while self._held:
                os.close(self._held.pop())
            try:
                yield
            finally:
                self._refill()

    def _refill(self) -> None:
        with contextlib.suppress(OSError):  # the next time, then
            while len(self._held) < _COUNT:
                self._held.append(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC))


def are_missing(error: BaseException) -> bool:
    """Whether ``error`` says that no more descriptors are to be had, of this process or of the machine."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)
