"""Debian packages that a tier needs: found, or installed, or one line that says how."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from kernels.errors import KernelError

# Somebody else's apt-get may be running.
_APT = ("apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=300")


def program(name: str) -> Path | None:
    """Where a program is, also for users whose PATH leaves out the sbin folders."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin:/usr/bin:/bin")
    return Path(found).resolve() if found else None


def install(packages: Sequence[str]) -> None:
    """Install Debian packages; raise KernelError with the command to type where that cannot be done here."""
    remedy = f"install them with: apt-get install {' '.join(packages)}"
    missing = f"missing Debian packages: {' '.join(packages)}"
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise KernelError(f"{missing}; {remedy}")
    if _has_no_candidate(packages):
        _apt("update")
    if _apt("install", "--no-install-recommends", *packages) != 0:
        raise KernelError(f"{missing}; apt-get failed (its messages are above); {remedy}")


def _has_no_candidate(packages: Sequence[str]) -> bool:
    """Whether the package cache is empty or too old to know one of the packages."""
    policy = subprocess.run(
        ["apt-cache", "policy", *packages],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, "LC_ALL": "C"},
        check=False,
    ).stdout
    known = [line.split(":", 1)[1].strip() for line in policy.splitlines() if "Candidate:" in line]
    return len(known) < len(packages) or "(none)" in known


def _apt(*arguments: str) -> int:
    return subprocess.run(
        [*_APT, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        check=False,
    ).returncode
