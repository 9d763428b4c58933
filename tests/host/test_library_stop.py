"""Ending a run: the cause comes first, then TERM, then KILL to the whole leaf."""

from __future__ import annotations

import time

import agentd
from tests.support import leftovers
from tests.support.embedding import Ready

DEAF = "trap '' TERM; echo ready; while :; do sleep 0.05; done"


def test_the_cause_is_recorded_before_the_signal(cgroup_root: str) -> None:
    """The child itself tells of the TERM: the cause is there by then. The exit code is the child's."""
    causes: list[str | None] = []
    ready = Ready()

    def sink(data: bytes) -> None:
        ready(data)
        if b"term" in data:
            causes.append(child._intent.cause if child._intent else None)

    with agentd.Supervisor(cgroup_root) as supervisor:
        child = supervisor.spawn(
            ["sh", "-c", "trap 'echo term; exit 5' TERM; echo ready; while :; do sleep 0.01; done"],
            stdout=agentd.Capture(sink=sink),
        )
        ready.wait()
        child.stop("drain")
        report = child.wait(timeout=10)
    assert causes == ["drain"]
    assert (report.verdict.exit, report.verdict.cause, report.verdict.code) == ("cancelled", "drain", 5)
    assert report.exit_code == 5


def test_the_first_cause_stands(cgroup_root: str) -> None:
    ready = Ready()
    with agentd.Supervisor(cgroup_root) as supervisor:
        child = supervisor.spawn(["sh", "-c", DEAF], stdout=agentd.Capture(sink=ready))
        ready.wait()
        child.stop("guardrail", grace=60)
        child.kill("operator")
        report = child.wait(timeout=10)
    assert report.verdict.cause == "guardrail"
    assert report.verdict.evidence[-1] == "agentd ended it: guardrail, with SIGKILL"


def test_a_child_that_ignores_term_dies_at_the_grace(cgroup_root: str) -> None:
    ready = Ready()
    with agentd.Supervisor(cgroup_root) as supervisor:
        child = supervisor.spawn(["sh", "-c", DEAF], stdout=agentd.Capture(sink=ready), grace=0.3)
        ready.wait()
        asked = time.monotonic()
        child.stop()
        report = child.wait(timeout=10)
        took = time.monotonic() - asked
    assert 0.3 <= took < 5
    assert report.verdict.signal == 9
    assert [event.kind for event in report.events] == ["asked to end", "term", "kill", "ended"]


def test_a_shorter_grace_shortens_and_a_longer_one_does_not(cgroup_root: str) -> None:
    ready = Ready()
    with agentd.Supervisor(cgroup_root) as supervisor:
        child = supervisor.spawn(["sh", "-c", DEAF], stdout=agentd.Capture(sink=ready))
        ready.wait()
        asked = time.monotonic()
        child.stop(grace=600)
        child.stop(grace=0.2)
        child.stop(grace=500)
        child.wait(timeout=10)
    assert time.monotonic() - asked < 8


def test_kill_needs_no_cooperation_and_takes_the_whole_leaf(cgroup_root: str) -> None:
    ready = Ready()
    with agentd.Supervisor(cgroup_root) as supervisor:
        script = f'setsid sh -c "{DEAF.replace("echo ready", ":")}" & setsid sleep 1000 & {DEAF}'
        child = supervisor.spawn(["sh", "-c", script], stdout=agentd.Capture(sink=ready))
        ready.wait()
        child.kill()
        report = child.wait(timeout=10)
        assert leftovers.leaves(cgroup_root) == []
    assert report.verdict.cause == "operator"
    assert report.teardown.complete
    assert report.teardown.killed >= 3


def test_a_stopped_child_is_continued_to_see_its_term(cgroup_root: str) -> None:
    ready = Ready()
    with agentd.Supervisor(cgroup_root) as supervisor:
        child = supervisor.spawn(
            ["sh", "-c", "trap 'exit 9' TERM; echo ready; kill -STOP $$; sleep 1000"],
            stdout=agentd.Capture(sink=ready),
            grace=30,
        )
        ready.wait()
        child.stop()
        report = child.wait(timeout=20)
    assert report.verdict.code == 9 or report.verdict.signal == 15


def test_a_child_that_has_ended_keeps_its_own_verdict(cgroup_root: str) -> None:
    with agentd.Supervisor(cgroup_root) as supervisor:
        child = supervisor.spawn(["sh", "-c", "exit 4"])
        report = child.wait(timeout=10)
        child.stop()
        child.kill()
        assert child.wait(timeout=10) is report
    assert (report.verdict.cause, report.verdict.code) == ("error", 4)


def test_an_outsider_of_the_same_user_lives(cgroup_root: str) -> None:
    """B08: nothing is ever killed by its user, its name or its number."""
    with agentd.Supervisor(cgroup_root) as one, agentd.Supervisor(cgroup_root) as other:
        outsider = one.spawn(["sleep", "5555"])
        other.spawn(["sh", "-c", "sleep 5555 & exec sleep 5555"]).kill()
        other.close()
        assert outsider.poll() is None
        assert leftovers.alive(outsider.pid)
