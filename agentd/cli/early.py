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

HELD = (*FORWARDED, signal.SIGCHLD)

original_mask: set[int] | None = None
"""The signal mask that the command is to start with; None until `hold_signals`."""


def hold_signals() -> None:
    """Block the forwarded signals and SIGCHLD. An ignored SIGCHLD, which some programs leave to their
    children, is set to its default: it would cost us every exit status (G47)."""
    global original_mask
    original = signal.pthread_sigmask(signal.SIG_BLOCK, HELD)
    if os.environ.pop("AGENTD_INIT", "") == str(os.getpid()):
        original -= set(FORWARDED)  # blocked by agentd-init for our sake, not by whoever started it
    original_mask = {int(number) for number in original}
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
