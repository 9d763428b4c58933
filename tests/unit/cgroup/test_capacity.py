from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agentd.cgroup.capacity import parse_meminfo, smallest


def test_the_smallest_finite_limit() -> None:
    assert smallest([], 100) == 100
    assert smallest(["max\n", "", "garbage", "-1", "9" * 5000], 100) == 100
    assert smallest(["max\n", "50\n", "70\n"], 100) == 50
    assert smallest(["5000\n"], 100) == 100


def test_meminfo() -> None:
    text = "MemTotal:   1003464 kB\nMemFree:          1 kB\nSwapTotal:   512 kB\nHugePages_Total:       0\n"
    assert parse_meminfo(text) == {"memory": 1003464 * 1024, "swap": 512 * 1024}
    assert parse_meminfo("") == {"memory": 0, "swap": 0}


@given(st.text(), st.lists(st.text()))
def test_any_text(meminfo: str, limits: list[str]) -> None:
    parse_meminfo(meminfo)
    assert 0 <= smallest(limits, 10**18) <= 10**18
