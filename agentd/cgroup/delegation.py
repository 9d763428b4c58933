"""Handing controllers down to a subtree: which, in which order, and why one cannot be had."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from typing import NamedTuple

from agentd.cgroup import aside, control
from agentd.cgroup.hierarchy import Hierarchy
from agentd.cgroup.occupants import named, sitting_in

ORDER = ("memory", "io", "pids", "cpu", "cpuset")
"""The controllers that agentd wants, in the order in which they are enabled. The first two are domain
controllers: in a cgroup that holds processes they are refused (EBUSY), and nothing was changed. The others
would be accepted there, and make it threaded, so that no leaf below it could hold a process (G01, G02)."""

_V1_NAMES = {"io": "blkio"}

_ATTEMPTS = 10


class Level(NamedTuple):
    """A cgroup that hands controllers down: its descriptor and path, whether its processes may be moved aside
    (given a right to, see ``aside``), and whether it is the root of our cgroup namespace, or the real one."""

    fd: int
    path: str
    may_move: bool
    namespace_root: bool = False


class Delegation(NamedTuple):
    """``controllers`` are enabled below the last level. ``missing``: why each wanted other one is not.
    ``enabled``: by path, what was enabled now in each level. ``moved``: the levels that were emptied now."""

    controllers: frozenset[str]
    missing: dict[str, str]
    enabled: dict[str, tuple[str, ...]]
    moved: frozenset[str]


class Vanished(Exception):
    """A level was removed while controllers were being enabled in it."""


def delegate(levels: Iterable[Level], hierarchy: Hierarchy, *, also: Iterable[str] = ()) -> Delegation:
    """Enable ``ORDER``, then ``also``, in each of ``levels`` from the top down, as far as each can be had.

    One write for each controller, so that one that is refused costs only itself. Idempotent; a few reads
    where all is enabled already. Several processes may do it at once. Raises Vanished.
    """
    wanted = (*ORDER, *(name for name in also if name not in ORDER))
    whole = Delegation(frozenset(), {}, {}, frozenset())
    for level in levels:
        found = _enable(level, [name for name in wanted if name not in whole.missing], hierarchy)
        whole = Delegation(
            found.controllers,
            whole.missing | found.missing,
            whole.enabled | found.enabled,
            whole.moved | found.moved,
        )
    return whole


def _enable(level: Level, wanted: list[str], hierarchy: Hierarchy) -> Delegation:
    try:
        offered = control.read(level.fd, "cgroup.controllers").split()
        on = set(control.read(level.fd, "cgroup.subtree_control").split())
    except OSError as error:
        if error.errno in (errno.ENODEV, errno.ENOENT):
            raise Vanished(level.path) from None
        raise
    missing: dict[str, str] = {}
    needed = [name for name in wanted if name not in on]
    if not needed:
        return Delegation(frozenset(on), missing, {}, frozenset())

    kind = control.read_or(level.fd, "cgroup.type", "").strip()
    for name in needed:
        if name not in offered:
            missing[name] = not_offered(name, hierarchy, level.path, real_root=not kind)
    needed = [name for name in needed if name in offered]
    enabled: list[str] = []
    moved = False
    if kind not in ("", "domain"):
        who = named(sitting_in(level.fd))
        missing |= dict.fromkeys(
            needed, f"{level.path} is a threaded cgroup ({kind}), with {who or 'nobody'} in it"
        )
        needed = []
    for name in needed:
        why, moved_now = _enable_one(level, name, kind)
        moved = moved or moved_now
        if why:
            missing[name] = why
        else:
            enabled.append(name)
    return Delegation(
        frozenset(on | set(enabled)),
        missing,
        {level.path: tuple(enabled)},
        frozenset({level.path} if moved else ()),
    )


def _enable_one(level: Level, name: str, kind: str) -> tuple[str, bool]:
    """Why the controller could not be enabled below the level ("" if it is), and whether anyone was moved."""
    moved = False
    for _ in range(_ATTEMPTS):
        # The real root (which has no cgroup.type) is exempt from the rule, and must not be emptied (G08).
        if kind and sitting_in(level.fd):
            why = _make_room(level)
            if why:
                return why, moved
            moved = True
        try:
            control.write(level.fd, "cgroup.subtree_control", f"+{name}")
        except OSError as error:
            if error.errno == errno.ENODEV:
                raise Vanished(level.path) from None
            if error.errno == errno.EBUSY and kind and sitting_in(level.fd):
                # Somebody came in between.
                continue
            return refusal(name, level.path, error.errno or 0), moved
        now = control.read_or(level.fd, "cgroup.type", kind).strip()
        if now == kind:
            return "", moved
        try:
            control.write(level.fd, "cgroup.subtree_control", f"-{name}")
        except OSError:
            return f"enabling it made {level.path} a threaded cgroup ({now}), and it stays one", moved
    return f"processes keep appearing in {level.path}", moved


def _make_room(level: Level) -> str:
    """Move the level's processes aside; "" when done, else why not, as a sentence with the remedy."""
    who = named(sitting_in(level.fd))
    if not level.may_move:
        return _occupied(level.path, who, "")
    why = aside.may_move(level.fd, namespace_root=level.namespace_root)
    if not why:
        why = aside.move(level.fd, namespace_root=level.namespace_root)
    return _occupied(level.path, who, why) if why else ""


def _occupied(path: str, who: str, why: str) -> str:
    because = f", and {why}" if why else ""
    return (
        f"{path} holds processes ({who}), so the kernel hands no controller down from it{because}; "
        "use systemd-run --scope -p Delegate=yes, or --cgroup PATH with an empty cgroup"
    )


def not_offered(name: str, hierarchy: Hierarchy, path: str, *, real_root: bool) -> str:
    """Why ``cgroup.controllers`` at ``path`` does not list the controller, and the remedy in a few words."""
    v1 = hierarchy.v1_controllers.get(_V1_NAMES.get(name, name))
    if v1 is not None:
        where = f" at {v1}" if v1 else ""
        return (
            f"the {name} controller is bound to cgroup v1{where} on this host; "
            "boot with cgroup_no_v1=all, or systemd.unified_cgroup_hierarchy=1"
        )
    if real_root:
        return f"this kernel has no {name} controller for cgroup v2, or was booted with cgroup_disable={name}"
    return (
        f"the {name} controller is not handed down to {path} by the cgroup above it; "
        "use systemd-run --scope -p Delegate=yes, or enable it there"
    )


_REFUSALS = {
    errno.EBUSY: "the cgroup is in use in a way that excludes it",
    errno.ENOENT: "the cgroup above took it back",
    errno.EACCES: "no permission; delegate the cgroup to this user",
    errno.EPERM: "no permission; delegate the cgroup to this user",
    errno.EROFS: "the cgroup file system is mounted read-only",
    errno.EINVAL: "the kernel refuses it here; for cpu, real-time processes outside the root are why",
    errno.EOPNOTSUPP: "the cgroup is threaded",
}


def refusal(name: str, path: str, number: int) -> str:
    """Why writing the controller to ``cgroup.subtree_control`` of ``path`` failed with errno ``number``."""
    sentence = _REFUSALS.get(number) or os.strerror(number)
    return f"the {name} controller cannot be enabled in {path} ({errno.errorcode.get(number)}): {sentence}"
