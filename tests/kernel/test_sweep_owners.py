"""A sweep goes by the lock on a leaf, and by nothing else."""

from __future__ import annotations

import fcntl
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentd.cgroup import control
from agentd.cgroup.sweep import Swept, sweep
from agentd.process.left_behind import name_them
from agentd.process.supervisor import Supervisor
from tests.support import leftovers
from tests.support.doomed import Doomed

COMMAND = ("sh", "-c", "echo ready; exec sleep 1000")


def swept(root: str, **options: bool) -> list[Swept]:
    fd = os.open(root, control.DIRECTORY)
    try:
        return sweep(fd, describe=name_them, **options)
    finally:
        os.close(fd)


@contextmanager
def abandoned(path: str, *argv: str) -> Iterator[subprocess.Popen[bytes]]:
    """A leaf that nobody has a lock on, with a process in it."""
    os.makedirs(path)
    command = argv or ("sleep", "1000")
    # It goes in before it is the program: what that starts is in the leaf, too.
    entering = ["sh", "-c", f'echo $$ > {path}/cgroup.procs && exec "$@"', "sh", *command]
    process = subprocess.Popen(entering)
    until = time.monotonic() + 30
    while os.path.basename(command[0]) != Path(f"/proc/{process.pid}/comm").read_text().strip():
        assert time.monotonic() < until
        time.sleep(0.001)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_b35_a_leaf_named_after_a_living_stranger_is_swept(cgroup_root: str) -> None:
    name = f"run-{os.getpid()}-7"
    with abandoned(f"{cgroup_root}/{name}") as process:
        (one,) = swept(cgroup_root)
        assert (one.name, one.removed, one.problem) == (name, True, "")
        assert [(found.pid, found.name) for found in one.processes] == [(process.pid, "sleep")]
        assert process.wait(20) == -9
    assert leftovers.leaves(cgroup_root) == []


def test_b71_b72_the_leaves_of_a_living_supervisor_are_never_touched(cgroup_root: str) -> None:
    with Doomed(cgroup_root, 5, *COMMAND) as other:
        live = leftovers.leaves(cgroup_root)
        with Supervisor(cgroup_root) as supervisor:
            mine = supervisor.spawn(["sleep", "1000"])
            assert supervisor.swept == ()
            with abandoned(f"{cgroup_root}/run-1-1"):
                assert [one.name for one in swept(cgroup_root)] == ["run-1-1"]
            assert mine.poll() is None
        assert leftovers.leaves(cgroup_root) == live
        assert other.ask("[child.poll() for child in children]") == [None] * 5


def test_b71_two_roots_each_sweep_their_own(cgroup_root: str) -> None:
    with (
        abandoned(f"{cgroup_root}/a/run-1-1"),
        abandoned(f"{cgroup_root}/b/run-1-1"),
        Supervisor(f"{cgroup_root}/a") as one,
    ):
        one.prepare()
        assert one.swept is not None
        assert [found.name for found in one.swept] == ["run-1-1"]
        assert leftovers.leaves(f"{cgroup_root}/b") == ["run-1-1"]
        assert len(swept(f"{cgroup_root}/b")) == 1


def test_what_is_no_leaf_is_left(cgroup_root: str) -> None:
    names = ["run-1", "run-x-1", "run-1-", "supervisor", "other", "run-1-1x", "xrun-1-1"]
    for name in names:
        os.mkdir(f"{cgroup_root}/{name}")
    assert swept(cgroup_root) == []
    assert leftovers.leaves(cgroup_root) == sorted(names)


def test_a_locked_leaf_is_left_however_it_is_locked(cgroup_root: str) -> None:
    with abandoned(f"{cgroup_root}/run-1-1") as process:
        fd = os.open(f"{cgroup_root}/run-1-1", control.DIRECTORY)
        fcntl.flock(fd, fcntl.LOCK_SH)
        assert swept(cgroup_root) == []
        assert process.poll() is None
        os.close(fd)
        assert len(swept(cgroup_root)) == 1


def test_a_dry_run_changes_nothing(cgroup_root: str) -> None:
    with abandoned(f"{cgroup_root}/run-1-1") as process:
        for _ in range(2):
            (one,) = swept(cgroup_root, dry_run=True)
            assert [found.pid for found in one.processes] == [process.pid]
            assert not one.removed
            assert not one.problem
        assert process.poll() is None
        assert leftovers.leaves(cgroup_root) == ["run-1-1"]
        assert swept(cgroup_root)[0].removed


def test_whatever_a_command_did_to_its_leaf(cgroup_root: str) -> None:
    """Frozen, with cgroups below cgroups, closed ones among them: B16."""
    leaf = f"{cgroup_root}/run-1-1"
    with abandoned(leaf), abandoned(f"{leaf}/a/b/c"), abandoned(f"{leaf}/closed"):
        os.chmod(f"{leaf}/closed", 0)
        os.chmod(f"{leaf}/a/b", 0)
        with open(f"{leaf}/cgroup.freeze", "w") as file:
            file.write("1")
        (one,) = swept(cgroup_root)
        assert len(one.processes) == 3
        assert one.removed, one.problem
    assert leftovers.leaves(cgroup_root) == []


@pytest.mark.parametrize("count", [20, pytest.param(300, marks=[pytest.mark.default, pytest.mark.host])])
def test_b73_a_full_leaf(cgroup_root: str, program: Callable[[str], str], count: int) -> None:
    with abandoned(f"{cgroup_root}/run-1-1", program("stubborn"), str(count)):
        (one,) = swept(cgroup_root)
        assert one.removed, one.problem
