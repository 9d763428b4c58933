"""Whether a run is stuck under its memory.high: the kernel never kills for it, it only lets nothing happen.

Pure: what is looked at is a pair of samples. A program that works near its limit makes the same ``high``
events as one that stands still, so these alone say nothing (G58).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from agentd.cgroup.usage import parse_flat, parse_pressure

LOOK_EVERY = 1.0
"""Seconds between two samples of a run with a memory.high."""

STUCK_FOR = 10.0
"""Seconds of no progress after which a run is ended."""

SURE_AFTER = 2.0
"""Seconds that two samples must lie apart to say anything."""

_NEAR = 0.9
_STALLED = 0.8
_HELD = 0.8
_WORKING = 0.5

FILES = ("memory.events", "memory.current", "memory.pressure", "memory.stat", "cpu.stat")


class Sample(NamedTuple):
    """At ``at`` (monotonic seconds): ``high`` events so far, bytes in use, and of them those that only swap
    could take (``held``); microseconds in which everything was stalled on memory, None without PSI; and of
    processor time."""

    at: float
    high: int
    current: int
    held: int
    stalled_us: int | None
    cpu_us: int


def sample(texts: Mapping[str, str], at: float) -> Sample:
    """From the texts of `FILES` that could be read."""
    stat = parse_flat(texts.get("memory.stat", ""))
    pressure = texts.get("memory.pressure")
    return Sample(
        at,
        parse_flat(texts.get("memory.events", "")).get("high", 0),
        int(texts.get("memory.current", "0").strip() or 0),
        stat.get("anon", 0) + stat.get("shmem", 0),
        None if pressure is None else parse_pressure(pressure).get("full_us"),
        parse_flat(texts.get("cpu.stat", "")).get("usage_usec", 0),
    )


def no_progress(first: Sample, last: Sample, memory_high: int) -> bool:
    """Whether nothing but waiting for memory happened between the two.

    With PSI: everything was stalled for most of the time. Without: the memory is of a kind that cannot be
    reclaimed (a program that reads files near its limit goes on), and hardly any processor time was used.
    """
    span = (last.at - first.at) * 1e6
    if span < SURE_AFTER * 1e6 or last.high <= first.high or last.current < _NEAR * memory_high:
        return False
    if first.stalled_us is not None and last.stalled_us is not None:
        return last.stalled_us - first.stalled_us >= _STALLED * span
    return last.held >= _HELD * memory_high and last.cpu_us - first.cpu_us < _WORKING * span


def kept(samples: list[Sample], now: float) -> list[Sample]:
    """The samples that still matter: those of the last `STUCK_FOR` seconds, and one before."""
    old = [one for one in samples if now - one.at >= STUCK_FOR]
    return old[-1:] + [one for one in samples if now - one.at < STUCK_FOR]
