"""What the report says is in force is what the kernel reads, for every kind of limit."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from agentd.cgroup.limits import Limits
from agentd.process.supervisor import Supervisor

Needs = Callable[..., None]
MIB = 1 << 20


def in_the_leaf(
    supervisor: Supervisor, limits: Limits, *files: str
) -> tuple[dict[str, str | float], list[str]]:
    """What a run with ``limits`` is said to be held to, and what ``files`` of its leaf read meanwhile."""
    child = supervisor.spawn(["sleep", "1000"], limits=limits)
    assert child.leaf is not None
    texts = []
    for name in files:
        with open(f"{child.leaf}/{name}") as file:
            texts.append(file.read().strip())
    child.kill()
    return dict(child.wait(20).limits.in_force), texts


def test_memory(needs: Needs, supervisor: Supervisor) -> None:
    needs("memory")
    limits = Limits(memory_max="64M", memory_high="48M", memory_swap_max="8M", memory_oom_group=True)
    held, texts = in_the_leaf(
        supervisor, limits, "memory.max", "memory.high", "memory.swap.max", "memory.oom.group"
    )
    assert texts == [str(64 * MIB), str(48 * MIB), str(8 * MIB), "1"]
    assert list(held.values()) == texts
    assert list(held) == ["memory_max", "memory_high", "memory_swap_max", "memory_oom_group"]


def test_memory_in_whole_pages(needs: Needs, supervisor: Supervisor) -> None:
    needs("memory")
    held, texts = in_the_leaf(supervisor, Limits(memory_max=8 * MIB + 5), "memory.max", "memory.swap.max")
    assert texts == [str(8 * MIB), "0"]
    assert held == {"memory_max": str(8 * MIB), "memory_swap_max": "0"}


def test_memory_as_a_share_of_the_subtrees(needs: Needs, cgroup_root: str) -> None:
    needs("memory")
    with Supervisor(cgroup_root, total=Limits(memory_max="128M")) as supervisor:
        held, texts = in_the_leaf(supervisor, Limits(memory_max="25%"), "memory.max")
    assert texts == [held["memory_max"]] == [str(32 * MIB)]


def test_memory_without_a_limit(needs: Needs, supervisor: Supervisor) -> None:
    """Swap is cut off only where a limit would be met by swapping."""
    needs("memory")
    held, texts = in_the_leaf(supervisor, Limits(memory_max="max"), "memory.max", "memory.swap.max")
    assert texts == ["max", "max"]
    assert held == {"memory_max": "max"}


def test_processes(needs: Needs, supervisor: Supervisor) -> None:
    needs("pids")
    assert in_the_leaf(supervisor, Limits(pids_max=7), "pids.max") == ({"pids_max": "7"}, ["7"])


@pytest.mark.parametrize(
    ("asked", "reads"),
    [("1.5", "150000 100000"), ("50%", "50000 100000"), ("20000 40000", "20000 40000"), (2, "200000 100000")],
)
def test_processor(needs: Needs, supervisor: Supervisor, asked: str | float, reads: str) -> None:
    needs("cpu")
    assert in_the_leaf(supervisor, Limits(cpu_max=asked), "cpu.max") == ({"cpu_max": reads}, [reads])


def test_share_of_the_processor(needs: Needs, supervisor: Supervisor) -> None:
    needs("cpu")
    assert in_the_leaf(supervisor, Limits(cpu_weight=250), "cpu.weight") == ({"cpu_weight": "250"}, ["250"])


def test_which_processors(needs: Needs, supervisor: Supervisor) -> None:
    needs("cpuset")
    held, texts = in_the_leaf(supervisor, Limits(cpuset_cpus="0"), "cpuset.cpus.effective")
    assert texts == [held["cpuset_cpus"]] == ["0"]


def test_disks(needs: Needs, supervisor: Supervisor, disk: str) -> None:
    needs("io")
    held, texts = in_the_leaf(supervisor, Limits(io_max=f"{disk} wbps=1M riops=500"), "io.max")
    assert texts == [f"{disk} rbps=max wbps={MIB} riops=500 wiops=max"]
    assert held == {"io_max": f"{disk} wbps={MIB} riops=500"}


def test_a_disk_in_two_entries(needs: Needs, supervisor: Supervisor, disk: str) -> None:
    needs("io")
    limits = Limits(io_max=[f"{disk} wbps=1M", f"{disk} rbps=2M"])
    held, texts = in_the_leaf(supervisor, limits, "io.max")
    assert texts == [f"{disk} rbps={2 * MIB} wbps={MIB} riops=max wiops=max"]
    assert held == {"io_max": f"{disk} wbps={MIB}, {disk} rbps={2 * MIB}"}


def test_any_other_file(needs: Needs, supervisor: Supervisor) -> None:
    needs("memory", "cpu")
    limits = Limits(files={"memory.low": "4M", "cpu.weight.nice": "5", "cgroup.max.depth": "3"})
    held, texts = in_the_leaf(supervisor, limits, "cgroup.max.depth", "cpu.weight.nice", "memory.low")
    assert texts == ["3", "5", str(4 * MIB)]
    assert held == dict(zip(["cgroup.max.depth", "cpu.weight.nice", "memory.low"], texts, strict=True))


def test_the_files_that_every_kernel_has(supervisor: Supervisor) -> None:
    limits = Limits(files={"cgroup.max.descendants": "9", "cgroup.max.depth": "max"})
    held, texts = in_the_leaf(supervisor, limits, "cgroup.max.depth", "cgroup.max.descendants")
    assert texts == ["max", "9"]
    assert held == {"cgroup.max.depth": "max", "cgroup.max.descendants": "9"}


def test_times_are_the_supervisors_own(supervisor: Supervisor) -> None:
    child = supervisor.spawn(["true"], limits=Limits(wall="1m", cpu_time=5))
    assert child.wait(20).limits.in_force == {"wall": 60.0, "cpu_time": 5.0}
    assert os.listdir(supervisor.cgroup or "") != []
