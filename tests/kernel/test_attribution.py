"""Whose limit it was: every cell of {leaf, parent, grandparent, none} x {main process, grandchild} x {the leaf dies
as a group or not} x {a kill of our own right after, or not}."""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentd.cgroup.limits import Limits
from agentd.process.child import Child
from agentd.process.report import Report
from agentd.process.streams import DEVNULL, Capture
from agentd.process.supervisor import Supervisor
from tests.support.embedding import Ready

from . import appetite
from .cgroup_inside import write

pytestmark = pytest.mark.uml

WHOSE = ["leaf", "parent", "grandparent", "none"]
VICTIMS = ["main", "grandchild"]


class Tree:
    """A subtree below another cgroup of ours, either of which can be given a limit."""

    def __init__(self, grandparent: str) -> None:
        self.paths = {"grandparent": grandparent, "parent": f"{grandparent}/parent"}
        os.makedirs(self.paths["parent"], exist_ok=True)
        write(f"{grandparent}/cgroup.subtree_control", "+memory")
        self.supervisor = Supervisor(self.paths["parent"])

    def limit(self, whose: str) -> None:
        for name, path in self.paths.items():
            write(f"{path}/memory.max", str(24 << 20) if name == whose else "max")


@pytest.fixture
def tree(cgroup_root: str, offered: set[str]) -> Iterator[Tree]:
    made = Tree(cgroup_root)
    with made.supervisor:
        yield made
    os.rmdir(made.paths["parent"])


def _until_an_oom_kill(child: Child) -> None:
    """As the kernel tells; or until the leaf is gone."""
    with contextlib.suppress(OSError), open(f"{child.leaf}/memory.events", "rb", buffering=0) as events:
        poll = select.poll()
        poll.register(events, select.POLLPRI)
        while b"oom_kill 0" in os.pread(events.fileno(), 4096, 0):
            poll.poll(20)  # an event is held back, and one between the look and the poll is not seen


def _run(tree: Tree, whose: str, victim: str, group: bool, ours: bool) -> Report:
    tree.limit(whose)
    limits = Limits(memory_max="16M" if whose == "leaf" else None, memory_oom_group=group or None)
    said = Ready(b"ready"), Ready(b"survived")

    def hear(data: bytes) -> None:
        for sink in said:
            sink(data)

    # It waits until it is told, so that all is in place when the limit is hit.
    want = "kill -9 $$" if whose == "none" else f"exec {appetite.shell_memory('64M')}"
    survive = f"echo survived; {'read rest; ' * ours}exit 5"
    script = f"echo ready; read go; sh -c '{want}'; {survive}"
    if victim == "main":
        script = f"echo ready; read go; {want}"
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb", buffering=0) as gate:
        child = tree.supervisor.spawn(
            ["sh", "-c", script],
            limits=limits,
            stdin=reading,
            stdout=Capture(sink=hear),
            stderr=DEVNULL,
        )
        os.close(reading)
        said[0].wait()
        handle = os.pidfd_open(child.pid)
        gate.write(b"go\n")
        if ours:
            if whose != "none":
                _until_an_oom_kill(child)
            if victim == "main" or (group and whose != "none"):
                assert select.select([handle], [], [], 20)[0]
            else:
                said[1].wait()
            child.kill()
        os.close(handle)
        return child.wait(30)


def _expected(whose: str, victim: str, group: bool, ours: bool) -> tuple[str, str | None]:
    died = victim == "main" or (group and whose != "none")
    if not died:
        return ("operator", None) if ours else ("error", None)
    if whose == "none":
        return "signal", None
    return "memory", "leaf" if whose == "leaf" else "ancestor"


@pytest.mark.parametrize("times", [1, pytest.param(20, marks=[pytest.mark.slow, pytest.mark.timeout(900)])])
@pytest.mark.parametrize("whose", WHOSE)
def test_every_cell(tree: Tree, whose: str, times: int) -> None:
    wrong = []
    for victim, group, ours in list(itertools.product(VICTIMS, [False, True], [False, True])) * times:
        report = _run(tree, whose, victim, group, ours)
        cause, scope = _expected(whose, victim, group, ours)
        path = tree.paths[whose] if scope == "ancestor" else None
        seen = (report.verdict.cause, report.verdict.scope, report.verdict.path)
        fact = None if report.oom is None else (report.oom.scope, report.oom.path, report.oom.group)
        expected_fact = None
        if whose != "none":
            above = whose != "leaf"
            expected_fact = (
                "ancestor" if above else "leaf",
                tree.paths[whose] if above else None,
                group,
            )
        if seen != (cause, scope, path) or fact != expected_fact or not report.teardown.complete:
            wrong.append(((whose, victim, group, ours), seen, fact, report.usage["memory"]))
    assert wrong == []


def test_a_kill_of_ours_in_the_same_moment(tree: Tree) -> None:
    """Of two kills a moment apart, the kernel does not say which one came first; the report names both."""
    for _ in range(5):
        limits = Limits(memory_max="16M")
        child = tree.supervisor.spawn(appetite.memory("64M"), limits=limits, stderr=DEVNULL)
        _until_an_oom_kill(child)
        child.kill()
        report = child.wait(20)
        assert report.verdict.cause in ("memory", "operator")
        assert report.verdict.signal == signal.SIGKILL
        assert report.oom is not None
        assert report.oom.scope == "leaf"


def test_the_limit_of_a_cgroup_that_the_command_made(tree: Tree, tmp_path: Path) -> None:
    script = (
        'cd "$LEAF" && mkdir own main && echo $$ >main/cgroup.procs && echo +memory >cgroup.subtree_control && '
        "echo 16M >own/memory.max && echo 0 >own/memory.swap.max; "
        f"sh -c 'echo $$ >own/cgroup.procs; exec {appetite.shell_memory('64M')}'; exit 5"
    )
    ready = Ready()
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb", buffering=0) as gate:
        child = tree.supervisor.spawn(
            ["sh", "-c", f"echo ready; read LEAF; {script}"],
            delegate=True,
            limits=Limits(memory_max="200M"),
            stdin=reading,
            stdout=Capture(sink=ready),
        )
        os.close(reading)
        ready.wait()
        gate.write(f"{child.leaf}\n".encode())
        report = child.wait(30)
    assert (report.verdict.cause, report.verdict.code) == ("error", 5)
    assert report.oom is not None
    assert report.oom.scope == "nested"


def test_a_siblings_death_is_not_ours(tree: Tree) -> None:
    """The parent's limit was hit during this run, by another; this one is killed by a stranger."""
    tree.limit("parent")
    child = tree.supervisor.spawn(["sleep", "1000"])
    other = tree.supervisor.spawn(appetite.memory("64M"), stderr=DEVNULL).wait(30)
    assert (other.verdict.cause, other.verdict.scope) == ("memory", "ancestor")
    os.kill(child.pid, signal.SIGKILL)
    report = child.wait(20)
    assert (report.verdict.cause, report.oom) == ("signal", None)
