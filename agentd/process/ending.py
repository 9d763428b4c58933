"""From a child's last instruction to its report: look, name, kill, wait, drain, read, reap, remove.

Everything here runs in the loop's thread and never blocks it: each step either gets on or arranges to be
called again, by the leaf's events or by a timer.
"""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

from agentd.cgroup.remove import remove_tree
from agentd.linux import proc, signals
from agentd.linux.end import populated
from agentd.process import conclude, left_behind, members, orphans
from agentd.process.ladder import KILL_NOW, Ladder, due, next_at

if TYPE_CHECKING:
    from agentd.process.child import Child
    from agentd.process.reaper import Reaper

DRAIN = 2.0
"""Seconds for captured output to be read to its end once every writer is dead."""

_RECHECK = (0.001, 0.001, 0.002, 0.004, 0.008, 0.016)
_ESCAPE_LOOK = 0.02
_REMOVE_FOR = 1.0
_ADOPTING_TRIES = 50


def exited(reaper: Reaper, child: Child, now: float) -> None:
    """The pidfd is readable. The fast path, nothing left and nothing to drain, is one call."""
    if child._in_place:
        return  # a waiter is about to do this
    end = child._ending
    _look(reaper, child, keep=_must_look_first(child))
    status = end.status
    if status is None:
        reaper.rearm(child)
        return
    if child._status is None:
        child._status = status
        if status.signal == signal.SIGKILL:
            child._executed = proc.has_executed(child.pid)
            child._oomd = _marked_by_oomd(child)
        child._exited = now
        child._ended_wall = time.time()
        if child._intent is not None:
            child._note("ended", "after it was asked to")
    if end.finished:
        child._emptied = now
        _finished(reaper, child, now)
    else:
        proceed(reaper, child, now)


def _marked_by_oomd(child: Child) -> bool:
    """systemd-oomd counts its kills in an extended attribute of the cgroup: its SIGKILL looks like any other."""
    if child._leaf is None:
        return False
    try:
        return bool(os.getxattr(child._leaf.fd, "user.oomd_kill"))
    except OSError:
        return False


def _look(reaper: Reaper, child: Child, *, keep: bool = False) -> None:
    """One look, which is the reap where nothing is left. Under the child's lock, as every step is: with the reap
    its descriptors are closed, and their numbers may be another child's before we come back; nobody is to
    signal by them."""
    ran = (child._exited or time.monotonic()) - child._started
    reaper.drop_routes(child)
    child._ending.run(child._attempt.place.files_for(ran), keep=keep, keep_killed=child._status is None)
    if child._ending.finished:
        child._pidfd = -1
        reaper.forget(child)
    else:
        reaper.route_leaf(child)


def leaf_changed(reaper: Reaper, child: Child, now: float) -> None:
    """The leaf's cgroup.events changed: it may have become empty."""
    if child._status is not None:
        proceed(reaper, child, now)
        return
    assert child._leaf is not None
    if not populated(child._leaf.events_fd):
        reaper.at(child, now + _ESCAPE_LOOK, lambda now: _look_for_escape(reaper, child, now))


def _look_for_escape(reaper: Reaper, child: Child, now: float) -> None:
    """Empty leaf, live child: it is exiting, or it has moved itself out."""
    assert child._leaf is not None
    if child._status is not None or populated(child._leaf.events_fd):
        return
    stat = proc.stat(child.pid)
    cgroup = proc.cgroup(child.pid)
    if stat is None or cgroup is None or stat.state in "ZX" or members.in_leaf(cgroup, child._leaf.cgroup):
        reaper.at(child, now + _ESCAPE_LOOK, lambda now: _look_for_escape(reaper, child, now))
        return
    child._escaped = True
    child._note("escaped", f"its cgroup is {cgroup}")
    child._signalled.add(child.pid)
    signals.send(child._pidfd, signal.SIGKILL)


def begin_ladder(reaper: Reaper, child: Child, ladder: Ladder, now: float) -> None:
    """Start to end a run, or end it sooner than was planned; a later plan for the same run is ignored."""
    if child._ending.finished:
        return  # only its leaf is still to be removed
    if child._ladder is not None and child._ladder is not ladder:  # the same again: the step is repeated
        planned = child._ladder_since + child._ladder.kill
        if now + ladder.kill >= planned:
            return
    child._ladder, child._ladder_since = ladder, now
    _climb(reaper, child, now)


