"""Fixtures for tests on a real kernel: this machine's, or one that scripts/kernel boots."""

from __future__ import annotations

import itertools
import os
import select
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from agentd.cgroup import control, leaf
from agentd.cgroup.delegation import ORDER
from agentd.cgroup.hierarchy import read_hierarchy
from agentd.cgroup.remove import remove_tree
from agentd.cgroup.tree import live_leaves
from agentd.process.supervisor import Supervisor

_numbers = itertools.count(1)


@pytest.fixture
def cgroup_root() -> Iterator[str]:
    """The absolute path of a cgroup of the test's own, directly below the v2 mount.

    A test fails that leaves a leaf (``run-...``) or a live process in it or below; then all is killed and
    removed. Cgroups with other names may be left. Skips where no cgroup can be made.
    """
    mount = read_hierarchy().mount
    if not mount:
        pytest.skip("no cgroup v2 is mounted here")
    name = f"agentd-test-{os.getpid()}-{next(_numbers)}"
    path = f"{mount}/{name}"
    try:
        os.mkdir(path)
    except OSError as error:
        pytest.skip(f"{path} cannot be made: {error.strerror}")
    yield path
    if problem := clean(mount, name):
        pytest.fail(problem)


@pytest.fixture
def needs(cgroup_root: str) -> Callable[..., None]:
    """``needs("memory", "pids")`` skips a test where one of these controllers is not on cgroup v2."""
    mount = os.path.dirname(cgroup_root)

    def check(*controllers: str) -> None:
        with open(f"{mount}/cgroup.controllers") as file:
            missing = sorted(set(controllers) - set(file.read().split()))
        if missing:
            pytest.skip(f"no {' and no '.join(missing)} controller on cgroup v2 here")

    return check


@pytest.fixture
def supervisor(cgroup_root: str) -> Iterator[Supervisor]:
    """One whose leaves are in ``cgroup_root``."""
    with Supervisor(cgroup_root) as made:
        yield made


@pytest.fixture
def offered(cgroup_root: str) -> set[str]:
    """The controllers that the real root hands to ``cgroup_root``; skips where memory is not among them."""
    mount = os.path.dirname(cgroup_root)
    above = os.open(mount, control.DIRECTORY)
    root = os.open(cgroup_root, control.DIRECTORY)
    try:
        for name in set(ORDER) & set(control.read(above, "cgroup.controllers").split()):
            control.write(above, "cgroup.subtree_control", f"+{name}")
        found = set(ORDER) & set(control.read(root, "cgroup.controllers").split())
    finally:
        os.close(above)
        os.close(root)
    if "memory" not in found:
        pytest.skip("the memory controller is not on cgroup v2 here")
    return found


def clean(mount: str, name: str) -> str:
    """Kill and remove the cgroup ``name``; what there was of leaves and live processes, as a sentence."""
    above = os.open(mount, control.DIRECTORY)
    try:
        try:
            root = os.open(name, control.DIRECTORY, dir_fd=above)
        except FileNotFoundError:
            return ""
        try:
            left = [found["path"] for found in live_leaves(root)]
            alive = leaf.pids(root) if leaf.populated(root) else []
            leaf.kill(root)
            wait_until_empty(root)
        finally:
            os.close(root)
        failed = remove_tree(above, name)
    finally:
        os.close(above)
    problems = [f"leaves: {' '.join(left)}"] if left else []
    problems += [f"live processes: {' '.join(map(str, alive))}"] if alive else []
    problems += [f"cgroups that cannot be removed: {failed}"] if failed else []
    return f"the test left {', '.join(problems)}" if problems else ""


def wait_until_empty(dirfd: int, seconds: float = 20) -> None:
    """Return once the cgroup is unpopulated, told by the kernel (POLLPRI on cgroup.events); fail after
    ``seconds``."""
    events = os.open("cgroup.events", os.O_RDONLY | os.O_CLOEXEC, dir_fd=dirfd)
    try:
        poll = select.poll()
        poll.register(events, select.POLLPRI)
        until = time.monotonic() + seconds
        while b"populated 1" in os.pread(events, 200, 0):
            if time.monotonic() > until:
                pytest.fail(f"processes {leaf.pids(dirfd)} are still alive")
            poll.poll(1000)
    finally:
        os.close(events)


@pytest.fixture
def disk() -> str:
    """``MAJ:MIN`` of a whole disk, as io.max takes it. Skips where there is none."""
    if not os.listdir("/sys/block") and os.environ.get("AGENTD_KERNEL") == "uml":
        # A guest has no disk, but a module for one.
        module = f"/usr/lib/uml/modules/{os.uname().release}/kernel/drivers/block/loop.ko"
        subprocess.run(["/sbin/insmod", module], check=False, capture_output=True)
    for name in sorted(os.listdir("/sys/block")):
        with open(f"/sys/block/{name}/dev") as file:
            return file.read().strip()
    pytest.skip("no block device here")
