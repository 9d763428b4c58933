"""Why a run ended, from what was observed: the table of causes, row by row."""

from __future__ import annotations

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.linux.status import UNKNOWN, Status
from agentd.process.oom import MemoryEvents, Oom, attribute
from agentd.process.verdict import CANCELLED, OURS, TIMED, Intent, Observed, decide, exit_code

KILL, TERM, INT = int(signal.SIGKILL), int(signal.SIGTERM), int(signal.SIGINT)


def exited(code: int) -> Status:
    return Status(True, code, None, False, False, 0, 0, 0)


def died(number: int, *, core: bool = False) -> Status:
    return Status(True, None, number, core, False, 0, 0, 0)


def asked(cause: str, *, killed: bool = False, by: int | None = None) -> Intent:
    return Intent(cause, 1.0, by, killed)


OWN = Oom("leaf", None, False)
ABOVE = Oom("ancestor", "/sys/fs/cgroup/above", False)
BELOW = Oom("nested", None, False)
HOST = Oom("host", None, False)

# Observed, then: exit, cause, scope, and what `agentd run` exits with.
ROWS = [
    (Observed(exited(0)), "completed", "ok", None, 0),
    (Observed(exited(3)), "failed", "error", None, 3),
    (Observed(exited(137)), "failed", "error", None, 137),
    (Observed(died(11, core=True)), "crashed", "signal", None, 139),
    (Observed(died(KILL)), "crashed", "signal", None, 137),
    (Observed(died(KILL), oom=OWN), "failed", "memory", "leaf", 137),
    (Observed(died(KILL), oom=BELOW), "failed", "memory", "nested", 137),
    (Observed(died(KILL), oom=HOST), "failed", "memory", "host", 137),
    (Observed(died(KILL), oomd=True), "failed", "memory", "host", 137),
    (Observed(died(KILL), asked("deadline", killed=True), oomd=True), "failed", "deadline", None, 124),
    (Observed(died(KILL), oom=ABOVE), "failed", "memory", "ancestor", 137),
    (Observed(died(KILL), oom=OWN, executed=False), "failed", "start", "leaf", 125),
    # A partial OOM: some other process was killed, and the main one went its own way.
    (Observed(exited(0), oom=OWN), "completed", "ok", None, 0),
    (Observed(exited(1), oom=OWN), "failed", "error", None, 1),
    (Observed(exited(137), oom=OWN), "failed", "error", None, 137),
    (Observed(died(TERM), oom=OWN), "crashed", "signal", None, 143),
    # Our own kill is ours, also where the leaf counted an OOM before (B43).
    (Observed(died(KILL), asked("deadline", killed=True)), "failed", "deadline", None, 124),
    (Observed(died(KILL), asked("deadline", killed=True), OWN), "failed", "deadline", None, 124),
    # Asked to end with TERM, and then the OOM killer came first.
    (Observed(died(KILL), asked("deadline"), OWN), "failed", "memory", "leaf", 137),
    (Observed(exited(0), asked("deadline")), "failed", "deadline", None, 124),
    (Observed(died(TERM), asked("cpu")), "failed", "cpu", None, 124),
    (Observed(died(TERM), asked("idle")), "failed", "idle", None, 124),
    (Observed(died(TERM), asked("throttled")), "failed", "throttled", None, 124),
    (Observed(died(TERM), asked("budget")), "failed", "budget", None, 7),
    (Observed(died(KILL), asked("stuck", killed=True)), "failed", "stuck", None, 125),
    (Observed(died(TERM), asked("operator", by=TERM)), "cancelled", "operator", None, 143),
    (Observed(died(KILL), asked("operator", by=TERM, killed=True)), "cancelled", "operator", None, 143),
    (Observed(died(INT), asked("operator", by=INT)), "cancelled", "operator", None, 130),
    (Observed(died(KILL), asked("operator", by=INT, killed=True)), "cancelled", "operator", None, 130),
    (Observed(exited(5), asked("operator", by=TERM)), "cancelled", "operator", None, 5),
    (Observed(died(KILL), asked("parent", killed=True)), "cancelled", "parent", None, 143),
    (Observed(died(TERM), asked("drain")), "cancelled", "drain", None, 143),
    (Observed(died(TERM), asked("shed")), "cancelled", "shed", None, 143),
    (Observed(died(TERM), asked("guardrail")), "cancelled", "guardrail", None, 143),
    (Observed(died(KILL), asked("operator", by=1, killed=True)), "cancelled", "operator", None, 137),
    # The terminal's own Ctrl-C: no intent of ours, and the child had it before us.
    (Observed(died(INT), interrupted=True), "cancelled", "operator", None, 130),
    (Observed(died(INT)), "crashed", "signal", None, 130),
    (Observed(exited(2), interrupted=True), "failed", "error", None, 2),
    (Observed(died(KILL), escaped=True), "failed", "escaped", None, 125),
    (Observed(died(KILL), asked("deadline", killed=True), OWN, escaped=True), "failed", "escaped", None, 125),
    # Somebody else's wait took the status: never invented.
    (Observed(UNKNOWN), "crashed", "unknown", None, 125),
    (Observed(UNKNOWN, oom=OWN), "crashed", "unknown", None, 125),
    (Observed(UNKNOWN, asked("deadline", killed=True)), "failed", "deadline", None, 124),
]


