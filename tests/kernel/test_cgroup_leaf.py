"""Looking into leaves, killing and removing them, on a real kernel."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from agentd.cgroup import control, leaf
from agentd.cgroup.remove import remove_tree
from agentd.cgroup.tree import live_leaves, render
from agentd.cgroup.usage import CURRENT_FILES, parse_usage, usage_files

from .cgroup_inside import enter, inside, read, write
from .conftest import wait_until_empty

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="moving processes between cgroups needs root")
NOBODY = 65534


@pytest.fixture
def root_fd(cgroup_root: str) -> Iterator[int]:
    fd = os.open(cgroup_root, control.DIRECTORY)
    yield fd
    os.close(fd)


def open_below(root_fd: int, name: str) -> int:
    return os.open(name, control.DIRECTORY, dir_fd=root_fd)


def sleeper(cgroup: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(["sleep", "1000"])
    enter(cgroup, process.pid)
    return process


@needs_root
def test_who_is_in_a_leaf_and_below(cgroup_root: str, root_fd: int) -> None:
    os.makedirs(f"{cgroup_root}/leaf/a/b")
    processes = [sleeper(f"{cgroup_root}/{path}") for path in ("leaf", "leaf/a", "leaf/a/b", "leaf/a/b")]
    fd = open_below(root_fd, "leaf")
    assert leaf.populated(fd)
    assert sorted(leaf.pids(fd)) == sorted(process.pid for process in processes)
    assert leaf.subcgroups(fd) == ["a"]
    leaf.kill(fd)
    assert [process.wait() for process in processes] == [-9] * 4
    wait_until_empty(fd)
    assert not leaf.populated(fd)
    assert leaf.pids(fd) == []
    assert remove_tree(root_fd, "leaf") == []
    # The descriptor of a leaf that is gone.
    assert leaf.pids(fd) == []
    assert leaf.subcgroups(fd) == []
    assert not leaf.populated(fd)
    assert not leaf.frozen(fd)
    leaf.kill(fd)
    os.close(fd)


@needs_root
def test_threaded_cgroups_below(cgroup_root: str, root_fd: int) -> None:
    os.makedirs(f"{cgroup_root}/leaf/threads")
    write(f"{cgroup_root}/leaf/threads/cgroup.type", "threaded")
    process = sleeper(f"{cgroup_root}/leaf")
    write(f"{cgroup_root}/leaf/threads/cgroup.threads", str(process.pid))
    fd = open_below(root_fd, "leaf")
    assert leaf.pids(fd) == [process.pid]
    leaf.kill(fd)
    assert process.wait() == -9
    wait_until_empty(fd)
    os.close(fd)
    assert remove_tree(root_fd, "leaf") == []


@needs_root
@pytest.mark.parametrize("frozen", [False, True])
def test_killing_without_cgroup_kill(
    cgroup_root: str, root_fd: int, frozen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As before Linux 5.14. The processes fork all the time, and ignore what can be ignored."""
    os.makedirs(f"{cgroup_root}/leaf/a")
    script = (
        "import os, signal\nsignal.signal(15, signal.SIG_IGN)\nfor _ in range(6): os.fork()\nsignal.pause()"
    )
    process = subprocess.Popen([sys.executable, "-c", f"input()\n{script}"], stdin=subprocess.PIPE)
    enter(f"{cgroup_root}/leaf/a", process.pid)
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.close()
    fd = open_below(root_fd, "leaf")
    if frozen:
        control.write(fd, "cgroup.freeze", "1")
    real = control.write

    def without(dirfd: int, name: str, text: str) -> None:
        if name == "cgroup.kill":
            raise FileNotFoundError(errno.ENOENT, "no such file", name)
        real(dirfd, name, text)

    monkeypatch.setattr(control, "write", without)
    leaf.kill(fd)
    process.wait()
    wait_until_empty(fd)
    assert read(f"{cgroup_root}/leaf/cgroup.freeze") == "0"
    os.close(fd)
    assert remove_tree(root_fd, "leaf") == []


