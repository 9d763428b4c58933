"""What becomes of each signal in each situation."""

from __future__ import annotations

import itertools
import signal
from signal import SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH

import pytest

from agentd.process.forwarding import Act, Situation, act_on, is_request

GRACE, NOW = 5.0, 100.0
PLAIN = Situation(False, False, None, GRACE)
SHARED = Situation(True, False, None, GRACE)
OWN = Situation(False, True, None, GRACE)

# What a process sent us, where none of it has reached the child.
SENT = {
    SIGTERM: Act.STOP,
    SIGINT: Act.GROUP,
    SIGHUP: Act.GROUP,
    SIGQUIT: Act.GROUP,
    SIGUSR1: Act.CHILD,
    SIGUSR2: Act.CHILD,
    SIGWINCH: Act.CHILD,
}
# What the terminal sent to its foreground group, the child in it.
TYPED = {SIGINT: Act.INTERRUPTED, SIGQUIT: Act.NOTHING, SIGWINCH: Act.NOTHING, SIGHUP: Act.STOP}


@pytest.mark.parametrize("situation", [PLAIN, SHARED], ids=["plain", "shared"])
@pytest.mark.parametrize(("number", "act"), list(SENT.items()))
def test_what_a_process_sends_is_passed_on(number: int, act: Act, situation: Situation) -> None:
    assert act_on(number, False, situation, NOW) is act


@pytest.mark.parametrize(("number", "act"), list(TYPED.items()))
def test_what_a_shared_terminal_made_is_not_sent_twice(number: int, act: Act) -> None:
    assert act_on(number, True, SHARED, NOW) is act


@pytest.mark.parametrize(("number", "act"), list(SENT.items()))
def test_a_childs_own_terminal_takes_the_window_and_nothing_else(number: int, act: Act) -> None:
    expected = Act.RESIZE if number == SIGWINCH else act
    assert act_on(number, False, OWN, NOW) is expected


def test_without_a_shared_terminal_its_signals_did_not_reach_the_child() -> None:
    for situation in (PLAIN, OWN):
        assert act_on(SIGINT, True, situation, NOW) is Act.GROUP
        assert act_on(SIGQUIT, True, situation, NOW) is Act.GROUP
        assert act_on(SIGHUP, True, situation, NOW) is Act.STOP


@pytest.mark.parametrize("number", [SIGTERM, SIGINT])
@pytest.mark.parametrize(("shared", "own", "kernel"), list(itertools.product([False, True], repeat=3)))
def test_a_second_request_within_the_grace_kills(number: int, shared: bool, own: bool, kernel: bool) -> None:
    def act(last: float | None) -> Act:
        return act_on(number, kernel, Situation(shared, own, last, GRACE), NOW)

    assert is_request(number)
    assert act(NOW - GRACE) is Act.KILL
    assert act(NOW) is Act.KILL
    assert act(NOW - GRACE - 0.001) is act(None) is not Act.KILL


def test_no_other_signal_ever_kills_or_counts_as_a_request() -> None:
    for number, kernel in itertools.product(signal.valid_signals(), (False, True)):
        if number not in (SIGTERM, SIGINT):
            assert not is_request(number)
            for shared, own in itertools.product((False, True), repeat=2):
                assert act_on(number, kernel, Situation(shared, own, NOW, GRACE), NOW) is not Act.KILL


def test_what_is_not_forwarded_does_nothing() -> None:
    known = {*SENT, SIGCONT, signal.SIGTSTP}
    for number in set(signal.valid_signals()) - known:
        for kernel, situation in itertools.product((False, True), (PLAIN, SHARED, OWN)):
            assert act_on(number, kernel, situation, NOW) is Act.NOTHING
