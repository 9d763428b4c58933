"""The limit above which memory is taken back, and nothing is killed."""

from __future__ import annotations

from collections.abc import Callable

from agentd.cgroup.limits import Limits
from agentd.process.supervisor import Supervisor

from . import appetite


def test_it_is_felt_and_kills_nothing(needs: Callable[..., None], supervisor: Supervisor) -> None:
    needs("memory")
    report = supervisor.spawn(appetite.memory("8400K"), limits=Limits(memory_high="8M")).wait(60)
    assert report.limits.in_force == {"memory_high": str(8 << 20)}
    memory = report.usage["memory"]
    assert isinstance(memory, dict)
    assert memory["high_hits"] >= 1
    assert memory["oom_kill"] == 0
    assert report.verdict.cause == "ok"
