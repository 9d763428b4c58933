"""When a child that is to end gets which signal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.process.ladder import KILL_NOW, Ladder, due, next_at

FIVE = Ladder.with_grace(5)


@pytest.mark.parametrize(
    ("ladder", "since", "step"),
    [
        (FIVE, 0.0, "term"),
        (FIVE, 4.999, "term"),
        (FIVE, 5.0, "kill"),
        (FIVE, 14.9, "kill"),
        (FIVE, 15.0, "give_up"),
        (KILL_NOW, 0.0, "kill"),
        (KILL_NOW, 10.0, "give_up"),
        (Ladder.with_grace(0), 0.0, "kill"),
        (Ladder.with_grace(-3), 0.0, "kill"),
        (FIVE, -1.0, None),
    ],
)
def test_due(ladder: Ladder, since: float, step: str | None) -> None:
    assert due(ladder, since) == step


def test_no_grace_is_no_request() -> None:
    assert Ladder.with_grace(0) == KILL_NOW


@given(grace=st.floats(0, 1e6), since=st.floats(0, 2e6))
def test_the_steps_only_ever_rise_and_the_next_is_always_told(grace: float, since: float) -> None:
    ladder = Ladder.with_grace(grace)
    order = [None, "term", "kill", "give_up"]
    following = next_at(ladder, since)
    if following is None:
        assert due(ladder, since) == "give_up"
    else:
        assert following > since
        assert order.index(due(ladder, following)) > order.index(due(ladder, since))
