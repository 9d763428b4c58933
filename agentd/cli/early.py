"""The first thing that ``agentd run`` does: hold every signal that it will forward.

Imports nothing but the interpreter's own signal module, so that little time passes before it. Held signals
stay pending, and are read once there is a child to pass them to; one that arrives earlier still ends the
process, which has started nothing.
"""

from __future__ import annotations

import os
import signal

FORWARDED = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
)

HELD = (*FORWARDED, signal.SIGCHLD, signal.SIGCONT, signal.SIGTSTP)

_LEFT_IGNORED = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)

held: tuple[int, ...] = HELD
"""Those of `HELD` that are to be acted on; `hold_signals` takes away what the caller has ignored."""

original_mask: set[int] | None = None
"""The signal mask that the command is to start with; None until `hold_signals`."""


def hold_signals() -> None:
    """Block the signals of `HELD`. An ignored SIGCHLD, which some programs leave to their
    children, is set to its default: it would cost us every exit status (G47).

    INT, HUP and QUIT that are ignored when we start, as below nohup or in the background of a script, do not
    concern us: the command ignores them too. Blocked, they would be queued all the same.
    """
    global original_mask, held
    held = tuple(
        number for number in HELD if number not in _LEFT_IGNORED or signal.getsignal(number) != signal.SIG_IGN
    )
    original = signal.pthread_sigmask(signal.SIG_BLOCK, HELD)
    if os.environ.pop("AGENTD_INIT", "") == str(os.getpid()):
        original -= set(FORWARDED)  # blocked by agentd-init for our sake, not by whoever started it
    original_mask = {int(number) for number in original}
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
