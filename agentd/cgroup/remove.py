"""Removing a leaf with whatever cgroups its child made below it."""

from __future__ import annotations

import errno
import os

from agentd.cgroup import control
from agentd.cgroup.leaf import subcgroups

_RWX = 0o700


def remove_tree(parent_fd: int, name: str) -> list[tuple[str, int]]:
    """Remove the cgroup ``name`` below ``parent_fd``, depth first, whatever the modes of those below it.

    The usual case, nothing below, is one rmdir. Returns what could not be removed: each path from ``name``
    on, deepest first, with its errno (EBUSY: a live process, or a cgroup that was just made; EACCES: owned
    by somebody else). Empty means that it is gone; one that was gone already counts as removed. Never raises
    OSError, never follows a symbolic link, never leaves ``name``. Nothing is killed here.
    """
    failed: list[tuple[str, int]] = []
    number = _rmdir(name, parent_fd)
    if number == 0:
        return failed
    here = _enter(name, parent_fd)
    if here < 0:
        return [(name, number)]
    path, pending = [name], [_below(here)]
    try:
        while True:
            if pending[-1]:
                child = pending[-1].pop()
                number = _rmdir(child, here)
                if number == 0:
                    continue
                inner = _enter(child, here)
                if inner < 0:
                    failed.append(("/".join([*path, child]), number))
                    continue
                os.close(here)
                here = inner
                path.append(child)
                pending.append(_below(here))
                continue
            pending.pop()
            done = path.pop()
            if not pending:
                break
            try:
                above = os.open("..", control.DIRECTORY, dir_fd=here)
            except OSError as error:
                failed.append(("/".join([*path, done]), error.errno or errno.EIO))
                break
            os.close(here)
            here = above
            if number := _rmdir(done, here):
                failed.append(("/".join([*path, done]), number))
    finally:
        os.close(here)
    if number := _rmdir(name, parent_fd):
        failed.append((name, number))
    return failed


def _rmdir(name: str, parent_fd: int) -> int:
    """0, or the errno; a directory that is not there is as good as removed."""
    try:
        os.rmdir(name, dir_fd=parent_fd)
    except FileNotFoundError:
        return 0
    except OSError as error:
        return error.errno or errno.EIO
    return 0


def _enter(name: str, parent_fd: int) -> int:
    """A descriptor of the directory, made readable and writable if it is ours; -1 where that fails."""
    try:
        fd = os.open(name, control.DIRECTORY, dir_fd=parent_fd)
    except PermissionError:
        fd = _open_closed(name, parent_fd)
    except OSError:
        return -1
    if fd >= 0:
        try:
            mode = os.fstat(fd).st_mode
            if mode & _RWX != _RWX:
                os.fchmod(fd, mode & 0o7777 | _RWX)
        except OSError:
            # Somebody else's: what is below may still be removable to root.
            pass
    return fd


def _open_closed(name: str, parent_fd: int) -> int:
    """Open a directory whose mode forbids it even to its owner: a handle that needs no permission on it, a
    chmod through that handle, and then a real open."""
    try:
        handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent_fd)
    except OSError:
        return -1
    try:
        os.chmod(f"/proc/self/fd/{handle}", _RWX)
        return os.open(name, control.DIRECTORY, dir_fd=parent_fd)
    except OSError:
        return -1
    finally:
        os.close(handle)


def _below(fd: int) -> list[str]:
    try:
        return subcgroups(fd)
    except OSError:
        return []
