"""Which control files a leaf's limits mean on this host, and what cannot be in force here. Pure."""

from __future__ import annotations

import errno as _errno
from collections.abc import Callable, Mapping
from typing import NamedTuple

from agentd.cgroup import io_max
from agentd.cgroup.amount import Amount, parse_count, parse_size
from agentd.cgroup.cpu import parse_cpu_max, parse_cpu_weight, parse_cpus
from agentd.cgroup.limits import FIELD_FILES, SIZE_FILES, Limits

_LONG_MAX = 2**63 - 1


class LimitFacts(NamedTuple):
    """What leaves of a subtree can do.

    ``controllers`` are usable in leaves; ``missing`` says why each other one is not. ``files`` are the names
    of a leaf's control files as far as the controllers go (None when not known: nothing is ruled out then).
    ``memory``, ``swap`` (bytes) and ``pids`` are what the subtree has, for percentages. ``page_size`` is in
    bytes. ``device`` turns a path below /dev into ``MAJ:MIN``; where it cannot it raises
    OSError or ValueError.
    """

    path: str
    controllers: frozenset[str]
    missing: Mapping[str, str]
    files: frozenset[str] | None
    memory: int
    swap: int
    pids: int
    page_size: int
    device: Callable[[str], str]


class LimitWrite(NamedTuple):
    """One write of one limit to one file of a leaf.

    ``limit`` is the field of ``Limits``, or the file's name for one of ``Limits.files``. ``expect`` is the
    exact text (but for surrounding white space) that the file reads once the write took effect; None where
    the kernel reads something else back, which ``in_force`` knows how to judge. An ``implicit`` write was not
    asked for: a kernel without that file does not need it.
    """

    limit: str
    file: str
    value: str
    expect: str | None
    implicit: bool = False


class LimitPlan(NamedTuple):
    """``before`` is written in order before the child is made, ``after`` right after its exec.

    ``not_in_force`` maps each limit that cannot be in force here to one line of why. ``not_needed`` does so
    for what nobody asked for. A limit is in at most one of the four.
    """

    before: tuple[LimitWrite, ...]
    after: tuple[LimitWrite, ...]
    not_in_force: dict[str, str]
    not_needed: dict[str, str]


NOTHING = LimitPlan((), (), {}, {})
"""The plan of ``Limits()``. Shared: not to be changed."""

# Written once the child runs: with a finite cpu.max a vfork-style clone would wait for the child to be
# scheduled, up to seconds (G32). cpu.max.burst must not exceed a quota, so it follows it.
_AFTER = ("cpu.max", "cpu.max.burst")


def plan(limits: Limits, facts: LimitFacts) -> LimitPlan:
    """What to write for ``limits``, given what the subtree can do. Never raises for valid ``Limits``.

    Sizes are rounded down to whole pages, as the kernel would (G14), so that the text read back is the text
    written. ``memory.swap.max`` is set to 0 with any finite ``memory_max`` unless ``memory_swap_max`` says
    something: with the kernel's default the limit would be met by swapping (G59).
    """
    if not limits.for_leaf:
        return NOTHING
    writes: list[LimitWrite] = []
    cannot: dict[str, str] = {}
    needless: dict[str, str] = {}

    for field, file in FIELD_FILES.items():
        value = getattr(limits, field)
        if value is None or value == ():
            continue
        why = _why_not(file, facts)
        if why:
            cannot[field] = why
            continue
        try:
            writes += _writes(field, file, value, facts)
        except (OSError, ValueError) as error:
            cannot[field] = str(error)
        if field == "memory_max" and limits.memory_swap_max is None and writes[-1].value != "max":
            if _why_not("memory.swap.max", facts):
                needless["memory_swap_max"] = "this kernel does not account swap"
            else:
                writes.append(LimitWrite("memory_swap_max", "memory.swap.max", "0", "0", implicit=True))

    for file, text in limits.files:
        why = _why_not(file, facts)
        if why:
            cannot[file] = why
        elif file in SIZE_FILES:
            whole = facts.swap if "swap" in file else facts.memory
            writes.append(_size(file, file, parse_size(text), whole, facts))
        else:
            writes.append(LimitWrite(file, file, text, text if file.startswith("cgroup.max.") else None))

    return LimitPlan(
        tuple(write for write in writes if write.file not in _AFTER),
        tuple(write for write in writes if write.file in _AFTER),
        cannot,
        needless,
    )


