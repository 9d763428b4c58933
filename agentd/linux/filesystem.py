"""What kind of file system a path is on (statfs(2))."""

from __future__ import annotations

import os

from agentd._shim import lib

CGROUP2_SUPER_MAGIC = 0x63677270  # linux/magic.h
CGROUP_SUPER_MAGIC = 0x27E0EB
TMPFS_MAGIC = 0x01021994


def magic(path: str) -> int | None:
    """The magic number, or None when the path cannot be looked at."""
    result = int(lib.agentd_fstype(os.fsencode(path)))
    return None if result < 0 else result


def is_cgroup2(path: str) -> bool:
    """Whether writes below ``path`` reach the kernel's cgroup v2, and not a tmpfs in its place (G13)."""
    return magic(path) == CGROUP2_SUPER_MAGIC
