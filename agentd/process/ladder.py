"""When a child that is to end gets which signal: a pure function of the ladder and the time since it began."""

from __future__ import annotations

from typing import NamedTuple


class Ladder(NamedTuple):
    """Seconds from the start. ``term`` None: no request to end, straight to SIGKILL at ``kill``. At
    ``give_up`` the teardown is incomplete: what is stuck in the kernel is reported and left to the sweep."""

    term: float | None
    kill: float
    give_up: float

    @classmethod
    def with_grace(cls, grace: float) -> Ladder:
        """TERM at once, KILL after ``grace`` seconds, ten more for the kernel to empty the leaf."""
        return cls(0.0 if grace > 0 else None, max(0.0, grace), max(0.0, grace) + 10.0)


KILL_NOW = Ladder(None, 0.0, 10.0)

STEPS = ("term", "kill", "give_up")


def due(ladder: Ladder, since: float) -> str | None:
    """The latest step that is due ``since`` seconds after the start, None before the first."""
    latest = None
    for step in STEPS:
        at = getattr(ladder, step)
        if at is not None and since >= at:
            latest = step
    return latest


def next_at(ladder: Ladder, since: float) -> float | None:
    """Seconds from the start at which the next step is due, None after the last."""
    later = [at for step in STEPS if (at := getattr(ladder, step)) is not None and at > since]
    return min(later, default=None)
