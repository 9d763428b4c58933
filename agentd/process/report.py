"""What is known of a run at its end. ``to_dict()`` is the JSON of ``--report``: agentd/report.schema.json."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from agentd.cgroup.limits import TIMES, Limits
from agentd.cgroup.plan import LimitPlan
from agentd.errors import AgentdError, LimitNotInForceError
from agentd.process.command import own_directory
from agentd.process.left_behind import LeftBehind
from agentd.process.verdict import Intent, Verdict, exit_code

if TYPE_CHECKING:
    from agentd.process.oom import Oom

VERSION = 1
"""Of the schema: fields are only ever added."""


class LimitsReport(NamedTuple):
    """``asked`` as it was asked; ``in_force`` as the kernel reads it; ``why_not`` for each that is not."""

    asked: Mapping[str, str | float]
    in_force: Mapping[str, str | float]
    why_not: Mapping[str, str]

    def to_dict(self) -> dict[str, object]:
        return {"asked": dict(self.asked), "in_force": dict(self.in_force), "why_not": dict(self.why_not)}


def limits_report(limits: Limits, plan: LimitPlan, failed: Mapping[str, str]) -> LimitsReport:
    """From what was asked, what was written for it, and why each limit that is not in force is not."""
    asked = limits.asked()
    held: dict[str, str | float] = {}
    for write in (*plan.before, *plan.after):
        if write.limit not in failed:
            text = write.expect if write.expect is not None else write.value
            # io_max is one limit, with an entry for each device.
            held[write.limit] = f"{held[write.limit]}, {text}" if write.limit in held else text
    for clock in TIMES:
        if clock in asked and clock not in failed:
            held[clock] = asked[clock]
    return LimitsReport(asked, held, failed)


class Enforcement(NamedTuple):
    """How the run was held. ``containment``: cgroup (a leaf), session+subreaper, or session. ``placement``:
    born, joined or none. ``notes``: what this host could not give, a line each. ``keeper``: ``pid`` of the program
    that ends the run should the supervisor be killed, or the ``problem`` it had; None where there is no leaf."""

    containment: str
    cgroup: str | None
    leaf: str | None
    placement: str
    hierarchy: str
    notes: tuple[str, ...] = ()
    keeper: Mapping[str, object] | None = None

    def to_dict(self) -> dict[str, object]:
        return {
            "containment": self.containment,
            "cgroup": self.cgroup,
            "leaf": self.leaf,
            "placement": self.placement,
            "hierarchy": self.hierarchy,
            "notes": list(self.notes),
            "keeper": None if self.keeper is None else dict(self.keeper),
        }


class Teardown(NamedTuple):
    """``complete``: nothing of the run is left, proven. ``killed``: distinct processes seen alive when agentd
    signalled. ``waited``: seconds from the command's end to the proof. ``stuck``: what could not be ended.
    """

    complete: bool
    killed: int
    waited: float
    leaf_removed: bool | None
    stuck: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        return {
            "complete": self.complete,
            "killed": self.killed,
            "waited": self.waited,
            "leaf_removed": self.leaf_removed,
            "stuck": list(self.stuck),
        }


class StreamTail(NamedTuple):
    """The last bytes of a captured stream. ``bytes``: how many came in all; ``complete``: read to its end."""

    tail: bytes
    total: int
    complete: bool

    def to_dict(self) -> dict[str, object]:
        return {
            "tail": self.tail.decode(errors="replace"),
            "bytes": self.total,
            "truncated": self.total > len(self.tail),
            "complete": self.complete,
        }


class Event(NamedTuple):
    """Something that happened during the run; ``at`` is seconds since its start."""

    at: float
    kind: str
    detail: str = ""

    def to_dict(self) -> dict[str, object]:
        return {"at": self.at, "kind": self.kind, "detail": self.detail}


class Report:
    """Of one run. ``started`` and ``ended`` are seconds since the epoch (the wall clock, which may be set);
    ``duration`` is seconds on the monotonic clock, ``paused`` those of them in which it was frozen. ``usage``
    and ``limits`` are worked out when they are first read.
    """

    def __init__(
        self,
        *,
        id: str,  # noqa: A002 - the report's own word
        name: str,
        argv: tuple[str, ...],
        cwd: str,
        pid: int | None,
        started: float,
        ended: float,
        duration: float,
        paused: float = 0.0,
        verdict: Verdict,
        limits: Callable[[], LimitsReport],
        enforcement: Enforcement,
        teardown: Teardown,
        usage: Callable[[], Mapping[str, Any]] = dict,
        oom: Oom | None = None,
        events: tuple[Event, ...] = (),
        left_behind: tuple[LeftBehind, ...] = (),
        left_behind_count: int = 0,
        tails: Mapping[str, StreamTail] = MappingProxyType({}),
        intent: Intent | None = None,
        start_code: int | None = None,
    ) -> None:
        self.id = id
        self.name = name
        self.argv = argv
        self.cwd = cwd
        self.pid = pid
        self.started = started
        self.ended = ended
        self.duration = duration
        self.paused = paused
        self.verdict = verdict
        self.enforcement = enforcement
        self.teardown = teardown
        self.oom = oom
        self.events = events
        self.left_behind = left_behind
        self.left_behind_count = left_behind_count
        self.tails = tails
        self._limits = limits
        self._usage = usage
        self._intent = intent
        self._start_code = start_code

    def __repr__(self) -> str:
        return f"<agentd.Report {self.name} {self.verdict.exit} ({self.verdict.cause})>"

    @cached_property
    def usage(self) -> Mapping[str, Any]:
        """What the leaf counted: docs/report.md. A file that the kernel lacks is absent, never zero."""
        return self._usage()

    @cached_property
    def limits(self) -> LimitsReport:
        """What was asked for, what was in force, and why the rest was not."""
        return self._limits()

    @property
    def ok(self) -> bool:
        """Whether the command ended by itself with code 0."""
        return self.verdict.cause == "ok"

    @property
    def exit_code(self) -> int:
        """What ``agentd run`` exits with for this run."""
        return exit_code(self.verdict, self._intent) if self._start_code is None else self._start_code

    def to_dict(self) -> dict[str, object]:
        """Plain data, ready for JSON. Bytes that are no text, in an argument or a process's name, are written as
        ``\\xNN``: many a reader of JSON refuses half a surrogate pair, and a child must not spoil its report."""
        plain = {
            "version": VERSION,
            "id": self.id,
            "name": self.name,
            "argv": list(self.argv),
            "cwd": self.cwd,
            "pid": self.pid,
            "started": _timestamp(self.started),
            "ended": _timestamp(self.ended),
            "duration": round(self.duration, 6),
            "paused": round(self.paused, 6),
            "verdict": self.verdict.to_dict(),
            "exit_code": self.exit_code,
            "usage": dict(self.usage),
            "oom": None if self.oom is None else self.oom.to_dict(),
            "limits": self.limits.to_dict(),
            "events": [event.to_dict() for event in self.events],
            "left_behind": [process.to_dict() for process in self.left_behind],
            "left_behind_count": self.left_behind_count,
            "enforcement": self.enforcement.to_dict(),
            "teardown": self.teardown.to_dict(),
            "tails": {stream: tail.to_dict() for stream, tail in self.tails.items()},
        }
        return {key: _encodable(value) for key, value in plain.items()}


def failed_start(argv: Sequence[str], asked: Mapping[str, Any], error: AgentdError, code: int) -> Report:
    """The report of a command that never ran. ``asked`` are the options of `Supervisor.spawn`; ``code`` is
    what ``agentd run`` exits with for it."""
    now = time.time()
    cwd, limits = asked.get("cwd"), asked.get("limits")
    refused = dict(error.reasons) if isinstance(error, LimitNotInForceError) else {}
    return Report(
        id=f"{int(now * 1000):012x}{os.urandom(5).hex()}",
        name=asked.get("name") or os.path.basename(argv[0]),
        argv=tuple(argv),
        cwd=cwd if cwd is not None else own_directory(),
        pid=None,
        started=now,
        ended=now,
        duration=0.0,
        verdict=Verdict("failed", "start", None, None, None, False, (str(error),)),
        limits=lambda: LimitsReport(limits.asked() if limits is not None else {}, {}, refused),
        enforcement=Enforcement("none", None, None, "none", "", ()),
        teardown=Teardown(True, 0, 0.0, None),
        start_code=code,
    )


def _encodable(value: object) -> object:
    if isinstance(value, str):
        return (
            value
            if value.isascii()
            else value.encode(errors="surrogateescape").decode(errors="backslashreplace")
        )
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    return [_encodable(item) for item in value] if isinstance(value, list) else value


def _timestamp(seconds: float) -> str:
    whole = int(seconds)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{int((seconds - whole) * 1e6):06d}Z"
