"""The leaves of a subtree that exist now, with their limits and usage: ``agentd cgroup tree``."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from agentd.cgroup import control, leaf
from agentd.cgroup.usage import CURRENT_FILES, USAGE_FILES, parse_usage

LIMIT_DEFAULTS = {
    "memory.max": "max",
    "memory.high": "max",
    "memory.swap.max": "max",
    "memory.oom.group": "0",
    "memory.low": "0",
    "memory.min": "0",
    "pids.max": "max",
    "cpu.max": "max 100000",
    "cpu.weight": "100",
    "io.max": "",
    "cpuset.cpus": "",
    "cgroup.max.depth": "max",
    "cgroup.max.descendants": "max",
}
"""What each limit's file reads where nothing was asked for."""

_DEEPEST = 40
"""Cgroups below cgroups. A leaf's program can make any chain of them; nobody nests supervisors so deep."""


def live_leaves(subtree: str | int) -> list[dict[str, Any]]:
    """Every leaf ``run-<pid>-<counter>`` at or below the path or descriptor, oldest counter first.

    Of each: ``name``, ``path`` (relative to ``subtree``), ``supervisor`` (the pid in its name, as its own pid
    namespace has it), ``populated`` (None where it cannot be read), ``processes`` (how many are listed in it
    and below), ``limits`` (the files that do not read their default), ``usage`` (as in a report), and
    ``nested``: the leaves below it, likewise. A subtree or a leaf that is gone is left out. Raises OSError
    where the subtree itself cannot be opened for another reason.
    """
    try:
        fd = os.open(subtree, control.DIRECTORY) if isinstance(subtree, str) else os.dup(subtree)
    except FileNotFoundError:
        return []
    try:
        return _leaves(fd, "", 0)
    finally:
        os.close(fd)


def _leaves(dirfd: int, path: str, depth: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if depth > _DEEPEST:
        return found
    for name in sorted(_names(dirfd), key=_order):
        below = f"{path}/{name}" if path else name
        try:
            fd = os.open(name, control.DIRECTORY, dir_fd=dirfd)
        except OSError:
            continue
        try:
            nested = _leaves(fd, below, depth + 1)
            supervisor = _supervisor(name)
            if supervisor is None:
                found += nested
            else:
                found.append(_describe(fd, name, below, supervisor) | {"nested": nested})
        finally:
            os.close(fd)
    return found


def _describe(fd: int, name: str, path: str, supervisor: int) -> dict[str, Any]:
    limits = {}
    for file, default in LIMIT_DEFAULTS.items():
        text = "; ".join(" ".join(line.split()) for line in control.read_or(fd, file, default).splitlines())
        if text != default:
            limits[file] = text
    texts = {}
    for file in (*CURRENT_FILES, *USAGE_FILES):
        try:
            texts[file] = control.read(fd, file)
        except OSError:
            continue
    populated: bool | None = None
    count = 0
    try:
        populated = leaf.populated(fd)
        count = len(leaf.pids(fd))
    except OSError:
        pass
    return {
        "name": name,
        "path": path,
        "supervisor": supervisor,
        "populated": populated,
        "processes": count,
        "limits": limits,
        "usage": parse_usage(texts),
    }


def _names(dirfd: int) -> list[str]:
    try:
        return leaf.subcgroups(dirfd)
    except OSError:
        return []


def _supervisor(name: str) -> int | None:
    """The supervisor's pid in a leaf's name, None if it is not a leaf's name."""
    kind, _, rest = name.partition("-")
    pid, _, counter = rest.partition("-")
    plain = len(name) < 64 and name.isascii() and pid.isdecimal() and counter.isdecimal()
    return int(pid) if kind == "run" and plain else None


def is_leaf_name(name: str) -> bool:
    """Whether ``name`` is one that a supervisor gives a leaf: ``run-<pid>-<counter>``."""
    return _supervisor(name) is not None


def _order(name: str) -> tuple[int, int, str]:
    pid = _supervisor(name)
    return (0, 0, name) if pid is None else (pid, int(name.rpartition("-")[2]), name)


_HEADINGS = ("leaf", "processes", "memory", "peak", "cpu", "limits")


def render(leaves: Iterable[dict[str, Any]]) -> str:
    """``live_leaves`` as an aligned table, a line each, nested leaves indented; no newline at the end."""
    rows = list(_rows(leaves, 0))
    if not rows:
        return "no leaves"
    table = [_HEADINGS, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(_HEADINGS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    )


def _rows(leaves: Iterable[dict[str, Any]], depth: int) -> Iterable[tuple[str, ...]]:
    for found in leaves:
        memory = found["usage"].get("memory", {})
        cpu = found["usage"].get("cpu", {})
        yield (
            "  " * depth + found["name"],
            str(found["processes"]),
            _size(memory.get("current")),
            _size(memory.get("peak")),
            f"{cpu['usage_us'] / 1e6:.2f}s" if "usage_us" in cpu else "-",
            " ".join(_limit(file, text) for file, text in found["limits"].items()),
        )
        yield from _rows(found["nested"], depth + 1)


def _limit(file: str, text: str) -> str:
    size = file.startswith("memory.") and file != "memory.oom.group" and text.isdecimal()
    return f"{file}={_size(int(text)) if size else text.replace(' ', ',')}"


def _size(number: int | None) -> str:
    if number is None:
        return "-"
    amount = float(number)
    for unit in ("B", "K", "M", "G"):
        if amount < 1024:
            return f"{amount:.0f}{unit}" if unit == "B" else f"{amount:.1f}{unit}"
        amount /= 1024
    return f"{amount:.1f}T"
