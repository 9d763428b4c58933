"""Every limit, written and read back on the kernel that runs the test."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import pytest

from agentd.cgroup import apply as applying
from agentd.cgroup import control
from agentd.cgroup.limits import FIELD_FILES, Limits
from agentd.cgroup.plan import explain_mismatch
from agentd.cgroup.subtree import Subtree
from agentd.errors import LimitNotInForceError

from .cgroup_inside import enter, read, write

PAGE = os.sysconf("SC_PAGE_SIZE")


@contextlib.contextmanager
def leaf_of(subtree: Subtree) -> Iterator[int]:
    name = f"run-{os.getpid()}-1"
    os.mkdir(name, dir_fd=subtree.fd)
    fd = os.open(name, control.DIRECTORY, dir_fd=subtree.fd)
    try:
        yield fd
    finally:
        os.close(fd)
        os.rmdir(name, dir_fd=subtree.fd)


def in_leaf(root: str, limits: Limits) -> dict[str, str]:
    """What the files of a leaf read after ``limits`` were applied to it; all must be in force."""
    with Subtree.open(f"{root}/subtree") as subtree, leaf_of(subtree) as fd:
        planned = subtree.plan(limits)
        assert planned.not_in_force == {}
        writes = (*planned.before, *planned.after)
        assert applying.apply(fd, writes) == {}
        return {write.file: control.read(fd, write.file).strip() for write in writes}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"memory_max": "64M"}, {"memory.max": "67108864", "memory.swap.max": "0"}),
        ({"memory_max": 2**26 + 1}, {"memory.max": "67108864", "memory.swap.max": "0"}),
        ({"memory_max": "1.5G"}, {"memory.max": "1610612736", "memory.swap.max": "0"}),
        ({"memory_max": 2**63 - 1}, {"memory.max": "max"}),
        ({"memory_max": "max"}, {"memory.max": "max"}),
        ({"memory_high": "0.1M"}, {"memory.high": str(104857 // PAGE * PAGE)}),
        ({"memory_swap_max": "max"}, {"memory.swap.max": "max"}),
        ({"memory_oom_group": True}, {"memory.oom.group": "1"}),
        ({"memory_oom_group": False}, {"memory.oom.group": "0"}),
        ({"pids_max": 1}, {"pids.max": "1"}),
        ({"pids_max": 4194304}, {"pids.max": "4194304"}),
        ({"pids_max": "max"}, {"pids.max": "max"}),
        ({"cpu_max": 0.01}, {"cpu.max": "1000 100000"}),
        ({"cpu_max": "150%"}, {"cpu.max": "150000 100000"}),
        ({"cpu_max": "1000 1000000"}, {"cpu.max": "1000 1000000"}),
        ({"cpu_max": "max"}, {"cpu.max": "max 100000"}),
        ({"cpu_weight": 1}, {"cpu.weight": "1"}),
        ({"cpu_weight": 10000}, {"cpu.weight": "10000"}),
        (
            {"files": {"memory.low": "1M", "memory.min": 5000}},
            {"memory.low": "1048576", "memory.min": "4096"},
        ),
        ({"files": {"cpu.idle": 1}}, {"cpu.idle": "1"}),
    ],
)
def test_a_limit_reads_back(
    cgroup_root: str, offered: set[str], fields: dict[str, Any], expected: dict[str, str]
) -> None:
    assert in_leaf(cgroup_root, Limits(**fields)) == expected


def test_limits_that_every_cgroup_has(cgroup_root: str) -> None:
    """The two that this project's benchmarks use in place of memory and pids on hybrid hosts."""
    limits = Limits(files={"cgroup.max.depth": 3, "cgroup.max.descendants": "010"})
    assert in_leaf(cgroup_root, limits) == {"cgroup.max.depth": "3", "cgroup.max.descendants": "10"}


def test_all_at_once(cgroup_root: str, offered: set[str]) -> None:
    limits = Limits(
        memory_max="64M", memory_high="32M", pids_max=5, cpu_max=1, cpu_weight=7, memory_oom_group=True
    )
    assert set(in_leaf(cgroup_root, limits)) == {
        "memory.max",
        "memory.swap.max",
        "memory.high",
        "memory.oom.group",
        "pids.max",
        "cpu.weight",
        "cpu.max",
    }


def test_processors(cgroup_root: str, offered: set[str]) -> None:
    if "cpuset" not in offered:
        pytest.skip("the cpuset controller is not on cgroup v2 here")
    assert in_leaf(cgroup_root, Limits(cpuset_cpus=0)) == {"cpuset.cpus": "0"}
    with Subtree.open(f"{cgroup_root}/subtree") as subtree, leaf_of(subtree) as fd:
        assert list(applying.apply(fd, subtree.plan(Limits(cpuset_cpus=60_000)).before)) == ["cpuset_cpus"]


def disks() -> list[str]:
    """Whole disks whose device nodes are there."""
    names = [name for name in os.listdir("/sys/block") if os.path.exists(f"/dev/{name}")]
    return [f"/dev/{name}" for name in sorted(names)]


def test_io(cgroup_root: str, offered: set[str]) -> None:
    if "io" not in offered:
        pytest.skip("the io controller is not on cgroup v2 here")
    if not disks():
        pytest.skip("there is no block device here")
    disk = os.stat(disks()[0]).st_rdev
    number = f"{os.major(disk)}:{os.minor(disk)}"
    found = in_leaf(cgroup_root, Limits(io_max=[f"{disks()[0]} wbps=1M", f"{number} riops=100"]))
    assert found == {"io.max": f"{number} rbps=max wbps=1048576 riops=100 wiops=max"}


