"""Processor time in all: every descendant's counts, also of those that have ended."""

from __future__ import annotations

from agentd.cgroup.limits import Limits
from agentd.process.supervisor import Supervisor

from . import appetite

IN_GRANDCHILDREN = """
while :; do
    sh -c 'sh -c "i=0; while [ \\$i -lt 10000 ]; do i=\\$((i+1)); done"; :'
done
"""
"""Sits and waits while its short-lived grandchildren work."""


def test_burnt_in_grandchildren(supervisor: Supervisor) -> None:
    child = supervisor.spawn(["sh", "-c", IN_GRANDCHILDREN], limits=Limits(cpu_time=1, wall=60))
    report = child.wait(90)
    assert (report.exit_code, report.verdict.exit, report.verdict.cause) == (124, "failed", "cpu")
    cpu = report.usage["cpu"]
    assert isinstance(cpu, dict)
    assert 1_000_000 <= cpu["usage_us"] < 1_500_000
    assert report.limits.in_force["cpu_time"] == 1.0
    assert report.teardown.complete


def test_sleep_costs_none(supervisor: Supervisor) -> None:
    report = supervisor.spawn(["sleep", "1"], limits=Limits(cpu_time=0.5, wall=60)).wait(90)
    assert report.verdict.cause == "ok"


def test_one_that_ignores_the_request(supervisor: Supervisor) -> None:
    script = f'trap "" TERM; {appetite.SPIN[2]}'
    child = supervisor.spawn(["sh", "-c", script], limits=Limits(cpu_time=0.5, wall=60), grace=0.2)
    report = child.wait(90)
    assert (report.exit_code, report.verdict.cause) == (124, "cpu")
