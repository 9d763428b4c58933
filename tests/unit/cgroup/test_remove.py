from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from agentd.cgroup import control
from agentd.cgroup.remove import remove_tree


def remove(parent: Path, name: str) -> list[tuple[str, int]]:
    fd = os.open(parent, control.DIRECTORY)
    try:
        return remove_tree(fd, name)
    finally:
        os.close(fd)


def test_nothing_below(tmp_path: Path) -> None:
    (tmp_path / "leaf").mkdir()
    assert remove(tmp_path, "leaf") == []
    assert list(tmp_path.iterdir()) == []


def test_one_that_is_gone_counts_as_removed(tmp_path: Path) -> None:
    assert remove(tmp_path, "leaf") == []


def test_a_tree(tmp_path: Path) -> None:
    for path in ("leaf/a/b/c", "leaf/a/d", "leaf/e", "other"):
        (tmp_path / path).mkdir(parents=True)
    assert remove(tmp_path, "leaf") == []
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_hundreds_of_levels_on_few_descriptors(tmp_path: Path) -> None:
    name = "n" * 200
    fd = os.open(tmp_path, control.DIRECTORY)
    for _ in range(1500):
        os.mkdir(name, dir_fd=fd)
        inner = os.open(name, control.DIRECTORY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(fd)
    (tmp_path / name / "beside").mkdir()
    assert remove(tmp_path, name) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", [0o000, 0o500, 0o111])
def test_modes_are_no_obstacle(tmp_path: Path, mode: int) -> None:
    (tmp_path / "leaf/a/b").mkdir(parents=True)
    for path in ("leaf/a/b", "leaf/a", "leaf"):
        (tmp_path / path).chmod(mode)
    assert remove(tmp_path, "leaf") == []


def test_what_cannot_be_removed_is_named_deepest_first(tmp_path: Path) -> None:
    (tmp_path / "leaf/a/b").mkdir(parents=True)
    (tmp_path / "leaf/c").mkdir()
    (tmp_path / "leaf/a/b/file").touch()
    assert remove(tmp_path, "leaf") == [
        ("leaf/a/b", errno.ENOTEMPTY),
        ("leaf/a", errno.ENOTEMPTY),
        ("leaf", errno.ENOTEMPTY),
    ]
    assert not (tmp_path / "leaf/c").exists()


def test_a_symbolic_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "leaf").mkdir()
    (tmp_path / "target/kept").mkdir(parents=True)
    (tmp_path / "leaf/link").symlink_to(tmp_path / "target")
    assert remove(tmp_path, "leaf") == [("leaf", errno.ENOTEMPTY)]
    (tmp_path / "direct").symlink_to(tmp_path / "target")
    assert remove(tmp_path, "direct") == [("direct", errno.ENOTDIR)]
    assert (tmp_path / "target/kept").is_dir()


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    (tmp_path / "leaf/a/b").mkdir(parents=True)
    (tmp_path / "leaf/a/b/file").touch()
    remove(tmp_path, "leaf")
    (tmp_path / "leaf/a/b/file").unlink()
    remove(tmp_path, "leaf")
    assert os.listdir("/proc/self/fd") == before
