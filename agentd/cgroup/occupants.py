"""Who sits in a cgroup: whether they are ours to move, and how to name them to people."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from agentd.cgroup import control

_SHOWN = 3


def parent_of(pid: int) -> int:
    """The parent's pid, from /proc/PID/stat; 0 for a process that is gone or has none (proc(5))."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            # The name in brackets may itself contain brackets and blanks.
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def strangers(pids: Iterable[int], *, own: int, parent: Callable[[int], int] = parent_of) -> list[int]:
    """Those of ``pids`` that are neither ``own`` nor a descendant of it. Not answered for 0 (a process of a
    foreign pid namespace, G26): that is a stranger."""
    ours = {own}
    others = []
    for pid in pids:
        chain: list[int] = []
        above = pid
        # A chain of parents ends at 0 or 1; the bound is against a loop by pid reuse while we look.
        while above > 1 and above not in ours and len(chain) < 1000:
            chain.append(above)
            above = parent(above)
        if above in ours:
            ours.update(chain)
        else:
            others.append(pid)
    return others


def named(pids: Iterable[int]) -> str:
    """Processes as a message names them: ``bash (812), sshd (790) and 4 more``."""
    listed = list(pids)
    names = [
        f"{_name(pid)} ({pid})" if pid else "a process of another pid namespace" for pid in listed[:_SHOWN]
    ]
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return ", ".join(names) + more


def sitting_in(dirfd: int) -> list[int]:
    """The processes directly in a cgroup; of a threaded one, which cannot list them (G04), its threads."""
    text = control.read_or(dirfd, "cgroup.procs", "") or control.read_or(dirfd, "cgroup.threads", "")
    return control.pids_in(text)


def _name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", "rb", buffering=0) as file:
            return "".join(c if c.isprintable() else "?" for c in os.fsdecode(file.read()).rstrip("\n"))
    except OSError:
        return "?"
