from __future__ import annotations

import os
import subprocess

import pytest

from agentd.cgroup.occupants import named, parent_of, strangers

PARENTS = {10: 1, 20: 10, 30: 20, 40: 1, 50: 40, 60: 61, 61: 60}


@pytest.mark.parametrize(
    ("pids", "expected"),
    [
        ([], []),
        ([10], []),
        ([10, 20, 30], []),
        ([30], []),
        ([40, 20], [40]),
        ([50, 40], [50, 40]),
        ([1], [1]),
        ([0], [0]),
        ([99], [99]),
        ([60], [60]),
    ],
)
def test_who_is_not_ours(pids: list[int], expected: list[int]) -> None:
    assert strangers(pids, own=10, parent=lambda pid: PARENTS.get(pid, 0)) == expected


def test_pid_1_itself_is_ours_if_we_are_it() -> None:
    assert strangers([1, 40, 50], own=1, parent=lambda pid: PARENTS.get(pid, 0)) == []


def test_a_real_child() -> None:
    with subprocess.Popen(["sleep", "1000"]) as child:
        assert parent_of(child.pid) == os.getpid()
        assert strangers([child.pid, os.getppid()], own=os.getpid()) == [os.getppid()]
        child.kill()
    assert parent_of(child.pid) == 0


def test_names() -> None:
    own = os.getpid()
    assert named([own]).endswith(f" ({own})")
    assert named([]) == ""
    assert named([2**31 - 1] * 5) == ", ".join(["? (2147483647)"] * 3) + " and 2 more"
    assert named([0]) == "a process of another pid namespace"
