"""A hybrid host: cgroup v2 without controllers beside v1 hierarchies that have them (B63)."""

from __future__ import annotations

import pytest

from agentd.cgroup.hierarchy import read_hierarchy
from tests.support.runs import Agentd

pytestmark = pytest.mark.skipif(
    read_hierarchy().kind != "hybrid", reason="needs a hybrid host; this one's hierarchy is another"
)


def test_b63_true_is_contained(agentd: Agentd) -> None:
    run = agentd("--", "true")
    assert run.code == 0
    enforcement = run.report["enforcement"]
    assert enforcement["containment"] == "cgroup"
    assert enforcement["placement"] == "born"
    assert enforcement["hierarchy"] == "hybrid"
    assert enforcement["notes"] == []
    assert run.report["teardown"]["leaf_removed"] is True


def test_b63_auto_is_contained_below_the_own_cgroup(agentd: Agentd) -> None:
    run = agentd("--", "true", cgroup="auto")
    assert run.code == 0
    assert run.report["enforcement"]["containment"] == "cgroup"


def test_b63_memory_limit_is_refused_and_names_v1(agentd: Agentd) -> None:
    run = agentd("--memory-max", "64M", "--", "true")
    assert run.code == 125
    assert "v1" in run.line
    assert "memory" in run.line
    assert read_hierarchy().v1_controllers["memory"] in run.line
    assert run.report["verdict"]["cause"] == "start"
    assert "v1" in run.report["limits"]["why_not"]["memory_max"]
    assert run.report["limits"]["asked"]["memory_max"] == "64M"


def test_b63_best_effort_warns_and_runs(agentd: Agentd) -> None:
    run = agentd("--memory-max", "64M", "--best-effort", "--", "echo", "ran")
    assert run.code == 0
    assert run.stdout == "ran\n"
    assert any("warning" in line and "v1" in line for line in run.stderr.splitlines())
    limits = run.report["limits"]
    assert limits["asked"]["memory_max"] == "64M"
    assert "memory_max" not in limits["in_force"]
    assert "v1" in limits["why_not"]["memory_max"]
