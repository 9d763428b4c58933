"""Fixtures for tests that run programs contained: a cgroup of their own, and proof that nothing is left."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import leftovers, programs
from tests.support.runs import Agentd

_numbers = itertools.count(1)


@pytest.fixture(scope="session", autouse=True)
def shared_loop() -> None:
    """The library's loop is made once a process, with descriptors of its own: before any test counts those."""
    from agentd.process.reaper import shared

    shared()


@pytest.fixture
def cgroup_root() -> Iterator[str]:
    """The path of a cgroup of the test's own, below the cgroup v2 mount. Removed at the end, with all in it.

    Skips where none can be made; fails a test that left a process there.
    """
    from agentd.cgroup import control, leaf
    from agentd.cgroup.hierarchy import read_hierarchy
    from agentd.cgroup.remove import remove_tree

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
    # The dead whose parent was not agentd's are for PID 1 to reap, in its own time.
    left = [process for process in leftovers.below(f"/{name}") if (process.state, process.ppid) != ("Z", 1)]
    above = os.open(mount, control.DIRECTORY)
    try:
        if os.path.exists(path):
            root = os.open(path, control.DIRECTORY)
            leaf.kill(root)
            until = time.monotonic() + 10
            while leaf.populated(root) and time.monotonic() < until:
                time.sleep(0.005)  # only where a test has failed
            os.close(root)
        failed = remove_tree(above, name)
    finally:
        os.close(above)
    assert left == [], [str(process) for process in left]
    assert failed == []


@pytest.fixture
def agentd(cgroup_root: str, tmp_path: Path) -> Iterator[Agentd]:
    """Runs ``agentd run``. After the test, whatever it did: no run, leaf, process, zombie or descriptor.

    It adopts and reaps all of a run: not even a zombie is left for PID 1.
    """
    before = leftovers.open_descriptors()
    runner = Agentd(cgroup_root, tmp_path)
    yield runner
    still_running = [run.process.args for run in runner.runs if run.abort()]
    assert still_running == []
    carrying = leftovers.carrying(runner.token)
    for process in carrying:  # by a handle, and looked at again: the number may have passed on
        _kill_carrier(process.pid, runner.token)
    assert carrying == [], [str(process) for process in carrying]
    left = leftovers.below(f"/{os.path.basename(cgroup_root)}")
    if runner.orphans_are_for_pid_1:
        left = [process for process in left if (process.state, process.ppid) != ("Z", 1)]
    assert left == [], [str(process) for process in left]
    assert leftovers.leaves(cgroup_root) == []
    assert not leftovers.own_zombies()
    assert leftovers.open_descriptors() == before


def _kill_carrier(pid: int, token: str) -> None:
    import signal

    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if any(process.pid == pid for process in leftovers.carrying(token)):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        pass
    finally:
        os.close(handle)


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Compiles tests/programs/NAME.c once; the path of the executable."""
    folder = tmp_path_factory.mktemp("programs")
    return lambda name: programs.build(name, folder)
