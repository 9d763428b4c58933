"""The last step of a run: from what was observed to the report, then the waiters and the owner's callback."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from agentd.cgroup.usage import parse_flat, parse_usage
from agentd.linux.status import UNKNOWN
from agentd.process.ladder import KILL_NOW
from agentd.process.report import Report, StreamTail, Teardown, limits_report
from agentd.process.verdict import Observed, decide

if TYPE_CHECKING:
    from agentd.process.child import Child
    from agentd.process.oom import Oom
    from agentd.process.reaper import Reaper

_INTERRUPT_COUNTS_FOR = 5.0
_TOO_LOW = 512 * 1024
"""Below this no dynamically linked program gets through its loader. Measured with /bin/true and Linux 6.1: the
exec is refused up to 24 KiB; from there on it passes, and the process is killed while it is loaded, up to 128 KiB
(User-Mode Linux) or 160 KiB (x86_64). That the kernel let the exec pass does not tell the two apart."""


def conclude(
    reaper: Reaper, child: Child, now: float, *, removed: bool | None, stuck: tuple[str, ...]
) -> None:
    """Make the report and hand it out. Nothing of the child is touched after it."""
    ended = child._status is not None
    if not ended:
        child._exited = now
        child._ended_wall = time.time()
    texts = child._ending.texts
    status = child._status or UNKNOWN
    oom = _oom(child, texts)
    if reaper.before_verdict is not None:
        reaper.before_verdict(child)
    verdict = decide(
        Observed(
            status,
            child._intent,
            oom,
            oomd=child._oomd,
            escaped=child._escaped,
            interrupted=_interrupted(child),
            executed=child._executed and not (oom and oom.scope == "leaf" and _too_low_to_load(child)),
        )
    )
    waited = (child._emptied if child._emptied is not None else now) - child._exited
    killed = (
        child._signalled - {child.pid}
        if child._ladder is KILL_NOW and child._intent is None
        else child._signalled
    )
    for reading in child._readings.values():
        reaper.drop_stream(reading)
    report = Report(
        id=child.id,
        name=child.name,
        argv=child.argv,
        cwd=child.cwd,
        pid=child.pid,
        started=child._started_wall,
        ended=child._ended_wall,
        duration=child._exited - child._started,
        paused=child._paused + (child._exited - child._paused_at if child._paused_at is not None else 0.0),
        verdict=verdict,
        limits=partial(limits_report, child.limits, child._attempt.plan, child._attempt.failed),
        enforcement=child.enforcement,
        teardown=Teardown(not stuck, len(killed), round(max(0.0, waited), 6), removed, stuck),
        usage=partial(parse_usage, texts),
        oom=oom,
        events=tuple(child._events),
        left_behind=tuple(child._named or ()),
        left_behind_count=child._left_count,
        tails={
            name: StreamTail(reading.tail.bytes, reading.tail.total, reading.at_end and not reading.lost)
            for name, reading in child._readings.items()
        },
        intent=child._intent,
    )
    reaper.deregister(child)
    with child._lock:
        child._report = report
        child._pidfd = -1
        child._done.set()
    child._supervisor._forget(child)
    if child._when_done is not None:
        child._when_done()
    if child._on_exit is not None:
        reaper.call_back(child._on_exit, report)


def _too_low_to_load(child: Child) -> bool:
    attempt = child._attempt
    for write in attempt.plan.before:
        if write.file == "memory.max" and write.limit not in attempt.failed:
            return write.value.isdecimal() and int(write.value) < _TOO_LOW
    return False


def _oom(child: Child, texts: Mapping[str, str]) -> Oom | None:
    events = parse_flat(texts.get("memory.events", ""))
    if not events.get("oom_kill"):
        return None
    local = texts.get("memory.events.local")
    from agentd.process.oom import MemoryEvents, attribute

    counted = MemoryEvents(
        events.get("oom", 0),
        events["oom_kill"],
        events.get("oom_group_kill", 0),
        None if local is None else parse_flat(local).get("oom", 0),
    )
    oom = attribute(counted, child._attempt.place.above.risen(child._attempt.birth.seen()))
    shmem = parse_flat(texts.get("memory.stat", "")).get("shmem")
    return None if oom is None else oom._replace(shmem=shmem)


def _interrupted(child: Child) -> bool:
    at = child._interrupted_at
    return at is not None and child._exited - at <= _INTERRUPT_COUNTS_FOR
