from __future__ import annotations

import errno
import timeit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.cgroup.limits import FIELD_FILES, Limits
from agentd.cgroup.plan import NOTHING, LimitFacts, LimitWrite, explain_mismatch, in_force, plan

ALL = frozenset({"memory", "io", "pids", "cpu", "cpuset"})


def device(path: str) -> str:
    if path == "/dev/none":
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
    if path == "/dev/null":
        raise ValueError("/dev/null is not a block device")
    return "259:0"


CAPABLE = LimitFacts(
    path="/sys/fs/cgroup/agentd",
    controllers=ALL,
    missing={},
    files=None,
    memory=1_000_000_000,
    swap=1_000_000,
    pids=1000,
    page_size=4096,
    device=device,
)
HYBRID = CAPABLE._replace(
    controllers=frozenset(),
    missing={"memory": "the memory controller is bound to cgroup v1 at /sys/fs/cgroup/memory on this host"},
)


def written(limits: Limits, facts: LimitFacts = CAPABLE) -> dict[str, str]:
    planned = plan(limits, facts)
    return {write.file: write.value for write in (*planned.before, *planned.after)}


def test_nothing_asked_is_nothing_planned() -> None:
    assert plan(Limits(), CAPABLE) is NOTHING
    assert plan(Limits(wall=5, idle=1), CAPABLE) is NOTHING


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (Limits(memory_max="10M"), {"memory.max": "10485760", "memory.swap.max": "0"}),
        (Limits(memory_max=5000), {"memory.max": "4096", "memory.swap.max": "0"}),
        (Limits(memory_max="10%"), {"memory.max": "99999744", "memory.swap.max": "0"}),
        (
            Limits(memory_max="1M", memory_swap_max="1M"),
            {"memory.max": "1048576", "memory.swap.max": "1048576"},
        ),
        (Limits(memory_max="1M", memory_swap_max="max"), {"memory.max": "1048576", "memory.swap.max": "max"}),
        (Limits(memory_max="max"), {"memory.max": "max"}),
        (Limits(memory_max=2**63 - 1), {"memory.max": "max"}),
        (Limits(memory_max=2**63 - 4097), {"memory.max": "9223372036854767616", "memory.swap.max": "0"}),
        (Limits(memory_high="1G"), {"memory.high": "1073741824"}),
        (Limits(memory_swap_max="50%"), {"memory.swap.max": "499712"}),
        (Limits(memory_oom_group=True), {"memory.oom.group": "1"}),
        (Limits(memory_oom_group=False), {"memory.oom.group": "0"}),
        (Limits(pids_max="10%"), {"pids.max": "100"}),
        (Limits(pids_max="0.01%"), {"pids.max": "1"}),
        (Limits(pids_max="max"), {"pids.max": "max"}),
        (Limits(cpu_max="50%"), {"cpu.max": "50000 100000"}),
        (Limits(cpu_weight="7"), {"cpu.weight": "7"}),
        (Limits(cpuset_cpus="0 - 1"), {"cpuset.cpus": "0-1"}),
        (Limits(io_max="/dev/sda wbps=1K"), {"io.max": "259:0 wbps=1024"}),
        (Limits(files={"memory.low": "10%", "cpu.idle": 1}), {"memory.low": "99999744", "cpu.idle": "1"}),
        (Limits(files={"memory.swap.high": "50%"}), {"memory.swap.high": "499712"}),
    ],
)
def test_what_is_written(limits: Limits, expected: dict[str, str]) -> None:
    assert written(limits) == expected
    assert plan(limits, CAPABLE).not_in_force == {}


def test_only_cpu_max_waits_for_the_exec() -> None:
    planned = plan(
        Limits(memory_max="1M", cpu_max=1, cpu_weight=5, files={"cpu.max.burst": 1000, "cpu.idle": 0}),
        CAPABLE,
    )
    assert [write.file for write in planned.after] == ["cpu.max", "cpu.max.burst"]
    assert [write.file for write in planned.before] == [
        "memory.max",
        "memory.swap.max",
        "cpu.weight",
        "cpu.idle",
    ]


def test_what_is_to_be_read_back() -> None:
    limits = Limits(memory_max="1M", pids_max="064", cpu_max=1, cpuset_cpus=0, io_max="8:0 wbps=1")
    planned = plan(limits, CAPABLE)
    assert {write.file: write.expect for write in (*planned.before, *planned.after)} == {
        "memory.max": "1048576",
        "memory.swap.max": "0",
        "pids.max": "64",
        "cpu.max": "100000 100000",
        "cpuset.cpus": None,
        "io.max": None,
    }


@pytest.mark.parametrize(("text", "expect"), [("5", "5"), ("05", "5"), ("0", "0"), ("max", "max")])
def test_the_cgroup_s_own_limits_are_read_back(text: str, expect: str) -> None:
    (write,) = plan(Limits(files={"cgroup.max.depth": text}), HYBRID).before
    assert write.expect == expect


def test_swap_is_forbidden_implicitly() -> None:
    memory, swap = plan(Limits(memory_max="1M"), CAPABLE).before
    assert not memory.implicit
    assert swap == LimitWrite("memory_swap_max", "memory.swap.max", "0", "0", implicit=True)


def test_swap_needs_no_limit_where_it_is_not_accounted() -> None:
    facts = CAPABLE._replace(files=frozenset({"memory.max"}))
    planned = plan(Limits(memory_max="1M"), facts)
    assert [write.file for write in planned.before] == ["memory.max"]
    assert planned.not_in_force == {}
    assert planned.not_needed == {"memory_swap_max": "this kernel does not account swap"}


