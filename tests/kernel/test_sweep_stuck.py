"""One leaf that cannot be emptied or removed is named, and holds up neither the others nor a start."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator

import pytest

from agentd.cgroup import control, leaf
from agentd.cgroup.sweep import sweep
from agentd.process.supervisor import Supervisor
from tests.support import doomed, leftovers
from tests.support.runs import AGENTD

from .test_sweep_owners import abandoned


@pytest.fixture
def stuck(cgroup_root: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A leaf whose process does not die of its kill, as one that sits in the kernel (G43)."""
    path = f"{cgroup_root}/run-1-2"
    with abandoned(path):
        number = os.stat(path).st_ino
        kill = leaf.kill

        def kill_others(fd: int) -> None:
            if os.fstat(fd).st_ino != number:
                kill(fd)

        with monkeypatch.context() as patch:
            patch.setattr(leaf, "kill", kill_others)
            yield path
    doomed.sweep_up(cgroup_root)


def test_the_others_are_swept(cgroup_root: str, stuck: str) -> None:
    root = os.open(cgroup_root, control.DIRECTORY)
    try:
        with abandoned(f"{cgroup_root}/run-1-1"), abandoned(f"{cgroup_root}/run-1-3"):
            since = time.monotonic()
            first, second, third = sweep(root, patience=0.2)
            assert time.monotonic() - since < 1.5
        assert (first.name, first.removed, first.problem) == ("run-1-1", True, "")
        assert (third.name, third.removed, third.problem) == ("run-1-3", True, "")
        assert (second.name, second.removed) == ("run-1-2", False)
        assert "do not die" in second.problem
        assert leftovers.leaves(cgroup_root) == ["run-1-2"]
        # Its lock is free again: the next sweep finds it.
        assert [one.name for one in sweep(root, patience=0)] == ["run-1-2"]
    finally:
        os.close(root)


@pytest.mark.default  # a sweep at a start waits for two seconds
def test_a_start_goes_on(cgroup_root: str, stuck: str) -> None:
    with Supervisor(cgroup_root) as supervisor:
        since = time.monotonic()
        child = supervisor.spawn(["true"])
        assert time.monotonic() - since < 4
        assert child.wait(20).ok
        assert supervisor.swept is not None
        assert [(one.name, one.removed) for one in supervisor.swept] == [("run-1-2", False)]
    assert os.path.isdir(stuck)


def test_the_command_says_so_with_3(cgroup_root: str) -> None:
    """A leaf that something is mounted on cannot be removed, in that mount namespace."""
    if shutil.which("unshare") is None:
        pytest.skip("no unshare here")
    for number in (1, 2):
        os.mkdir(f"{cgroup_root}/run-1-{number}")
    script = 'mount --bind "$0/run-1-1" "$0/run-1-1" && exec "$@" --cgroup "$0"'
    command = ["unshare", "--mount", "sh", "-c", script, cgroup_root, AGENTD, "cgroup", "sweep"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    first, second, last = done.stdout.splitlines()
    assert first == "could not sweep run-1-1: empty; run-1-1 cannot be removed: Device or resource busy"
    assert second == "swept run-1-2: empty"
    assert last == "swept 1 of 2"
    doomed.sweep_up(cgroup_root)
