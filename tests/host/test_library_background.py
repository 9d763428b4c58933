"""What outlives its command: named and killed, or waited for."""

from __future__ import annotations

import os
import sys
import time

import pytest

import agentd
from agentd.process.report import StreamTail
from tests.support import leftovers

DAEMON = """
import os, sys
if os.fork():
    os.wait()  # for the one in between: it is not to be found as well
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
os.chdir("/")
os.closerange(0, 100)
os.execv("/bin/sleep", ["sleep", "987654"])
"""


def test_it_is_named_and_killed(cgroup_root: str) -> None:
    with agentd.Supervisor(cgroup_root) as supervisor:
        script = (
            "setsid sleep 987654 & nohup sleep 987655 >/dev/null 2>&1 & exec 3>&1; echo hi; sleep 0.1; exit 0"
        )
        report = supervisor.spawn(["sh", "-c", script], stdout=agentd.Capture()).wait(timeout=20)
        assert leftovers.leaves(cgroup_root) == []
    assert report.ok
    assert sorted(one.argv for one in report.left_behind) == [("sleep", "987654"), ("sleep", "987655")]
    assert report.left_behind_count == report.teardown.killed == 2
    assert report.tails["stdout"].tail == b"hi\n"
    assert report.teardown.complete
    assert report.teardown.waited < 0.5


def test_a_daemon_with_no_descriptors_is_found(cgroup_root: str) -> None:
    """B07: by its leaf; nothing else leads to it."""
    with agentd.Supervisor(cgroup_root) as supervisor:
        started = supervisor.spawn([sys.executable, "-I", "-c", DAEMON])
        report = started.wait(timeout=20)
    assert report.ok
    assert report.left_behind_count == 1


def test_who_holds_a_pipe_delays_nothing(cgroup_root: str) -> None:
    """B86: the end is the reap, and the pipe is drained once its writers are dead."""
    with agentd.Supervisor(cgroup_root) as supervisor:
        began = time.monotonic()
        report = supervisor.spawn(["sh", "-c", "sleep 987654 & echo hi"], stdout=agentd.Capture()).wait(20)
        took = time.monotonic() - began
    assert took < 2
    assert report.tails["stdout"] == StreamTail(b"hi\n", 3, complete=True)


def test_waiting_for_it(cgroup_root: str) -> None:
    read, write = os.pipe()
    with agentd.Supervisor(cgroup_root) as supervisor:
        child = supervisor.spawn(
            ["sh", "-c", "exec 3<&0; (read line <&3; exit 0) & exit 5"], stdin=read, background="wait"
        )
        os.close(read)
        with pytest.raises(TimeoutError):
            child.wait(timeout=0.3)
        os.write(write, b"\n")
        report = child.wait(timeout=20)
    os.close(write)
    assert report.verdict.code == 5
    assert report.teardown.killed == 0
    assert report.teardown.complete
    assert [event.kind for event in report.events] == ["waiting"]


def test_waiting_for_it_ends_with_a_stop_or_a_deadline(cgroup_root: str) -> None:
    with agentd.Supervisor(cgroup_root) as supervisor:
        stopped = supervisor.spawn(["sh", "-c", "sleep 1000 & exit 5"], background="wait", grace=1)
        late = supervisor.spawn(
            ["sh", "-c", "setsid sleep 1000 & exit 6"],
            background="wait",
            limits=agentd.Limits(wall=0.4),
            grace=0.1,
        )
        with pytest.raises(TimeoutError):
            stopped.wait(timeout=0.1)
        stopped.stop()
        codes = [child.wait(timeout=20).verdict.code for child in (stopped, late)]
        assert leftovers.leaves(cgroup_root) == []
    assert codes == [5, 6]


def test_cgroups_of_its_own_are_removed_whatever_their_modes(cgroup_root: str) -> None:
    """B16."""
    with agentd.Supervisor(cgroup_root) as supervisor:
        read, write = os.pipe()
        child = supervisor.spawn(["sh", "-c", "read line"], stdin=read, delegate=True)
        os.close(read)
        leaf = child.leaf
        assert leaf is not None
        os.makedirs(f"{leaf}/a/b/c")
        os.chmod(f"{leaf}/a/b", 0)
        os.close(write)
        report = child.wait(timeout=20)
    assert report.teardown.leaf_removed
    assert leftovers.leaves(cgroup_root) == []


def test_a_fork_storm_is_gone_at_once(cgroup_root: str) -> None:
    """B04, B73: 300 processes, named up to a hundred, counted and killed."""
    with agentd.Supervisor(cgroup_root) as supervisor:
        script = "for i in $(seq 300); do sleep 987654 & done; exit 0"
        report = supervisor.spawn(["sh", "-c", script]).wait(timeout=60)
        assert leftovers.leaves(cgroup_root) == []
    assert report.ok
    assert report.left_behind_count == 300
    assert len(report.left_behind) == 100
    assert report.teardown.complete
