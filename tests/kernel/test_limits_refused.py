"""A limit that the kernel does not take: the run is refused with the reason, and nothing of it is left."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from agentd.cgroup.limits import Limits
from agentd.errors import LimitNotInForceError
from agentd.process.supervisor import Supervisor
from tests.support.runs import Agentd

Needs = Callable[..., None]


def leaves(supervisor: Supervisor) -> list[str]:
    assert supervisor.cgroup is not None
    return [entry.name for entry in os.scandir(supervisor.cgroup) if entry.is_dir()]


@pytest.mark.parametrize(
    ("controller", "limits", "limit", "why"),
    [
        ("io", Limits(io_max="251:77 wbps=1M"), "io_max", "ENODEV"),
        ("cpu", Limits(files={"cpu.weight.nice": "99"}), "cpu.weight.nice", "ERANGE"),
        ("cpu", Limits(cpu_max="50%", files={"cpu.max.burst": "999999999"}), "cpu.max.burst", "EINVAL"),
        ("cpuset", Limits(cpuset_cpus="4000"), "cpuset_cpus", r"cpuset\.cpus = 4000"),
        ("memory", Limits(files={"memory.nonsense": "1"}), "memory.nonsense", "no memory.nonsense"),
        ("", Limits(files={"cgroup.max.depth": "some"}), "cgroup.max.depth", "EINVAL"),
        ("", Limits(files={"rdma.max": "x"}), "rdma.max", "rdma"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_it_is_named(
    needs: Needs, supervisor: Supervisor, controller: str, limits: Limits, limit: str, why: str
) -> None:
    if controller:
        needs(controller)
    with pytest.raises(LimitNotInForceError, match=why) as refusal:
        supervisor.spawn(["true"], limits=limits)
    assert list(refusal.value.reasons) == [limit]
    assert leaves(supervisor) == []
    assert supervisor.children == []


@pytest.mark.parametrize("bad", [{"cgroup.max.depth": "some"}, {"cgroup.max.depth": "-5"}])
def test_best_effort_runs_without_it(supervisor: Supervisor, bad: dict[str, str]) -> None:
    report = supervisor.spawn(["true"], limits=Limits(files=bad), best_effort=True).wait(20)
    assert report.verdict.cause == "ok"
    assert report.limits.in_force == {}
    assert list(report.limits.why_not) == ["cgroup.max.depth"]


def test_every_one_is_named_in_one_line(agentd: Agentd) -> None:
    done = agentd("--set", "cgroup.max.descendants=x", "--set", "cgroup.max.depth=-5", "--", "echo", "ran")
    assert done.code == 125
    assert done.stdout == ""
    for name in ("cgroup.max.descendants", "cgroup.max.depth"):
        assert name in done.line
        assert name in done.report["limits"]["why_not"]
    assert done.report["verdict"]["cause"] == "start"
