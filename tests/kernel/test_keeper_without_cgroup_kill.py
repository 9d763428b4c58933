"""Before Linux 5.14 there is no cgroup.kill: the keeper kills one by one, also in cgroups below the leaf.

On a tree of plain directories, since no kernel that old is at hand; it cannot be removed, and the keeper that
goes on trying is killed.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from agentd.process.keeper import PROGRAM

pytestmark = pytest.mark.host

MORE_THAN_ARE_LISTED_AT_ONCE = "\n".join(["2147483647"] * 100)


def test_it_kills_each_by_a_pidfd(tmp_path: Path) -> None:
    outsider, inside, nested = (subprocess.Popen(["sleep", "1000"]) for _ in range(3))
    below = tmp_path / "run-4242-1" / "own" / "deeper"
    below.mkdir(parents=True)
    (tmp_path / "run-4242-1" / "cgroup.procs").write_text(
        f"0\n{MORE_THAN_ARE_LISTED_AT_ONCE}\n{inside.pid}\n"
    )
    (below / "cgroup.procs").write_text(f"{nested.pid}\n")
    (tmp_path / "run-4243-1").mkdir()
    (tmp_path / "run-4243-1" / "cgroup.procs").write_text(f"{outsider.pid}\n")
    supervisor = subprocess.Popen(["sleep", "1000"])
    pidfd = os.pidfd_open(supervisor.pid)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    keeper = subprocess.Popen(
        [PROGRAM, str(pidfd), str(theirs.fileno()), "4242"], pass_fds=(pidfd, theirs.fileno())
    )
    theirs.close()
    try:
        ours.send(b"+" + os.fsencode(tmp_path))
        supervisor.kill()
        assert inside.wait(20) == nested.wait(20) == -signal.SIGKILL
        assert outsider.poll() is None
    finally:
        for process in (outsider, inside, nested, supervisor, keeper):
            process.kill()
            process.wait()
        ours.close()
        os.close(pidfd)


def test_it_goes_where_nothing_was_told(tmp_path: Path) -> None:
    supervisor = subprocess.Popen(["sleep", "1000"])
    pidfd = os.pidfd_open(supervisor.pid)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    arguments = [str(pidfd), str(theirs.fileno()), "4242"]
    keeper = subprocess.Popen([PROGRAM, *arguments], pass_fds=(pidfd, theirs.fileno()))
    theirs.close()
    ours.send(b"+" + os.fsencode(tmp_path / "nothing"))
    ours.close()  # that alone does not end it
    handle = os.pidfd_open(keeper.pid)
    assert not select.select([handle], [], [], 0.05)[0]
    supervisor.kill()
    assert keeper.wait(20) == 0
    supervisor.wait()
    os.close(handle)
    os.close(pidfd)