def test_swap_that_was_limited_explicitly_and_is_not_accounted() -> None:
    facts = CAPABLE._replace(files=frozenset({"memory.max"}))
    planned = plan(Limits(memory_max="1M", memory_swap_max=0), facts)
    assert planned.not_in_force == {"memory_swap_max": "this kernel has no memory.swap.max"}
    assert planned.not_needed == {}


def test_the_cause_is_named_where_a_controller_is_missing() -> None:
    planned = plan(
        Limits(memory_max="1M", pids_max=5, files={"cgroup.max.depth": 1, "rdma.max": "x"}), HYBRID
    )
    assert planned.not_in_force == {
        "memory_max": "the memory controller is bound to cgroup v1 at /sys/fs/cgroup/memory on this host",
        "pids_max": "the pids controller is not usable in leaves of /sys/fs/cgroup/agentd",
        "rdma.max": "the rdma controller is not usable in leaves of /sys/fs/cgroup/agentd",
    }
    assert [write.file for write in planned.before] == ["cgroup.max.depth"]


def test_several_io_entries_are_several_writes_of_one_limit() -> None:
    planned = plan(Limits(io_max=["8:0 wbps=1", "8:16 rbps=2"]), CAPABLE)
    assert [(write.limit, write.value) for write in planned.before] == [
        ("io_max", "8:0 wbps=1"),
        ("io_max", "8:16 rbps=2"),
    ]


@pytest.mark.parametrize("path", ["/dev/none", "/dev/null"])
def test_a_device_that_cannot_be_resolved(path: str) -> None:
    planned = plan(Limits(io_max=["8:0 wbps=1", f"{path} wbps=1"]), CAPABLE)
    assert planned.before == ()
    assert path in planned.not_in_force["io_max"]


@pytest.mark.parametrize(
    ("write", "read_back", "expected"),
    [
        (LimitWrite("memory_max", "memory.max", "4096", "4096"), "4096\n", True),
        (LimitWrite("memory_max", "memory.max", "4096", "4096"), "8192\n", False),
        (LimitWrite("cpu_max", "cpu.max", "5000 10000", "5000 10000"), "5000 10000", True),
        (LimitWrite("io_max", "io.max", "8:0 wbps=1", None), "", False),
        (LimitWrite("cpuset_cpus", "cpuset.cpus", "0", None), "0\n", True),
        (LimitWrite("cpuset_cpus", "cpuset.cpus", "0", None), "\n", False),
        (LimitWrite("cpu.idle", "cpu.idle", "1", None), "", True),
    ],
)
def test_whether_a_write_is_in_force(write: LimitWrite, read_back: str, expected: bool) -> None:
    assert in_force(write, read_back) is expected


@pytest.mark.parametrize(
    "name", ["EINVAL", "ERANGE", "ENODEV", "EBUSY", "EACCES", "EPERM", "ENOENT", "EROFS"]
)
def test_a_refused_write_names_errno_file_and_value(name: str) -> None:
    write = LimitWrite("io_max", "io.max", "8:0 wbps=1", None)
    line = explain_mismatch(write, getattr(errno, name), "")
    assert line.startswith("io.max = 8:0 wbps=1: ")
    assert line.endswith(f"({name})")
    assert "\n" not in line


def test_an_errno_that_is_not_known() -> None:
    write = LimitWrite("io_max", "io.max", "8:0 wbps=1", None)
    assert explain_mismatch(write, 4095, "").endswith("the kernel refused the write (errno 4095)")


def test_a_write_that_did_not_stick_says_what_it_reads() -> None:
    write = LimitWrite("pids_max", "pids.max", "5", "5")
    assert explain_mismatch(write, 0, "7\n") == "pids.max = 5: it was written, and reads 7"
    assert explain_mismatch(write, 0, "") == "pids.max = 5: it was written, and reads nothing"


VALUES: dict[str, st.SearchStrategy[object]] = {
    "memory_max": st.sampled_from(["64M", "10%", "max"]),
    "memory_high": st.sampled_from(["64M", "10%"]),
    "memory_swap_max": st.sampled_from([0, "1G"]),
    "memory_oom_group": st.booleans(),
    "pids_max": st.sampled_from([5, "50%", "max"]),
    "cpu_max": st.sampled_from([1, "50%", "max"]),
    "cpu_weight": st.integers(1, 10_000),
    "io_max": st.sampled_from(["8:0 wbps=1", "/dev/sda riops=1", "/dev/none riops=1"]),
    "cpuset_cpus": st.just("0-3"),
    "files": st.dictionaries(st.sampled_from(["memory.low", "rdma.max", "cgroup.max.depth"]), st.just("5")),
}


@given(
    st.fixed_dictionaries({}, optional=VALUES),
    st.sets(st.sampled_from(sorted(ALL))),
    st.none() | st.sets(st.sampled_from([*FIELD_FILES.values(), "memory.low", "cgroup.max.depth"])),
)
def test_each_limit_is_written_or_has_a_reason(
    fields: dict[str, object], controllers: set[str], files: set[str] | None
) -> None:
    limits = Limits(**fields)  # type: ignore[arg-type]
    facts = CAPABLE._replace(
        controllers=frozenset(controllers), files=None if files is None else frozenset(files)
    )
    planned = plan(limits, facts)
    done = {write.limit for write in (*planned.before, *planned.after) if not write.implicit}
    assert done | set(planned.not_in_force) == set(limits.asked())
    assert not done & set(planned.not_in_force)
    for write in (*planned.before, *planned.after):
        assert write.file.partition(".")[0] in controllers | {"cgroup"}
        assert files is None or write.file in files


def test_a_plan_costs_little() -> None:
    limits = Limits(memory_max="512M", pids_max=64)
    assert min(timeit.repeat(lambda: plan(limits, CAPABLE), number=100, repeat=20)) / 100 < 300e-6