@needs_root
def test_frozen(cgroup_root: str, root_fd: int) -> None:
    os.mkdir(f"{cgroup_root}/leaf")
    process = sleeper(f"{cgroup_root}/leaf")
    fd = open_below(root_fd, "leaf")
    assert not leaf.frozen(fd)
    control.write(fd, "cgroup.freeze", "1")
    until = time.monotonic() + 20
    while not leaf.frozen(fd) and time.monotonic() < until:
        time.sleep(0.001)
    assert leaf.frozen(fd)
    leaf.kill(fd)
    assert process.wait() == -9
    wait_until_empty(fd)
    os.close(fd)


@needs_root
def test_a_leaf_with_a_live_process_stays(cgroup_root: str, root_fd: int) -> None:
    os.makedirs(f"{cgroup_root}/leaf/a/b")
    os.makedirs(f"{cgroup_root}/leaf/a/c")
    process = sleeper(f"{cgroup_root}/leaf/a/b")
    busy = [("leaf/a/b", errno.EBUSY), ("leaf/a", errno.EBUSY), ("leaf", errno.EBUSY)]
    assert remove_tree(root_fd, "leaf") == busy
    assert not os.path.exists(f"{cgroup_root}/leaf/a/c")
    process.kill()
    process.wait()
    assert remove_tree(root_fd, "leaf") == []


@needs_root
def test_a_leaf_with_a_zombie_alone_goes(cgroup_root: str, root_fd: int) -> None:
    """G40."""
    os.mkdir(f"{cgroup_root}/leaf")
    process = sleeper(f"{cgroup_root}/leaf")
    fd = open_below(root_fd, "leaf")
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    wait_until_empty(fd)
    assert remove_tree(root_fd, "leaf") == []
    assert read(f"/proc/{process.pid}/cgroup").endswith("/leaf (deleted)")
    process.wait()
    os.close(fd)


