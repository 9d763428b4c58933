"""/proc as text: names that try to look like something else."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.linux import proc

# What a process may call itself: 15 bytes of anything but NUL.
names = st.binary(max_size=15).map(lambda raw: raw.replace(b"\0", b"?").decode(errors="surrogateescape"))
numbers = st.integers(0, 2**22)


@given(
    pid=numbers, name=names, state=st.sampled_from("RSDZTtXxKWPI"), ppid=numbers, ticks=st.integers(0, 2**63)
)
def test_a_name_cannot_pass_for_other_fields(pid: int, name: str, state: str, ppid: int, ticks: int) -> None:
    fields = [state, ppid, 11, 12, 13, *range(14, 28), ticks, 29, 30]
    parsed = proc.parse_stat(f"{pid} ({name}) {' '.join(map(str, fields))}\n")
    assert parsed == proc.Stat(pid, name, state, ppid, 11, 12, 13, ticks)


@pytest.mark.parametrize("name", ["a) R 1 (b", ") Z 1 1", "a\nb", "(", ")", "", " ", "((()))"])
def test_names_that_were_seen(name: str) -> None:
    rest = " ".join(str(number) for number in range(4, 60))
    assert proc.parse_stat(f"5 ({name}) S {rest}").name == name


def test_what_is_cut_off_is_no_process() -> None:
    for text in ("", "5 (a) S 1", "x (a) S " + "1 " * 30):
        with pytest.raises((ValueError, IndexError)):
            proc.parse_stat(text)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("0::/a/b\n", "/a/b"),
        ("12:cpu:/x\n1:name=systemd:/y\n0::/\n", "/"),
        ("0::/a/run-1-1 (deleted)\n", "/a/run-1-1"),
        ("1:cpu:/0::/x\n", ""),
        ("", ""),
        ("0::/a b:c\n", "/a b:c"),
        # A v1 cgroup's name may hold what Python takes for the end of a line; only a newline is none.
        ("4:cpu:/x\v0::/forged\n0::/true\n", "/true"),
        ("4:cpu:/x\u20280::/forged\n0::/a\x1cb\n", "/a\x1cb"),
    ],
)
def test_the_v2_cgroup_of_a_process(text: str, path: str) -> None:
    assert proc.parse_cgroup(text) == path


def test_ourselves() -> None:
    me = proc.stat(os.getpid())
    assert me is not None
    assert (me.ppid, me.group, me.session) == (os.getppid(), os.getpgrp(), os.getsid(0))
    assert proc.argv(os.getpid())
    assert proc.has_executed(os.getpid())
    assert me in proc.all_stats() or any(one.pid == me.pid for one in proc.all_stats())


def test_nobody() -> None:
    nobody = 2**22 + 1
    assert proc.stat(nobody) is None
    assert proc.cgroup(nobody) is None
    assert proc.argv(nobody) == []
    assert proc.read(nobody, "stat") is None
