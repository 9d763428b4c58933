from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from agentd.cgroup import aside
from agentd.cgroup.delegation import ORDER
from agentd.cgroup.limits import Limits
from agentd.cgroup.plan import NOTHING
from agentd.cgroup.subtree import Subtree, block_device, resolve
from agentd.errors import LimitNotInForceError, NoCgroupError, UsageError

from .fake_kernel import FakeKernel

ALL = "memory io pids cpu cpuset hugetlb"
OWN = os.getpid()


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeKernel:
    kernel = FakeKernel(tmp_path, ALL)
    kernel.install(monkeypatch)
    return kernel


def test_auto(kernel: FakeKernel) -> None:
    before = os.listdir("/proc/self/fd")
    with Subtree.open(hierarchy=kernel.hierarchy()) as subtree:
        assert subtree.path == str(kernel.mount / "agentd")
        assert os.path.samestat(os.fstat(subtree.fd), os.stat(subtree.path))
        assert not os.get_inheritable(subtree.fd)
        assert subtree.controllers == set(ORDER)
        assert subtree.missing == {}
        assert subtree.created
        assert not subtree.moved_aside
    assert not (kernel.mount / "agentd").exists()
    assert os.listdir("/proc/self/fd") == before


def test_the_second_finds_all_done_and_leaves_it(kernel: FakeKernel) -> None:
    with Subtree.open(hierarchy=kernel.hierarchy()) as first:
        kernel.log.clear()
        with Subtree.open(hierarchy=kernel.hierarchy()) as second:
            assert kernel.log == []
            assert second.controllers == first.controllers
            assert not second.created
            os.mkdir("leaf", dir_fd=first.fd)
        assert (kernel.mount / "agentd/leaf").is_dir()
        os.rmdir("leaf", dir_fd=first.fd)


def test_a_subtree_with_a_leaf_stays(kernel: FakeKernel) -> None:
    with Subtree.open(hierarchy=kernel.hierarchy()) as subtree:
        os.mkdir("leaf", dir_fd=subtree.fd)
    assert (kernel.mount / "agentd/leaf").is_dir()


def test_close_twice_and_without_removal(kernel: FakeKernel) -> None:
    subtree = Subtree.open(hierarchy=kernel.hierarchy())
    subtree.close(remove=False)
    subtree.close()
    assert (kernel.mount / "agentd").is_dir()


def test_moved_aside_and_back(kernel: FakeKernel) -> None:
    kernel.make(".", enabled=ALL)
    kernel.make("own", procs={OWN})
    subtree = Subtree.open(hierarchy=kernel.hierarchy("/own"))
    assert subtree.moved_aside
    assert subtree.controllers == set(ORDER)
    assert kernel.at("own/supervisor").procs == {OWN}
    subtree.close()
    assert kernel.at("own").procs == {OWN}
    assert os.listdir(kernel.mount / "own") == []


def test_moved_aside_and_not_back_while_a_sibling_is_there(kernel: FakeKernel) -> None:
    kernel.make(".", enabled=ALL)
    kernel.make("own", procs={OWN})
    subtree = Subtree.open(hierarchy=kernel.hierarchy("/own"))
    kernel.make("own/other")
    subtree.close()
    assert kernel.at("own/supervisor").procs == {OWN}


def test_a_later_run_does_not_nest(kernel: FakeKernel) -> None:
    kernel.make(".", enabled=ALL)
    kernel.make("own", procs={OWN})
    with Subtree.open(hierarchy=kernel.hierarchy("/own")) as first:
        kernel.log.clear()
        with Subtree.open(hierarchy=kernel.hierarchy("/own/supervisor")) as second:
            assert second.path == first.path
            assert kernel.log == []
            assert not second.moved_aside


def test_a_run_inside_a_leaf_nests(kernel: FakeKernel) -> None:
    with Subtree.open(hierarchy=kernel.hierarchy()) as outer:
        kernel.make("agentd/run-1-1", procs={OWN})
        with Subtree.open(hierarchy=kernel.hierarchy("/agentd/run-1-1")) as inner:
            assert inner.path == f"{outer.path}/run-1-1/agentd"
            assert inner.controllers == set(ORDER)
            assert kernel.at("agentd/run-1-1/supervisor").procs == {OWN}
        os.rmdir("run-1-1", dir_fd=outer.fd)


def test_a_path(kernel: FakeKernel) -> None:
    path = str(kernel.mount / "mine")
    with Subtree.open(path, hierarchy=kernel.hierarchy("/elsewhere")) as subtree:
        assert subtree.path == path
        assert subtree.controllers == set(ORDER)
        assert subtree.created
    assert not os.path.exists(path)


