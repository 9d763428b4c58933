"""Which tests run on which kernel: a marker from the folder, and a skip that says where a test does run."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

# scripts/kernel says which one it has booted.
KERNEL = os.environ.get("AGENTD_KERNEL", "host")
TESTS = Path(__file__).parent / "tests"
# A test without one of these markers runs on every kernel.
ONLY = {
    "host": "the host's own kernel: scripts/test --quick",
    "uml": "User-Mode Linux: scripts/test",
    "qemu": "QEMU: scripts/test --full",
}


# Whoever was started in the background of a script ignores these, and hands that on to what the tests start.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL)):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, handler)


# First, so that `-m` sees the markers.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not item.path.is_relative_to(TESTS):
            continue
        folder = item.path.relative_to(TESTS).parts[0]
        if folder in ("host", "kernel"):
            item.add_marker(folder)
        wanted = [kernel for kernel in ONLY if item.get_closest_marker(kernel)]
        if wanted and KERNEL not in wanted:
            where = " or ".join(ONLY[kernel] for kernel in wanted)
            item.add_marker(pytest.mark.skip(reason=f"runs only on {where}"))
