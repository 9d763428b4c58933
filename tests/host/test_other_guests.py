"""Kernel tests that want a guest of another make than the one that all the others share: scripts/kernel's options."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]

pytestmark = [
    pytest.mark.default,  # each boots a kernel
    pytest.mark.skipif(
        shutil.which("linux.uml") is None and os.geteuid() != 0,
        reason="needs the Debian packages user-mode-linux and busybox-static, or root to install them",
    ),
]


@pytest.mark.parametrize(
    ("options", "test", "passed"),
    [
        (["--memory", "256M"], "tests/kernel/test_attribution_host.py", 1),
        (["--swap", "128M"], "tests/kernel/test_swap_max.py", 2),
    ],
    ids=["small", "with-swap"],
)
def test_in_a_guest(options: list[str], test: str, passed: int) -> None:
    """B47: a machine without memory; B52: swap that a limit must not hide in."""
    done = subprocess.run(
        [CHECKOUT / "scripts" / "kernel", "uml", "--timeout", "100", *options, "--", "pytest", "-q", test],
        cwd=CHECKOUT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{passed} passed" in done.stdout
    assert "skipped" not in done.stdout
