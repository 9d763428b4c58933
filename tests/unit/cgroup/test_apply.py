from __future__ import annotations

import errno
from pathlib import Path

import pytest

from agentd.cgroup.apply import apply
from agentd.cgroup.plan import LimitWrite

from .fake_kernel import FakeKernel

MEMORY = LimitWrite("memory_max", "memory.max", "4096", "4096")
SWAP = LimitWrite("memory_swap_max", "memory.swap.max", "0", "0", implicit=True)
CPUS = LimitWrite("cpuset_cpus", "cpuset.cpus", "5", None)
IO = LimitWrite("io_max", "io.max", "8:0 wbps=1", None)


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeKernel:
    kernel = FakeKernel(tmp_path, "memory")
    kernel.install(monkeypatch)
    return kernel


def test_in_force(kernel: FakeKernel) -> None:
    fd = kernel.make("leaf")
    texts = {"memory.max": "max", "memory.swap.max": "max", "cpuset.cpus": "", "cpuset.cpus.effective": "5\n"}
    kernel.at("leaf").texts = texts
    assert apply(fd, [MEMORY, SWAP, CPUS]) == {}
    assert texts["memory.max"] == "4096"


def test_each_failure_has_its_reason(kernel: FakeKernel) -> None:
    fd = kernel.make("leaf")
    kernel.at("leaf").texts = {
        "memory.max": "max",
        "cpuset.cpus": "",
        "cpuset.cpus.effective": "\n",
        "io.max": "",
    }
    kernel.refuse[("leaf", "memory.max 4096")] = [errno.EPERM]
    kernel.refuse[("leaf", "io.max 8:0 wbps=1")] = [errno.ENODEV]
    reasons = apply(fd, [MEMORY, SWAP, CPUS, IO, SWAP._replace(implicit=False)])
    assert list(reasons) == ["memory_max", "cpuset_cpus", "io_max", "memory_swap_max"]
    assert reasons["memory_max"].endswith("(EPERM)")
    assert reasons["cpuset_cpus"] == "cpuset.cpus = 5: none of these processors is usable here"
    assert reasons["io_max"].endswith("(ENODEV)")
    assert reasons["memory_swap_max"].endswith("(ENOENT)")


def test_an_implicit_write_may_be_refused_only_where_there_is_no_file(kernel: FakeKernel) -> None:
    fd = kernel.make("leaf")
    assert apply(fd, [SWAP]) == {}
    kernel.at("leaf").texts = {"memory.swap.max": "max"}
    kernel.refuse[("leaf", "memory.swap.max 0")] = [errno.EACCES]
    assert list(apply(fd, [SWAP])) == ["memory_swap_max"]
