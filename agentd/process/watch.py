"""The supervisor's own limits of time: wall clock, the leaf's processor time, silence; and the look at a leaf
that its memory.high may have brought to a standstill."""

from __future__ import annotations

import os
import time
from functools import partial
from typing import TYPE_CHECKING

from agentd.cgroup import control
from agentd.process import clocks
from agentd.process.report import limits_report

if TYPE_CHECKING:
    from agentd.process.child import Child
    from agentd.process.reaper import Reaper
    from agentd.process.throttle import Sample


def start(reaper: Reaper, child: Child) -> None:
    """Arm the clocks that the child's limits ask for."""
    limits = child.limits
    if limits.wall is not None:
        reaper.at(child, child._started + limits.wall, partial(_look_at_wall, reaper, child, limits.wall))
    if limits.cpu_time is not None and child._leaf is not None:
        when = clocks.next_cpu_look(0.0, limits.cpu_time, os.cpu_count() or 1, child._started)
        reaper.at(child, when, partial(_look_at_cpu, reaper, child, limits.cpu_time))
    if limits.idle is not None:
        when = clocks.next_idle_look(child._started, limits.idle)
        reaper.at(child, when, partial(_look_at_silence, reaper, child, limits.idle))
    if limits.memory_high is not None and (high := _memory_high(child)) is not None:
        child._memory_high = high
        reaper.at(child, child._started, partial(_look_at_progress, reaper, child, high))


def go_on(reaper: Reaper, child: Child, now: float) -> None:
    """After a pause: the clocks that stood still were passed over."""
    limits = child.limits
    if limits.wall is not None:
        reaper.at(child, now, partial(_look_at_wall, reaper, child, limits.wall))
    if limits.idle is not None:
        reaper.at(child, now, partial(_look_at_silence, reaper, child, limits.idle))


def _look_at_wall(reaper: Reaper, child: Child, limit: float, now: float) -> None:
    if child._paused_at is not None:
        return
    when = child._started + child._paused + limit
    if now >= when:
        child.stop("throttled" if _stands_still(child) else "deadline")
    else:
        reaper.at(child, when, partial(_look_at_wall, reaper, child, limit))


def _look_at_cpu(reaper: Reaper, child: Child, limit: float, now: float) -> None:
    used = _used_cpu(child)
    if used >= limit:
        child.stop("cpu")
        return
    when = clocks.next_cpu_look(used, limit, os.cpu_count() or 1, now)
    reaper.at(child, when, partial(_look_at_cpu, reaper, child, limit))


def _used_cpu(child: Child) -> float:
    assert child._leaf is not None
    return clocks.cpu_seconds(control.read_or(child._leaf.fd, "cpu.stat", "")) or 0.0


def _look_at_silence(reaper: Reaper, child: Child, idle: float, now: float) -> None:
    if child._paused_at is not None:
        return
    when = clocks.next_idle_look(child._last_output, idle)
    if when <= now:
        child.stop("idle")
    else:
        reaper.at(child, when, partial(_look_at_silence, reaper, child, idle))


def _look_at_progress(reaper: Reaper, child: Child, high: int, now: float) -> None:
    from agentd.process import throttle  # few runs have a memory.high

    if child._paused_at is not None:
        child._samples.clear()
    else:
        child._samples = [*throttle.kept(child._samples, now), _sample(child)]
        first, last = child._samples[0], child._samples[-1]
        if last.at - first.at >= throttle.STUCK_FOR and throttle.no_progress(first, last, high):
            child.stop("throttled")
            return
    reaper.at(child, now + throttle.LOOK_EVERY, partial(_look_at_progress, reaper, child, high))


def _stands_still(child: Child) -> bool:
    """Whether it would have gone on standing still under its memory.high, had its deadline not come."""
    from agentd.process import throttle  # few runs have a memory.high

    if not child._samples or child._memory_high is None:
        return False
    return throttle.no_progress(child._samples[0], _sample(child), child._memory_high)


def _sample(child: Child) -> Sample:
    from agentd.process import throttle  # few runs have a memory.high

    assert child._leaf is not None
    texts = {}
    for file in throttle.FILES:
        try:
            texts[file] = control.read(child._leaf.fd, file)
        except OSError:
            continue
    return throttle.sample(texts, time.monotonic())


def _memory_high(child: Child) -> int | None:
    """The memory.high in force, in bytes; None where there is none."""
    attempt = child._attempt
    value = limits_report(child.limits, attempt.plan, attempt.failed).in_force.get("memory_high")
    return int(value) if isinstance(value, str) and value.isdigit() else None
