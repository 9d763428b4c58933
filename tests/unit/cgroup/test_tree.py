from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from agentd.cgroup import control
from agentd.cgroup.tree import live_leaves, render


def make(path: Path, **files: str) -> None:
    path.mkdir(parents=True)
    defaults = {"cgroup.procs": "", "cgroup.events": "populated 0\nfrozen 0\n", "pids.max": "max\n"}
    for name, text in (defaults | {key.replace("__", "."): text for key, text in files.items()}).items():
        (path / name).write_text(text)


@pytest.fixture
def subtree(tmp_path: Path) -> Path:
    make(
        tmp_path / "run-12-10",
        cgroup__procs="5\n6\n",
        cgroup__events="populated 1\n",
        memory__max="536870912\n",
        cpu__max="50000 100000\n",
        io__max="8:0 rbps=max wbps=1 riops=max wiops=max\n8:16 rbps=1 wbps=max riops=max wiops=max\n",
        memory__current="12582912\n",
        memory__peak="1023\n",
        cpu__stat="usage_usec 1250000\n",
    )
    make(tmp_path / "run-12-9", cpu__stat="usage_usec 0\n")
    make(tmp_path / "run-12-10/supervisor", cgroup__procs="7\n")
    make(tmp_path / "run-12-10/agentd/run-3-1", pids__max="64\n")
    make(tmp_path / "other")
    make(tmp_path / "run-x-1")
    (tmp_path / "run-1-1").touch()
    return tmp_path


def test_leaves(subtree: Path) -> None:
    first, second = live_leaves(str(subtree))
    assert first == {
        "name": "run-12-9",
        "path": "run-12-9",
        "supervisor": 12,
        "populated": False,
        "processes": 0,
        "limits": {},
        "usage": {"cpu": {"usage_us": 0}},
        "nested": [],
    }
    assert second["populated"] is True
    assert second["processes"] == 3
    assert second["limits"] == {
        "memory.max": "536870912",
        "cpu.max": "50000 100000",
        "io.max": "8:0 rbps=max wbps=1 riops=max wiops=max; 8:16 rbps=1 wbps=max riops=max wiops=max",
    }
    assert second["usage"]["memory"] == {"current": 12582912, "peak": 1023}
    (nested,) = second["nested"]
    assert nested["path"] == "run-12-10/agentd/run-3-1"
    assert nested["limits"] == {"pids.max": "64"}
    json.dumps([first, second])


def test_by_descriptor_which_stays_open(subtree: Path) -> None:
    fd = os.open(subtree, control.DIRECTORY)
    before = os.listdir("/proc/self/fd")
    assert live_leaves(fd) == live_leaves(str(subtree))
    assert os.listdir("/proc/self/fd") == before
    os.close(fd)


def test_no_subtree(tmp_path: Path) -> None:
    assert live_leaves(str(tmp_path / "none")) == []
    assert render([]) == "no leaves"


def test_a_table(subtree: Path) -> None:
    limits = (
        "memory.max=512.0M cpu.max=50000,100000 "
        "io.max=8:0,rbps=max,wbps=1,riops=max,wiops=max;,8:16,rbps=1,wbps=max,riops=max,wiops=max"
    )
    assert render(live_leaves(str(subtree))).splitlines() == [
        "leaf       processes  memory  peak   cpu    limits",
        "run-12-9   0          -       -      0.00s",
        f"run-12-10  3          12.0M   1023B  1.25s  {limits}",
        "  run-3-1  0          -       -      -      pids.max=64",
    ]


def test_a_chain_without_end(tmp_path: Path) -> None:
    path = tmp_path
    for _ in range(200):
        path = path / "run-1-1"
        path.mkdir()
    depth = 0
    leaves = live_leaves(str(tmp_path))
    while leaves:
        leaves = leaves[0]["nested"]
        depth += 1
    assert 10 < depth < 100
