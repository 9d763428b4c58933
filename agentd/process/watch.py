"""The supervisor's own limits of time: wall clock, the leaf's processor time, silence."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from agentd.process import clocks

if TYPE_CHECKING:
    from agentd.process.child import Child
    from agentd.process.reaper import Reaper


def start(reaper: Reaper, child: Child) -> None:
    """Arm the clocks that the child's limits ask for."""
    limits = child.limits
    if limits.wall is not None:
        reaper.at(child, child._started + limits.wall, lambda now: _end(reaper, child, "deadline"))
    if limits.cpu_time is not None and child._leaf is not None:
        when = clocks.next_cpu_look(0.0, limits.cpu_time, os.cpu_count() or 1, child._started)
        reaper.at(child, when, partial(_look_at_cpu, reaper, child, limits.cpu_time))
    if limits.idle is not None:
        when = clocks.next_idle_look(child._started, limits.idle)
        reaper.at(child, when, partial(_look_at_silence, reaper, child, limits.idle))


def _end(reaper: Reaper, child: Child, cause: str) -> None:
    child.stop(cause)


def _look_at_cpu(reaper: Reaper, child: Child, limit: float, now: float) -> None:
    used = _used_cpu(child)
    if used >= limit:
        _end(reaper, child, "cpu")
        return
    when = clocks.next_cpu_look(used, limit, os.cpu_count() or 1, now)
    reaper.at(child, when, partial(_look_at_cpu, reaper, child, limit))


def _used_cpu(child: Child) -> float:
    assert child._leaf is not None
    try:
        fd = os.open("cpu.stat", os.O_RDONLY | os.O_CLOEXEC, dir_fd=child._leaf.fd)
    except OSError:
        return 0.0
    try:
        return clocks.cpu_seconds(os.read(fd, 4096).decode()) or 0.0
    finally:
        os.close(fd)


def _look_at_silence(reaper: Reaper, child: Child, idle: float, now: float) -> None:
    when = clocks.next_idle_look(child._last_output, idle)
    if when <= now:
        _end(reaper, child, "idle")
    else:
        reaper.at(child, when, partial(_look_at_silence, reaper, child, idle))
