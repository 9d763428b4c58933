"""The command ``agentd``. Signals come first: see `agentd.cli.early`."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    if sys.argv[1:2] == ["run"]:
        _run()
    from agentd.cli.main import run_cli

    sys.exit(run_cli(sys.argv[1:]))


def _run() -> None:
    from agentd.cli import early

    early.hold_signals()
    # Nothing that is made while modules load is garbage: looking for it costs a tenth of the start. The
    # collector is switched on again when the command runs.
    gc.disable()
    from agentd.cli.main import run_cli

    code = run_cli(sys.argv[1:])
    import os

    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue
    # The run is over and reported, its leaf is gone. What an orderly shutdown would still wait for are
    # threads that sit in a write to a reader who does not read.
    os._exit(code)


if __name__ == "__main__":
    main()
