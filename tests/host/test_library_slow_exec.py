"""B97: an exec that takes long holds up whoever spawns, and nobody else."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import agentd

F_SETSIG = 10


@contextmanager
def leased(path: Path) -> Iterator[None]:
    """While we hold a write lease on a file, whoever opens it, also to execute it, has to wait (fcntl(2)). It is
    taken on a descriptor for reading: the kernel executes nothing that is open for writing."""
    fd = os.open(path, os.O_RDONLY)
    try:
        fcntl.fcntl(fd, F_SETSIG, signal.SIGURG)  # which is ignored
        try:
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except OSError as error:
            pytest.skip(f"no leases on the file system of {path}: {error.strerror}")
        yield
        # By word: the waiting child has a copy of the descriptor, whose last close would give the lease up, too.
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    finally:
        os.close(fd)


def test_the_loop_and_the_interpreter_go_on(cgroup_root: str, tmp_path: Path) -> None:
    program = tmp_path / "true"
    shutil.copy("/bin/true", program)
    spawned: list[agentd.Child] = []
    with agentd.Supervisor(cgroup_root) as supervisor:
        read, write = os.pipe()
        ended, got = threading.Event(), threading.Event()
        supervisor.spawn(["sh", "-c", "read line"], stdin=read, on_exit=lambda _: ended.set())
        late = supervisor.spawn(
            ["sleep", "1000"], limits=agentd.Limits(wall=0.2), on_exit=lambda _: got.set()
        )
        spawner = threading.Thread(target=lambda: spawned.append(supervisor.spawn([program])))
        with leased(program):
            spawner.start()
            worst = 0.0
            until = time.monotonic() + 0.3
            while (began := time.monotonic()) < until:
                time.sleep(0.001)
                worst = max(worst, time.monotonic() - began)
            # Everything goes on: what ends is told, what is due is done.
            os.write(write, b"\n")
            assert ended.wait(20)
            assert got.wait(20)
            assert late.wait(timeout=0).verdict.cause == "deadline"
            assert spawner.is_alive()
        spawner.join(timeout=60)
        assert not spawner.is_alive()
        assert spawned[0].wait(timeout=20).ok
    os.close(read)
    os.close(write)
    assert worst < 0.2  # a lock of the interpreter's that is held through the exec makes it 0.3 s
