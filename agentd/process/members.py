"""Which live processes belong to a run, and how to signal them without ever hitting a stranger."""

from __future__ import annotations

import contextlib
import os
import signal

from agentd.cgroup import control
from agentd.cgroup import leaf as leaves
from agentd.linux import proc, signals
from agentd.process.child import Child


def in_leaf(cgroup: str, leaf: str) -> bool:
    """Whether a process whose cgroup is ``cgroup`` is in ``leaf`` or below it (both as /proc shows them)."""
    return cgroup == leaf or cgroup.startswith(leaf + "/")


def of(child: Child) -> list[int]:
    """The live processes of the run, its main process among them if it lives.

    With a leaf, those in it. Without one, those of its session and, in a process that is a subreaper for
    this run alone, every other descendant.
    """
    if child._leaf is not None:
        return leaves.pids(child._leaf.fd)
    adopting = child._reaper.owns_process
    stats = proc.all_stats()
    ours = {stat.pid for stat in stats if stat.session == child.pid and child._own_group}
    if adopting:
        ours |= descendants(stats, os.getpid()) - {child._reaper.keeper.pid}
    return sorted(stat.pid for stat in stats if stat.pid in ours and stat.state not in "ZX")


def descendants(stats: list[proc.Stat], root: int) -> set[int]:
    """The pids below ``root``, itself not counted."""
    children: dict[int, list[int]] = {}
    for stat in stats:
        children.setdefault(stat.ppid, []).append(stat.pid)
    found: set[int] = set()
    todo = [root]
    while todo:
        for pid in children.get(todo.pop(), ()):
            if pid not in found:
                found.add(pid)
                todo.append(pid)
    return found


def signal_each(child: Child, pids: list[int], number: int) -> None:
    """Signal processes that were just listed. Each is pinned by a pidfd first and its membership looked at
    again after that, so that a number which has passed on is left alone."""
    for pid in pids:
        try:
            pidfd = signals.open_pidfd(pid)
        except OSError:
            continue
        try:
            if _still_member(child, pid):
                signals.send(pidfd, number)
        except OSError:
            continue
        finally:
            os.close(pidfd)


def _still_member(child: Child, pid: int) -> bool:
    if pid == child.pid:
        return True
    if child._leaf is not None:
        cgroup = proc.cgroup(pid)
        return cgroup is not None and in_leaf(cgroup, child._leaf.cgroup)
    stat = proc.stat(pid)
    if stat is None:
        return False
    if child._own_group and stat.session == child.pid:
        return True
    return child._reaper.owns_process and pid in descendants(proc.all_stats(), os.getpid())


def ask_to_end(child: Child, pids: list[int]) -> None:
    """TERM, to the group where the child leads one, else to each member; then CONT, since a stopped process
    would not see it."""
    for number in (signal.SIGTERM, signal.SIGCONT):
        sent = signals.send_group(child._pidfd, number) if child._own_group else None
        if sent is None:
            signal_each(child, pids, number)


def kill_all(child: Child, pids: list[int]) -> None:
    """SIGKILL to everything: the leaf as a whole, else the group and each member; the main process by pidfd,
    wherever it moved. Asynchronous."""
    if child._leaf is not None:
        try:
            leaves.kill(child._leaf.fd)
        except OSError as error:
            child._note("kill refused", str(error))
            signal_each(child, pids, signal.SIGKILL)
        if child.limits.cpu_max is not None:
            _give_time_to_die(child._leaf.fd)
    else:
        signal_each(child, pids, signal.SIGKILL)
    if child._status is None:
        signals.send(child._pidfd, signal.SIGKILL)
        if (
            child._own_group
            and signals.send_group(child._pidfd, signal.SIGKILL) is None
            and child._leaf is None
        ):
            signals.send_pinned_group(child._pidfd, child.pid, signal.SIGKILL)


def _give_time_to_die(leaf_fd: int) -> None:
    """A killed process needs some processor to end: where cpu.max left it 1 ms in each second, it took nine
    seconds (seen with 6.1). Nobody in the leaf runs a further instruction of its own."""
    with contextlib.suppress(OSError):
        control.write(leaf_fd, "cpu.max", "max")
