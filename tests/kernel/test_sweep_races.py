"""Sweeps beside starts, and beside each other: nobody loses a live run, and nobody waits for the other."""

from __future__ import annotations

import os
import subprocess
import threading

import pytest

from agentd.cgroup import control
from agentd.cgroup.sweep import sweep
from agentd.process.streams import DEVNULL
from agentd.process.supervisor import Supervisor
from tests.support import doomed, embedding, leftovers

SWEEP_ON = """
import os, sys
from agentd.cgroup import control
from agentd.cgroup.sweep import sweep
fd = os.open(sys.argv[1], control.DIRECTORY)
print("ready", flush=True)
count, taken = 0, 0
while os.path.exists(sys.argv[2]):
    count += 1
    for one in sweep(fd, dry_run=count % 3 == 0):
        taken += one.removed
        assert not one.processes, one
print(count, taken)
"""
SIZES = [40, pytest.param(500, marks=[pytest.mark.default, pytest.mark.host])]


@pytest.mark.parametrize("births", SIZES)
def test_a_birth_that_loses_its_leaf_to_a_sweep_has_another(
    cgroup_root: str, tmp_path: os.PathLike[str], births: int
) -> None:
    go_on = f"{tmp_path}/go-on"
    with open(go_on, "w"):
        pass
    sweeps = [
        subprocess.Popen(
            embedding.program(SWEEP_ON, cgroup_root, go_on),
            env=embedding.environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    try:
        for one in sweeps:
            assert one.stdout is not None
            assert one.stdout.readline() == "ready\n"
        with Supervisor(cgroup_root) as supervisor:
            names = set()
            for number in range(births):
                child = supervisor.spawn(["sh", "-c", f"exit {number % 7}"], stdin=DEVNULL)
                names.add(child.leaf)
                report = child.wait(30)
                assert (report.verdict.code, report.teardown.complete) == (number % 7, True)
                assert report.teardown.leaf_removed
            assert len(names) == births
    finally:
        os.unlink(go_on)
        said = [one.communicate(timeout=30)[0] for one in sweeps]
    assert [one.returncode for one in sweeps] == [0, 0]
    print("sweeps, and fresh leaves that they took:", *said)
    assert leftovers.leaves(cgroup_root) == []


@pytest.mark.parametrize("leaves", [50, pytest.param(500, marks=[pytest.mark.default, pytest.mark.host])])
def test_two_sweeps_at_once(cgroup_root: str, leaves: int) -> None:
    for number in range(leaves):
        os.mkdir(f"{cgroup_root}/run-1-{number}")
    found: list[str] = []
    problems: list[str] = []
    together = threading.Barrier(3)

    def go() -> None:
        fd = os.open(cgroup_root, control.DIRECTORY)
        together.wait()
        try:
            for one in sweep(fd):
                found.append(one.name)
                problems.extend([one.problem] * bool(one.problem))
        finally:
            os.close(fd)

    threads = [threading.Thread(target=go) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # One that a sweep passed over because another had it is that one's.
    assert set(found) == {f"run-1-{number}" for number in range(leaves)}
    assert problems == []
    assert leftovers.leaves(cgroup_root) == []


@pytest.mark.host
def test_two_starts_at_once(cgroup_root: str) -> None:
    with doomed.Doomed(cgroup_root, 1, "sh", "-c", "echo ready; exec sleep 1000") as lasting:
        for number in range(20):
            os.mkdir(f"{cgroup_root}/run-1-{number}")
        script = "import sys, agentd\nwith agentd.Supervisor(sys.argv[1]) as s: print(s.spawn(['true']).wait(20).ok)"
        starts = [
            subprocess.Popen(
                embedding.program(script, cgroup_root),
                env=embedding.environment(),
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(4)
        ]
        assert [one.communicate(timeout=60)[0] for one in starts] == ["True\n"] * 4
        assert lasting.ask("children[0].poll()") is None
        assert len(leftovers.leaves(cgroup_root)) == 1