def test_a_path_that_was_there_stays(kernel: FakeKernel) -> None:
    kernel.make("mine")
    with Subtree.open(str(kernel.mount / "mine"), hierarchy=kernel.hierarchy()):
        pass
    assert (kernel.mount / "mine").is_dir()


def test_our_own_cgroup_by_path(kernel: FakeKernel) -> None:
    kernel.make(".", enabled=ALL)
    kernel.make("mine", procs={OWN})
    with Subtree.open(str(kernel.mount / "mine"), hierarchy=kernel.hierarchy("/mine")) as subtree:
        assert subtree.moved_aside
        assert subtree.controllers == set(ORDER)
    assert kernel.at("mine").procs == {OWN}


def test_a_path_s_parent_is_never_emptied(kernel: FakeKernel) -> None:
    kernel.make(".", enabled=ALL)
    kernel.make("above", procs={OWN})
    with Subtree.open(str(kernel.mount / "above/mine"), hierarchy=kernel.hierarchy("/above")) as subtree:
        assert subtree.controllers == set()
        assert "holds processes" in subtree.missing["memory"]
        assert not subtree.moved_aside
    assert kernel.at("above").procs == {OWN}


def test_the_mount_itself(kernel: FakeKernel) -> None:
    with Subtree.open(str(kernel.mount), hierarchy=kernel.hierarchy()) as subtree:
        assert subtree.controllers == set(ORDER)
        assert subtree.facts().files is None
    assert kernel.mount.is_dir()


@pytest.mark.parametrize("spec", ["/elsewhere", "", "relative", "/x/../y"])
def test_a_bad_path(kernel: FakeKernel, spec: str) -> None:
    with pytest.raises(UsageError):
        Subtree.open(spec, hierarchy=kernel.hierarchy())


def test_below_a_threaded_cgroup(kernel: FakeKernel) -> None:
    kernel.make(".", enabled="pids")
    kernel.make("own", procs={OWN}, enabled="pids")
    with pytest.raises(
        NoCgroupError, match=r"cannot hold processes \(domain invalid\).*own is domain threaded"
    ):
        Subtree.open(hierarchy=kernel.hierarchy("/own"))
    assert not (kernel.mount / "own/agentd").exists()


def test_no_right_to_enter(kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel.make("a/own")
    (kernel.mount / "a/cgroup.procs").touch()
    kernel.make("a/mine")
    refused = str(kernel.mount / "a/cgroup.procs")
    real = os.access

    def access(path: str, mode: int, **rest: object) -> bool:
        return path != refused and real(path, mode, **rest)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "access", access)
    with pytest.raises(NoCgroupError, match=r"of the cgroup above both, is not writable.*systemd-run --user"):
        Subtree.open(str(kernel.mount / "a/mine"), hierarchy=kernel.hierarchy("/a/own"))


