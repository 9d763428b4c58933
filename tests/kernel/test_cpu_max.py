"""How much of a processor a leaf gets, and how much of it in all."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agentd.cgroup.limits import Limits
from agentd.process.report import Report
from agentd.process.supervisor import Supervisor

from . import appetite


@pytest.fixture(autouse=True)
def _cpu(needs: Callable[..., None]) -> None:
    needs("cpu")


def cpu(report: Report) -> dict[str, int]:
    found = report.usage["cpu"]
    assert isinstance(found, dict)
    return found


def share(report: Report) -> float:
    """Of the time of one processor that went by."""
    return cpu(report)["usage_us"] / 1e6 / report.duration


def test_half_a_processor(supervisor: Supervisor) -> None:
    whole = supervisor.spawn(appetite.SPIN, limits=Limits(wall=1), grace=0).wait(20)
    half = supervisor.spawn(appetite.SPIN, limits=Limits(wall=2, cpu_max="50%"), grace=0).wait(20)
    assert whole.verdict.cause == half.verdict.cause == "deadline"
    # Accounting is by ticks of 10 ms on some kernels, and the period is 100 ms.
    assert 0.7 < share(whole) < 1.1
    assert 0.4 < share(half) < 0.6
    assert cpu(whole)["nr_throttled"] == 0
    assert cpu(half)["nr_throttled"] >= 10


def test_several_processes_share_it(supervisor: Supervisor) -> None:
    script = "(while :; do :; done) & while :; do :; done"
    limits = Limits(wall=2, cpu_max="20000 40000")
    report = supervisor.spawn(["sh", "-c", script], limits=limits, grace=0).wait(20)
    assert 0.4 < share(report) < 0.6


def test_one_that_hardly_runs_dies_at_once(supervisor: Supervisor) -> None:
    """What is killed needs some time of the processor to end, and gets it."""
    limits = Limits(wall=0.5, cpu_max="1000 1000000")
    report = supervisor.spawn(appetite.SPIN, limits=limits, grace=0).wait(20)
    assert report.verdict.cause == "deadline"
    assert report.teardown.complete
    assert report.duration < 2
    assert report.limits.in_force["cpu_max"] == "1000 1000000"
