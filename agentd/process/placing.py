"""Where a Supervisor's children live: leaves of a subtree, or no cgroup at all; and what that can enforce."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from agentd.cgroup.hierarchy import Hierarchy, read_hierarchy
from agentd.cgroup.limits import Limits
from agentd.cgroup.plan import LimitPlan
from agentd.cgroup.subtree import Subtree
from agentd.cgroup.usage import usage_files
from agentd.errors import NoCgroupError
from agentd.linux.birth import Writes
from agentd.linux.end import UsageFiles
from agentd.process.above import Above

if TYPE_CHECKING:
    from collections.abc import Mapping

_WORTH_PRESSURE = 0.01
_PLANS_KEPT = 64

NO_PLAN = LimitPlan((), (), {}, {})


class Place:
    """``subtree`` is None where there is no cgroup to make leaves in; then ``why_none`` says why.

    ``cgroup`` is the subtree as /proc/PID/cgroup shows it. ``throttled``: a cpu.max at or above the subtree
    is finite, so that a child born below may have to wait for its turn to execute (G32).
    """

    def __init__(self, subtree: Subtree | None, hierarchy: Hierarchy, why_none: str) -> None:
        self.subtree = subtree
        self.hierarchy = hierarchy
        self.why_none = why_none
        self.cgroup = ""
        self.throttled = False
        self.above = Above("", "/nowhere")
        files: tuple[str, ...] = ()
        if subtree is not None:
            relative = subtree.path.removeprefix(hierarchy.mount)
            self.cgroup = hierarchy.mount_root.rstrip("/") + relative
            self.throttled = finite_cpu_max_above(subtree.path, hierarchy.mount)
            self.above = Above(subtree.path, hierarchy.mount)
            offered = subtree.facts().files
            files = tuple(
                name for name in usage_files(subtree.controllers) if offered is None or name in offered
            )
        self.files = UsageFiles(files)
        self._laid_out: dict[int, tuple[LimitPlan, tuple[Writes, Writes]]] = {}
        self._files_of_short_runs = UsageFiles([name for name in files if not name.endswith(".pressure")])

    def reopen(self) -> None:
        """The subtree was removed by another process: make it again. Raises as `choose` does."""
        assert self.subtree is not None
        self.subtree.reopen()
        self.above.close()
        self.above = Above(self.subtree.path, self.hierarchy.mount)

    def close(self, companions: frozenset[int] = frozenset()) -> None:
        """``companions``: processes of our own beside this one, which return with it where it was moved aside."""
        self.above.close()
        if self.subtree is not None:
            self.subtree.close(companions=companions)

    def laid_out(self, plan: LimitPlan) -> tuple[Writes, Writes]:
        """The writes of a plan as the shim takes them, kept for the next run with the same limits."""
        known = self._laid_out.get(id(plan))
        if known is None or known[0] is not plan:
            if len(self._laid_out) >= _PLANS_KEPT:
                self._laid_out.clear()
            known = (plan, (Writes(plan.before), Writes(plan.after)))
            self._laid_out[id(plan)] = known
        return known[1]

    def files_for(self, duration: float) -> UsageFiles:
        """What to read at the end of a run of ``duration`` seconds. Stalls are no longer than the run: those
        of a very short one are not worth three files."""
        return self.files if duration >= _WORTH_PRESSURE else self._files_of_short_runs

    def plan(self, limits: Limits) -> LimitPlan:
        if self.subtree is not None:
            return self.subtree.plan(limits)
        return _plan_without_leaf(limits, self.why_none)


def choose(spec: str, total: Limits | None) -> Place:
    """Open the subtree of ``spec``: auto (own cgroup + /agentd, or none where there is none to be had),
    required (as auto, but an error then), off (none), or an absolute path (an error where it cannot be had).

    Raises UsageError, NoCgroupError, LimitNotInForceError (for ``total``).
    """
    hierarchy = read_hierarchy(prefer=spec if spec.startswith("/") else "")
    if spec == "off":
        return Place(None, hierarchy, "--cgroup off was asked for")
    wanted = "auto" if spec == "required" else spec
    try:
        return Place(Subtree.open(wanted, total=total, hierarchy=hierarchy), hierarchy, "")
    except NoCgroupError as error:
        if spec != "auto" or total is not None:
            raise
        return Place(None, hierarchy, str(error))


def _plan_without_leaf(limits: Limits, why: str) -> LimitPlan:
    asked: Mapping[str, object] = limits.asked()
    unenforced = {name: f"there is no leaf: {why}" for name in asked if name not in ("wall", "idle")}
    return NO_PLAN._replace(not_in_force=unenforced)


def finite_cpu_max_above(path: str, mount: str) -> bool:
    """Whether the cgroup at ``path``, or one above it up to the mount, has a cpu.max that is not ``max``."""
    while path.startswith(mount):
        try:
            with open(os.path.join(path, "cpu.max"), encoding="ascii") as file:
                if not file.read().startswith("max"):
                    return True
        except OSError:
            pass
        if path == mount:
            return False
        path = os.path.dirname(path)
    return False
