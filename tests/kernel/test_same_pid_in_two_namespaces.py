"""Two supervisors with the same pid, in two pid namespaces, share a subtree: neither touches the other's leaves."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator

import pytest

from agentd.cgroup import control
from agentd.cgroup.sweep import sweep
from tests.support import doomed, leftovers
from tests.support.doomed import Doomed

COMMAND = ("sh", "-c", "echo ready; exec sleep 1000")
# The first process of the namespace is none of agentd's: when that ends, so does everything in it.
NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
FIRST = ("sh", "-c", '"$@"; exec sleep 1000', "sh")


@pytest.fixture
def two(cgroup_root: str) -> Iterator[tuple[Doomed, Doomed]]:
    if shutil.which("unshare") is None:
        pytest.skip("no unshare here")
    with (
        Doomed(cgroup_root, 3, *COMMAND, prefix=[*NAMESPACE, *FIRST]) as one,
        Doomed(cgroup_root, 3, *COMMAND, prefix=[*NAMESPACE, *FIRST]) as other,
    ):
        assert one.own_pid == other.own_pid
        yield one, other
    doomed.sweep_up(cgroup_root)


def _leaves(supervisor: Doomed) -> list[str]:
    return sorted(supervisor.ask("[os.path.basename(child.leaf) for child in supervisor.children]"))


def _die(supervisor: Doomed) -> None:
    assert supervisor.process.stdin is not None
    supervisor.process.stdin.write("os.kill(os.getpid(), 9)\n")
    supervisor.process.stdin.flush()


def _all_run(supervisor: Doomed) -> bool:
    return bool(supervisor.ask("[child.poll() for child in children] == [None] * len(children)"))


def test_the_keeper_of_one(cgroup_root: str, two: tuple[Doomed, Doomed]) -> None:
    one, other = two
    mine, theirs = _leaves(one), _leaves(other)
    assert not set(mine) & set(theirs)
    assert {name.rpartition("-")[0] for name in mine + theirs} == {f"run-{one.own_pid}"}
    _die(one)
    doomed.until(lambda: leftovers.leaves(cgroup_root) == theirs, "its leaves are gone")
    assert _all_run(other)
    # Spawning goes on under names that are free again.
    assert other.ask("supervisor.spawn(['true']).wait(20).ok")
    assert _leaves(other) == theirs


def test_the_sweeps_of_both(cgroup_root: str, two: tuple[Doomed, Doomed]) -> None:
    one, other = two
    live = sorted(_leaves(one) + _leaves(other))
    for supervisor in two:
        assert (
            supervisor.ask("(s := agentd.Supervisor(supervisor.cgroup), s.prepare(), len(s.swept))[2]") == 0
        )
    root = os.open(cgroup_root, control.DIRECTORY)
    try:
        assert sweep(root) == []
        assert leftovers.leaves(cgroup_root) == live
        assert _all_run(one)
        assert _all_run(other)
        # The whole namespace goes, and the keeper in it: what is left has no owner, but a namesake.
        one.signal(signal.SIGKILL)
        one.wait()
        doomed.until(
            lambda: len(sweep(root)) == 3 or leftovers.leaves(cgroup_root) == _leaves(other), "swept"
        )
        assert leftovers.leaves(cgroup_root) == _leaves(other)
    finally:
        os.close(root)
    assert _all_run(other)