def _writes(field: str, file: str, value: str | int, facts: LimitFacts) -> list[LimitWrite]:
    match field:
        case "memory_max" | "memory_high":
            return [_size(field, file, parse_size(value), facts.memory, facts)]
        case "memory_swap_max":
            return [_size(field, file, parse_size(value), facts.swap, facts)]
        case "memory_oom_group":
            text = "1" if value else "0"
        case "pids_max":
            count = parse_count(value).of(facts.pids)
            text = "max" if count is None else str(max(count, 1))
        case "cpu_max":
            text = parse_cpu_max(value).text
        case "cpu_weight":
            text = str(parse_cpu_weight(value))
        case "cpuset_cpus":
            return [LimitWrite(field, file, parse_cpus(value), None)]
        case _:
            return [LimitWrite(field, file, _io_text(entry, facts), None) for entry in _entries(value)]
    return [LimitWrite(field, file, text, text)]


def _entries(value: object) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else (str(value),)


def _io_text(entry: str, facts: LimitFacts) -> str:
    parsed = io_max.parse_io_max(entry)
    device = parsed.device if io_max.is_number(parsed.device) else facts.device(parsed.device)
    return parsed.text(device)


def _size(limit: str, file: str, amount: Amount, whole: int, facts: LimitFacts) -> LimitWrite:
    count = amount.of(whole)
    page = facts.page_size
    # From LONG_MAX / PAGE_SIZE pages on, the kernel's counter is at its end and reads "max".
    text = "max" if count is None or count // page >= _LONG_MAX // page else str(count // page * page)
    return LimitWrite(limit, file, text, text)


def _why_not(file: str, facts: LimitFacts) -> str:
    """Why ``file`` cannot be written in a leaf; "" if it can, as far as is known."""
    controller = file.partition(".")[0]
    if controller != "cgroup" and controller not in facts.controllers:
        known = facts.missing.get(controller)
        return known or f"the {controller} controller is not usable in leaves of {facts.path}"
    if facts.files is not None and file not in facts.files:
        return f"this kernel has no {file}"
    return ""


def in_force(write: LimitWrite, read_back: str) -> bool:
    """Whether what the file reads after ``write`` shows it in force.

    For ``cpuset.cpus`` give what ``cpuset.cpus.effective`` reads: it is empty when no processor is left.
    Where nothing can be known from the text (``Limits.files``), a write that succeeded is believed.
    """
    if write.expect is not None:
        return read_back.split() == write.expect.split()
    if write.file == "io.max":
        return io_max.in_force(write.value, read_back)
    return write.file != "cpuset.cpus" or bool(read_back.strip())


_REFUSALS = {
    _errno.EINVAL: "the kernel does not take this value here",
    _errno.ERANGE: "the value is outside what the kernel allows, or names processors that are not there",
    _errno.ENODEV: "there is no such block device (a partition does not count), or the leaf is gone",
    _errno.EBUSY: "the leaf is in use in a way that excludes it, or more is in use than the new limit allows",
    _errno.EACCES: "no permission to write it; the leaf's subtree must be delegated to this user",
    _errno.EPERM: "the kernel forbids writing it from inside this cgroup namespace",
    _errno.ENOENT: "this kernel has no such file, or its controller is not enabled for the leaf",
    _errno.EROFS: "the cgroup file system is mounted read-only here",
    _errno.EOPNOTSUPP: "this kernel or this type of cgroup does not support it",
}


def explain_mismatch(write: LimitWrite, errno: int, read_back: str) -> str:
    """One line of why ``write`` is not in force: ``errno`` of the failed step, else (0) what it reads."""
    if errno:
        name = _errno.errorcode.get(errno, f"errno {errno}")
        sentence = _REFUSALS.get(errno, "the kernel refused the write")
        return f"{write.file} = {write.value}: {sentence} ({name})"
    if write.file == "cpuset.cpus":
        return f"{write.file} = {write.value}: none of these processors is usable here"
    found = " ".join(read_back.split())[:80] or "nothing"
    return f"{write.file} = {write.value}: it was written, and reads {found}"
