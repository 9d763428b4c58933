"""Whose memory limit the OOM killer acted for. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class MemoryEvents(NamedTuple):
    """What a leaf's memory counters rose by. A leaf is used for one run only, so they began at zero (G57).

    ``oom`` and ``oom_kill`` are of the leaf and what is below it, ``local_oom`` of the leaf's own limit alone
    (None where the kernel has no memory.events.local). ``oom_kill`` is no number of processes: with
    memory.oom.group it over-counts (G54).
    """

    oom: int = 0
    oom_kill: int = 0
    oom_group_kill: int = 0
    local_oom: int | None = None


class Oom(NamedTuple):
    """``scope``: leaf (its own limit), nested (of a cgroup that the child made below it), ancestor (``path`` is
    whose), host (no cgroup's limit: the machine ran out). ``group``: the kernel killed a whole cgroup.
    ``shmem``: bytes that stayed charged when all of it was dead, of files in tmpfs and shared memory; None where
    the kernel does not tell."""

    scope: str
    path: str | None
    group: bool
    shmem: int | None = None

    def to_dict(self) -> dict[str, object]:
        return {"scope": self.scope, "path": self.path, "group": self.group, "shmem": self.shmem}


def attribute(events: MemoryEvents, risen_above: Sequence[str]) -> Oom | None:
    """Whose limit it was; None if the OOM killer killed nothing of the leaf.

    ``risen_above`` are the cgroups above whose own limit was hit during the run, nearest first. The leaf's own
    ``oom`` rises only for its own limit (G55). Where both it and one above were hit, the leaf's stands.
    """
    if not events.oom_kill:
        return None
    group = events.oom_group_kill > 0
    own = events.oom if events.local_oom is None else events.local_oom
    if own:
        return Oom("leaf", None, group)
    if events.oom:
        return Oom("nested", None, group)
    if risen_above:
        return Oom("ancestor", risen_above[0], group)
    return Oom("host", None, group)
