"""``agentd cgroup tree``: what is running, from outside, and without changing it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

from agentd.cgroup.limits import Limits
from agentd.process.supervisor import Supervisor
from tests.support.runs import AGENTD


def tree(root: str, *options: str) -> str:
    command = [AGENTD, "cgroup", "tree", "--cgroup", root, *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def test_a_live_run(needs: Callable[..., None], supervisor: Supervisor, cgroup_root: str) -> None:
    needs("memory", "pids")
    limits = Limits(memory_max="64M", pids_max=7)
    child = supervisor.spawn(["sh", "-c", "sleep 1000 & wait"], limits=limits)
    found = json.loads(tree(cgroup_root, "--json"))
    assert found["cgroup"] == cgroup_root
    (leaf,) = found["leaves"]
    assert f"{cgroup_root}/{leaf['path']}" == child.leaf
    assert leaf["limits"]["memory.max"] == str(64 << 20)
    assert leaf["limits"]["memory.swap.max"] == "0"
    assert leaf["limits"]["pids.max"] == "7"
    assert 0 < leaf["usage"]["memory"]["current"] <= leaf["usage"]["memory"]["peak"]
    assert leaf["name"] in tree(cgroup_root)
    child.kill()
    child.wait(20)


def test_none(supervisor: Supervisor, cgroup_root: str) -> None:
    assert json.loads(tree(cgroup_root, "--json"))["leaves"] == []
    assert supervisor.spawn(["true"]).wait(20).ok
