"""Every signal that agentd sends leaves the process through one of these four calls, but for the one to a
child's group at its end, which the shim sends in the same way (native/end.c).

None takes a bare number that may have been reused: a process is named by its pidfd, a group by the pidfd of
its leader or, on kernels without that, by the number of a leader whose zombie still pins it.
"""

from __future__ import annotations

import errno
import os

from agentd._shim import lib

_SIGNAL_GROUP = 1 << 2  # PIDFD_SIGNAL_PROCESS_GROUP, Linux 6.9: pidfd_send_signal(2)


def open_pidfd(pid: int) -> int:
    """A descriptor for the process that has this number now (pidfd_open(2)). Raises OSError.

    Whether it is the process that was meant, the caller checks *after* opening: the number may have passed
    on before, and cannot any more.
    """
    result: int = lib.agentd_pidfd_open(pid)
    if result < 0:
        raise OSError(-result, os.strerror(-result), f"pid {pid}")
    return result


def send(pidfd: int, signal: int) -> bool:
    """Signal the process of a pidfd. False when it is gone; raises OSError for anything else."""
    result: int = lib.agentd_pidfd_send_signal(pidfd, signal, 0)
    if result == -errno.ESRCH:
        return False
    if result < 0:
        raise OSError(-result, os.strerror(-result), f"signal {signal}")
    return True


def send_group(pidfd: int, signal: int) -> bool | None:
    """Signal the process group that the process of ``pidfd`` leads.

    True: sent; False: no such group; None: this kernel cannot (before 6.9), nothing was sent.
    """
    result: int = lib.agentd_pidfd_send_signal(pidfd, signal, _SIGNAL_GROUP)
    if result == -errno.EINVAL:
        return None
    if result == -errno.ESRCH:
        return False
    if result < 0:
        raise OSError(-result, os.strerror(-result), f"signal {signal} to a group")
    return True


def send_pinned_group(pidfd: int, leader: int, signal: int) -> bool:
    """Signal a group by number, for kernels where `send_group` answers None.

    ``leader`` is the number of the process of ``pidfd``, a child that leads a group: as long as nobody has
    reaped it, the number is pinned (G70). False, and nothing is sent, when somebody has (another part of this
    program may wait for every child), or when there is no such group. Groups 0 and 1, and our own, are refused
    with ValueError.
    """
    if leader <= 1 or leader == os.getpgrp():
        raise ValueError(f"process group {leader} must not be signalled")
    try:
        os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        os.killpg(leader, signal)
    except (ChildProcessError, ProcessLookupError):
        return False
    return True


def kill_leaf(leaf_fd: int) -> int:
    """Write 1 to the leaf's cgroup.kill: everything in it and below gets SIGKILL. 0, or errno.

    ENOENT before Linux 5.14. Asynchronous: the leaf is empty when cgroup.events says populated 0.
    """
    return -int(lib.agentd_kill_leaf(leaf_fd))
