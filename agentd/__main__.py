"""The command ``agentd``. Signals come first: see `agentd.cli.early`."""

from __future__ import annotations

import sys


def main() -> None:
    if sys.argv[1:2] == ["run"]:
        from agentd.cli import early

        early.hold_signals()
    from agentd.cli.main import run_cli

    sys.exit(run_cli(sys.argv[1:]))


if __name__ == "__main__":
    main()
