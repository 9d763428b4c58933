"""Usage: there where the kernel tells, absent and never zero where it does not."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from agentd.process.supervisor import Supervisor

from . import appetite
from .cgroup_inside import read, write

TOLD_BY = {
    ("memory", "peak"): "memory.peak",
    ("memory", "swap_peak"): "memory.swap.peak",
    ("memory", "oom_kill"): "memory.events",
    ("pids", "peak"): "pids.peak",
    ("pids", "max_hits"): "pids.events",
    ("cpu", "usage_us"): "cpu.stat",
    ("io", "rbytes"): "io.stat",
}


def readable(path: str) -> bool:
    try:
        with open(path) as file:
            file.read()
    except OSError:
        return False
    return True


def test_what_each_file_tells(supervisor: Supervisor) -> None:
    child = supervisor.spawn(["sleep", "0.5"])  # pressure is not told of very short runs
    leaf = child.leaf
    assert leaf is not None
    expected = {keys for keys, file in TOLD_BY.items() if readable(f"{leaf}/{file}")}
    pressure = {name for name in ("cpu", "memory", "io") if readable(f"{leaf}/{name}.pressure")}
    usage = child.wait(20).usage
    found = {(group, key) for group, key in TOLD_BY if key in usage.get(group, {})}
    assert found == expected
    assert set(usage.get("pressure", {})) == pressure
    assert all(usage.values())


def test_a_controller_that_the_subtree_has_not(needs: Callable[..., None], cgroup_root: str) -> None:
    """The files are there in the leaf or not at all: nothing is made up for a controller that is missing."""
    needs("memory", "pids")
    inner = f"{cgroup_root}/inner"
    os.mkdir(inner)
    write(f"{os.path.dirname(cgroup_root)}/cgroup.subtree_control", "+pids")
    write(f"{cgroup_root}/cgroup.subtree_control", "+pids")
    with Supervisor(inner) as supervisor:
        usage = supervisor.spawn(["true"]).wait(20).usage
        has = read(f"{inner}/cgroup.controllers").split()
    assert ("memory" in usage) == ("memory" in has)
    assert "pids" in usage


def test_counted_until_the_last_one_is_dead(needs: Callable[..., None], supervisor: Supervisor) -> None:
    """Processor time and memory of whoever is killed at the end count too (G65)."""
    needs("memory", "pids", "cpu")
    script = f"{' '.join(appetite.memory('24M'))}; sleep 1000 & :"
    usage = supervisor.spawn(["sh", "-c", script]).wait(20).usage
    memory, pids, cpu = usage["memory"], usage["pids"], usage["cpu"]
    assert isinstance(memory, dict)
    assert isinstance(pids, dict)
    assert isinstance(cpu, dict)
    assert 24 << 20 < memory["peak"] < 40 << 20
    assert pids["peak"] == 2
    assert pids["max_hits"] == 0
    assert cpu["usage_us"] > 0
    assert cpu["usage_us"] == pytest.approx(cpu["user_us"] + cpu["system_us"], abs=50_000)


def test_io_of_a_disk(needs: Callable[..., None], supervisor: Supervisor) -> None:
    needs("io")
    io = supervisor.spawn(["true"]).wait(20).usage["io"]
    assert isinstance(io, dict)
    assert set(io) == {"rbytes", "wbytes", "rios", "wios", "devices"}
