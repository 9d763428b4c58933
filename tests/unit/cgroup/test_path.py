from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.cgroup.hierarchy import Hierarchy
from agentd.cgroup.path import auto_path, check_text, open_cgroup, require_v2
from agentd.errors import NoCgroupError, UsageError

MOUNT = "/sys/fs/cgroup"


def hierarchy(**changes: object) -> Hierarchy:
    fields: dict[str, object] = {
        "kind": "unified",
        "mount": MOUNT,
        "mount_root": "/",
        "read_only": False,
        "own": "/a",
        "options": frozenset(),
        "v1_controllers": {},
    }
    return Hierarchy(**(fields | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"kind": "none", "mount": ""}, "no cgroup file system is mounted here; mount -t cgroup2"),
        (
            {"kind": "v1", "mount": "", "v1_controllers": {"memory": "/m", "pids": "/p", "misc": ""}},
            r"only cgroup v1 is mounted here \(memory, pids\).*systemd.unified_cgroup_hierarchy=1",
        ),
        ({"kind": "v1", "mount": "", "v1_controllers": {"memory": ""}}, "none of it visible"),
        ({"read_only": True}, r"/sys/fs/cgroup is mounted read-only \(EROFS\).*--cgroupns=private"),
    ],
)
def test_no_cgroup_v2(changes: dict[str, object], match: str) -> None:
    with pytest.raises(NoCgroupError, match=match):
        require_v2(hierarchy(**changes))


def test_auto_is_below_our_own_cgroup() -> None:
    assert auto_path(hierarchy()) == "/sys/fs/cgroup/a/agentd"
    assert auto_path(hierarchy(own="/")) == "/sys/fs/cgroup/agentd"


def test_auto_where_our_own_cgroup_is_not_to_be_seen() -> None:
    with pytest.raises(NoCgroupError, match="our own cgroup is not to be seen below"):
        auto_path(hierarchy(own=""))


def test_auto_in_a_cgroup_named_supervisor_that_is_not_ours() -> None:
    assert auto_path(hierarchy(own="/a/supervisor")) == "/sys/fs/cgroup/a/supervisor/agentd"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (MOUNT, MOUNT),
        (f"{MOUNT}/", MOUNT),
        (f"{MOUNT}/a.slice/b", f"{MOUNT}/a.slice/b"),
        (f"{MOUNT}/a/", f"{MOUNT}/a"),
        (f"{MOUNT}/...", f"{MOUNT}/..."),
    ],
)
def test_a_path_below_the_mount(path: str, expected: str) -> None:
    assert check_text(path, MOUNT) == expected


@pytest.mark.parametrize(
    "path",
    [
        "",
        "a",
        "auto ",
        "./a",
        "/",
        "/sys/fs",
        "/sys/fs/cgroups/a",
        f"{MOUNT}/../cgroup/a",
        f"{MOUNT}/a/..",
        f"{MOUNT}/./a",
        f"{MOUNT}//a",
        f"{MOUNT}/a\nb",
        f"{MOUNT}/a\0b",
        None,
    ],
)
def test_a_path_that_is_not(path: str) -> None:
    with pytest.raises(UsageError):
        check_text(path, MOUNT)


@given(st.text(st.sampled_from("/.ab\n")))
def test_what_passes_stays_below_the_mount(text: str) -> None:
    try:
        plain = check_text(f"{MOUNT}/{text}", MOUNT)
    except UsageError:
        return
    assert os.path.normpath(plain) == plain
    assert plain == MOUNT or plain.startswith(f"{MOUNT}/")


def opened(path: Path, mount: Path) -> bool:
    found = open_cgroup(str(path), str(mount))
    try:
        assert os.path.samestat(os.fstat(found.fd), path.stat())
        assert not os.get_inheritable(found.fd)
        os.listdir(found.fd)
    finally:
        os.close(found.fd)
    return found.created


def test_open_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    for path in (tmp_path, tmp_path / "a", tmp_path / "a/b"):
        assert opened(path, tmp_path) is False


def test_only_the_last_component_is_made(tmp_path: Path) -> None:
    assert opened(tmp_path / "a", tmp_path) is True
    assert opened(tmp_path / "a", tmp_path) is False
    with pytest.raises(UsageError, match="b does not exist; only the last component is made"):
        open_cgroup(str(tmp_path / "b/c"), str(tmp_path))
    assert os.listdir(tmp_path) == ["a"]


def test_no_symbolic_link_anywhere(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "dangling").symlink_to("nowhere")
    for name in ("link", "link/b", "dangling"):
        with pytest.raises(UsageError, match="is a symbolic link, not a cgroup's directory"):
            open_cgroup(str(tmp_path / name), str(tmp_path))


def test_a_file_is_no_cgroup(tmp_path: Path) -> None:
    (tmp_path / "cgroup.procs").touch()
    for name in ("cgroup.procs", "cgroup.procs/x"):
        with pytest.raises(UsageError, match="is a file, not a cgroup's directory"):
            open_cgroup(str(tmp_path / name), str(tmp_path))


def test_another_mount_below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    real = os.fstat

    def fstat(fd: int) -> os.stat_result:
        status = list(real(fd))
        status[2] += os.readlink(f"/proc/self/fd/{fd}").endswith("/a")
        return os.stat_result(status)

    monkeypatch.setattr(os, "fstat", fstat)
    with pytest.raises(UsageError, match="something else is mounted there"):
        open_cgroup(str(tmp_path / "a"), str(tmp_path))


@pytest.mark.parametrize(
    ("number", "match"),
    [
        (errno.EROFS, r"read-only \(EROFS\).*docker run"),
        (errno.EACCES, r"no permission.*systemd-run --user --scope -p Delegate=yes"),
        (errno.EPERM, "no permission"),
        (errno.EAGAIN, r"cgroup\.max\.depth or .*\(EAGAIN\)"),
        (errno.ENOMEM, r"cannot be used: .*\(ENOMEM\)"),
    ],
)
def test_a_directory_that_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, match: str
) -> None:
    def mkdir(path: str, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        raise OSError(number, os.strerror(number), path)

    monkeypatch.setattr(os, "mkdir", mkdir)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(NoCgroupError, match=match) as caught:
        open_cgroup(str(tmp_path / "a"), str(tmp_path))
    assert caught.value.path == str(tmp_path / "a")
    assert os.listdir("/proc/self/fd") == before


def test_another_process_makes_it_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.mkdir

    def mkdir(path: str, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        real(path, mode, dir_fd=dir_fd)
        real(path, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "mkdir", mkdir)
    assert opened(tmp_path / "a", tmp_path) is False
