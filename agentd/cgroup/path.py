"""Where a subtree is to be, and opening it component by component."""

from __future__ import annotations

import errno
import os
from typing import NamedTuple

from agentd.cgroup import aside, control
from agentd.cgroup.amount import shown
from agentd.cgroup.hierarchy import Hierarchy
from agentd.errors import NoCgroupError, UsageError

NAME = "agentd"
"""The subtree's own name below our cgroup."""

DELEGATE_REMEDY = "start it in a cgroup of its own: systemd-run --user --scope -p Delegate=yes agentd ..."
READ_ONLY_REMEDY = (
    "give the container a writable cgroup mount: docker run --cgroupns=private --privileged (or, in newer "
    "engines, --security-opt writable-cgroups=true), podman run --security-opt unmask=/sys/fs/cgroup"
)

# Of the controllers on v1, those whose limits people will miss.
_TELLING = ("memory", "pids", "cpu", "blkio")

_STEP = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def require_v2(hierarchy: Hierarchy) -> None:
    """Raises NoCgroupError, naming the cause, where there is no cgroup v2 to make a leaf in."""
    if hierarchy.kind == "v1":
        bound = ", ".join(name for name in _TELLING if hierarchy.v1_controllers.get(name))
        raise NoCgroupError(
            f"only cgroup v1 is mounted here ({bound or 'none of it visible'}), and no cgroup v2",
            remedy="boot with systemd.unified_cgroup_hierarchy=1, or mount -t cgroup2 none DIRECTORY",
        )
    if hierarchy.kind == "none":
        raise NoCgroupError(
            "no cgroup file system is mounted here", remedy="mount -t cgroup2 none /sys/fs/cgroup"
        )
    if hierarchy.read_only:
        raise read_only(hierarchy.mount)


def read_only(path: str) -> NoCgroupError:
    return NoCgroupError(
        f"the cgroup file system at {path} is mounted read-only (EROFS)", path=path, remedy=READ_ONLY_REMEDY
    )


def auto_path(hierarchy: Hierarchy) -> str:
    """The path of the subtree ``auto``: our own cgroup + "/agentd".

    Where our own cgroup is one into which agentd moved processes aside, the cgroup above it counts as our
    own. Raises NoCgroupError where the mount does not show our own cgroup.
    """
    own = hierarchy.own_path
    if not own:
        raise NoCgroupError(
            f"our own cgroup is not to be seen below the cgroup v2 mount at {hierarchy.mount}",
            path=hierarchy.mount,
            remedy="mount cgroup2 afresh inside the cgroup namespace, or name a subtree with --cgroup PATH",
        )
    above, _, name = own.rpartition("/")
    if name == aside.NAME and hierarchy.own != "/":
        try:
            fd = os.open(own, control.DIRECTORY)
        except OSError:
            pass
        else:
            try:
                if aside.is_marked(fd, aside.MARK):
                    own = above
            finally:
                os.close(fd)
    return f"{own}/{NAME}"


def check_text(path: str, mount: str) -> str:
    """``path`` without a trailing slash, if it is absolute, lies at or below ``mount``, and each component is
    a plain name. Raises UsageError."""
    if not isinstance(path, str) or not path.startswith("/"):
        raise UsageError(f"cgroup {shown(path)} is not an absolute path; give auto, or one below {mount}")
    parts = path.rstrip("/").split("/")[1:]
    if not path.isprintable() or any(part in ("", ".", "..") for part in parts):
        raise UsageError(f"cgroup {shown(path)} has a component that is empty, '.', '..' or unprintable")
    plain = "/" + "/".join(parts)
    if plain != mount and not plain.startswith(mount.rstrip("/") + "/"):
        raise UsageError(f"cgroup {shown(path)} is not below the cgroup v2 mount at {mount}")
    return plain


class Opened(NamedTuple):
    """An open cgroup directory, and whether it was made now."""

    fd: int
    created: bool


def open_cgroup(path: str, mount: str) -> Opened:
    """Open the cgroup at ``path`` (as ``check_text`` gave it), following no symbolic link and leaving the
    mount's file system nowhere. Only the last component is made if it is missing.

    Raises UsageError for a path that cannot be one, NoCgroupError where the kernel refuses to make or open
    it, FileNotFoundError where it was removed meanwhile.
    """
    names = path[len(mount.rstrip("/")) :].split("/")[1:]
    created = False
    try:
        fd = os.open(mount, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _refused(mount, error) from None
    try:
        device = os.fstat(fd).st_dev
        for depth, name in enumerate(names):
            here = f"{mount.rstrip('/')}/{'/'.join(names[: depth + 1])}"
            try:
                inner = os.open(name, _STEP, dir_fd=fd)
            except FileNotFoundError:
                if depth < len(names) - 1:
                    raise UsageError(
                        f"cgroup {here} does not exist; only the last component is made"
                    ) from None
                created = _make(name, fd, here)
                inner = os.open(name, _STEP, dir_fd=fd)
            except NotADirectoryError:
                raise UsageError(f"cgroup {here} is {_kind(name, fd)}, not a cgroup's directory") from None
            except OSError as error:
                raise _refused(here, error) from None
            os.close(fd)
            fd = inner
            if os.fstat(fd).st_dev != device:
                raise UsageError(
                    f"{here} is not on the cgroup v2 file system: something else is mounted there"
                )
        try:
            return Opened(os.open(".", control.DIRECTORY, dir_fd=fd), created)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _refused(path, error) from None
    finally:
        os.close(fd)


def _make(name: str, parent_fd: int, path: str) -> bool:
    try:
        os.mkdir(name, 0o755, dir_fd=parent_fd)
    except FileExistsError:
        # Another process was faster.
        return False
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _refused(path, error) from None
    return True


def _kind(name: str, parent_fd: int) -> str:
    try:
        os.readlink(name, dir_fd=parent_fd)
    except OSError:
        return "a file"
    return "a symbolic link"


def _refused(path: str, error: OSError) -> NoCgroupError:
    match error.errno:
        case errno.EROFS:
            return read_only(path)
        case errno.EACCES | errno.EPERM:
            return NoCgroupError(f"no permission to use the cgroup {path}", path=path, remedy=DELEGATE_REMEDY)
        case errno.EAGAIN:
            # G11: not the EAGAIN of a fork.
            return NoCgroupError(
                f"{path} cannot be made: a cgroup.max.depth or cgroup.max.descendants is reached (EAGAIN)",
                path=path,
                remedy="raise it in the cgroups above, or remove stale cgroups",
            )
        case number:
            name = errno.errorcode.get(number or 0, "unknown error")
            return NoCgroupError(f"the cgroup {path} cannot be used: {error.strerror} ({name})", path=path)
