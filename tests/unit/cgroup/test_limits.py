from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.cgroup.limits import FIELD_FILES, Limits, file_problem
from agentd.errors import UsageError


def test_nothing_asked() -> None:
    assert Limits().asked() == {}
    assert not Limits().for_leaf
    assert repr(Limits()) == "Limits()"


def test_everything_asked() -> None:
    limits = Limits(
        memory_max="512M",
        memory_high=1 << 28,
        memory_swap_max="max",
        memory_oom_group=True,
        pids_max=64,
        cpu_max=1.5,
        cpu_weight=50,
        io_max=["8:0 wbps=1M", "8:16 riops=5"],
        cpuset_cpus="0-1",
        files={"memory.low": "10%", "hugetlb.2MB.max": 0},
        wall="5m",
        cpu_time=1,
        idle="250ms",
    )
    assert limits.asked() == {
        "memory_max": "512M",
        "memory_high": "268435456",
        "memory_swap_max": "max",
        "memory_oom_group": "1",
        "pids_max": "64",
        "cpu_max": "1.5",
        "cpu_weight": "50",
        "io_max": "8:0 wbps=1M, 8:16 riops=5",
        "cpuset_cpus": "0-1",
        "hugetlb.2MB.max": "0",
        "memory.low": "10%",
        "wall": 300.0,
        "cpu_time": 1.0,
        "idle": 0.25,
    }
    assert limits.for_leaf


@pytest.mark.parametrize("field", ["wall", "cpu_time", "idle"])
def test_a_time_is_no_limit_of_the_leaf(field: str) -> None:
    fields: dict[str, Any] = {field: 5}
    assert not Limits(**fields).for_leaf


@pytest.mark.parametrize("field", sorted(FIELD_FILES))
def test_any_other_field_is(field: str) -> None:
    value: Any = {"io_max": "8:0 wbps=1", "memory_oom_group": False, "memory_max": 1 << 20}.get(field, 1)
    assert Limits(**{field: value}).for_leaf


def test_immutable_and_a_key() -> None:
    limits = Limits(pids_max=5, files={"memory.low": "1M"})
    with pytest.raises(AttributeError):
        limits.pids_max = 6
    assert {limits: 1}[Limits(files=(("memory.low", "1M"),), pids_max=5)] == 1
    assert limits != Limits(pids_max=5)


def test_replace_and_pickle() -> None:
    limits = Limits(io_max="8:0 wbps=1", files={"memory.low": 0}, wall="1m", pids_max=5)
    assert limits.replace(pids_max=6).asked() == limits.asked() | {"pids_max": "6"}
    assert pickle.loads(pickle.dumps(limits)) == limits


def test_twenty_problems_in_one_error() -> None:
    with pytest.raises(UsageError) as caught:
        Limits(
            memory_max=-1,
            memory_high="1.5Q",
            memory_swap_max="",
            memory_oom_group="yes",  # type: ignore[arg-type]
            pids_max=0,
            cpu_max=float("nan"),
            cpu_weight=0,
            io_max=["sda", "8:0 wbps=x"],
            cpuset_cpus="3-1",
            files={
                "cgroup.kill": 1,
                "../x": 1,
                "a/b.c": 1,
                "memory.low": "x",
                "memory.max": "",
                "pids.max": 5,
                "cpu.idle": None,  # type: ignore[dict-item]
                "cpu.uclamp.min": "a\nb",
            },
            wall=0,
            cpu_time="x",
            idle=-1,
        )
    problems = caught.value.problems
    assert len(problems) == 21
    assert {problem.partition(":")[0] for problem in problems} == {
        *FIELD_FILES,
        "files",
        "wall",
        "cpu_time",
        "idle",
    }
    assert all("\n" not in problem for problem in problems)


@pytest.mark.parametrize("value", ["1", "4095", 0, "0", "0K"])
def test_less_memory_than_a_page(value: str | int) -> None:
    with pytest.raises(UsageError, match="less than one page"):
        Limits(memory_max=value)


def test_no_swap_is_a_limit() -> None:
    assert Limits(memory_swap_max=0).asked() == {"memory_swap_max": "0"}


def test_a_file_with_a_field_is_that_field() -> None:
    named = Limits(files={"memory.max": "512M", "memory.oom.group": "1", "io.max": "8:0 wbps=1M"})
    assert named == Limits(memory_max="512M", memory_oom_group=True, io_max="8:0 wbps=1M")


@pytest.mark.parametrize(
    ("files", "match"),
    [
        ({"memory.oom.group": "2"}, "memory_oom_group: '2' is neither True nor False"),
        ({"pids.max": "x"}, "pids_max: 'x' is not a number of processes"),
        ({"cpu.max": "50000"}, "cpu_max: '50000' is more than 8192 processors"),
    ],
)
def test_a_file_with_a_field_is_checked_as_that_field(files: dict[str, str | int], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        Limits(files=files)


def test_the_same_limit_twice() -> None:
    with pytest.raises(UsageError, match=r"memory\.max is asked for twice, the other time as memory_max"):
        Limits(memory_max="1G", files={"memory.max": "1G"})


@pytest.mark.parametrize("files", [5, "ab", [1, 2], [("a",)]])
def test_files_that_are_no_mapping(files: Any) -> None:
    with pytest.raises(UsageError, match="files: "):
        Limits(files=files)


@pytest.mark.parametrize("value", [5, 1.5, True])
def test_an_io_max_that_is_neither_text_nor_several(value: Any) -> None:
    with pytest.raises(UsageError, match="io_max: "):
        Limits(io_max=value)


@pytest.mark.parametrize("name", ["memory.low", "hugetlb.2MB.max", "cgroup.max.depth", "rdma.max", "a.b_c"])
def test_names_that_can_be_limits(name: str) -> None:
    assert file_problem(name) == ""


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "memory",
        "memory.",
        ".max",
        "memory..max",
        "/memory.max",
        "../memory.max",
        "a/b.max",
        "memory.max\n",
        "memory.max ",
        "memory.mäx",
        "memory.max\0",
        "cgroup.procs",
        "cgroup.threads",
        "cgroup.kill",
        "cgroup.freeze",
        "cgroup.type",
        "cgroup.subtree_control",
        None,
        3,
        "a." + "b" * 300,
    ],
)
def test_names_that_cannot(name: object) -> None:
    assert file_problem(name)


@given(st.text())
def test_a_name_that_passes_stays_in_the_directory(name: str) -> None:
    if not file_problem(name):
        assert "/" not in name
        assert not name.startswith(".")
        assert ".." not in name


VALUES = st.none() | st.text(max_size=20) | st.integers() | st.floats() | st.booleans() | st.lists(st.text())
FIELDS = st.sampled_from([*FIELD_FILES, "wall", "cpu_time", "idle"])


@given(st.dictionaries(FIELDS, VALUES), st.dictionaries(st.text(max_size=20), VALUES) | VALUES)
def test_limits_or_a_usage_error(fields: dict[str, Any], files: Any) -> None:
    try:
        limits = Limits(**fields, files=files)
    except UsageError:
        return
    hash(limits)
    assert Limits(**{k: v for k, v in fields.items() if v is not None}, files=files) == limits
