"""What the keeper is: out of sight, out of the way, and gone with its process."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import doomed, leftovers
from tests.support.doomed import Doomed


@pytest.fixture
def supervisor(cgroup_root: str) -> Iterator[Doomed]:
    with Doomed(cgroup_root, 1, "sh", "-c", "echo ready; exec sleep 1000") as supervising:
        yield supervising


def test_no_look_for_agentd_finds_it(supervisor: Doomed) -> None:
    """B79: `pkill agentd` looks at the name, `pkill -f agentd` at the arguments."""
    folder = Path(f"/proc/{supervisor.keeper}")
    assert (folder / "comm").read_text() == "leafkeeper\n"
    assert b"agentd" not in (folder / "cmdline").read_bytes()
    assert "agentd" not in (folder / "stat").read_text()
    assert (folder / "environ").read_bytes() == b""


def test_it_is_outside_the_leaves_in_a_session_of_its_own(supervisor: Doomed, cgroup_root: str) -> None:
    keeper = supervisor.keeper
    assert os.getsid(keeper) == os.getpgid(keeper) == keeper
    (process,) = [found for found in leftovers.processes() if found.pid == keeper]
    assert os.path.basename(cgroup_root) not in process.cgroup
    assert process.ppid != supervisor.process.pid
    assert os.readlink(f"/proc/{keeper}/cwd") == "/"


def test_it_holds_nothing_of_the_callers(supervisor: Doomed) -> None:
    folder = f"/proc/{supervisor.keeper}/fd"
    held = {int(number): os.readlink(f"{folder}/{number}") for number in os.listdir(folder)}
    assert {held.pop(number) for number in (0, 1, 2)} == {"/dev/null"}
    kinds = sorted(target.partition(":")[0] for target in held.values() if not target.startswith("/sys/"))
    assert kinds == ["anon_inode", "socket"]
    subtrees = {target for target in held.values() if target.startswith("/sys/")}
    assert subtrees == {supervisor.root}


def test_the_end_of_the_callers_output_does_not_wait_for_it(supervisor: Doomed) -> None:
    keeper = os.pidfd_open(supervisor.keeper)
    signal.pidfd_send_signal(keeper, signal.SIGSTOP)
    try:
        assert supervisor.end() == 0
        assert supervisor.process.stdout is not None
        assert supervisor.process.stdout.read() == ""
    finally:
        signal.pidfd_send_signal(keeper, signal.SIGCONT)
        os.close(keeper)


def test_its_memory_is_closed_to_others_of_its_user(cgroup_root: str) -> None:
    """It is not dumpable (prctl(2)): without CAP_SYS_PTRACE nobody looks into it. A plain process can be."""
    if shutil.which("setpriv") is None:
        pytest.skip("no setpriv here, to give up a capability with")
    unprivileged = ["setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"]
    with Doomed(cgroup_root, 1, "sh", "-c", "echo ready; exec sleep 1000", prefix=unprivileged) as supervisor:
        keeper, child = supervisor.keeper, supervisor.ask("children[0].pid")
        # The targets of the links are shown to whoever could trace it.
        look = "os.path.exists('/proc/{}/fd/0')"
        assert supervisor.ask(look.format(child))
        assert not supervisor.ask(look.format(keeper))


def test_it_goes_with_a_process_that_ends_by_itself(supervisor: Doomed, cgroup_root: str) -> None:
    keeper = supervisor.keeper
    assert supervisor.end() == 0
    assert doomed.gone(keeper)
    assert leftovers.leaves(cgroup_root) == []


def test_several_supervisors_share_it(supervisor: Doomed, cgroup_root: str) -> None:
    others = f"{cgroup_root}/others"
    spawn = f"(s := agentd.Supervisor({others!r}), c := s.spawn(['sleep', '1000']), children.append(c), s)"
    keeper = supervisor.keeper
    seen = {supervisor.ask(f"{spawn}[1].enforcement.keeper['pid']") for _ in range(3)}
    assert seen == {keeper}
    assert len(leftovers.leaves(others)) == 3
    supervisor.signal(signal.SIGKILL)
    assert doomed.gone(keeper)
    assert leftovers.leaves(cgroup_root) in ([], ["others"])
    assert leftovers.leaves(others) == []


FORKED = """
(lambda pid: os._exit(0 if agentd.process.reaper.shared().keeper.pid is None else 1) if pid == 0
 else os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))(os.fork())
"""


def test_a_forked_copy_does_not_disturb_it(supervisor: Doomed, cgroup_root: str) -> None:
    keeper = supervisor.keeper
    assert supervisor.ask(" ".join(FORKED.split())) == 0
    assert supervisor.ask("supervisor.spawn(['true']).wait(20).enforcement.keeper['pid']") == keeper
    supervisor.signal(signal.SIGKILL)
    assert doomed.gone(keeper)
    assert leftovers.leaves(cgroup_root) == []


def test_a_forked_copy_that_lives_on_holds_up_nothing(supervisor: Doomed, cgroup_root: str) -> None:
    """multiprocessing's workers, say: they outlive the process that the keeper looks after."""
    keeper = supervisor.keeper
    copy = supervisor.ask("(lambda pid: signal.pause() if pid == 0 else pid)(os.fork())")
    pidfd = os.pidfd_open(copy)
    try:
        supervisor.signal(signal.SIGKILL)
        assert doomed.gone(keeper)
        assert leftovers.leaves(cgroup_root) == []
        assert leftovers.alive(copy)
    finally:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        os.close(pidfd)
