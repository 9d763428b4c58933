"""An embedding program of its own: code that a test must not run in pytest's process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(CHECKOUT), "PYTHONFAULTHANDLER": "1"}


def program(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(code), *arguments]


def run(code: str, *arguments: str, timeout: float = 90) -> str:
    """Run ``code`` in an interpreter of its own (``sys.argv[1:]`` are ``arguments``); what it printed. Fails
    the test with what it said if it did not end with 0."""
    done = subprocess.run(
        program(code, *arguments),
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


class Ready:
    """A sink for `Capture`: `wait` returns when the child has written ``word``."""

    def __init__(self, word: bytes = b"ready") -> None:
        self._word = word
        self._seen = threading.Event()
        self.data = b""

    def __call__(self, data: bytes) -> None:
        self.data += data
        if self._word in self.data:
            self._seen.set()

    def wait(self) -> None:
        assert self._seen.wait(30), f"the child has not said {self._word!r}, but {self.data!r}"
