"""What /proc says of a process (proc(5)). Parsing is apart from reading; a process that is gone reads as None."""

from __future__ import annotations

import os
from typing import NamedTuple

_FORKNOEXEC = 0x40
"""PF_FORKNOEXEC of include/linux/sched.h: it has not executed anything since its fork."""

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


class Stat(NamedTuple):
    """Fields of /proc/PID/stat. ``start_ticks`` counts clock ticks since boot; with the pid it names a
    process for good."""

    pid: int
    name: str
    state: str
    ppid: int
    group: int
    session: int
    terminal: int
    start_ticks: int


def parse_stat(text: str) -> Stat:
    """The name may hold blanks and parentheses: it ends at the last one."""
    head, _, tail = text.rpartition(")")
    pid, _, name = head.partition(" (")
    field = tail.split()
    return Stat(
        int(pid), name, field[0], int(field[1]), int(field[2]), int(field[3]), int(field[4]), int(field[19])
    )


def parse_cgroup(text: str) -> str:
    """The v2 path of /proc/PID/cgroup (its ``0::`` line), "" when there is none.

    A zombie in a removed leaf reads ``/path (deleted)`` (G51): the mark is taken off.
    """
    for line in text.split(
        "\n"
    ):  # and at nothing else: a cgroup's name may hold what splitlines takes for an end
        if line.startswith("0::"):
            return line[3:].removesuffix(" (deleted)")
    return ""


def read(pid: int | str, file: str) -> str | None:
    """The text of /proc/PID/FILE, or None when the process is gone or not ours to read."""
    try:
        fd = os.open(f"/proc/{pid}/{file}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        parts = []
        while part := os.read(fd, 65536):
            parts.append(part)
    except OSError:
        return None
    finally:
        os.close(fd)
    return b"".join(parts).decode(errors="surrogateescape")


def stat(pid: int) -> Stat | None:
    text = read(pid, "stat")
    try:
        return parse_stat(text) if text else None
    except (ValueError, IndexError):
        return None


def has_executed(pid: int) -> bool:
    """Whether it got through an exec since its fork; a zombie still tells. True where that is not known."""
    text = read(pid, "stat") or ""
    flags = text.rpartition(")")[2].split()[6:7]
    return not flags or not int(flags[0]) & _FORKNOEXEC


def cgroup(pid: int) -> str | None:
    """The v2 cgroup of a process as its own namespace shows it, None when it is gone."""
    text = read(pid, "cgroup")
    return None if text is None else parse_cgroup(text)


def argv(pid: int) -> list[str]:
    """The arguments, [] for a zombie, a kernel thread or a process that is gone."""
    text = read(pid, "cmdline")
    return text.rstrip("\0").split("\0") if text else []


def all_stats() -> list[Stat]:
    """Every process that /proc shows now. Costs time in proportion to how many there are."""
    return [found for entry in os.listdir("/proc") if entry.isdigit() and (found := stat(int(entry)))]


def uptime() -> float:
    """Seconds since boot on the clock that start_ticks counts by (CLOCK_BOOTTIME)."""
    import time

    return time.clock_gettime(time.CLOCK_BOOTTIME)
