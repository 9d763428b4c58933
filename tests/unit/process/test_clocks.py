"""When the limits of time are next to be looked at."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.process import clocks


@given(limit=st.floats(0.001, 1e6), cpus=st.integers(1, 512), share=st.floats(0, 1), now=st.floats(0, 1e9))
def test_the_limit_cannot_have_been_passed_by_much_at_the_next_look(
    limit: float, cpus: int, share: float, now: float
) -> None:
    """All processors busy since, it is overrun by at most what fits between two looks."""
    used = limit * share
    then = clocks.next_cpu_look(used, limit, cpus, now)
    assert then >= now + clocks.SOONEST or then == pytest.approx(now + clocks.SOONEST)
    passed = then - now
    assert used + cpus * passed <= limit + cpus * (clocks.SOONEST + 1e-6 * (1 + now) + 1e-9 * limit)


@pytest.mark.parametrize("used", [1.0, 1.5, 1e9])
def test_a_limit_that_is_passed_is_looked_at_soon(used: float) -> None:
    assert clocks.next_cpu_look(used, 1.0, 0, 10.0) == 10.0 + clocks.SOONEST


def test_silence_counts_from_the_last_output() -> None:
    assert clocks.next_idle_look(100.0, 5.0) == 105.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("usage_usec 1500000\nuser_usec 1\nsystem_usec 2\n", 1.5),
        ("user_usec 1\nusage_usec 0", 0.0),
        ("", None),
        ("usage_usec\n", None),
        ("usage_usec x\n", None),
        ("usage_usec -5\n", None),
    ],
)
def test_processor_time_of_a_leaf(text: str, seconds: float | None) -> None:
    assert clocks.cpu_seconds(text) == seconds
