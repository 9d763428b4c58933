"""Deadlines in order. Cancelled ones hold no reference to what they were for."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable

Action = Callable[[float], None]

_COMPACT_FROM = 128


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
    """A heap of timers on the monotonic clock; the time is always an argument. Any thread may add one.

    The sleeper calls `sleep_until` before it sleeps and `awake` after; `add` says whether it is to be woken.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._heap: list[Timer] = []
        self._count = 0
        self._compact_at = _COMPACT_FROM
        self._sleeping_until = float("-inf")

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, at: float, action: Action) -> tuple[Timer, bool]:
        """``action(now)`` is due at ``at`` (monotonic seconds). True: it is due before the sleeper wakes."""
        with self._lock:
            if len(self._heap) >= self._compact_at:
                self._heap = [timer for timer in self._heap if timer.action is not None]
                heapq.heapify(self._heap)
                self._compact_at = max(_COMPACT_FROM, 2 * len(self._heap))
            self._count += 1
            timer = Timer(at, self._count, action)
            heapq.heappush(self._heap, timer)
            return timer, at < self._sleeping_until

    def sleep_until(self) -> float | None:
        """When the next timer is due, None if there is none: how long the sleeper may sleep."""
        with self._lock:
            while self._heap and self._heap[0].action is None:
                heapq.heappop(self._heap)
            at = self._heap[0].at if self._heap else None
            self._sleeping_until = float("inf") if at is None else at
            return at

    def awake(self) -> None:
        self._sleeping_until = float("-inf")

    def due(self, now: float) -> list[Action]:
        """What is due, taken out, earliest first."""
        actions = []
        with self._lock:
            while self._heap and (self._heap[0].action is None or self._heap[0].at <= now):
                timer = heapq.heappop(self._heap)
                if timer.action is not None:
                    actions.append(timer.action)
                    timer.cancel()
        return actions
