"""Handles Ctrl-Z itself: prints `ready PID`, then `asked` for each. With `--when FILE` it stops when FILE can be
read (a FIFO), else never. SIGINT ends it."""

import os
import signal
import sys

when = sys.argv[2] if sys.argv[1:2] == ["--when"] else None
signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTSTP})
print("ready", os.getpid(), flush=True)
while True:
    signal.sigwait({signal.SIGTSTP})
    print("asked", flush=True)
    if when is not None:
        with open(when) as go:
            go.read()
        os.kill(os.getpid(), signal.SIGSTOP)
        print("continued", flush=True)
