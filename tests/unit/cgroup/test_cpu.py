from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.cgroup.cpu import CpuMax, parse_cpu_max, parse_cpu_weight, parse_cpus
from agentd.errors import UsageError


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("1.5", "150000 100000"),
        (1.5, "150000 100000"),
        ("150%", "150000 100000"),
        (1, "100000 100000"),
        ("50%", "50000 100000"),
        ("0.5%", None),
        ("0.01", "1000 100000"),
        (0.1, "10000 100000"),
        ("50000 100000", "50000 100000"),
        (" 1000   1000000 ", "1000 1000000"),
        ("max", "max 100000"),
        ("MAX 50000", "max 50000"),
        ("12.5%", "12500 100000"),
    ],
)
def test_cpu_max(value: str | float, text: str | None) -> None:
    if text is None:
        with pytest.raises(UsageError, match="less than 1%"):
            parse_cpu_max(value)
    else:
        assert parse_cpu_max(value).text == text


@pytest.mark.parametrize(
    "value",
    [
        "",
        "0",
        0,
        "-1",
        -1,
        "1e2",
        "nan",
        math.nan,
        math.inf,
        True,
        None,
        "999 100000",
        "50000 999",
        "50000 1000001",
        "50000 100000 1",
        "a b",
        "max max",
        "1.5 100000",
        "50%%",
        "%",
        "50000",
        9000,
        "18446744073709551616 100000",
    ],
)
def test_what_is_no_cpu_max(value: object) -> None:
    with pytest.raises(UsageError):
        parse_cpu_max(value)  # type: ignore[arg-type]


def test_a_quota_without_its_period_is_not_taken_for_processors() -> None:
    with pytest.raises(UsageError, match="QUOTA PERIOD"):
        parse_cpu_max("50000")


@given(st.text() | st.integers() | st.floats() | st.none())
def test_only_a_usage_error_comes_out(value: Any) -> None:
    for parse in (parse_cpu_max, parse_cpu_weight, parse_cpus):
        try:
            parsed = parse(value)
        except UsageError:
            continue
        if isinstance(parsed, CpuMax):
            assert parsed.quota is None or parsed.quota >= 1000
            assert 1000 <= parsed.period <= 1_000_000


@given(st.none() | st.integers(1000, 2**44 - 1), st.integers(1000, 1_000_000))
def test_what_the_kernel_reads_back_is_taken_again(quota: int | None, period: int) -> None:
    assert parse_cpu_max(CpuMax(quota, period).text) == CpuMax(quota, period)


def test_a_weight() -> None:
    assert parse_cpu_weight(1) == 1
    assert parse_cpu_weight(" 10000 ") == 10_000


@pytest.mark.parametrize("value", [0, 10_001, "", "-1", "1.5", True, None, 1.0])
def test_what_is_no_weight(value: object) -> None:
    with pytest.raises(UsageError, match="from 1 to 10000"):
        parse_cpu_weight(value)  # type: ignore[arg-type]


@pytest.mark.parametrize(("value", "text"), [("0-3,8", "0-3,8"), ("0 - 3, 8", "0-3,8"), (2, "2"), ("5", "5")])
def test_processors(value: str | int, text: str) -> None:
    assert parse_cpus(value) == text


@pytest.mark.parametrize("value", ["", "a", "3-1", "1-", "-1", "1,,2", "1,", "99999", True, None, -1])
def test_what_is_no_list_of_processors(value: object) -> None:
    with pytest.raises(UsageError, match="list of processors"):
        parse_cpus(value)  # type: ignore[arg-type]
