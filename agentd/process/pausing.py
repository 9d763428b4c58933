"""Freezing a whole run and thawing it again, with its clocks stopped meanwhile (kernel: cgroup.freeze)."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import time
from typing import TYPE_CHECKING

from agentd.cgroup import control, leaf
from agentd.errors import AgentdError, CgroupError

if TYPE_CHECKING:
    from agentd.process.child import Child


def pause(child: Child, timeout: float) -> None:
    """See `Child.pause`."""
    with child._lock:
        _require_running(child)
        if child._paused_at is None:
            _freeze(child, "1")
            child._paused_at = time.monotonic()
            child._note("paused")
    if not _wait_until_frozen(child, time.monotonic() + timeout):
        resume(child)
        raise TimeoutError(
            f"run {child.name} was not frozen within {timeout} s: something of it is in the kernel"
        )


def resume(child: Child) -> None:
    """See `Child.resume`."""
    with child._lock:
        # Once it is reaped the number of its leaf's descriptor may be another run's.
        if child._paused_at is None or child._done.is_set() or child._ending.finished:
            return
        with contextlib.suppress(OSError, CgroupError):
            _freeze(child, "0")
        now = time.monotonic()
        stood = now - child._paused_at
        child._paused_at = None
        child._paused += stood
        child._last_output += stood
        child._note("resumed")
    from agentd.process import watch

    watch.go_on(child._reaper, child, now)


def _require_running(child: Child) -> None:
    if child._done.is_set() or child._status is not None:
        raise AgentdError(f"run {child.name} has ended")
    if child._leaf is None:
        raise CgroupError(f"run {child.name} has no leaf: it cannot be frozen", remedy="run it in a cgroup")


def _freeze(child: Child, value: str) -> None:
    assert child._leaf is not None
    try:
        control.write(child._leaf.fd, "cgroup.freeze", value)
    except OSError as error:
        if error.errno == errno.ENOENT:
            raise CgroupError(
                "this kernel cannot freeze a cgroup (no cgroup.freeze)",
                path=child._leaf.path,
                remedy="use Linux 5.2 or newer",
            ) from error
        raise CgroupError(f"cgroup.freeze: {error.strerror}", path=child._leaf.path) from error


def _wait_until_frozen(child: Child, until: float) -> bool:
    assert child._leaf is not None
    try:
        events = os.open("cgroup.events", os.O_RDONLY | os.O_CLOEXEC, dir_fd=child._leaf.fd)
    except OSError:
        return True  # it has just ended
    try:
        poller = select.poll()
        poller.register(events, select.POLLPRI)
        while not leaf.frozen(child._leaf.fd):
            if child._done.is_set() or child._status is not None or child._paused_at is None:
                return True  # it has ended, or was resumed by another thread
            left = until - time.monotonic()
            if left <= 0:
                return False
            os.pread(events, 256, 0)  # arms the poll
            # An event is held back for up to 10 ms, and one between the look and the poll is not seen.
            poller.poll(min(left, 0.02) * 1000)
    except OSError:
        return True
    finally:
        os.close(events)
    return True
