"""Limits of time: wall clock, the leaf's processor time, silence."""

from __future__ import annotations

import time

import agentd
from tests.support.embedding import Ready


def test_wall(cgroup_root: str) -> None:
    with agentd.Supervisor(cgroup_root) as supervisor:
        began = time.monotonic()
        child = supervisor.spawn(["sh", "-c", "sleep 1000 & sleep 1000"], limits=agentd.Limits(wall=0.3))
        report = child.wait(timeout=20)
        took = time.monotonic() - began
    assert 0.3 <= took < 5
    assert (report.verdict.exit, report.verdict.cause, report.exit_code) == ("failed", "deadline", 124)
    assert report.limits.in_force == {"wall": 0.3}
    assert report.teardown.killed >= 2


def test_wall_that_is_kept_changes_nothing(cgroup_root: str) -> None:
    with agentd.Supervisor(cgroup_root) as supervisor:
        report = supervisor.spawn(["true"], limits=agentd.Limits(wall=60, cpu_time=60)).wait(timeout=20)
    assert report.ok
    assert report.events == ()


def test_wall_and_a_child_that_ignores_term(cgroup_root: str) -> None:
    ready = Ready()
    with agentd.Supervisor(cgroup_root) as supervisor:
        child = supervisor.spawn(
            ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.05; done"],
            stdout=agentd.Capture(sink=ready),
            limits=agentd.Limits(wall=0.5),
            grace=0.2,
        )
        report = child.wait(timeout=20)
    assert ready.data == b"ready\n"
    assert (report.verdict.cause, report.verdict.signal) == ("deadline", 9)


def test_processor_time_is_the_whole_leafs(cgroup_root: str) -> None:
    """Burnt in grandchildren, each for less than the limit."""
    burn = "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done"
    script = f"while :; do ( {burn} ); done"
    with agentd.Supervisor(cgroup_root) as supervisor:
        child = supervisor.spawn(["sh", "-c", script], limits=agentd.Limits(cpu_time=0.3, wall=60))
        report = child.wait(timeout=90)
    assert report.verdict.cause == "cpu"
    assert 0.3e6 <= report.usage["cpu"]["usage_us"] < 5e6


def test_who_sleeps_uses_no_processor_time(cgroup_root: str) -> None:
    with agentd.Supervisor(cgroup_root) as supervisor:
        report = supervisor.spawn(["sleep", "0.5"], limits=agentd.Limits(cpu_time=0.2)).wait(timeout=20)
    assert report.ok


def test_silence(cgroup_root: str) -> None:
    """It counts from the last output, on whichever captured stream."""
    script = "for n in 1 2 3 4; do sleep 0.2; echo $n >&$(( n % 2 + 1 )); done; sleep 1000"
    with agentd.Supervisor(cgroup_root) as supervisor:
        began = time.monotonic()
        child = supervisor.spawn(
            ["sh", "-c", script],
            stdout=agentd.Capture(),
            stderr=agentd.Capture(sink=lambda _: None),
            limits=agentd.Limits(idle=0.6),
            grace=0,
        )
        report = child.wait(timeout=20)
        took = time.monotonic() - began
    assert report.verdict.cause == "idle"
    assert took >= 1.4
    assert report.tails["stdout"].tail == b"2\n4\n"
    assert report.tails["stderr"].tail == b"1\n3\n"
