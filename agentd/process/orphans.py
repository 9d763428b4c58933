"""Zombies that this process adopted as subreaper or PID 1: reaped at once, since each counts against the
pids.max of its leaf (G42), and never one whose status somebody else waits for."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from agentd.linux import prctl, proc, status
from agentd.process.members import in_leaf

if TYPE_CHECKING:
    from agentd.process.reaper import Reaper

_AT_ONCE = 10_000


def reap(reaper: Reaper) -> None:
    """Reap what is ours to reap now. Raises nothing."""
    try:
        if reaper.owns_process:
            _reap_everything(reaper)
        else:
            _reap_of_leaves(reaper)
    except OSError:
        return  # /proc cannot be listed: out of descriptors, say


def _reap_everything(reaper: Reaper) -> None:
    """The process is agentd's alone: every zombie child that is not tracked is an orphan."""
    for _ in range(_AT_ONCE):
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if found is None:
            return
        tracked = [child for child in reaper.children() if child.pid == found.si_pid]
        if tracked:
            # It hides those behind it (G51). The end of one that was not looked at yet brings us here again.
            if tracked[0]._status is not None:
                _reap_listed(reaper, lambda _cgroup: True)
            return
        _consume(found.si_pid)


def _reap_of_leaves(reaper: Reaper) -> None:
    """Embedded in a program that is a subreaper: only zombies whose cgroup is one of our leaves, known by
    their own /proc/PID/cgroup, which outlives the leaf's removal."""
    leaves = [child._leaf.cgroup for child in reaper.children() if child._leaf is not None]
    _reap_listed(reaper, lambda cgroup: any(in_leaf(cgroup, leaf) for leaf in leaves))


def reap_of(leaf: str, *, expected: bool) -> bool:
    """Reap the zombies of one empty leaf that this process was handed as a subreaper or PID 1, embedded in a
    program that has children of its own. True: one of them is about to become a zombie, look again soon.

    ``expected``: there was somebody to be handed over. Without, only what is a zombie now is looked for.
    """
    if not _adopts():
        return False
    try:
        if not expected and os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return False
        me = os.getpid()
        coming = False
        for stat in proc.all_stats():
            if stat.ppid == me and in_leaf(proc.cgroup(stat.pid) or "", leaf):
                if stat.state == "Z":
                    _consume(stat.pid)
                else:
                    coming = True
    except OSError:  # no children at all, or no descriptors to look with
        return False
    return coming


_asked: tuple[float, bool] = (float("-inf"), False)


def _adopts() -> bool:
    """Whether orphans are handed to this process. Asked once a second: each question costs a hand-over of the
    interpreter's lock, and there is one at the end of each run."""
    global _asked
    now = time.monotonic()
    if now - _asked[0] > 1.0:
        _asked = (now, os.getpid() == 1 or prctl.is_subreaper())
    return _asked[1]


def _reap_listed(reaper: Reaper, ours: Callable[[str], bool]) -> None:
    me = os.getpid()
    tracked = reaper.tracked_pids()
    for stat in proc.all_stats():
        if stat.ppid == me and stat.state == "Z" and stat.pid not in tracked:
            cgroup = proc.cgroup(stat.pid)
            if cgroup is not None and ours(cgroup):
                _consume(stat.pid)


def _consume(pid: int) -> None:
    try:
        status.reap_pid(pid)
    except OSError:
        return
