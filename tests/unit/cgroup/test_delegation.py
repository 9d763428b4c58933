from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentd.cgroup import aside
from agentd.cgroup.delegation import ORDER, Level, Vanished, delegate, not_offered, refusal

from .fake_kernel import FakeKernel

ALL = "memory io pids cpu cpuset hugetlb"
OWN = os.getpid()
STRANGER = 1


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeKernel:
    kernel = FakeKernel(tmp_path, ALL)
    kernel.install(monkeypatch)
    return kernel


def levels(
    kernel: FakeKernel, *paths: str, may_move: bool = True, namespace_root: bool = False
) -> list[Level]:
    found = []
    for path in paths:
        name = str(kernel.mount / path)
        found.append(Level(kernel.make(path), name, may_move, namespace_root and path == "."))
    return found


def test_from_the_top_down_memory_first(kernel: FakeKernel) -> None:
    done = delegate(levels(kernel, ".", "agentd"), kernel.hierarchy())
    assert done.controllers == set(ORDER)
    assert done.missing == {}
    expected = [f"{path} cgroup.subtree_control +{name}" for path in (".", "agentd") for name in ORDER]
    assert kernel.log == expected
    assert not done.moved


def test_done_already_is_a_few_reads(kernel: FakeKernel) -> None:
    delegate(levels(kernel, ".", "agentd"), kernel.hierarchy())
    kernel.log.clear()
    done = delegate(levels(kernel, ".", "agentd"), kernel.hierarchy())
    assert kernel.log == []
    assert done.controllers == set(ORDER)
    assert done.enabled == {}


def test_others_are_enabled_only_when_asked_for(kernel: FakeKernel) -> None:
    done = delegate(levels(kernel, ".", "agentd"), kernel.hierarchy(), also=["hugetlb", "rdma"])
    assert done.controllers == {*ORDER, "hugetlb"}
    assert list(done.missing) == ["rdma"]


def test_the_processes_of_the_real_root_are_left_alone(kernel: FakeKernel) -> None:
    kernel.make(".", procs={STRANGER, OWN})
    done = delegate(levels(kernel, ".", "agentd"), kernel.hierarchy())
    assert done.controllers == set(ORDER)
    assert kernel.at(".").procs == {STRANGER, OWN}


def test_our_own_processes_are_moved_aside(kernel: FakeKernel) -> None:
    kernel.make(".", enabled=ALL)
    kernel.make("own", procs={OWN})
    done = delegate(levels(kernel, "own", "own/agentd"), kernel.hierarchy("/own"))
    assert done.controllers == set(ORDER)
    assert done.moved == {str(kernel.mount / "own")}
    assert kernel.at("own").procs == set()
    assert kernel.at("own/supervisor").procs == {OWN}
    fd = os.open(kernel.mount / "own/supervisor", os.O_RDONLY)
    assert aside.is_marked(fd, aside.MARK)
    os.close(fd)


def test_a_stranger_s_processes_are_not(kernel: FakeKernel) -> None:
    kernel.make(".", enabled=ALL)
    kernel.make("own", procs={OWN, STRANGER})
    done = delegate(levels(kernel, "own", "own/agentd"), kernel.hierarchy("/own"))
    assert done.controllers == set()
    assert set(done.missing) == set(ORDER)
    assert kernel.log == []
    for why in done.missing.values():
        assert f"({STRANGER})" in why
        assert "not all of them are agentd's to move" in why
        assert "systemd-run --scope -p Delegate=yes" in why


def test_never_threaded_even_where_memory_is_not_to_be_had(kernel: FakeKernel) -> None:
    """On a hybrid host with pids alone on v2, nothing would refuse +pids beside processes (G02)."""
    kernel.make(".", enabled="pids cpu")
    kernel.make("own", procs={OWN, STRANGER})
    done = delegate(levels(kernel, "own", "own/agentd"), kernel.hierarchy("/own"))
    assert done.controllers == set()
    assert kernel.log == []


