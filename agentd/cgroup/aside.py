"""Moving the processes of an inner cgroup aside, into ``supervisor`` below it, and back.

A cgroup that holds processes cannot hand memory and io to those below it (G01), so whoever is to have a
subtree below their own cgroup has to leave that one first. Others are moved only by right: ``may_move``.
"""

from __future__ import annotations

import errno
import os

from agentd.cgroup import control
from agentd.cgroup.occupants import named, sitting_in, strangers

NAME = "supervisor"
MARK = "user.agentd.supervisor"
"""Extended attribute "1" on a cgroup into which agentd moved processes aside: a later run that finds itself
in it belongs to the cgroup above, and does not nest (G73: cgroup directories take user xattrs)."""

DELEGATED = ("user.delegate", "trusted.delegate")
"""Extended attributes "1" by which systemd, and agentd for a leaf, mark a cgroup as handed over (G29)."""

_PASSES = 1000


def is_marked(dirfd: int, *names: str) -> bool:
    """Whether one of the extended attributes is "1" on the cgroup."""
    for name in names:
        try:
            if os.getxattr(dirfd, name) == b"1":
                return True
        except OSError:
            continue
    return False


def mark(dirfd: int, name: str) -> bool:
    """Set the extended attribute to "1"; whether that could be done (kernels before 5.7 refuse)."""
    try:
        os.setxattr(dirfd, name, b"1")
    except OSError:
        return False
    return True


def may_move(dirfd: int, *, namespace_root: bool) -> str:
    """Why the processes that sit in the cgroup must not be moved aside; "" if they may be.

    They may if all are this process or descend from it, if the cgroup is the root of our cgroup namespace
    (then it is ours whole, moby#43093), or if it is marked as delegated.
    """
    if namespace_root or is_marked(dirfd, *DELEGATED):
        return ""
    others = strangers(sitting_in(dirfd), own=os.getpid())
    return f"not all of them are agentd's to move ({named(others)})" if others else ""


def move(dirfd: int, *, namespace_root: bool) -> str:
    """Move everybody in the cgroup into ``supervisor`` below it; "" when it is empty, else why it is not.

    It is marked before anyone is in it. Processes that fork or come meanwhile are moved too, for a bounded
    number of passes. What of the move was done when it fails, stays done.
    """
    try:
        os.mkdir(NAME, 0o755, dir_fd=dirfd)
    except FileExistsError:
        pass
    except OSError as error:
        return f"{NAME} could not be made there ({errno.errorcode.get(error.errno or 0)})"
    try:
        target = os.open(NAME, control.DIRECTORY, dir_fd=dirfd)
    except OSError as error:
        return f"{NAME} there cannot be opened ({errno.errorcode.get(error.errno or 0)})"
    try:
        mark(target, MARK)
        for _ in range(_PASSES):
            sitting = sitting_in(dirfd)
            if not sitting:
                return ""
            if 0 in sitting:
                return "a process of another pid namespace sits there and cannot be moved from here"
            if why := may_move(dirfd, namespace_root=namespace_root):
                return why
            for pid in sitting:
                try:
                    control.write(target, "cgroup.procs", str(pid))
                except ProcessLookupError:
                    # Gone meanwhile (G19).
                    continue
                except OSError as error:
                    return f"{named([pid])} could not be moved ({errno.errorcode.get(error.errno or 0)})"
        return "processes appear there faster than they can be moved"
    finally:
        os.close(target)


def move_back(dirfd: int, controllers: tuple[str, ...], companions: frozenset[int] = frozenset()) -> bool:
    """Undo ``move`` for this process and its ``companions``: disable ``controllers`` below the cgroup, return
    to it, remove ``supervisor``. Whether all of that was done. Never raises; leaves all as it is if anybody else
    is there.
    """
    own = os.getpid()
    try:
        target = os.open(NAME, control.DIRECTORY, dir_fd=dirfd)
    except OSError:
        return False
    disabled: list[str] = []
    try:
        sitting = sitting_in(target)
        if not is_marked(target, MARK) or own not in sitting or not companions.issuperset({*sitting} - {own}):
            return False
        # Memory last: with it gone before pids, the cgroup could become threaded (G02).
        for controller in reversed(controllers):
            control.write(dirfd, "cgroup.subtree_control", f"-{controller}")
            disabled.append(controller)
        for pid in sitting:
            try:
                control.write(dirfd, "cgroup.procs", str(pid))
            except ProcessLookupError:
                continue
        os.rmdir(NAME, dir_fd=dirfd)
    except OSError:
        # Somebody below still uses a controller (EBUSY), or came into supervisor: things stay as they were.
        if own in sitting_in(target):
            for controller in reversed(disabled):
                try:
                    control.write(dirfd, "cgroup.subtree_control", f"+{controller}")
                except OSError:
                    break
        return False
    finally:
        os.close(target)
    return True
