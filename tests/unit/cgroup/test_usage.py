from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agentd.cgroup.usage import (
    CURRENT_FILES,
    USAGE_FILES,
    frozen,
    parse_flat,
    parse_io_stat,
    parse_pressure,
    parse_usage,
    populated,
    usage_files,
)

# As Linux 6.1 and 6.18 write them.
EVENTS = "low 0\nhigh 3\nmax 67\noom 2\noom_kill 1\noom_group_kill 0\nsock_throttled 0\n"
CPU_STAT = (
    "usage_usec 123456\nuser_usec 100000\nsystem_usec 23456\ncore_sched.force_idle_usec 0\n"
    "nr_periods 10\nnr_throttled 4\nthrottled_usec 5000\nnr_bursts 0\nburst_usec 0\n"
)
PRESSURE = (
    "some avg10=1.53 avg60=0.87 avg300=0.73 total=1744\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=17\n"
)
IO_STAT = (
    "254:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n"
    "8:0 rbytes=1 wbytes=1 rios=1 wios=1 dbytes=0 dios=0\n"
)


def test_everything() -> None:
    texts = {
        "memory.peak": "1048576\n",
        "memory.swap.peak": "4096\n",
        "memory.current": "8192\n",
        "memory.swap.current": "0\n",
        "memory.events": EVENTS,
        "memory.events.local": EVENTS.replace("67", "60"),
        "pids.peak": "12\n",
        "pids.current": "0\n",
        "pids.events": "max 5\n",
        "pids.events.local": "max 4\n",
        "cpu.stat": CPU_STAT,
        "io.stat": IO_STAT,
        "cpu.pressure": PRESSURE,
        "memory.pressure": PRESSURE,
        "io.pressure": PRESSURE,
    }
    assert set(texts) == {*USAGE_FILES, *CURRENT_FILES}
    events = {"oom": 2, "oom_kill": 1, "oom_group_kill": 0, "high_hits": 3, "low_hits": 0}
    pressure = {"some_us": 1744, "full_us": 17}
    assert parse_usage(texts) == {
        "memory": {
            "peak": 1048576,
            "swap_peak": 4096,
            "current": 8192,
            "swap_current": 0,
            **events,
            "max_hits": 67,
            "local": {**events, "max_hits": 60},
        },
        "pids": {"peak": 12, "current": 0, "max_hits": 5, "max_hits_local": 4},
        "cpu": {
            "usage_us": 123456,
            "user_us": 100000,
            "system_us": 23456,
            "nr_periods": 10,
            "nr_throttled": 4,
            "throttled_us": 5000,
        },
        "io": {
            "rbytes": 4097,
            "wbytes": 8193,
            "rios": 2,
            "wios": 3,
            "devices": {
                "254:0": {"rbytes": 4096, "wbytes": 8192, "rios": 1, "wios": 2},
                "8:0": {"rbytes": 1, "wbytes": 1, "rios": 1, "wios": 1},
            },
        },
        "pressure": {"cpu": pressure, "memory": pressure, "io": pressure},
    }


def test_what_a_kernel_lacks_is_absent() -> None:
    assert parse_usage({}) == {}
    assert parse_usage({"cpu.stat": "usage_usec 1\nuser_usec 1\nsystem_usec 0\n"}) == {
        "cpu": {"usage_us": 1, "user_us": 1, "system_us": 0}
    }
    assert parse_usage({"memory.events": "oom 0\n"}) == {"memory": {"oom": 0}}


def test_no_io_is_zero_only_where_it_is_counted() -> None:
    zero = {"rbytes": 0, "wbytes": 0, "rios": 0, "wios": 0, "devices": {}}
    assert parse_usage({"io.stat": ""}) == {"io": zero}
    # A device without a limit and without use is listed bare by some kernels.
    assert parse_io_stat("8:0 \n8:16\n") == zero


def test_garbage_is_passed_over() -> None:
    garbage = "oom x\noom_kill -1\nhigh 1 2\nmax\n\n 5\nlow 1_0\noom_group_kill ٣\n"
    assert parse_usage({name: garbage for name in USAGE_FILES if name != "io.stat"}) == {}
    assert parse_usage({"memory.peak": "9" * 5000, "pids.peak": "max\n"}) == {}


def test_a_new_key_and_the_order_do_not_matter() -> None:
    assert parse_flat("b 2\nnew.key 7\na 1\n") == {"a": 1, "b": 2, "new.key": 7}


def test_pressure_with_full_alone() -> None:
    assert parse_pressure("full avg10=0.00 avg60=0.00 avg300=0.00 total=9") == {"full_us": 9}


def test_flags() -> None:
    assert populated("populated 1\nfrozen 0\n") is True
    assert frozen("populated 1\nfrozen 0\n") is False
    assert populated("") is None
    assert frozen("populated 1\n") is None
    assert populated("populated x\n") is None


def test_files_of_a_leaf_without_controllers() -> None:
    assert usage_files(frozenset()) == ("cpu.stat", "cpu.pressure", "memory.pressure", "io.pressure")
    assert usage_files(frozenset({"memory", "pids", "io", "cpu"})) == USAGE_FILES


@given(st.dictionaries(st.sampled_from([*USAGE_FILES, *CURRENT_FILES]), st.text()))
def test_any_text(texts: dict[str, str]) -> None:
    parse_usage(texts)
    for text in texts.values():
        populated(text)


KEYS = ("usage_usec", "user_usec", "system_usec")


@given(st.lists(st.integers(0, 2**64 - 1), min_size=3, max_size=3))
def test_numbers_come_through(numbers: list[int]) -> None:
    text = "".join(f"{key} {number}\n" for key, number in zip(KEYS, numbers, strict=True))
    assert list(parse_usage({"cpu.stat": text})["cpu"].values()) == numbers
