"""What a leaf used, from the text of its control files. Sans-IO: whoever has the texts passes them in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

USAGE_FILES = (
    "memory.peak",
    "memory.swap.peak",
    "memory.events",
    "memory.events.local",
    "pids.peak",
    "pids.events",
    "pids.events.local",
    "cpu.stat",
    "io.stat",
    "cpu.pressure",
    "memory.pressure",
    "io.pressure",
)
"""What to read at the end of a run: after ``populated 0``, so that all is counted (cpu.stat settles a little
after an exit, G65), and before the leaf is removed (then it is gone, G45)."""

CURRENT_FILES = ("memory.current", "memory.swap.current", "pids.current")
"""What tells besides of a leaf that is alive."""

_MEMORY_EVENTS = (
    ("oom", "oom"),
    ("oom_kill", "oom_kill"),
    ("oom_group_kill", "oom_group_kill"),
    ("max", "max_hits"),
    ("high", "high_hits"),
    ("low", "low_hits"),
)
_CPU = (
    ("usage_usec", "usage_us"),
    ("user_usec", "user_us"),
    ("system_usec", "system_us"),
    ("nr_periods", "nr_periods"),
    ("nr_throttled", "nr_throttled"),
    ("throttled_usec", "throttled_us"),
)
_IO = ("rbytes", "wbytes", "rios", "wios")


def usage_files(controllers: frozenset[str]) -> tuple[str, ...]:
    """Those of ``USAGE_FILES`` that a leaf with ``controllers`` can have. Processor time and pressure are
    there without any controller (kernel: cgroup-v2.rst)."""
    return tuple(
        name
        for name in USAGE_FILES
        if name.endswith(".pressure") or name == "cpu.stat" or name.partition(".")[0] in controllers
    )


def parse_usage(texts: Mapping[str, str]) -> dict[str, Any]:
    """The report's ``usage`` from the texts of ``USAGE_FILES`` and ``CURRENT_FILES`` that could be read.

    ``memory``: ``peak``, ``swap_peak``, ``current``, ``swap_current`` (bytes); ``oom`` (how often the
    limit left no memory to be had), ``oom_kill`` (no number of processes: it over-counts group kills, G54),
    ``oom_group_kill``, ``max_hits``, ``high_hits``, ``low_hits``; ``local``: the same counters without those
    of cgroups below. ``pids``: ``peak``, ``current``, ``max_hits`` (refused forks), ``max_hits_local``.
    ``cpu``: ``usage_us``, ``user_us``, ``system_us``, ``throttled_us`` (microseconds), ``nr_periods``,
    ``nr_throttled``. ``io``: ``rbytes``, ``wbytes``, ``rios``, ``wios`` in all, and under ``devices`` for
    each ``MAJ:MIN``. ``pressure``: for cpu, memory and io ``some_us`` and ``full_us`` (microseconds stalled).

    What a kernel does not tell is absent, never zero. Text that is not understood is passed over.
    """
    memory = _numbers(
        texts,
        ("memory.peak", "peak"),
        ("memory.swap.peak", "swap_peak"),
        ("memory.current", "current"),
        ("memory.swap.current", "swap_current"),
    )
    memory |= _named(texts.get("memory.events"), _MEMORY_EVENTS)
    if local := _named(texts.get("memory.events.local"), _MEMORY_EVENTS):
        memory["local"] = local
    pids = _numbers(texts, ("pids.peak", "peak"), ("pids.current", "current"))
    pids |= _named(texts.get("pids.events"), (("max", "max_hits"),))
    pids |= _named(texts.get("pids.events.local"), (("max", "max_hits_local"),))
    cpu = _named(texts.get("cpu.stat"), _CPU)
    io = parse_io_stat(texts["io.stat"]) if "io.stat" in texts else {}
    pressure = {
        name: stalled
        for name in ("cpu", "memory", "io")
        if (stalled := parse_pressure(texts.get(f"{name}.pressure", "")))
    }
    usage = {"memory": memory, "pids": pids, "cpu": cpu, "io": io, "pressure": pressure}
    return {name: found for name, found in usage.items() if found}


def parse_flat(text: str) -> dict[str, int]:
    """A flat-keyed file (``memory.events``, ``cpu.stat``): a name and a number on each line."""
    found = {}
    for line in text.split("\n"):
        key, _, value = line.partition(" ")
        if key and (number := _number(value)) is not None:
            found[key] = number
    return found


def parse_pressure(text: str) -> dict[str, int]:
    """``some_us`` and ``full_us`` of a pressure file: microseconds in which some, or all, were stalled."""
    found = {}
    for line in text.split("\n"):
        kind, _, rest = line.partition(" ")
        if kind in ("some", "full"):
            number = _number(rest.rpartition("total=")[2])
            if number is not None:
                found[f"{kind}_us"] = number
    return found


def parse_io_stat(text: str) -> dict[str, Any]:
    """Sums over all devices, and ``devices``: the same for each ``MAJ:MIN``. An empty text is all zeros: the
    kernel lists a device once it was used."""
    devices: dict[str, dict[str, int]] = {}
    for line in text.split("\n"):
        device, _, rest = line.partition(" ")
        counters = {}
        for word in rest.split():
            key, _, value = word.partition("=")
            if key in _IO and (number := _number(value)) is not None:
                counters[key] = number
        if counters and ":" in device:
            devices[device] = counters
    total: dict[str, Any] = {key: sum(found.get(key, 0) for found in devices.values()) for key in _IO}
    return total | {"devices": devices}


def populated(text: str) -> bool | None:
    """Whether a live process is in the cgroup or below, from ``cgroup.events``; None if that is not in it."""
    return _flag(text, "populated ")


def frozen(text: str) -> bool | None:
    """Whether everything in the cgroup is stopped by the freezer, from ``cgroup.events``; None as above."""
    return _flag(text, "frozen ")


def _flag(text: str, key: str) -> bool | None:
    for line in text.split("\n"):
        if line.startswith(key):
            value = line[len(key) :].strip()
            return value == "1" if value in ("0", "1") else None
    return None


def _named(text: str | None, names: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    if text is None:
        return {}
    found = parse_flat(text)
    return {ours: found[kernels] for kernels, ours in names if kernels in found}


def _numbers(texts: Mapping[str, str], *names: tuple[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for file, key in names:
        number = _number(texts.get(file, ""))
        if number is not None:
            found[key] = number
    return found


def _number(text: str) -> int | None:
    text = text.strip()
    # The kernel's numbers are 64 bits wide; Python refuses to convert thousands of digits.
    return int(text) if text.isdecimal() and text.isascii() and len(text) <= 20 else None
