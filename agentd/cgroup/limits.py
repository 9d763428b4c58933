"""What is asked of a leaf: memory, processes, processor, io, any other control file, and time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

from agentd.cgroup.amount import Amount, parse_count, parse_size, shown, whole_number
from agentd.cgroup.cpu import parse_cpu_max, parse_cpu_weight, parse_cpus
from agentd.cgroup.duration import parse_duration
from agentd.cgroup.io_max import parse_io_max
from agentd.errors import UsageError

FIELD_FILES = {
    "memory_max": "memory.max",
    "memory_high": "memory.high",
    "memory_swap_max": "memory.swap.max",
    "memory_oom_group": "memory.oom.group",
    "pids_max": "pids.max",
    "cpu_max": "cpu.max",
    "cpu_weight": "cpu.weight",
    "io_max": "io.max",
    "cpuset_cpus": "cpuset.cpus",
}
"""The control file that each field is written to."""

TIMES = ("wall", "cpu_time", "idle")
"""The fields that no control file holds: the supervisor's clocks enforce them."""

SIZE_FILES = frozenset({"memory.min", "memory.low", "memory.swap.high", "memory.zswap.max"})
"""Further files whose values are sizes, so that ``files`` takes ``512M`` and ``25%`` for them too."""

_FILE_FIELDS = {file: field for field, file in FIELD_FILES.items()}

# Writing these moves, kills, stops or re-types the leaf: they are the supervisor's to write, and no limits.
_NO_LIMITS = frozenset(
    {
        "cgroup.procs",
        "cgroup.threads",
        "cgroup.kill",
        "cgroup.freeze",
        "cgroup.type",
        "cgroup.subtree_control",
    }
)

_LEAST_MEMORY = 4096


class Limits:
    """What a leaf is to be held to. Every field is optional; None asks for nothing. Immutable and hashable.

    ``memory_max``, ``memory_high``, ``memory_swap_max``: bytes, or text such as ``512M``, ``25%``, ``max``.
    ``memory_oom_group``: whether the kernel's OOM killer takes the whole leaf. ``pids_max``: processes and
    threads. ``cpu_max``: processors (``1.5``), ``150%``, or ``QUOTA PERIOD`` in microseconds. ``cpu_weight``:
    1 to 10000. ``io_max``: ``8:0 wbps=10M``, or several such. ``cpuset_cpus``: ``0-3,8``. ``files``: any
    other control file of a leaf, by name. ``wall``, ``cpu_time`` and ``idle``: seconds, or text such as
    ``5m``; kept as seconds.

    A file in ``files`` that has a field of its own is taken as that field. Everything is checked before
    anything is kept: UsageError lists every problem, each beginning with the field it is about. Whether this
    host can enforce what is asked is not known here; see ``plan``.
    """

    __slots__ = (
        "_hash",
        "cpu_max",
        "cpu_time",
        "cpu_weight",
        "cpuset_cpus",
        "files",
        "idle",
        "io_max",
        "memory_high",
        "memory_max",
        "memory_oom_group",
        "memory_swap_max",
        "pids_max",
        "wall",
    )

    memory_max: str | int | None
    memory_high: str | int | None
    memory_swap_max: str | int | None
    memory_oom_group: bool | None
    pids_max: str | int | None
    cpu_max: str | float | None
    cpu_weight: str | int | None
    io_max: tuple[str, ...]
    cpuset_cpus: str | int | None
    files: tuple[tuple[str, str], ...]
    wall: float | None
    cpu_time: float | None
    idle: float | None
    _hash: int

    def __init__(
        self,
        *,
        memory_max: str | int | None = None,
        memory_high: str | int | None = None,
        memory_swap_max: str | int | None = None,
        memory_oom_group: bool | None = None,
        pids_max: str | int | None = None,
        cpu_max: str | float | None = None,
        cpu_weight: str | int | None = None,
        io_max: str | Iterable[str] | None = None,
        cpuset_cpus: str | int | None = None,
        files: Mapping[str, str | int] | tuple[tuple[str, str], ...] | None = None,
        wall: str | float | None = None,
        cpu_time: str | float | None = None,
        idle: str | float | None = None,
    ) -> None:
        problems: list[str] = []
        fields: dict[str, object] = {
            "memory_max": memory_max,
            "memory_high": memory_high,
            "memory_swap_max": memory_swap_max,
            "memory_oom_group": memory_oom_group,
            "pids_max": pids_max,
            "cpu_max": cpu_max,
            "cpu_weight": cpu_weight,
            "io_max": io_max,
            "cpuset_cpus": cpuset_cpus,
        }
        fields["files"] = _files(files, fields, problems) if files is not None else ()
        for field, check in _CHECKS.items():
            if fields[field] is not None:
                try:
                    check(fields[field])
                except UsageError as error:
                    problems += [f"{field}: {problem}" for problem in error.problems]
        fields["io_max"] = _io_max(fields["io_max"], problems)
        for field, value in (("wall", wall), ("cpu_time", cpu_time), ("idle", idle)):
            fields[field] = None
            if value is not None:
                try:
                    fields[field] = parse_duration(value)
                except UsageError as error:
                    problems += [f"{field}: {problem}" for problem in error.problems]
        if problems:
            raise UsageError(problems)
        for field, kept in fields.items():
            object.__setattr__(self, field, kept)
        object.__setattr__(self, "_hash", hash(tuple(fields.values())))

    def asked(self) -> dict[str, str | float]:
        """What was asked for, by field or, for ``files``, by file name: text, or seconds for the times."""
        asked: dict[str, str | float] = {}
        for field in FIELD_FILES:
            value = getattr(self, field)
            if field == "memory_oom_group" and value is not None:
                asked[field] = "1" if value else "0"
            elif field == "io_max":
                if value:
                    asked[field] = ", ".join(value)
            elif value is not None:
                asked[field] = str(value)
        asked.update(self.files)
        for field in TIMES:
            value = getattr(self, field)
            if value is not None:
                asked[field] = value
        return asked

    @property
    def for_leaf(self) -> bool:
        """Whether any control file is to be written (a limit other than one of time)."""
        return bool(
            self.memory_max is not None
            or self.pids_max is not None
            or self.cpu_max is not None
            or self.memory_high is not None
            or self.memory_swap_max is not None
            or self.memory_oom_group is not None
            or self.cpu_weight is not None
            or self.io_max
            or self.cpuset_cpus is not None
            or self.files
        )

    def replace(self, **changes: Any) -> Limits:
        """The same limits but for ``changes``, by field. Raises UsageError as the constructor does."""
        return Limits(**({field: getattr(self, field) for field in _FIELDS} | changes))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"Limits cannot be changed: make others to set {name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"Limits cannot be changed: make others without {name}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Limits):
            return NotImplemented
        return all(getattr(self, field) == getattr(other, field) for field in _FIELDS)

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[object, ...]:
        return _restored, ({field: getattr(self, field) for field in _FIELDS},)

    def __repr__(self) -> str:
        return f"Limits({', '.join(f'{name}={value!r}' for name, value in self.asked().items())})"


