from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentd.cgroup import control, leaf


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, control.DIRECTORY)
    yield fd
    os.close(fd)


def test_pids_of_all_cgroups_below(tmp_path: Path, fd: int) -> None:
    for path, text in (("", "5\n0\n"), ("a", "7\n8\n"), ("a/b", ""), ("c", "9\n")):
        (tmp_path / path).mkdir(exist_ok=True)
        (tmp_path / path / "cgroup.procs").write_text(text)
    assert sorted(leaf.pids(fd)) == [5, 7, 8, 9]


def test_a_cgroup_that_is_gone_or_threaded_is_passed_over(
    tmp_path: Path, fd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in ("a", "b", "c", "d"):
        (tmp_path / path).mkdir()
    numbers = iter([0, errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP, 0])

    def read(dirfd: int, name: str) -> str:
        number = next(numbers)
        if number:
            raise OSError(number, os.strerror(number))
        return "5\n"

    monkeypatch.setattr(control, "read", read)
    assert leaf.pids(fd) == [5, 5]


def test_no_permission_is_not_passed_over(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(dirfd: int, name: str) -> str:
        raise PermissionError(errno.EACCES, "no")

    monkeypatch.setattr(control, "read", read)
    with pytest.raises(PermissionError):
        leaf.pids(fd)
    with pytest.raises(PermissionError):
        leaf.populated(fd)


def test_subcgroups(tmp_path: Path, fd: int) -> None:
    (tmp_path / "file").touch()
    assert leaf.subcgroups(fd) == []
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "link").symlink_to("a")
    assert sorted(leaf.subcgroups(fd)) == ["a", "b"]


def test_events(tmp_path: Path, fd: int) -> None:
    events = tmp_path / "cgroup.events"
    assert leaf.populated(fd) is False
    events.write_text("populated 1\nfrozen 0\n")
    assert leaf.populated(fd) is True
    assert leaf.frozen(fd) is False
    events.write_text("populated 0\nfrozen 1\n")
    assert leaf.populated(fd) is False
    assert leaf.frozen(fd) is True


def test_kill_is_one_write(tmp_path: Path, fd: int) -> None:
    (tmp_path / "cgroup.kill").touch()
    leaf.kill(fd)
    assert (tmp_path / "cgroup.kill").read_text() == "1"


def test_kill_in_a_leaf_that_is_gone(tmp_path: Path, fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    leaf.kill(fd)

    def write(dirfd: int, name: str, text: str) -> None:
        raise OSError(errno.ENODEV, "gone")

    monkeypatch.setattr(control, "write", write)
    leaf.kill(fd)


def test_kill_without_permission(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(dirfd: int, name: str, text: str) -> None:
        raise PermissionError(errno.EACCES, "no")

    monkeypatch.setattr(control, "write", write)
    with pytest.raises(PermissionError):
        leaf.kill(fd)


class OldKernel:
    """Lists some processes as being in the leaf until they are dead; has no cgroup.kill (G37)."""

    def __init__(self, processes: list[subprocess.Popen[bytes]]) -> None:
        self.processes = processes
        self.writes: list[str] = []

    def read(self, dirfd: int, name: str) -> str:
        alive = [process.pid for process in self.processes if process.poll() is None]
        if name == "cgroup.events":
            return f"populated {int(bool(alive))}\nfrozen 0\n"
        return "".join(f"{pid}\n" for pid in [0, *alive])

    def write(self, dirfd: int, name: str, text: str) -> None:
        if name == "cgroup.kill":
            raise FileNotFoundError(errno.ENOENT, "no such file")
        self.writes.append(f"{name} {text}")


def test_without_cgroup_kill_each_is_killed_and_the_leaf_thawed(
    fd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = [subprocess.Popen(["sleep", "1000"]) for _ in range(3)]
    kernel = OldKernel(processes)
    monkeypatch.setattr(control, "read", kernel.read)
    monkeypatch.setattr(control, "read_or", lambda dirfd, name, otherwise: kernel.read(dirfd, name))
    monkeypatch.setattr(control, "write", kernel.write)
    before = os.listdir("/proc/self/fd")
    leaf.kill(fd)
    assert [process.wait() for process in processes] == [-9, -9, -9]
    assert kernel.writes == ["cgroup.freeze 1", "cgroup.freeze 0"]
    assert os.listdir("/proc/self/fd") == before


def test_the_leaf_is_thawed_whatever_happens(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = OldKernel([])
    monkeypatch.setattr(control, "read", lambda dirfd, name: "populated 1\n")
    monkeypatch.setattr(control, "write", kernel.write)

    def interrupted(dirfd: int) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(leaf, "_kill_pass", interrupted)
    with pytest.raises(KeyboardInterrupt):
        leaf.kill(fd)
    assert kernel.writes == ["cgroup.freeze 1", "cgroup.freeze 0"]


def test_a_number_that_went_to_somebody_else_is_not_signalled(
    fd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bystander = subprocess.Popen(["sleep", "1000"])
    try:
        listings = iter([f"{bystander.pid}\n", "", "", ""])
        monkeypatch.setattr(control, "read_or", lambda *_: next(listings))
        assert leaf._kill_pass(fd) is False
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()
