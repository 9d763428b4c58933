"""Why a run ended: one pure function of what was observed. It never infers memory from 137."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, NamedTuple

from agentd.linux.status import Status

if TYPE_CHECKING:
    from agentd.process.oom import Oom

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


class Observed(NamedTuple):
    """Everything the verdict may look at. ``interrupted``: the terminal's Ctrl-C reached the child lately.

    ``oom``: the OOM killer killed something of the leaf. ``oomd``: systemd-oomd left its mark on it.
    ``escaped``: the child lived on outside its leaf. ``executed`` False: it was killed before its exec, or
    while it was loaded.
    """

    status: Status
    intent: Intent | None = None
    oom: Oom | None = None
    oomd: bool = False
    escaped: bool = False
    interrupted: bool = False
    executed: bool = True


class Verdict(NamedTuple):
    """``exit`` is completed, failed, crashed or cancelled; ``cause`` is a word of docs/verdicts.md.

    ``scope`` says whose memory limit: leaf, nested, ancestor (``path`` is that cgroup), host; None where that has
    no meaning. ``evidence`` are the facts it rests on, a line each.
    """

    exit: str
    cause: str
    scope: str | None
    code: int | None
    signal: int | None
    core: bool
    evidence: tuple[str, ...]
    path: str | None = None

    def to_dict(self) -> dict[str, object]:
        return {
            "exit": self.exit,
            "cause": self.cause,
            "scope": self.scope,
            "path": self.path,
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

    def verdict(exit_: str, cause: str, scope: str | None = None, path: str | None = None) -> Verdict:
        return Verdict(exit_, cause, scope, status.code, status.signal, status.core, tuple(evidence), path)

    if seen.escaped:
        evidence.append(
            "it was alive while its leaf was empty: it had left the leaf, and was killed by pidfd"
        )
        return verdict("failed", "escaped")
    if status.signal == signal.SIGKILL and seen.oom is not None and not _killed_first(seen):
        evidence.append(_WHOSE[seen.oom.scope].format(path=seen.oom.path))
        if seen.oom.shmem:
            evidence.append(
                f"{seen.oom.shmem} bytes of its memory were files in tmpfs and shared memory (shmem), "
                "which stay when their writers are dead"
            )
        if not seen.executed:
            evidence.append("it was killed before it could begin: the memory limit is too low to start it")
            return verdict("failed", "start", seen.oom.scope, seen.oom.path)
        return verdict("failed", "memory", seen.oom.scope, seen.oom.path)
    if status.signal == signal.SIGKILL and seen.oomd and not _killed_first(seen):
        evidence.append("systemd-oomd killed the leaf: user.oomd_kill is set on it")
        return verdict("failed", "memory", "host")
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


_WHOSE = {
    "leaf": "killed by the OOM killer: the leaf's own limit was hit",
    "nested": "killed by the OOM killer: the limit of a cgroup that it made below its leaf was hit",
    "ancestor": "killed by the OOM killer: the limit of {path} was hit, not the leaf's",
    "host": "killed by the OOM killer: no cgroup's limit was hit, the machine ran out of memory",
}


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
