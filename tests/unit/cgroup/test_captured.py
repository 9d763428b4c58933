"""What agentd makes of the cgroup files of real hosts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentd.cgroup.hierarchy import detect
from agentd.cgroup.path import auto_path, require_v2
from agentd.cgroup.tree import live_leaves
from agentd.errors import NoCgroupError

FIXTURES = Path(__file__).parents[3] / "cgroup-fixtures"
HOSTS = sorted(path.name for path in FIXTURES.iterdir() if path.is_dir())
TREES = sorted(path.parents[1].name for path in FIXTURES.glob("*/tree/agentd"))


def expected(host: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FIXTURES / host / "expected.json").read_text())
    return found


@pytest.mark.parametrize("host", HOSTS)
def test_the_hierarchy(host: str) -> None:
    wanted = expected(host)
    hidden = wanted.pop("hidden", [])
    folder = FIXTURES / host
    hierarchy = detect(
        (folder / "mountinfo").read_text(),
        (folder / "cgroup").read_text(),
        is_cgroup2=lambda point: point not in hidden,
    )
    assert {key: getattr(hierarchy, key) for key in wanted} == wanted


@pytest.mark.parametrize(
    ("host", "answer"),
    [
        ("hybrid-firecracker", "/sys/fs/cgroup/unified/agentd"),
        ("unified-uml", "/sys/fs/cgroup/agentd"),
        (
            "unified-systemd",
            "/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice/run-u1.scope/agentd",
        ),
        ("docker-private", "(EROFS)"),
        ("docker-host-namespace", "/sys/fs/cgroup/agentd"),
        ("namespace-without-mount", "our own cgroup is not to be seen"),
        ("tmpfs-over-cgroup", "no cgroup file system is mounted"),
        ("none", "no cgroup file system is mounted"),
        ("v1-only", "only cgroup v1 is mounted here (memory, pids, cpu, blkio)"),
    ],
)
def test_the_subtree_or_why_there_is_none(host: str, answer: str) -> None:
    folder = FIXTURES / host
    hidden = expected(host).get("hidden", [])
    hierarchy = detect(
        (folder / "mountinfo").read_text(),
        (folder / "cgroup").read_text(),
        is_cgroup2=lambda point: point not in hidden,
    )
    try:
        require_v2(hierarchy)
        found = auto_path(hierarchy)
    except NoCgroupError as error:
        found = error.message
    assert answer in found
    assert answer.startswith("/") == found.startswith("/")


def numbers(usage: dict[str, Any]) -> Iterator[int]:
    for value in usage.values():
        if isinstance(value, dict):
            yield from numbers(value)
        else:
            yield value


@pytest.mark.parametrize("host", TREES)
def test_a_leaf(host: str) -> None:
    (leaf,) = live_leaves(str(FIXTURES / host / "tree/agentd"))
    assert leaf["name"] == "run-100-1"
    assert leaf["populated"] is False
    assert leaf["usage"]["cpu"]["usage_us"] > 0
    assert all(isinstance(number, int) for number in numbers(leaf["usage"]))


def test_a_leaf_with_limits() -> None:
    (leaf,) = live_leaves(str(FIXTURES / "unified-uml/tree/agentd"))
    assert leaf["limits"] == {"memory.max": "67108864", "pids.max": "16"}
    assert set(leaf["usage"]) == {"memory", "pids", "cpu", "io"}
    assert {"peak", "current", "oom", "oom_kill", "max_hits", "local"} <= set(leaf["usage"]["memory"])


def test_a_leaf_without_controllers() -> None:
    (leaf,) = live_leaves(str(FIXTURES / "hybrid-firecracker/tree/agentd"))
    assert leaf["limits"] == {}
    assert set(leaf["usage"]) == {"cpu", "pressure"}
