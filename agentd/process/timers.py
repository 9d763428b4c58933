"""Deadlines in order. Cancelled ones hold no reference to what they were for."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

Action = Callable[[float], None]


class Timer:
    __slots__ = ("action", "at", "order")

    def __init__(self, at: float, order: int, action: Action) -> None:
        self.at = at
        self.order = order
        self.action: Action | None = action

    def __lt__(self, other: Timer) -> bool:
        return (self.at, self.order) < (other.at, other.order)

    def cancel(self) -> None:
        self.action = None


class Timers:
    """A heap of timers on the monotonic clock; the time is always an argument. Not thread-safe."""

    def __init__(self) -> None:
        self._heap: list[Timer] = []
        self._compact_at = 64
        self._order = itertools.count()

    def add(self, at: float, action: Action) -> Timer:
        """``action(now)`` is due at ``at`` (monotonic seconds)."""
        if len(self._heap) >= self._compact_at:
            # Twice what is left until the next time: the work is a constant for each timer.
            self._heap = [timer for timer in self._heap if timer.action is not None]
            heapq.heapify(self._heap)
            self._compact_at = 64 + 2 * len(self._heap)
        timer = Timer(at, next(self._order), action)
        heapq.heappush(self._heap, timer)
        return timer

    def next_at(self) -> float | None:
        while self._heap and self._heap[0].action is None:
            heapq.heappop(self._heap)
        return self._heap[0].at if self._heap else None

    def due(self, now: float) -> list[Action]:
        """What is due, taken out, earliest first."""
        actions = []
        while self._heap and (self._heap[0].action is None or self._heap[0].at <= now):
            action = heapq.heappop(self._heap).action
            if action is not None:
                actions.append(action)
        return actions
