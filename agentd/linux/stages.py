"""The steps of a birth, as the shim numbers them, and what to do when the kernel refuses one."""

from __future__ import annotations

import errno

# In the order of `enum agentd_stage` in native/shim.h (a test holds the two together).
STAGES = (
    "ok",
    "mkdir",
    "open-leaf",
    "lock-leaf",
    "limit",
    "frozen",
    "thread",
    "pipe",
    "clone",
    "join",
    "signals",
    "session",
    "terminal",
    "privileges",
    "death-signal",
    "orphaned",
    "descriptors",
    "chdir",
    "exec",
    "epoll",
)

WHAT = {
    "mkdir": "make the leaf",
    "open-leaf": "open the leaf",
    "lock-leaf": "lock the leaf",
    "limit": "write the limits",
    "frozen": "start in a frozen cgroup",
    "thread": "start the forking thread",
    "pipe": "make a pipe",
    "clone": "clone a process",
    "join": "join the leaf",
    "signals": "set the signal mask",
    "session": "make a session",
    "terminal": "take the terminal",
    "privileges": "set no-new-privileges",
    "death-signal": "arm the parent-death signal",
    "orphaned": "start: the supervisor ended first",
    "descriptors": "set up the descriptors",
    "chdir": "enter the working directory",
    "exec": "execute the command",
    "epoll": "register the child",
}

_NO_RIGHT = (
    "no right on cgroup.procs of the leaf or of the common ancestor: start agentd in a delegated cgroup"
)
_CLONE3 = "clone3 is refused here: allow it in the seccomp profile, or do without --cgroup required"
_DESCRIPTORS = "raise the limit on open descriptors (ulimit -n)"

_REMEDIES: dict[tuple[str, int], str] = {
    (
        "mkdir",
        errno.EAGAIN,
    ): "cgroup.max.descendants or cgroup.max.depth is reached above: raise it, or end runs",
    ("mkdir", errno.ENOSPC): "the kernel has no cgroup ids left: end runs",
    ("mkdir", errno.EACCES): "the subtree belongs to another user: name one of yours with --cgroup",
    ("mkdir", errno.EROFS): "the cgroup mount is read-only: make it writable, or use --cgroup off",
    ("frozen", errno.EBUSY): "thaw the cgroup above (cgroup.freeze), then try again",
    (
        "clone",
        errno.EAGAIN,
    ): "pids.max of the leaf or above, or RLIMIT_NPROC, is reached: raise it, or end processes",
    ("clone", errno.ENOSYS): _CLONE3,
    ("clone", errno.EPERM): _CLONE3,
    ("clone", errno.ENOMEM): "the memory limit of the leaf or above is too low to start a process: raise it",
    (
        "clone",
        errno.EBUSY,
    ): "the leaf has controllers enabled for children of its own, so it may hold no process",
    ("clone", errno.EOPNOTSUPP): "a cgroup above is threaded, so the leaf is invalid: move its threads away",
    ("clone", errno.EACCES): _NO_RIGHT,
    ("join", errno.EACCES): _NO_RIGHT,
    ("pipe", errno.EMFILE): _DESCRIPTORS,
    ("open-leaf", errno.EMFILE): _DESCRIPTORS,
    ("clone", errno.EMFILE): _DESCRIPTORS,
    ("epoll", errno.ENOSPC): "raise fs.epoll.max_user_watches",
}


def remedy(stage: str, number: int) -> str:
    """What to do when ``stage`` was refused with errno ``number``; "" when there is nothing to say."""
    return _REMEDIES.get((stage, number), "")
