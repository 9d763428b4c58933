from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.cgroup.amount import LARGEST_SIZE, MAX, Amount, decimal, parse_count, parse_size, shown
from agentd.errors import UsageError


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0),
        (4096, 4096),
        ("4096", 4096),
        ("10M", 10 << 20),
        ("10m", 10 << 20),
        ("1K", 1024),
        ("1kB", 1024),
        ("1KiB", 1024),
        ("1kib", 1024),
        ("3 G", 3 << 30),
        ("  2T ", 2 << 40),
        ("1.5G", 3 << 29),
        ("0.1K", 102),
        ("100B", 100),
        (".5M", 1 << 19),
        (LARGEST_SIZE, LARGEST_SIZE),
    ],
)
def test_a_size(value: str | int, expected: int) -> None:
    assert parse_size(value) == Amount(expected)


def test_no_bound() -> None:
    assert parse_size("max") == parse_size(" MAX ") == parse_count("max") == MAX
    assert MAX.of(100) is None


@pytest.mark.parametrize(
    ("value", "whole", "expected"),
    [("25%", 1000, 250), ("100%", 7, 7), ("0.5%", 1000, 5), ("33.3 %", 1000, 333), ("1%", 50, 0)],
)
def test_a_share(value: str, whole: int, expected: int) -> None:
    assert parse_size(value).of(whole) == expected
    assert parse_count(value).of(whole) == expected


BAD = [
    "",
    " ",
    "-1",
    "+1",
    "1.",
    "1.2.3",
    "1e3",
    "nan",
    "inf",
    "G",
    "1X",
    "1iB",
    "1GG",
    "1 2",
    "0x10",
    "1_000",
    "٣",
]


@pytest.mark.parametrize(
    "value", [*BAD, "%", "101%", "0%", "-5%", -1, True, None, 1.5, float("nan"), b"1", []]
)
def test_what_is_no_size(value: object) -> None:
    with pytest.raises(UsageError) as caught:
        parse_size(value)  # type: ignore[arg-type]
    assert len(caught.value.problems) == 1
    assert "give" in str(caught.value)


@pytest.mark.parametrize("value", [2**63, "9223372036854775808", "8388608T", "9" * 40])
def test_a_size_that_would_wrap(value: str | int) -> None:
    with pytest.raises(UsageError, match="more than the kernel can count"):
        parse_size(value)


@pytest.mark.parametrize("value", [*BAD, "0", 0, -1, True, None, 1.0, "1.5", "10M", 4_194_305, "4194305"])
def test_what_is_no_count(value: object) -> None:
    with pytest.raises(UsageError):
        parse_count(value)  # type: ignore[arg-type]


def test_a_count() -> None:
    assert parse_count("64") == parse_count(64) == Amount(64)
    assert parse_count(4_194_304) == Amount(4_194_304)


def test_a_long_value_is_shortened_in_messages() -> None:
    assert len(shown("x" * 10_000)) <= 60
    assert "\n" not in shown("a\nb")


UNITS = {"": 0, "K": 10, "k": 10, "MB": 20, "GiB": 30, "t": 40}


@given(st.integers(0, 2**50), st.integers(0, 6), st.sampled_from(sorted(UNITS)))
def test_any_decimal_is_converted_exactly(digits: int, places: int, unit: str) -> None:
    text = f"{digits:0{places + 1}d}"
    text = f"{text[:-places]}.{text[-places:]}" if places else text
    exact = Fraction(digits, 10**places) * 2 ** UNITS[unit]
    if exact <= LARGEST_SIZE:
        assert parse_size(text + unit).number == exact.__floor__()


@given(st.text() | st.integers() | st.floats() | st.none() | st.binary())
def test_only_a_usage_error_comes_out(value: Any) -> None:
    for parse in (parse_size, parse_count):
        try:
            amount = parse(value)
        except UsageError:
            continue
        found = amount.of(2**40)
        assert found is None or 0 <= found <= LARGEST_SIZE


@given(st.text("0123456789."))
def test_a_plain_decimal(text: str) -> None:
    found = decimal(text)
    if found is not None:
        assert Fraction(*found) == Fraction(text)
