"""Deadlines in order; what was cancelled is forgotten."""

from __future__ import annotations

import gc
import weakref

from hypothesis import given
from hypothesis import strategies as st

from agentd.process.timers import Timers


def sleep_until(timers: Timers) -> float | None:
    at = timers.sleep_until()
    timers.awake()
    return at


@given(st.lists(st.tuples(st.integers(0, 20), st.booleans())))
def test_what_is_due_comes_in_order_and_what_was_cancelled_never(asked: list[tuple[int, bool]]) -> None:
    timers = Timers()
    told: list[tuple[int, int]] = []
    expected = []
    for number, (at, cancelled) in enumerate(asked):
        timer, _ = timers.add(at, lambda _now, at=at, number=number: told.append((at, number)))  # type: ignore[misc]
        if cancelled:
            timer.cancel()
        else:
            expected.append((at, number))
    assert sleep_until(timers) == min((at for at, _ in expected), default=None)
    for now in (5, 20):
        for action in timers.due(now):
            action(now)
        assert told == sorted(one for one in expected if one[0] <= now)
    assert sleep_until(timers) is None


def test_adding_tells_whether_the_sleeper_is_to_be_woken() -> None:
    timers = Timers()
    assert timers.add(5, print)[1] is False
    assert timers.sleep_until() == 5
    assert timers.add(6, print)[1] is False
    assert timers.add(4, print)[1] is True
    timers.awake()
    assert timers.add(1, print)[1] is False


def test_a_sleeper_without_a_deadline_is_woken_by_any() -> None:
    timers = Timers()
    assert timers.sleep_until() is None
    assert timers.add(1e12, print)[1] is True


def test_cancelled_timers_take_no_room() -> None:
    """100,000 runs whose deadline never came, beside 1,000 that wait: neither room nor time for the dead."""
    timers = Timers()
    for number in range(1000):
        timers.add(1e9 + number, print)
    most = 0
    for number in range(100_000):
        timers.add(1e6 + number, print)[0].cancel()
        most = max(most, len(timers))
    assert most <= 2 * 1000 + 128


def test_a_cancelled_timer_lets_go_of_what_it_was_for() -> None:
    class Run:
        def end(self, now: float) -> None:
            """Due."""

    run = Run()
    gone = weakref.ref(run)
    timers = Timers()
    timer, _ = timers.add(1, run.end)
    timer.cancel()
    del run
    gc.collect()
    assert gone() is None


def test_an_action_may_add_another() -> None:
    timers = Timers()
    timers.add(1, lambda now: timers.add(now, print) and None)
    for action in timers.due(1):
        action(1)
    assert len(timers.due(1)) == 1
