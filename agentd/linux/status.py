"""How a child ended, as waitid(2) tells it."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from agentd._shim import ffi, lib

_CLD_EXITED = 1
_CLD_DUMPED = 3


class Status(NamedTuple):
    """``code`` is the exit code (None when a signal ended it), ``signal`` its number (None when it exited).

    ``known`` is False when somebody else consumed the status and the kernel cannot tell it again: then code
    and signal are None. ``foreign`` says that somebody else's wait took it. ``user_us`` and ``system_us``
    are of the process and its reaped children; None when unknown, as they are when a foreign wait took it.
    """

    known: bool
    code: int | None
    signal: int | None
    core: bool
    foreign: bool
    user_us: int | None
    system_us: int | None
    max_rss_bytes: int | None


UNKNOWN = Status(False, None, None, False, True, None, None, None)


def from_struct(raw: Any) -> Status:
    """A `Status` from the shim's ``struct agentd_status``."""
    if not raw.known:
        return UNKNOWN
    exited = raw.code == _CLD_EXITED
    waited = raw.known == 1
    return Status(
        True,
        raw.status if exited else None,
        None if exited else raw.status,
        raw.code == _CLD_DUMPED,
        bool(raw.gone),
        raw.user_us if waited else None,
        raw.system_us if waited else None,
        raw.max_rss_kib * 1024 if waited else None,
    )


def look_at_pid(pid: int) -> Status | None:
    """The status of a zombie child by number, not consumed. None while it runs; raises ChildProcessError."""
    return _by_pid(pid, 0)


def reap_pid(pid: int) -> Status | None:
    """Consume the status of a child by number, if it has ended. Raises ChildProcessError when not ours."""
    return _by_pid(pid, 1)


def _by_pid(pid: int, reap: int) -> Status | None:
    raw = ffi.new("struct agentd_status *")
    error: int = lib.agentd_wait_pid(pid, reap, raw)
    if error:
        raise OSError(error, os.strerror(error), f"pid {pid}")
    return from_struct(raw) if raw.known else None
