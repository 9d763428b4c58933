"""Naming who is left: bounded, and readable whatever they call themselves."""

from __future__ import annotations

import os

from hypothesis import given
from hypothesis import strategies as st

from agentd.process.left_behind import NAMED, _cut, name_them

LIMIT = 1000


@given(st.lists(st.text(max_size=700), max_size=20))
def test_arguments_are_cut_and_the_cut_is_shown(argv: list[str]) -> None:
    kept = list(_cut(argv))
    whole = sum(map(len, argv))
    shown = kept[:-1] if kept != argv and kept[-1:] == ["…"] else kept
    assert sum(map(len, shown)) <= LIMIT
    assert all(given.startswith(one) for one, given in zip(shown, argv, strict=False))
    if whole < LIMIT:
        assert kept == argv


def test_the_count_of_names_is_bounded() -> None:
    assert len(name_them([os.getpid()] * (NAMED + 50))) == NAMED


def test_who_is_gone_is_passed_over() -> None:
    assert name_them([0, 2**22 + 1]) == []


def test_what_is_told_of_a_process() -> None:
    (one,) = name_them([os.getpid()], escaped=True)
    assert one.pid == os.getpid()
    assert one.session == os.getsid(0)
    assert one.escaped
    assert one.age >= 0
    assert set(one.to_dict()) == {"pid", "name", "argv", "age", "state", "session", "escaped"}
