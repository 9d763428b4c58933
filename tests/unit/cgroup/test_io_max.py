from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.cgroup.io_max import KEYS, IoMax, in_force, parse_io_max
from agentd.errors import UsageError


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ("8:0 wbps=10M", "8:0 wbps=10485760"),
        ("8:16 rbps=1.5K riops=120 wiops=max", "8:16 rbps=1536 riops=120 wiops=max"),
        ("/dev/sda  wbps=4096", "259:1 wbps=4096"),
        ("008:01 wbps=4096", "8:1 wbps=4096"),
    ],
)
def test_an_entry(entry: str, text: str) -> None:
    parsed = parse_io_max(entry)
    assert parsed.text("259:1" if parsed.device.startswith("/") else parsed.device) == text


@pytest.mark.parametrize(
    "entry",
    [
        "",
        "8:0",
        "sda wbps=1",
        "8 wbps=1",
        "8: wbps=1",
        "a:b wbps=1",
        "8:0 wbps",
        "8:0 wbps=",
        "8:0 wbps=0",
        "8:0 wbps=-1",
        "8:0 wbps=50%",
        "8:0 wiops=1K",
        "8:0 wiops=4294967296",
        "8:0 bps=1",
        "8:0 wbps=1 wbps=2",
        None,
        5,
    ],
)
def test_what_is_no_entry(entry: object) -> None:
    with pytest.raises(UsageError, match=r"rbps= wbps="):
        parse_io_max(entry)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("asked", "read_back", "expected"),
    [
        ("8:0 wbps=1024", "8:0 rbps=max wbps=1024 riops=max wiops=max\n", True),
        ("8:0 wbps=1024 riops=max", "8:0 rbps=max wbps=1024 riops=max wiops=max\n", True),
        ("8:0 wbps=1024", "8:0 rbps=max wbps=2048 riops=max wiops=max\n", False),
        ("8:0 wbps=1024", "8:1 rbps=max wbps=1024 riops=max wiops=max\n", False),
        ("8:0 wbps=1024", "", False),
        ("8:0 wbps=max", "", True),
        ("8:0 wbps=1024", "garbage = \n8:0 = x wbps\n", False),
    ],
)
def test_whether_an_entry_is_in_force(asked: str, read_back: str, expected: bool) -> None:
    assert in_force(asked, read_back) is expected


RATES = st.dictionaries(st.sampled_from(KEYS), st.none() | st.integers(1, 2**32 - 1), min_size=1)


@given(st.integers(0, 4095), st.integers(0, 2**20 - 1), RATES)
def test_text_and_back(major: int, minor: int, rates: dict[str, int | None]) -> None:
    entry = IoMax(f"{major}:{minor}", tuple(rates.items()))
    assert parse_io_max(entry.text(entry.device)) == entry


@given(st.text(), st.text())
def test_nothing_but_usage_errors(entry: str, read_back: str) -> None:
    try:
        parsed = parse_io_max(entry)
    except UsageError:
        return
    in_force(parsed.text("8:0"), read_back)


@given(st.text())
def test_any_text_read_back(read_back: str) -> None:
    in_force("8:0 wbps=1024 riops=5", read_back)