def _climb(reaper: Reaper, child: Child, now: float) -> None:
    ladder = child._ladder
    assert ladder is not None
    since = now - child._ladder_since
    step = due(ladder, since)
    if step == "give_up":
        _give_up(reaper, child, now)
        return
    if step == "kill":
        _kill(reaper, child, now)
    elif step == "term":
        pids = members.of(child)
        child._signalled.update(pids)
        child._note("term", f"{len(pids)} processes")
        child.resume()  # frozen, it could not even see the request
        members.ask_to_end(child, pids)
    following = next_at(ladder, since)
    if following is not None:
        reaper.at(child, child._ladder_since + following, lambda now: _still(reaper, child, ladder, now))


def _still(reaper: Reaper, child: Child, ladder: Ladder, now: float) -> None:
    if child._ladder is ladder and not child._ending.finished:
        _climb(reaper, child, now)


def _kill(reaper: Reaper, child: Child, now: float) -> None:
    """SIGKILL to all of it; before the first one, the intent says so and the victims are listed."""
    if child._status is None and child._intent is not None and not child._intent.killed:
        child._intent = child._intent._replace(killed=True)
    pids = members.of(child)
    child._signalled.update(pids)
    if child._kill_since is None:
        child._kill_since = now
        child._note("kill", f"{len(pids)} processes")
        _recheck(reaper, child, now, 0)
    members.kill_all(child, pids)


def _recheck(reaper: Reaper, child: Child, now: float, tries: int) -> None:
    """Look again soon: the kernel delays the news of an emptied leaf by up to 10 ms, and a fork that raced
    with the kill is killed again (G39)."""
    delay = _RECHECK[min(tries, len(_RECHECK) - 1)]
    reaper.at(child, now + delay, lambda now: _checked(reaper, child, now, tries + 1))


def _checked(reaper: Reaper, child: Child, now: float, tries: int) -> None:
    if child._status is not None:
        proceed(reaper, child, now)
    elif tries % len(_RECHECK) == 0:
        members.kill_all(child, members.of(child))
    if not child._done.is_set():
        _recheck(reaper, child, now, tries)


def proceed(reaper: Reaper, child: Child, now: float) -> None:
    """The command has ended: get on with what is left of its run."""
    if child._ending.finished:
        return  # its descriptors are closed; `_finished` has arranged to be called again
    if _left_over(reaper, child, now):
        return
    if child._emptied is None:
        child._emptied = now
    if not _drained(reaper, child, now):
        return
    _look(reaper, child)
    if child._ending.finished:
        _finished(reaper, child, now)


def _must_look_first(child: Child) -> bool:
    return bool(child._readings) or child._leaf is None or child._background == "wait"


def _left_over(reaper: Reaper, child: Child, now: float) -> bool:
    """Whether processes of the run are still alive; then they are named once, and killed or waited for."""
    if child._leaf is not None:
        if not populated(child._leaf.events_fd):
            return False
        pids = [pid for pid in members.of(child) if pid != child.pid]
    else:
        pids = [pid for pid in members.of(child) if pid != child.pid]
        if not pids:
            return False
    if child._named is None:
        child._named = left_behind.name_them(pids)
        child._left_count = max(len(pids), len(child._named))
        if child._background == "wait" and child._ladder is None and pids:
            child._note("waiting", f"{len(pids)} processes outlive the command")
    if child._background == "wait" and child._ladder is None:
        if child._leaf is None:
            reaper.at(child, now + 0.1, lambda now: proceed(reaper, child, now))
        return True
    if child._kill_since is None:
        if child._ladder is None:
            child._ladder, child._ladder_since = KILL_NOW, now
            reaper.at(child, now + KILL_NOW.give_up, lambda now: _give_up(reaper, child, now))
        _kill(reaper, child, now)
    elif now - child._kill_since > 0.02:
        members.kill_all(child, pids)
    if reaper.owns_process:
        reaper.reap_orphans()
    return True


