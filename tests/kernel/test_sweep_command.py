"""`agentd cgroup sweep`: what it says, and its exit codes."""

from __future__ import annotations

import json
import os
import subprocess

from tests.support import leftovers
from tests.support.runs import AGENTD

from .test_sweep_owners import abandoned


def run(root: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [AGENTD, "cgroup", "sweep", "--cgroup", root, *options], capture_output=True, text=True, check=False
    )


def test_nothing_to_do(cgroup_root: str) -> None:
    done = run(cgroup_root)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"nothing to sweep in {cgroup_root}\n"


def test_json_of_nothing(cgroup_root: str) -> None:
    done = run(cgroup_root, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"version": 1, "cgroup": cgroup_root, "dry_run": False, "leaves": []}


def test_a_subtree_that_is_not_there(cgroup_root: str) -> None:
    done = run(f"{cgroup_root}/none")
    assert (done.returncode, done.stdout) == (0, "")


def test_a_path_that_is_no_cgroup() -> None:
    done = run("/proc")
    assert done.returncode not in (0, 3)
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1


def test_what_it_says(cgroup_root: str) -> None:
    os.mkdir(f"{cgroup_root}/run-2-1")
    with abandoned(f"{cgroup_root}/run-1-1") as process:
        inside = f"sleep ({process.pid})"
        dry = run(cgroup_root, "--dry-run")
        assert dry.returncode == 0
        assert dry.stdout.splitlines() == [
            f"would sweep run-1-1: {inside}",
            "would sweep run-2-1: empty",
            "would sweep 2",
        ]
        assert process.poll() is None
        told = json.loads(run(cgroup_root, "--dry-run", "--json").stdout)
        assert told["dry_run"] is True
        assert [leaf["removed"] for leaf in told["leaves"]] == [False, False]
        done = run(cgroup_root)
        assert done.returncode == 0
        assert done.stdout.splitlines() == [f"swept run-1-1: {inside}", "swept run-2-1: empty", "swept 2"]
    assert leftovers.leaves(cgroup_root) == []
