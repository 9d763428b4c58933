"""Why a run ended: one pure function of what was observed. It never infers memory from 137."""

from __future__ import annotations

import signal
from typing import NamedTuple

from agentd.linux.status import Status

CANCELLED = frozenset({"operator", "parent", "drain", "shed", "guardrail"})
"""Causes that somebody asked for. Every other cause recorded before a signal of ours is a failure."""

OURS = CANCELLED | {"deadline", "cpu", "idle", "throttled", "budget", "stuck"}
"""Every cause that is recorded, as an `Intent`, before agentd sends a signal for it."""

TIMED = frozenset({"deadline", "cpu", "idle", "throttled"})


class Intent(NamedTuple):
    """That agentd meant to end the run: ``cause``, recorded at ``at`` (monotonic seconds), before any signal.

    ``asked_by`` is the signal that asked agentd for it (SIGINT, SIGTERM), or None. ``killed``: SIGKILL was
    sent, not only a request to end.
    """

    cause: str
    at: float
    asked_by: int | None = None
    killed: bool = False


class MemoryEvents(NamedTuple):
    """What the leaf's memory counters rose by during the run. ``local`` counts only the leaf's own limit.

    ``oom_kill`` is no number of processes: with memory.oom.group it over-counts (G54).
    """

    oom: int = 0
    oom_kill: int = 0
    oom_group_kill: int = 0
    local_oom: int | None = None

    @property
    def own_limit(self) -> bool:
        """The leaf's own limit was hit: then its local ``oom`` rose; for one above it did not (G55)."""
        return (self.oom if self.local_oom is None else self.local_oom) > 0


class Observed(NamedTuple):
    """Everything the verdict may look at. ``interrupted``: the terminal's Ctrl-C reached the child lately.

    ``escaped``: the child lived on outside its leaf. ``executed`` False: it was killed before its exec.
    """

    status: Status
    intent: Intent | None = None
    memory: MemoryEvents = MemoryEvents()
    escaped: bool = False
    interrupted: bool = False
    executed: bool = True


class Verdict(NamedTuple):
    """``exit`` is completed, failed, crashed or cancelled; ``cause`` is a word of docs/verdicts.md.

    ``scope`` says whose limit: leaf, ancestor, host; None where that has no meaning. ``evidence`` are the
    facts it rests on, a line each.
    """

    exit: str
    cause: str
    scope: str | None
    code: int | None
    signal: int | None
    core: bool
    evidence: tuple[str, ...]

    def to_dict(self) -> dict[str, object]:
        return {
            "exit": self.exit,
            "cause": self.cause,
            "scope": self.scope,
            "code": self.code,
            "signal": self.signal,
            "core": self.core,
            "evidence": list(self.evidence),
        }


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def decide(seen: Observed) -> Verdict:
    """The verdict. What killed the main process decides; what it survived is a fact beside it."""
    status = seen.status
    evidence = [_how(status)]

    def verdict(exit_: str, cause: str, scope: str | None = None) -> Verdict:
        return Verdict(exit_, cause, scope, status.code, status.signal, status.core, tuple(evidence))

    if seen.escaped:
        evidence.append(
            "it was alive while its leaf was empty: it had left the leaf, and was killed by pidfd"
        )
        return verdict("failed", "escaped")
    if status.signal == signal.SIGKILL and seen.memory.oom_kill > 0 and not _killed_first(seen):
        scope = "leaf" if seen.memory.own_limit else "ancestor"
        evidence.append(_oom(seen.memory))
        if not seen.executed:
            evidence.append("it was killed before it could execute: the memory limit is too low to start it")
            return verdict("failed", "start", scope)
        return verdict("failed", "memory", scope)
    if seen.intent is not None:
        evidence.append(_asked(seen.intent))
        exit_ = "cancelled" if seen.intent.cause in CANCELLED else "failed"
        return verdict(exit_, seen.intent.cause)
    if not status.known:
        return verdict("crashed", "unknown")
    if status.signal is not None:
        if status.signal == signal.SIGINT and seen.interrupted:
            evidence.append("Ctrl-C on the terminal")
            return verdict("cancelled", "operator")
        return verdict("crashed", "signal")
    return verdict("completed", "ok") if status.code == 0 else verdict("failed", "error")


def _killed_first(seen: Observed) -> bool:
    """Whether the SIGKILL is explained by ours. Without a kill of ours it is the OOM killer's; with one, the
    leaf's counter may be a descendant's death, so our recorded kill stands."""
    return seen.intent is not None and seen.intent.killed


def _how(status: Status) -> str:
    if not status.known:
        return "its status was consumed by another wait of this process, and the kernel does not keep it"
    if status.signal is not None:
        return f"ended by {signal_name(status.signal)}{', core dumped' if status.core else ''}"
    return f"exited with {status.code}"


def _oom(memory: MemoryEvents) -> str:
    whose = "of the leaf's own limit" if memory.own_limit else "of a limit above the leaf"
    return f"memory.events: oom {memory.oom}, oom_kill {memory.oom_kill}, {whose}"


def _asked(intent: Intent) -> str:
    by = f", asked by {signal_name(intent.asked_by)}" if intent.asked_by else ""
    return f"agentd ended it: {intent.cause}{by}{', with SIGKILL' if intent.killed else ''}"


def exit_code(verdict: Verdict, intent: Intent | None = None) -> int:
    """What ``agentd run`` exits with: the table of docs/verdicts.md.

    A command that was asked to end and exited by itself keeps its own code; one that a signal ended gives 130
    for Ctrl-C and 143 for TERM.
    """
    cause = verdict.cause
    if cause in ("ok", "error"):
        return verdict.code or 0
    if cause == "signal":
        return 128 + (verdict.signal or 0)
    if cause == "memory":
        return 137
    if cause in TIMED:
        return 124
    if cause == "budget":
        return 7
    if cause in CANCELLED:
        if verdict.code is not None:
            return verdict.code
        if verdict.signal == signal.SIGINT or (intent and intent.asked_by == signal.SIGINT):
            return 130
        if intent is None or intent.asked_by in (None, signal.SIGTERM):
            return 143
        return 128 + (verdict.signal or signal.SIGKILL)
    return 125
