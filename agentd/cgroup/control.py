"""Reading and writing a cgroup's control files, relative to its directory descriptor. No decisions.

Everything here raises the kernel's OSError as it is. Files are never created: on the tmpfs that stands where
a v2 mount was expected, O_CREAT would make a regular file and look like success (G13).
"""

from __future__ import annotations

import os

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""How a cgroup's directory is opened, so that control files, children and xattrs can be reached."""


def read(dirfd: int, name: str) -> str:
    """The whole text of the control file ``name``."""
    fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=dirfd)
    try:
        text = b""
        while chunk := os.read(fd, 65536):
            text += chunk
    finally:
        os.close(fd)
    return text.decode("utf-8", "surrogateescape")


def read_or(dirfd: int, name: str, otherwise: str) -> str:
    """The text of ``name``, or ``otherwise`` where it cannot be read, for whatever reason."""
    try:
        return read(dirfd, name)
    except OSError:
        return otherwise


def write(dirfd: int, name: str, text: str) -> None:
    """Write ``text`` to the control file ``name`` in one write, as the kernel wants it."""
    fd = os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=dirfd)
    try:
        os.write(fd, text.encode("utf-8", "surrogateescape"))
    finally:
        os.close(fd)


def opened(dirfd: int, name: str) -> int:
    """A descriptor of the control file ``name``, for what needs one: a lock, a poll. The caller closes it."""
    return os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=dirfd)


def pids_in(text: str) -> list[int]:
    """The pids in the text of ``cgroup.procs``. A process of a foreign pid namespace reads as 0 (G26)."""
    return [int(word) for word in text.split() if word.isdecimal()]