@pytest.mark.parametrize("attribute", aside.DELEGATED)
def test_everybody_is_moved_out_of_a_delegated_cgroup(
    kernel: FakeKernel, attribute: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel.make(".", enabled=ALL)
    kernel.make("own", procs={OWN, STRANGER})
    inode = (kernel.mount / "own").stat().st_ino

    def getxattr(fd: int, name: str) -> bytes:
        if os.fstat(fd).st_ino == inode and name == attribute:
            return b"1"
        raise OSError(errno.ENODATA, "none")

    monkeypatch.setattr(os, "getxattr", getxattr)
    done = delegate(levels(kernel, "own", "own/agentd"), kernel.hierarchy("/own"))
    assert done.controllers == set(ORDER)
    assert kernel.at("own/supervisor").procs == {OWN, STRANGER}


def test_everybody_is_moved_out_of_a_namespace_s_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = FakeKernel(tmp_path, ALL, real_root=False)
    kernel.install(monkeypatch)
    kernel.make(".", procs={STRANGER, OWN, 77})
    done = delegate(levels(kernel, ".", "agentd", namespace_root=True), kernel.hierarchy())
    assert done.controllers == set(ORDER)
    assert kernel.at("supervisor").procs == {STRANGER, OWN, 77}


def test_a_process_of_a_foreign_pid_namespace_cannot_be_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = FakeKernel(tmp_path, ALL, real_root=False)
    kernel.install(monkeypatch)
    kernel.make(".", procs={0, OWN})
    done = delegate(levels(kernel, ".", "agentd", namespace_root=True), kernel.hierarchy())
    assert "another pid namespace" in done.missing["memory"]
    assert not any("procs 0" in line for line in kernel.log)


def test_a_level_that_must_not_be_emptied(kernel: FakeKernel) -> None:
    kernel.make(".", enabled=ALL)
    kernel.make("own", procs={OWN})
    done = delegate(levels(kernel, "own", "own/agentd", may_move=False), kernel.hierarchy("/own"))
    assert done.controllers == set()
    assert kernel.log == []


def test_what_a_level_lacks_costs_only_itself(kernel: FakeKernel) -> None:
    kernel.make(".", enabled="io cpu")
    done = delegate(levels(kernel, "own", "own/agentd"), kernel.hierarchy("/own"))
    assert done.controllers == {"io", "cpu"}
    assert set(done.missing) == {"memory", "pids", "cpuset"}
    assert "is not handed down to" in done.missing["memory"]


@pytest.mark.parametrize(
    "number", [errno.EBUSY, errno.ENOENT, errno.EACCES, errno.EPERM, errno.EROFS, errno.EINVAL]
)
def test_a_refused_write_costs_only_its_controller(kernel: FakeKernel, number: int) -> None:
    kernel.refuse[(".", "cgroup.subtree_control +cpu")] = [number] * 20
    done = delegate(levels(kernel, ".", "agentd"), kernel.hierarchy())
    assert done.controllers == set(ORDER) - {"cpu"}
    assert errno.errorcode[number] in done.missing["cpu"]


def test_somebody_comes_in_between(kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """As ``docker exec`` does: between the emptying and the enabling (moby#43093)."""
    kernel = FakeKernel(kernel.mount, ALL, real_root=False)
    kernel.install(monkeypatch)
    kernel.make(".", procs={OWN})
    comers = [STRANGER, 77]

    def write(fd: int, name: str, text: str) -> None:
        if name == "cgroup.subtree_control" and comers:
            kernel.at(".").procs.add(comers.pop())
        kernel.write(fd, name, text)

    monkeypatch.setattr("agentd.cgroup.control.write", write)
    done = delegate(levels(kernel, ".", "agentd", namespace_root=True), kernel.hierarchy())
    assert done.controllers == set(ORDER)
    assert kernel.at("supervisor").procs == {OWN, STRANGER, 77}


def test_undone_where_it_made_the_cgroup_threaded(
    kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel.make(".", enabled="pids cpu")

    def write(fd: int, name: str, text: str) -> None:
        if text == "+pids":
            kernel.at("own").procs.add(STRANGER)
        kernel.write(fd, name, text)

    monkeypatch.setattr("agentd.cgroup.control.write", write)
    done = delegate(levels(kernel, "own", "own/agentd"), kernel.hierarchy("/own"))
    assert done.controllers == set()
    assert kernel.at("own").enabled == set()
    assert f"({STRANGER})" in done.missing["pids"]


def test_said_where_it_cannot_be_undone(kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel.make(".", enabled="pids")
    kernel.refuse[("own", "cgroup.subtree_control -pids")] = [errno.EBUSY]

    def write(fd: int, name: str, text: str) -> None:
        if text == "+pids":
            kernel.at("own").procs.add(STRANGER)
        kernel.write(fd, name, text)

    monkeypatch.setattr("agentd.cgroup.control.write", write)
    done = delegate(levels(kernel, "own"), kernel.hierarchy("/own"))
    assert "a threaded cgroup (domain threaded), and it stays one" in done.missing["pids"]


def test_a_threaded_level(kernel: FakeKernel) -> None:
    kernel.make(".", enabled=ALL)
    kernel.make("own", procs={OWN}, enabled="pids")
    done = delegate(levels(kernel, "own"), kernel.hierarchy("/own"))
    assert done.controllers == {"pids"}
    assert "is a threaded cgroup (domain threaded), with" in done.missing["memory"]


@pytest.mark.parametrize("number", [errno.ENODEV, errno.ENOENT])
def test_a_level_that_was_removed(kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def read(fd: int, name: str) -> str:
        raise OSError(number, os.strerror(number))

    places = levels(kernel, ".")
    monkeypatch.setattr("agentd.cgroup.control.read", read)
    with pytest.raises(Vanished):
        delegate(places, kernel.hierarchy())


def test_a_level_that_is_removed_meanwhile(kernel: FakeKernel) -> None:
    kernel.refuse[("agentd", "cgroup.subtree_control +io")] = [errno.ENODEV]
    with pytest.raises(Vanished):
        delegate(levels(kernel, ".", "agentd"), kernel.hierarchy())


@pytest.mark.parametrize(
    ("v1", "real_root", "expected"),
    [
        (
            {"blkio": "/cg/blkio"},
            True,
            "the io controller is bound to cgroup v1 at /cg/blkio on this host; boot with",
        ),
        ({"blkio": ""}, False, "the io controller is bound to cgroup v1 on this host; boot with"),
        ({}, True, "this kernel has no io controller for cgroup v2, or was booted with cgroup_disable=io"),
        ({}, False, "the io controller is not handed down to /x by the cgroup above it; use systemd-run"),
    ],
)
def test_why_it_is_not_offered(
    kernel: FakeKernel, v1: dict[str, str], real_root: bool, expected: str
) -> None:
    hierarchy = kernel.hierarchy(v1_controllers=v1)
    assert not_offered("io", hierarchy, "/x", real_root=real_root).startswith(expected)


def test_an_errno_without_a_sentence() -> None:
    assert refusal("io", "/x", errno.ENOMEM) == (
        "the io controller cannot be enabled in /x (ENOMEM): Cannot allocate memory"
    )


def test_back_again(kernel: FakeKernel) -> None:
    kernel.make(".", enabled=ALL)
    fd = kernel.make("own", procs={OWN})
    done = delegate(levels(kernel, "own"), kernel.hierarchy("/own"))
    assert aside.move_back(fd, done.enabled[str(kernel.mount / "own")])
    assert kernel.at("own").procs == {OWN}
    assert kernel.at("own").enabled == set()
    assert os.listdir(kernel.mount / "own") == []


@pytest.mark.parametrize("obstacle", ["somebody else", "a controller in use below", "not marked"])
def test_not_back_again(kernel: FakeKernel, obstacle: str) -> None:
    kernel.make(".", enabled=ALL)
    fd = kernel.make("own", procs={OWN})
    done = delegate(levels(kernel, "own"), kernel.hierarchy("/own"))
    if obstacle == "somebody else":
        kernel.at("own/supervisor").procs.add(STRANGER)
    elif obstacle == "not marked":
        os.removexattr(kernel.mount / "own/supervisor", aside.MARK)
    else:
        kernel.make("own/other", enabled="memory")
    assert not aside.move_back(fd, done.enabled[str(kernel.mount / "own")])
    assert kernel.at("own/supervisor").procs >= {OWN}
    assert kernel.at("own").enabled == set(ORDER)


def test_back_again_without_ever_having_moved(kernel: FakeKernel) -> None:
    assert not aside.move_back(kernel.make("own"), ())


PLACES = st.sampled_from([".", "own", "own/agentd"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=200)
@given(
    offered=st.sets(st.sampled_from(ALL.split())),
    enabled=st.sets(st.sampled_from(ALL.split())),
    procs=st.sets(st.sampled_from([OWN, STRANGER])),
    real_root=st.booleans(),
    may_move=st.booleans(),
)
def test_whatever_there_was_no_domain_breaks(
    kernel: FakeKernel,
    offered: set[str],
    enabled: set[str],
    procs: set[int],
    real_root: bool,
    may_move: bool,
) -> None:
    kernel.offered, kernel.real_root = offered, real_root
    kernel.states.clear()
    kernel.log.clear()
    kernel.make(".", enabled=" ".join(offered & enabled))
    fd = kernel.make("own", procs=procs)
    leaf = kernel.make("own/agentd/leaf")
    done = delegate(levels(kernel, "own", "own/agentd", may_move=may_move), kernel.hierarchy("/own"))
    assert kernel.kind(fd) == kernel.kind(leaf) == "domain"
    assert done.controllers | set(done.missing) >= set(ORDER)
    assert done.controllers == kernel.controllers(leaf)
    assert not done.controllers & set(done.missing)
    if STRANGER in procs:
        assert STRANGER in kernel.at("own").procs
        assert not done.controllers
