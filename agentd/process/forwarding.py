"""What agentd does with a signal that it is sent while it runs a command: one pure function."""

from __future__ import annotations

import enum
import signal
from typing import NamedTuple


class Act(enum.Enum):
    NOTHING = "nothing"
    CHILD = "child"  # pass it on to the child alone
    GROUP = "group"  # pass it on to the child's group, as a terminal does
    STOP = "stop"  # ask the run to end: TERM now, KILL after the grace
    KILL = "kill"  # end the run at once
    INTERRUPTED = "interrupted"  # the terminal sent it to the child already: remember it
    SUSPEND = "suspend"  # stop the child's group and ourselves, until we are continued
    RESIZE = "resize"  # the window is another, or ours again: see to the child's own pseudo-terminal


_TO_CHILD = frozenset({signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH})


class Situation(NamedTuple):
    """``shared_terminal``: the child is in our group, so the terminal's own signals reach it without us.
    ``own_terminal``: the child has a pseudo-terminal that we feed. ``last_request``: when an INT or TERM
    came before (monotonic seconds), None if never. ``grace`` in seconds."""

    shared_terminal: bool
    own_terminal: bool
    last_request: float | None
    grace: float


def act_on(number: int, from_kernel: bool, situation: Situation, now: float) -> Act:
    """``from_kernel``: the signal was made by the kernel, as a terminal's Ctrl-C is, and not by a process."""
    reached_child = from_kernel and situation.shared_terminal
    again = situation.last_request is not None and now - situation.last_request <= situation.grace
    if number in (signal.SIGTERM, signal.SIGINT) and again:
        return Act.KILL
    if number == signal.SIGTERM:
        return Act.STOP
    if number == signal.SIGHUP and from_kernel:
        return Act.STOP  # the terminal is gone, and with it whoever could end the run
    if number == signal.SIGTSTP:
        if not situation.shared_terminal:
            return Act.SUSPEND
        # We stop when the child has: it may have a screen to put in order first, or stay.
        return Act.NOTHING if from_kernel else Act.CHILD
    if number in (signal.SIGWINCH, signal.SIGCONT) and situation.own_terminal:
        return Act.RESIZE
    if reached_child:
        return Act.INTERRUPTED if number == signal.SIGINT else Act.NOTHING
    if number in _TO_CHILD:
        return Act.CHILD
    return Act.GROUP if number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT) else Act.NOTHING


def is_request(number: int) -> bool:
    """Whether a second one of these within the grace kills."""
    return number in (signal.SIGTERM, signal.SIGINT)