def test_no_right_to_make_leaves(kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    (kernel.mount / "mine").mkdir()
    (kernel.mount / "mine/cgroup.procs").touch()
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    with pytest.raises(NoCgroupError, match="no permission to make leaves in"):
        Subtree.open(str(kernel.mount / "mine"), hierarchy=kernel.hierarchy(""))


def test_reopen_after_another_process_removed_it(kernel: FakeKernel) -> None:
    with Subtree.open(hierarchy=kernel.hierarchy()) as subtree:
        number, inode = subtree.fd, os.fstat(subtree.fd).st_ino
        os.rmdir(subtree.path)
        kernel.states.pop(inode)
        subtree.reopen()
        assert subtree.fd == number
        assert os.path.samestat(os.fstat(number), os.stat(subtree.path))
        assert subtree.controllers == set(ORDER)
        subtree.reopen()
    assert not os.path.exists(subtree.path)


def test_removed_between_two_steps_of_opening(kernel: FakeKernel) -> None:
    kernel.refuse[("agentd", "cgroup.subtree_control +io")] = [errno.ENODEV, errno.ENODEV]
    with Subtree.open(hierarchy=kernel.hierarchy()) as subtree:
        assert subtree.controllers == set(ORDER)


def test_removed_again_and_again(kernel: FakeKernel) -> None:
    kernel.refuse[("agentd", "cgroup.subtree_control +io")] = [errno.ENODEV] * 100
    before = os.listdir("/proc/self/fd")
    with pytest.raises(NoCgroupError, match="removed as often as it is made"):
        Subtree.open(hierarchy=kernel.hierarchy())
    assert os.listdir("/proc/self/fd") == before


def test_plans_are_kept(kernel: FakeKernel) -> None:
    with Subtree.open(hierarchy=kernel.hierarchy()) as subtree:
        limits = Limits(pids_max=5)
        assert subtree.plan(limits) is subtree.plan(Limits(pids_max=5))
        assert subtree.plan(Limits()) is NOTHING
        for number in range(1000):
            subtree.plan(Limits(pids_max=number + 1))
        assert subtree.plan(limits).before[0].value == "5"


def test_a_further_controller_is_enabled_when_a_limit_needs_it(
    kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Subtree.open(hierarchy=kernel.hierarchy()) as subtree:
        assert "hugetlb" not in subtree.controllers
        planned = subtree.plan(Limits(files={"hugetlb.2MB.max": 0, "rdma.max": "x", "cgroup.max.depth": 1}))
        assert "hugetlb" in subtree.controllers
        assert [write.file for write in planned.before] == ["cgroup.max.depth", "hugetlb.2MB.max"]
        assert list(planned.not_in_force) == ["rdma.max"]


def test_caps_on_the_subtree(kernel: FakeKernel) -> None:
    fd = kernel.make("agentd")
    kernel.state(fd).texts = {
        "pids.max": "max",
        "memory.max": "max",
        "memory.swap.max": "max",
        "cpu.max": "max",
    }
    total = Limits(pids_max=100, memory_max="64M", cpu_max=1)
    with Subtree.open(hierarchy=kernel.hierarchy(), total=total):
        assert kernel.at("agentd").texts == {
            "pids.max": "100",
            "memory.max": "67108864",
            "memory.swap.max": "0",
            "cpu.max": "100000 100000",
        }


def test_caps_that_cannot_be_in_force(kernel: FakeKernel) -> None:
    kernel.offered = {"pids"}
    with pytest.raises(LimitNotInForceError) as caught:
        Subtree.open(hierarchy=kernel.hierarchy(), total=Limits(pids_max=5, memory_max="1M"))
    assert set(caught.value.reasons) == {"pids_max", "memory_max"}
    assert not (kernel.mount / "agentd").exists()


def test_caps_of_time(kernel: FakeKernel) -> None:
    with pytest.raises(UsageError) as caught:
        Subtree.open(hierarchy=kernel.hierarchy(), total=Limits(wall=5, idle=1, pids_max=1))
    assert len(caught.value.problems) == 2


def test_in_a_forked_process_close_gives_nothing_back(kernel: FakeKernel) -> None:
    with Subtree.open(hierarchy=kernel.hierarchy()) as subtree:
        pid = os.fork()
        if pid == 0:
            subtree.close()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert (kernel.mount / "agentd").is_dir()


def test_several_threads_open_and_close_at_once(kernel: FakeKernel) -> None:
    kernel.make(".", enabled=ALL)
    kernel.make("own", procs={OWN})
    wrong: list[object] = []

    def run() -> None:
        try:
            for _ in range(10):
                with Subtree.open(hierarchy=kernel.hierarchy("/own/supervisor")) as subtree:
                    if subtree.controllers != set(ORDER):
                        wrong.append(subtree.missing)
        except BaseException as error:
            wrong.append(error)

    with Subtree.open(hierarchy=kernel.hierarchy("/own")):
        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


def test_resolve_makes_nothing(kernel: FakeKernel) -> None:
    assert resolve("auto", kernel.hierarchy()) == str(kernel.mount / "agentd")
    assert resolve(f"{kernel.mount}/x/", kernel.hierarchy()) == str(kernel.mount / "x")
    with pytest.raises(NoCgroupError):
        resolve("auto", kernel.hierarchy(kind="none", mount=""))
    assert os.listdir(kernel.mount) == []


def test_a_mark_made_by_hand(kernel: FakeKernel) -> None:
    fd = kernel.make("own/supervisor")
    assert not aside.is_marked(fd, aside.MARK)
    assert aside.mark(fd, aside.MARK)
    assert aside.is_marked(fd, aside.MARK)
    assert resolve("auto", kernel.hierarchy("/own/supervisor")) == str(kernel.mount / "own/agentd")


def test_a_kernel_without_marks(kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    def setxattr(fd: int, name: str, value: bytes) -> None:
        raise OSError(errno.EOPNOTSUPP, "no")

    monkeypatch.setattr(os, "setxattr", setxattr)
    assert not aside.mark(kernel.make("own"), aside.MARK)


def test_a_file_is_no_block_device(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a block device"):
        block_device(str(tmp_path))
    with pytest.raises(FileNotFoundError):
        block_device(str(tmp_path / "none"))
