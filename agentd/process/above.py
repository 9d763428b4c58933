"""What the cgroups above a leaf count: by them, a limit that was hit above is told from the leaf's own.

Of each cgroup from the subtree up to the v2 mount that has a memory controller, memory.events.local is kept
open: its ``oom`` rises only when that cgroup's own limit is hit (kernel: cgroup-v2.rst).
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from agentd.cgroup.usage import parse_flat

_FILE = "memory.events.local"


class Above:
    """``paths`` of the cgroups above, nearest first, and ``fds`` of their counters."""

    def __init__(self, subtree: str, mount: str) -> None:
        self.paths: list[str] = []
        self.fds: list[int] = []
        path = subtree
        while path == mount or path.startswith(mount.rstrip("/") + "/"):
            try:
                self.fds.append(os.open(f"{path}/{_FILE}", os.O_RDONLY | os.O_CLOEXEC))
                self.paths.append(path)
            except OSError:
                pass  # the real root counts nothing, and above a missing controller there is none
            path = os.path.dirname(path)

    def risen(self, before: Sequence[str]) -> list[str]:
        """The paths of those whose own limit was hit since their texts were ``before``, nearest first."""
        risen = []
        for path, fd, text in zip(self.paths, self.fds, before, strict=False):
            try:
                now = os.pread(fd, 4096, 0).decode(errors="replace")
            except OSError:
                continue
            if parse_flat(now).get("oom", 0) > parse_flat(text).get("oom", 0):
                risen.append(path)
        return risen

    def close(self) -> None:
        for fd in self.fds:
            os.close(fd)
        self.fds.clear()
        self.paths.clear()
