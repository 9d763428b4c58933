"""Counts the signals that it gets: prints `ready PID`, then `NAME COUNT` for each. SIGRTMIN ends it, with 7.

With `--stop-at NAME` it ends when that one comes, with 8.
"""

import os
import signal
import sys

COUNTED = {
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
}

signal.pthread_sigmask(signal.SIG_BLOCK, {*COUNTED, signal.SIGRTMIN})
last = sys.argv[2] if sys.argv[1:2] == ["--stop-at"] else None
counts: dict[str, int] = {}
print("ready", os.getpid(), flush=True)
while True:
    name = signal.Signals(signal.sigwait({*COUNTED, signal.SIGRTMIN})).name
    if name == "SIGRTMIN":
        sys.exit(7)
    counts[name] = counts.get(name, 0) + 1
    print(name, counts[name], flush=True)
    if name == last:
        sys.exit(8)