def test_a_device_that_is_not_there(cgroup_root: str, offered: set[str]) -> None:
    if "io" not in offered:
        pytest.skip("the io controller is not on cgroup v2 here")
    with Subtree.open(f"{cgroup_root}/subtree") as subtree, leaf_of(subtree) as fd:
        reasons = applying.apply(fd, subtree.plan(Limits(io_max="4000:77 wbps=1M")).before)
        assert reasons["io_max"].endswith("(ENODEV)")
        planned = subtree.plan(Limits(io_max="/dev/none wbps=1M"))
        assert "/dev/none" in planned.not_in_force["io_max"]
        assert (
            "is not a block device" in subtree.plan(Limits(io_max="/dev/null wbps=1")).not_in_force["io_max"]
        )


@pytest.mark.parametrize(
    ("file", "value", "name"),
    [
        ("memory.max", "1.5G", "EINVAL"),
        ("pids.max", "-1", "EINVAL"),
        ("cpu.max", "999 100000", "EINVAL"),
        ("cpu.weight", "10001", "ERANGE"),
        ("memory.none", "1", "ENOENT"),
    ],
)
def test_what_the_kernel_refuses_is_explained(
    cgroup_root: str, offered: set[str], file: str, value: str, name: str
) -> None:
    """Values that never get past Limits (G14): so that what explains a refusal is tried on real ones."""
    with Subtree.open(f"{cgroup_root}/subtree") as subtree, leaf_of(subtree) as fd:
        write = subtree.plan(Limits(pids_max=5)).before[0]._replace(file=file, value=value)
        assert applying.apply(fd, [write])["pids_max"].endswith(f"({name})")


def test_a_limit_that_is_changed_behind_our_back(cgroup_root: str, offered: set[str]) -> None:
    with Subtree.open(f"{cgroup_root}/subtree") as subtree, leaf_of(subtree) as fd:
        (write,) = subtree.plan(Limits(pids_max=5)).before
        control.write(fd, "pids.max", "7")
        assert explain_mismatch(write, 0, applying.read_effect(fd, write)).endswith("reads 7")


def machine(key: str) -> int:
    for line in read("/proc/meminfo").splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(key)


def test_a_share_of_the_machine(cgroup_root: str, offered: set[str]) -> None:
    found = in_leaf(cgroup_root, Limits(memory_max="25%"))
    assert int(found["memory.max"]) == machine("MemTotal") // 4 // PAGE * PAGE
    most = min(4_194_304, int(read("/proc/sys/kernel/pid_max")), int(read("/proc/sys/kernel/threads-max")))
    assert in_leaf(cgroup_root, Limits(pids_max="50%")) == {"pids.max": str(most // 2)}


def test_a_share_of_what_the_cgroups_above_have(cgroup_root: str, offered: set[str]) -> None:
    write(f"{cgroup_root}/memory.max", "200M")
    write(f"{cgroup_root}/pids.max", "1000")
    assert in_leaf(cgroup_root, Limits(memory_max="25%"))["memory.max"] == str(50 << 20)
    assert in_leaf(cgroup_root, Limits(pids_max="10%")) == {"pids.max": "100"}


def test_caps_on_the_subtree(cgroup_root: str, offered: set[str]) -> None:
    path = f"{cgroup_root}/subtree"
    total = Limits(memory_max="128M", pids_max=100, cpu_max=1)
    with Subtree.open(path, total=total) as subtree:
        assert read(f"{path}/memory.max") == str(128 << 20)
        assert read(f"{path}/memory.swap.max") == "0"
        assert read(f"{path}/pids.max") == "100"
        assert read(f"{path}/cpu.max") == "100000 100000"
        assert subtree.plan(Limits(memory_max="25%")).before[0].value == str(32 << 20)
        # Made anew, they are there anew.
        os.rmdir(path)
        subtree.reopen()
        assert read(f"{path}/pids.max") == "100"


def test_a_cap_in_percent_does_not_shrink_from_run_to_run(cgroup_root: str, offered: set[str]) -> None:
    write(f"{cgroup_root}/memory.max", "200M")
    path = f"{cgroup_root}/subtree"
    for _ in range(3):
        Subtree.open(path, total=Limits(memory_max="50%")).close(remove=False)
        assert read(f"{path}/memory.max") == str(100 << 20)


def test_caps_that_this_host_cannot_enforce(cgroup_root: str) -> None:
    if "memory" in read(f"{os.path.dirname(cgroup_root)}/cgroup.controllers").split():
        pytest.skip("the memory controller is on cgroup v2 here")
    with pytest.raises(LimitNotInForceError) as caught:
        Subtree.open(f"{cgroup_root}/subtree", total=Limits(memory_max="64M", pids_max=5))
    assert set(caught.value.reasons) == {"memory_max", "pids_max"}
    assert not os.path.exists(f"{cgroup_root}/subtree")


def test_the_files_of_a_leaf_are_known(cgroup_root: str) -> None:
    """Each file that a field is written to is there, or its absence has a reason."""
    with Subtree.open(f"{cgroup_root}/subtree") as subtree, leaf_of(subtree) as fd:
        files = subtree.facts().files
        assert files is not None
        for file in FIELD_FILES.values():
            if file.partition(".")[0] in subtree.controllers:
                assert (file in files) == (file in os.listdir(fd))


def test_a_limit_binds(cgroup_root: str, offered: set[str]) -> None:
    with Subtree.open(f"{cgroup_root}/subtree") as subtree, leaf_of(subtree) as fd:
        assert applying.apply(fd, subtree.plan(Limits(pids_max=1)).before) == {}
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                enter(f"/proc/self/fd/{fd}", 0)
                os.fork()
            except BlockingIOError:
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert "max 1" in control.read(fd, "pids.events")