_FIELDS = (*FIELD_FILES, "files", *TIMES)


def _restored(fields: dict[str, object]) -> Limits:
    """For pickle and copy."""
    return Limits(**fields)  # type: ignore[arg-type]


def _at_least_a_page(value: object) -> None:
    amount: Amount = parse_size(value)  # type: ignore[arg-type]
    if amount.number is not None and amount.number < _LEAST_MEMORY:
        raise UsageError(
            f"{shown(value)} is less than one page: nothing could start in it; give more, such as 16M"
        )


def _is_bool(value: object) -> None:
    if not isinstance(value, bool):
        raise UsageError(f"{shown(value)} is neither True nor False")


_CHECKS: dict[str, Callable[..., object]] = {
    "memory_max": _at_least_a_page,
    "memory_high": parse_size,
    "memory_swap_max": parse_size,
    "memory_oom_group": _is_bool,
    "pids_max": parse_count,
    "cpu_max": parse_cpu_max,
    "cpu_weight": parse_cpu_weight,
    "cpuset_cpus": parse_cpus,
}


def _io_max(value: object, problems: list[str]) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, (str, Iterable)):
        problems.append(f"io_max: {shown(value)} is not an io.max entry, nor several")
        return ()
    entries = (value,) if isinstance(value, str) else tuple(value)
    for entry in entries:
        try:
            parse_io_max(entry)
        except UsageError as error:
            problems += [f"io_max: {problem}" for problem in error.problems]
    return entries


def _files(files: object, fields: dict[str, object], problems: list[str]) -> tuple[tuple[str, str], ...]:
    """The files that have no field, as sorted pairs of text; those that have one are put into ``fields``."""
    kept: dict[str, str] = {}
    try:
        pairs = tuple((files if isinstance(files, Mapping) else dict(files)).items())  # type: ignore[call-overload]
    except (TypeError, ValueError):
        problems.append(f"files: {shown(files)} does not map names of control files to values")
        return ()
    for name, value in pairs:
        problem = file_problem(name) or _value_problem(name, value)
        if problem:
            problems.append(f"files: {problem}")
            continue
        field = _FILE_FIELDS.get(name)
        if field is None:
            # To the kernel a leading zero means octal.
            number = whole_number(value)
            kept[name] = str(value).strip() if number is None else str(number)
        elif fields[field] is not None:
            problems.append(f"files: {name} is asked for twice, the other time as {field}; give it once")
        elif field == "memory_oom_group":
            # Anything else than 0 and 1 is kept, to be refused by the field's own check.
            flag = whole_number(value)
            fields[field] = bool(flag) if flag in (0, 1) else value
        else:
            fields[field] = value
    return tuple(sorted(kept.items()))


def file_problem(name: object) -> str:
    """Why ``name`` cannot be the name of a control file that is a limit; "" if it can.

    A limit's file is plain ``controller.name``: nothing that could leave the leaf's directory, and none of
    the files by which a leaf is filled, killed, frozen or re-typed.
    """
    if not isinstance(name, str):
        return f"{shown(name)} is not the name of a control file"
    parts = name.split(".")
    if len(parts) < 2 or len(name) > 200 or not all(_plain(part) for part in parts):
        return f"{shown(name)} is not the name of a control file; give one such as memory.low"
    if name in _NO_LIMITS:
        return f"{name} is no limit: agentd alone writes it"
    return ""


def _plain(part: str) -> bool:
    # Capitals too: the kernel has hugetlb.2MB.max.
    return part.isascii() and part.replace("_", "a").isalnum()


def _value_problem(name: str, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        return f"{name}: {shown(value)} is neither text nor a whole number"
    text = str(value).strip()
    if not text:
        # A zero-length write succeeds and does nothing (G14).
        return f"{name}: the value is empty"
    if not text.isprintable() or len(text) > 4000:
        return f"{name}: {shown(value)} cannot be written to a control file: give one line of printable text"
    if name in SIZE_FILES:
        try:
            parse_size(text)
        except UsageError as error:
            return f"{name}: {error.problems[0]}"
    return ""
