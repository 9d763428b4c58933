"""Ending what dead supervisors left: leaves whose owner's lock is free are killed and removed.

A supervisor holds a lock (flock) on each of its leaves for as long as it lives, from before the first process
is in it. Neither the pid in a leaf's name nor its age says anything: two pid namespaces can both have a 1.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from agentd.cgroup import control, leaf
from agentd.cgroup.remove import remove_tree
from agentd.cgroup.tree import is_leaf_name

PATIENCE = 2.0
"""Seconds for all that was killed to die. What sits in the kernel for longer is left for the next sweep."""

_PAUSE = 0.001


class Swept(NamedTuple):
    """One leaf without an owner. ``processes`` are those that were in it, as the caller describes them;
    ``removed``: it is gone; ``problem``: why it is not."""

    name: str
    processes: tuple[Any, ...]
    removed: bool
    problem: str


def sweep(
    subtree_fd: int,
    *,
    describe: Callable[[Sequence[int]], Sequence[Any]] = tuple,
    dry_run: bool = False,
    patience: float = PATIENCE,
) -> list[Swept]:
    """Kill and remove every leaf at the top of the subtree whose lock is free; with ``dry_run`` only look.

    ``describe`` turns pids into what `Swept.processes` is to hold, before they are killed. A leaf that is
    being born, or that another sweep is at, is locked: it is left alone. One that cannot be emptied within
    ``patience`` seconds holds up neither the others nor the caller. Raises OSError if the subtree itself
    cannot be listed.
    """
    found: list[tuple[str, int]] = []
    try:
        for name in sorted(filter(is_leaf_name, os.listdir(subtree_fd))):
            fd = _claim(subtree_fd, name)
            if fd >= 0:
                found.append((name, fd))
        processes = {name: tuple(describe(_pids(fd))) for name, fd in found}
        if dry_run:
            return [Swept(name, processes[name], False, "") for name, _ in found]
        problems = {name: _kill(fd) for name, fd in found}
        _wait_for([fd for _, fd in found], time.monotonic() + patience)
        return [_remove(subtree_fd, name, fd, processes[name], problems[name]) for name, fd in found]
    finally:
        for _, fd in found:
            os.close(fd)


def _claim(subtree_fd: int, name: str) -> int:
    """A descriptor of the leaf with its lock, -1 where somebody has it or it is gone."""
    try:
        fd = os.open(name, control.DIRECTORY, dir_fd=subtree_fd)
    except OSError:
        return -1
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return -1
    return fd


def _pids(fd: int) -> list[int]:
    try:
        return leaf.pids(fd)
    except OSError:
        return []


def _kill(fd: int) -> str:
    try:
        leaf.kill(fd)
    except OSError as error:
        return f"it cannot be killed: {error.strerror}"
    return ""


def _wait_for(fds: Sequence[int], until: float) -> None:
    waiting = list(fds)
    while waiting and time.monotonic() < until:
        waiting = [fd for fd in waiting if _populated(fd)]
        if waiting:
            time.sleep(_PAUSE)


def _populated(fd: int) -> bool:
    try:
        return leaf.populated(fd)
    except OSError:
        return False


def _remove(subtree_fd: int, name: str, fd: int, processes: tuple[Any, ...], problem: str) -> Swept:
    if not problem and _populated(fd):
        problem = "its processes do not die of SIGKILL: they sit in the kernel"
    failed = remove_tree(subtree_fd, name)
    if failed and not problem:
        path, number = failed[0]
        problem = f"{path} cannot be removed: {os.strerror(number)}"
    return Swept(name, processes, not failed, problem if failed else "")
