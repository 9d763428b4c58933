from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.cgroup.duration import parse_duration
from agentd.errors import UsageError


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("250ms", 0.25),
        ("10s", 10),
        ("5m", 300),
        ("1h", 3600),
        ("1.5h", 5400),
        ("0.1", 0.1),
        ("2 m", 120),
        (" 3S ", 3),
        (7, 7),
        (0.5, 0.5),
        ("90M", 5400),
    ],
)
def test_a_duration(value: str | float, seconds: float) -> None:
    assert parse_duration(value) == seconds


@pytest.mark.parametrize(
    "value",
    [
        "",
        "0",
        "0ms",
        "-1",
        "-1s",
        "1d",
        "ms",
        "s",
        "1h30m",
        "1e3",
        "nan",
        "inf",
        "infinity",
        "1.s",
        0,
        -1,
        -0.0,
        math.nan,
        math.inf,
        True,
        None,
        b"1",
        10**400,
    ],
)
def test_what_is_no_duration(value: object) -> None:
    with pytest.raises(UsageError, match="is not a duration; give seconds"):
        parse_duration(value)  # type: ignore[arg-type]


@given(st.text() | st.integers() | st.floats() | st.none())
def test_only_a_usage_error_comes_out(value: object) -> None:
    try:
        seconds = parse_duration(value)  # type: ignore[arg-type]
    except UsageError:
        return
    assert 0 < seconds < math.inf


@given(st.floats(min_value=0.001, max_value=1e6).map(lambda number: round(number, 3)))
def test_the_same_as_text_and_as_a_number(seconds: float) -> None:
    assert parse_duration(f"{seconds:.3f}") == parse_duration(f"{seconds:.3f}s") == seconds
    assert parse_duration(f"{round(seconds * 1000)}ms") == pytest.approx(seconds, abs=1e-9)