@pytest.mark.parametrize(("seen", "exit_", "cause", "scope", "code"), ROWS)
def test_the_table(seen: Observed, exit_: str, cause: str, scope: str | None, code: int) -> None:
    verdict = decide(seen)
    assert (verdict.exit, verdict.cause, verdict.scope) == (exit_, cause, scope)
    assert exit_code(verdict, seen.intent) == code


@pytest.mark.parametrize(
    ("events", "above", "scope", "path"),
    [
        (MemoryEvents(1, 1, 0, 1), [], "leaf", None),
        (MemoryEvents(1, 1, 0, None), [], "leaf", None),  # before memory.events.local
        (MemoryEvents(1, 1, 0, 1), ["/up"], "leaf", None),
        (MemoryEvents(1, 1, 0, 0), [], "nested", None),
        (MemoryEvents(0, 1, 0, 0), ["/near", "/far"], "ancestor", "/near"),
        (MemoryEvents(0, 1, 0, None), ["/far"], "ancestor", "/far"),
        (MemoryEvents(0, 3, 1, 0), [], "host", None),
    ],
)
def test_whose_limit(events: MemoryEvents, above: list[str], scope: str, path: str | None) -> None:
    assert attribute(events, above) == Oom(scope, path, events.oom_group_kill > 0)


@given(
    st.builds(MemoryEvents, st.integers(0, 9), st.just(0), st.integers(0, 9), st.none() | st.integers(0, 9))
)
def test_nobody_was_killed(events: MemoryEvents) -> None:
    assert attribute(events, ["/up"]) is None


def test_an_ancestor_is_named() -> None:
    verdict = decide(Observed(died(KILL), oom=ABOVE))
    assert verdict.path == ABOVE.path
    assert any(str(ABOVE.path) in line for line in verdict.evidence)


@given(
    code=st.integers(0, 255),
    oom=st.integers(0, 99),
    oom_kill=st.integers(0, 99),
    local=st.none() | st.integers(0, 99),
)
def test_a_main_process_that_exits_is_never_a_memory_verdict(
    code: int, oom: int, oom_kill: int, local: int | None
) -> None:
    """B44: whatever the counters say, it lived to say its code."""
    verdict = decide(Observed(exited(code), oom=attribute(MemoryEvents(oom, oom_kill, 0, local), [])))
    assert verdict.cause == ("ok" if code == 0 else "error")
    assert exit_code(verdict) == code


@given(number=st.integers(1, 64), oom=st.integers(0, 99), local=st.none() | st.integers(0, 99))
def test_memory_is_never_concluded_from_the_signal_alone(number: int, oom: int, local: int | None) -> None:
    """B38: 137 without a counted kill is a signal."""
    verdict = decide(Observed(died(number), oom=attribute(MemoryEvents(oom, 0, 0, local), [])))
    assert (verdict.cause, verdict.signal) == ("signal", number)
    assert exit_code(verdict) == 128 + number


@given(
    status=st.sampled_from([exited(0), exited(1), died(KILL), died(TERM), UNKNOWN]),
    cause=st.sampled_from(sorted(OURS)),
    killed=st.booleans(),
    oom=st.sampled_from([None, OWN, ABOVE]),
)
def test_a_recorded_kill_is_never_called_anything_else(
    status: Status, cause: str, killed: bool, oom: Oom | None
) -> None:
    verdict = decide(Observed(status, asked(cause, killed=killed), oom))
    expected = {cause} if killed or status.signal != KILL or oom is None else {"memory"}
    assert {verdict.cause} == expected
    assert verdict.code == status.code
    assert verdict.evidence


def test_every_cause_of_ours_has_an_exit_code() -> None:
    assert TIMED | CANCELLED < OURS
    for cause in OURS:
        code = exit_code(decide(Observed(died(TERM), asked(cause))))
        assert code == (
            124 if cause in TIMED else 143 if cause in CANCELLED else 7 if cause == "budget" else 125
        )
