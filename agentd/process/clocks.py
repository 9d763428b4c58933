"""When the supervisor's own limits of time are next to be looked at. Pure: the time is an argument."""

from __future__ import annotations

SOONEST = 0.01
"""Seconds between two looks at a leaf's processor time, at the least."""


def next_cpu_look(used: float, limit: float, cpus: int, now: float) -> float:
    """The earliest time at which ``limit`` seconds of processor time can be used up, all ``cpus`` busy."""
    return now + max(SOONEST, (limit - used) / max(1, cpus))


def next_idle_look(last_output: float, idle: float) -> float:
    """When the child has been silent for ``idle`` seconds, unless it writes before."""
    return last_output + idle


def cpu_seconds(text: str) -> float | None:
    """The processor time of a leaf in seconds from its cpu.stat, None if it does not say."""
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key == "usage_usec" and value.isdigit():
            return int(value) / 1e6
    return None