def _drained(reaper: Reaper, child: Child, now: float) -> bool:
    """Whether captured output was read to its end, or time for it has run out."""
    open_ones = [reading for reading in child._readings.values() if not reading.at_end]
    if not open_ones:
        return True
    if child._drain_until is None:
        child._drain_until = now + DRAIN
        reaper.at(child, child._drain_until, lambda now: proceed(reaper, child, now))
    for reading in open_ones:
        if reading.sink is None and reading.fd >= 0:
            reading.read_ready()
            if reading.at_end:
                reaper.drop_stream(reading)
    if all(reading.at_end for reading in open_ones):
        return True
    if now < child._drain_until:
        if any(reading.sink is None for reading in open_ones):
            reaper.at(child, now + 0.002, lambda now: proceed(reaper, child, now))
        return False
    return True


def _finished(reaper: Reaper, child: Child, now: float) -> None:
    """Reaped. Remove what is left of the leaf, then report."""
    leaf = child._leaf
    removed: bool | None = None
    stuck: tuple[str, ...] = ()
    if leaf is not None:
        # Each zombie that was handed to this process counts against somebody's pids.max, and is nobody's to wait for.
        if not reaper.owns_process and child._adopting < _ADOPTING_TRIES:
            handed_over = bool(child._left_count or child._signalled - {child.pid})
            if orphans.reap_of(leaf.cgroup, expected=handed_over):
                child._adopting += 1
                reaper.at(child, now + 0.002, lambda now: _finished(reaper, child, now))
                return
        removed = child._ending.removed or not remove_tree(leaf.parent_fd, leaf.name)
        if not removed:
            if child._remove_until is None:
                child._remove_until = now + _REMOVE_FOR
            if now < child._remove_until:
                reaper.at(child, now + 0.005, lambda now: _finished(reaper, child, now))
                return
            stuck = tuple(
                f"{path}: {os.strerror(error)}" for path, error in remove_tree(leaf.parent_fd, leaf.name)
            )
        if not child._ending.removed:
            os.close(leaf.fd)
    if reaper.owns_process:
        _end_escaped(reaper, child)
    conclude.conclude(reaper, child, now, removed=removed, stuck=stuck)


def _end_escaped(reaper: Reaper, child: Child) -> None:
    """What left the leaf is a descendant still: as the only thing this process runs, it is found and killed."""
    reaper.reap_orphans()
    if len(reaper.tracked_pids() - {child.pid}) or not _has_children():
        return
    for _ in range(50):
        stats = proc.all_stats()
        below = members.descendants(stats, os.getpid()) - {child.pid, reaper.keeper.pid}
        alive = sorted(stat.pid for stat in stats if stat.pid in below and stat.state not in "ZX")
        if not alive:
            break
        fresh = [pid for pid in alive if pid not in child._signalled]
        if fresh:
            child._named = [*(child._named or []), *left_behind.name_them(fresh, escaped=True)]
            child._left_count += len(fresh)
            child._note("escaped", f"{len(fresh)} processes outside the leaf")
        child._signalled.update(alive)
        for pid in alive:
            _kill_descendant(pid)
        reaper.reap_orphans()


def _kill_descendant(pid: int) -> None:
    try:
        pidfd = signals.open_pidfd(pid)
    except OSError:
        return
    try:
        if pid in members.descendants(proc.all_stats(), os.getpid()):
            signals.send(pidfd, signal.SIGKILL)
    finally:
        os.close(pidfd)


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _give_up(reaper: Reaper, child: Child, now: float) -> None:
    """It cannot be ended: something sits in the kernel. Say what, and leave the leaf for the sweep."""
    pids = members.of(child)
    stuck = tuple(
        f"pid {stat.pid} ({stat.name}) in state {stat.state}" for pid in pids if (stat := proc.stat(pid))
    )
    child._note("stuck", f"{len(pids)} processes did not die of SIGKILL")
    reaper.give_up()
    conclude.conclude(reaper, child, now, removed=False if child._leaf else None, stuck=stuck or ("unknown",))


def abandon(reaper: Reaper, child: Child, why: str) -> None:
    """A defect of agentd's own: kill what can be killed, report the teardown as incomplete, and why."""
    try:
        members.kill_all(child, [])
    except Exception as error:
        why += f"\nand the kill: {error!r}"
    child._note("defect", why)
    reaper.give_up()
    conclude.conclude(
        reaper, child, time.monotonic(), removed=False if child._leaf else None, stuck=("a defect of agentd",)
    )
