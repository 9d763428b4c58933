from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.cgroup.hierarchy import Hierarchy, below, detect, read_hierarchy, unescape

V2 = "30 23 0:27 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot"


def found(mountinfo: str, own: str = "0::/\n", hidden: tuple[str, ...] = (), prefer: str = "") -> Hierarchy:
    return detect(mountinfo, own, is_cgroup2=lambda point: point not in hidden, prefer=prefer)


def test_unified() -> None:
    assert found(V2 + "\n", "0::/user.slice/a.scope\n") == Hierarchy(
        kind="unified",
        mount="/sys/fs/cgroup",
        mount_root="/",
        read_only=False,
        own="/user.slice/a.scope",
        options=frozenset({"nsdelegate", "memory_recursiveprot"}),
        v1_controllers={},
    )


def test_own_path() -> None:
    assert found(V2, "0::/a/b\n").own_path == "/sys/fs/cgroup/a/b"
    assert found(V2, "0::/\n").own_path == "/sys/fs/cgroup"
    assert found(V2, "0::/../x\n").own_path == ""


def test_nothing_mounted() -> None:
    nothing = found("22 27 0:21 / /proc rw - proc proc rw\n")
    assert (nothing.kind, nothing.mount, nothing.own, nothing.own_path) == ("none", "", "", "")
    assert found("", "").kind == "none"


def test_a_named_v1_hierarchy_binds_no_controller() -> None:
    named = "31 30 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd"
    assert found(f"{V2}\n{named}\n", "1:name=systemd:/\n0::/\n").kind == "unified"


def test_a_controller_that_is_bound_to_a_v1_hierarchy_mounted_elsewhere() -> None:
    hybrid = found(V2, "4:memory:/\n0::/\n")
    assert (hybrid.kind, hybrid.v1_controllers) == ("hybrid", {"memory": ""})


def test_controllers_that_are_mounted_together() -> None:
    line = "31 30 0:28 / /cg/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct,clone_children,release_agent=/x"
    assert found(line, "3:cpu,cpuacct:/\n").v1_controllers == {
        "cpu": "/cg/cpu,cpuacct",
        "cpuacct": "/cg/cpu,cpuacct",
    }


@pytest.mark.parametrize(
    ("fields", "options", "expected"),
    [
        ("rw", "rw", False),
        ("ro,nosuid", "rw", True),
        ("rw", "ro,nsdelegate", True),
        ("rw,romantic", "rw", False),
    ],
)
def test_read_only(fields: str, options: str, expected: bool) -> None:
    assert found(f"30 23 0:27 / /c {fields} - cgroup2 none {options}").read_only is expected


@pytest.mark.parametrize(
    ("own", "root", "expected"),
    [
        ("/", "/", "/"),
        ("/a", "/", "/a"),
        ("/docker/1", "/docker/1", "/"),
        ("/docker/1/x", "/docker/1", "/x"),
        ("/docker/11", "/docker/1", ""),
        ("/docker", "/docker/1", ""),
        ("/../other", "/", ""),
        ("/...", "/", "/..."),
        ("/..a/b..", "/", "/..a/b.."),
        ("/", "/../..", ""),
        ("/a (deleted)", "/", ""),
        ("/a", "/a//deleted", ""),
        ("", "/", ""),
        ("/a b (c)", "/a b (c)", "/"),
    ],
)
def test_our_cgroup_seen_from_the_mount(own: str, root: str, expected: str) -> None:
    assert below(own, root) == expected


def test_blanks_in_a_mount_point() -> None:
    assert found(r"30 23 0:27 / /a\040b\011c\134d rw - cgroup2 none rw").mount == "/a b\tc\\d"


def mount(point: str, root: str = "/", mode: str = "rw") -> str:
    return f"30 23 0:27 {root} {point} {mode} - cgroup2 none rw\n"


@pytest.mark.parametrize(
    ("mountinfo", "own", "expected"),
    [
        (mount("/ro", mode="ro") + mount("/rw"), "/", "/rw"),
        (mount("/rw") + mount("/ro", mode="ro"), "/", "/rw"),
        (mount("/part", "/b") + mount("/ro", mode="ro"), "/a", "/ro"),
        (mount("/part", "/a") + mount("/whole"), "/a", "/whole"),
        (mount("/longer") + mount("/short"), "/a", "/short"),
        (mount("/b") + mount("/a"), "/x", "/a"),
    ],
)
def test_one_of_several_mounts(mountinfo: str, own: str, expected: str) -> None:
    assert found(mountinfo, f"0::{own}\n").mount == expected


def test_the_mount_above_a_path_that_was_named() -> None:
    several = mount("/sys/fs/cgroup") + mount("/host/cgroup", "/other")
    assert found(several).mount == "/sys/fs/cgroup"
    assert found(several, prefer="/host/cgroup/x").mount == "/host/cgroup"
    assert found(several, prefer="/host/cgroups").mount == "/sys/fs/cgroup"


def test_the_upper_of_two_mounts_at_one_point() -> None:
    assert found(mount("/c", mode="ro") + mount("/c")).read_only is False
    assert found(mount("/c") + mount("/c", mode="ro")).read_only is True


def test_a_mount_that_another_file_system_hides() -> None:
    assert found(V2, hidden=("/sys/fs/cgroup",)).kind == "none"
    assert found(V2 + "\n" + mount("/c"), hidden=("/sys/fs/cgroup",)).mount == "/c"


@given(st.text())
def test_unescape_takes_any_text(text: str) -> None:
    unescape(text)


@given(st.text(st.characters(exclude_characters="\0")))
def test_unescape_undoes_the_kernel_s_escapes(text: str) -> None:
    escaped = "".join(f"\\{ord(c):03o}" if c in " \t\n\\" else c for c in text)
    assert unescape(escaped) == text


LINES = st.lists(st.text() | st.sampled_from([V2, mount("/c"), "1 2 3 - cgroup2", "a b c d e f - cgroup2 x"]))


@given(
    LINES, st.lists(st.text() | st.sampled_from(["0::/a", "0::/", "4:memory:/", "0::", "::"])), st.booleans()
)
def test_any_text_gives_an_answer(lines: list[str], own: list[str], visible: bool) -> None:
    hierarchy = detect("\n".join(lines), "\n".join(own), is_cgroup2=lambda _: visible)
    assert bool(hierarchy.mount) == (hierarchy.kind in ("unified", "hybrid"))
    assert hierarchy.mount or not hierarchy.own


def test_this_host() -> None:
    hierarchy = read_hierarchy()
    if not hierarchy.mount:
        pytest.skip("no cgroup v2 is mounted here")
    assert os.path.exists(f"{hierarchy.mount}/cgroup.controllers")


def test_without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    def text(path: str) -> str:
        raise FileNotFoundError(2, "gone", path)

    monkeypatch.setattr("agentd.cgroup.hierarchy._text", text)
    assert read_hierarchy().kind == "none"
