"""Looking into a leaf and killing what is in it, relative to its directory descriptor.

A leaf can be removed, and its child's own cgroups below it can come and go, at any time: what vanished is
passed over.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator

from agentd.cgroup import control, usage

# Read from a cgroup that is gone (ENODEV, ENOENT), or that is threaded and has no such file's meaning
# (EOPNOTSUPP, G04): its threads' processes are listed at the root of the threaded domain.
_GONE = (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP)

_PASSES = 200
_SIGKILL = 9


def pids(dirfd: int) -> list[int]:
    """The processes in the leaf and in every cgroup below it. Those of a foreign pid namespace are left out.

    It is a look at something that moves: a fork during it can be missed. ``populated`` is the truth.
    Raises OSError where the leaf itself cannot be read (EACCES, say); not because it is gone.
    """
    found: list[int] = []
    for fd in walk(dirfd):
        try:
            text = control.read(fd, "cgroup.procs")
        except OSError as error:
            # The child may close its own cgroups below to us, but not the leaf.
            if error.errno in _GONE or (error.errno == errno.EACCES and fd != dirfd):
                continue
            raise
        found += [pid for pid in control.pids_in(text) if pid]
    return found


def subcgroups(dirfd: int) -> list[str]:
    """The names of the cgroups directly below, in no order; none where the directory is gone."""
    try:
        # A cgroup's link count is 2 and one for each child (kernfs), so that most leaves need no listing.
        if os.fstat(dirfd).st_nlink == 2:
            return []
        with os.scandir(dirfd) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError as error:
        if error.errno in _GONE:
            return []
        raise


def walk(dirfd: int) -> Iterator[int]:
    """A descriptor of the leaf, then of each cgroup below it, parents first. Each is closed when the next is
    asked for; at most two are open at a time, and neither depth nor path length is limited."""
    yield dirfd
    names = subcgroups(dirfd)
    if not names:
        return
    here = os.open(".", control.DIRECTORY, dir_fd=dirfd)
    pending = [names]
    try:
        while pending:
            if not pending[-1]:
                pending.pop()
                if pending:
                    above = _above(here)
                    os.close(here)
                    here = above
                continue
            try:
                child = os.open(pending[-1].pop(), control.DIRECTORY, dir_fd=here)
            except OSError as error:
                if error.errno in (*_GONE, errno.EACCES):
                    continue
                raise
            os.close(here)
            here = child
            yield here
            pending.append(subcgroups(here))
    except PermissionError:
        # A closed cgroup of somebody else's: what lies behind it is out of reach.
        return
    finally:
        os.close(here)


def _above(dirfd: int) -> int:
    try:
        return os.open("..", control.DIRECTORY, dir_fd=dirfd)
    except PermissionError:
        # Opened for reading, but the mode does not let even its owner through.
        os.fchmod(dirfd, 0o700)
        return os.open("..", control.DIRECTORY, dir_fd=dirfd)


def populated(dirfd: int) -> bool:
    """Whether a live process is in the leaf or below it; zombies do not count (G40). A leaf that is gone, is
    not. Raises OSError where ``cgroup.events`` cannot be read for another reason."""
    return bool(_events(dirfd, usage.populated))


def frozen(dirfd: int) -> bool:
    """Whether everything in the leaf is stopped by the freezer. A leaf that is gone, is not."""
    return bool(_events(dirfd, usage.frozen))


def _events(dirfd: int, flag: Callable[[str], bool | None]) -> bool | None:
    try:
        return flag(control.read(dirfd, "cgroup.events"))
    except OSError as error:
        if error.errno in _GONE:
            return None
        raise


def kill(dirfd: int) -> None:
    """Kill every process in the leaf and below it. Asynchronous: wait for ``populated`` to be false (G38).

    Where the kernel has no ``cgroup.kill`` (before 5.14, G37) the leaf is frozen, each process gets SIGKILL
    through a pidfd, and the leaf is thawed whatever happens; that returns when it is empty or two hundred
    passes did not empty it. A leaf that is gone is no error. Raises OSError (EACCES and others).
    """
    try:
        control.write(dirfd, "cgroup.kill", "1")
    except FileNotFoundError:
        # The file is missing, or the whole leaf is.
        if _events(dirfd, usage.populated):
            _kill_each(dirfd)
    except OSError as error:
        if error.errno != errno.ENODEV:
            raise


def _kill_each(dirfd: int) -> None:
    try:
        control.write(dirfd, "cgroup.freeze", "1")
        thaw = True
    except OSError:
        thaw = False
    try:
        for _ in range(_PASSES):
            if not _kill_pass(dirfd):
                break
    finally:
        if thaw:
            control.write(dirfd, "cgroup.freeze", "0")


def _kill_pass(dirfd: int) -> bool:
    """Signal everything once; whether there was anything."""
    from agentd.linux import signals  # where cgroup.kill is missing, and nowhere else

    found = False
    for fd in walk(dirfd):
        handles: dict[int, int] = {}
        try:
            for pid in control.pids_in(control.read_or(fd, "cgroup.procs", "")):
                try:
                    handles[pid] = signals.open_pidfd(pid)
                except OSError:
                    continue
            # The number may have been reused between the listing and pidfd_open. Whoever is still listed is
            # either whom the handle stands for, or has taken the number of one who is dead, and a signal
            # through the handle goes nowhere.
            for pid in control.pids_in(control.read_or(fd, "cgroup.procs", "")):
                if pid in handles:
                    found = True
                    signals.send(handles[pid], _SIGKILL)
        finally:
            for handle in handles.values():
                os.close(handle)
    return found