def test_hundreds_of_levels(cgroup_root: str, root_fd: int) -> None:
    name = "deep-" + "x" * 100
    fd = os.open(cgroup_root, control.DIRECTORY)
    for _ in range(300):
        os.mkdir(name, dir_fd=fd)
        inner = os.open(name, control.DIRECTORY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(fd)
    assert len(list(leaf.walk(root_fd))) == 301
    assert remove_tree(root_fd, name) == []


def make_closed(path: str) -> None:
    """As a program in a leaf might: cgroups of its own that nobody may enter, list or write."""
    os.makedirs(f"{path}/a/b/c")
    os.mkdir(f"{path}/d")
    for below in ("/a/b/c", "/a/b", "/a", "/d"):
        os.chmod(path + below, 0)


def test_modes_of_zero_as_root(cgroup_root: str, root_fd: int) -> None:
    os.mkdir(f"{cgroup_root}/leaf")
    make_closed(f"{cgroup_root}/leaf")
    os.chmod(f"{cgroup_root}/leaf", 0)
    assert remove_tree(root_fd, "leaf") == []


def remove_as_user(path: str) -> list[tuple[str, int]]:
    os.mkdir(f"{path}/leaf")
    make_closed(f"{path}/leaf")
    os.chmod(f"{path}/leaf", 0)
    fd = os.open(path, control.DIRECTORY)
    return remove_tree(fd, "leaf")


@needs_root
def test_modes_of_zero_as_an_ordinary_user(cgroup_root: str) -> None:
    os.chown(cgroup_root, NOBODY, NOBODY)
    assert inside(cgroup_root, remove_as_user, cgroup_root, uid=NOBODY) == []


def look_as_user(path: str, mode: int) -> tuple[int, list[tuple[str, int]]]:
    for name in ("leaf/a/b", "leaf/c", "leaf/d"):
        os.makedirs(f"{path}/{name}")
    for name in ("leaf/a/b", "leaf/a", "leaf/c"):
        os.chmod(f"{path}/{name}", mode)
    above = os.open(path, control.DIRECTORY)
    fd = os.open("leaf", control.DIRECTORY, dir_fd=above)
    assert leaf.pids(fd) == []
    leaf._kill_pass(fd)
    return len(list(leaf.walk(fd))), remove_tree(above, "leaf")


@needs_root
@pytest.mark.parametrize(("mode", "seen"), [(0o000, 2), (0o444, 4), (0o111, 2)])
def test_looking_into_closed_cgroups_as_an_ordinary_user(cgroup_root: str, mode: int, seen: int) -> None:
    os.chown(cgroup_root, NOBODY, NOBODY)
    found, failed = inside(cgroup_root, look_as_user, cgroup_root, mode, uid=NOBODY)
    assert found >= seen
    assert failed == []


@needs_root
def test_what_belongs_to_somebody_else_is_told(cgroup_root: str) -> None:
    os.mkdir(f"{cgroup_root}/mine")
    os.makedirs(f"{cgroup_root}/mine/leaf/theirs/below")
    os.chown(f"{cgroup_root}/mine", NOBODY, NOBODY)
    os.chown(f"{cgroup_root}/mine/leaf", NOBODY, NOBODY)
    failed = inside(cgroup_root, _remove, f"{cgroup_root}/mine", uid=NOBODY)
    assert failed == [
        ("leaf/theirs/below", errno.EACCES),
        ("leaf/theirs", errno.EBUSY),
        ("leaf", errno.EBUSY),
    ]


def _remove(path: str) -> list[tuple[str, int]]:
    return remove_tree(os.open(path, control.DIRECTORY), "leaf")


@needs_root
def test_usage_of_a_leaf(cgroup_root: str, root_fd: int) -> None:
    os.mkdir(f"{cgroup_root}/leaf")
    fd = open_below(root_fd, "leaf")
    process = subprocess.Popen(
        [sys.executable, "-c", "input(); x = bytearray(20 << 20); sum(range(2_000_000))"],
        stdin=subprocess.PIPE,
    )
    enter(f"{cgroup_root}/leaf", process.pid)
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.close()
    assert process.wait() == 0
    wait_until_empty(fd)
    controllers = frozenset(read(f"{cgroup_root}/leaf/cgroup.controllers").split())
    # Pressure can be switched off: then it cannot be read (G64).
    texts = {name: text for name in usage_files(controllers) if (text := control.read_or(fd, name, ""))}
    usage = parse_usage(texts)
    assert usage["cpu"]["usage_us"] > 0
    assert ("memory" in usage) == ("memory" in controllers)
    assert ("pressure" in usage) == os.path.exists("/proc/pressure")
    os.close(fd)
    assert remove_tree(root_fd, "leaf") == []


@needs_root
def test_usage_with_every_controller(cgroup_root: str, root_fd: int, offered: set[str]) -> None:
    write(f"{cgroup_root}/cgroup.subtree_control", " ".join(f"+{name}" for name in offered))
    os.mkdir(f"{cgroup_root}/leaf")
    fd = open_below(root_fd, "leaf")
    process = sleeper(f"{cgroup_root}/leaf")
    process.kill()
    process.wait()
    names = (*usage_files(frozenset(offered)), *CURRENT_FILES)
    texts = {name: control.read(fd, name) for name in names if os.path.exists(f"{cgroup_root}/leaf/{name}")}
    usage = parse_usage(texts)
    assert {"peak", "oom", "oom_kill", "max_hits", "high_hits", "local"} <= set(usage["memory"])
    assert {"peak", "max_hits"} <= set(usage["pids"])
    assert {"nr_periods", "throttled_us", "user_us"} <= set(usage["cpu"])
    assert usage["io"]["devices"] == {} or usage["io"]["rios"] >= 0
    os.close(fd)


@needs_root
def test_the_tree(cgroup_root: str) -> None:
    for name in ("run-1-1", "run-1-1/agentd", "run-1-1/agentd/run-2-1", "run-1-2"):
        os.mkdir(f"{cgroup_root}/{name}")
    write(f"{cgroup_root}/run-1-2/cgroup.max.depth", "3")
    process = sleeper(f"{cgroup_root}/run-1-1/agentd/run-2-1")
    first, second = live_leaves(cgroup_root)
    assert (first["processes"], first["populated"]) == (1, True)
    assert [nested["name"] for nested in first["nested"]] == ["run-2-1"]
    assert second["limits"] == {"cgroup.max.depth": "3"}
    assert [line.split()[:2] for line in render([first, second]).splitlines()[1:]] == [
        ["run-1-1", "1"],
        ["run-2-1", "1"],
        ["run-1-2", "0"],
    ]
    process.kill()
    process.wait()
    for name in ("run-1-1/agentd/run-2-1", "run-1-1/agentd", "run-1-1", "run-1-2"):
        os.rmdir(f"{cgroup_root}/{name}")
    assert live_leaves(cgroup_root) == []
