"""The typed side of the shim's *end*: look at a child, and where nothing is left of it, read, reap, remove."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any

from agentd._shim import ffi, lib
from agentd.linux.status import Status, from_struct

_CAPACITY = 64 * 1024


class Ending:
    """Of one child: call `run` when its pidfd is readable, and again after its leaf was emptied.

    After `run`: ``status`` (None while it runs), ``populated`` (its leaf holds processes: nothing was
    consumed yet), ``finished`` (reaped, pidfd and events_fd closed), ``removed`` and ``remove_errno``
    (leaf_fd is closed when removed), ``texts`` (file name -> content of the usage files that exist, and of
    memory.stat where the OOM killer killed something).
    """

    __slots__ = ("_keep", "_raw", "texts")

    def __init__(
        self,
        *,
        pid: int,
        pidfd: int,
        leaf_fd: int = -1,
        events_fd: int = -1,
        parent_fd: int = -1,
        name: str = "",
        own_group: bool = True,
    ) -> None:
        raw = ffi.new("struct agentd_end *")
        held = ffi.new("char[]", name.encode())
        raw.pid, raw.pidfd = pid, pidfd
        raw.leaf_fd, raw.events_fd, raw.parent_fd = leaf_fd, events_fd, parent_fd
        raw.name, raw.own_group = held, own_group
        self._raw = raw
        self._keep = held
        self.texts: dict[str, str] = {}

    def run(self, files: UsageFiles, *, keep: bool = False, keep_killed: bool = False) -> None:
        """``keep``: only look, whatever is left; ``keep_killed``: the same for a child that SIGKILL ended.
        Raises OSError when the look itself is refused."""
        raw = self._raw
        raw.keep, raw.keep_killed = keep, keep_killed
        buffer = _buffer()
        raw.files = files.names
        raw.buffer, raw.capacity = buffer, _CAPACITY
        error: int = lib.agentd_end(raw)
        if error:
            raise OSError(error, os.strerror(error), f"waitid pid {raw.pid}")
        if raw.finished and raw.used:
            words = ffi.buffer(buffer, raw.used)[:].decode(errors="replace").split("\0")
            self.texts = dict(zip(words[0::2], words[1::2], strict=False))

    def move_parent(self, parent_fd: int) -> None:
        self._raw.parent_fd = parent_fd

    @property
    def status(self) -> Status | None:
        raw = self._raw.status
        return from_struct(raw) if raw.known or raw.gone else None

    @property
    def populated(self) -> bool:
        return bool(self._raw.populated)

    @property
    def finished(self) -> bool:
        return bool(self._raw.finished)

    @property
    def removed(self) -> bool:
        return bool(self._raw.removed)

    @property
    def remove_errno(self) -> int:
        return int(self._raw.remove_err)


_local = threading.local()


def _buffer() -> Any:
    """Room for the files' texts: one for each thread that ends children."""
    try:
        return _local.buffer
    except AttributeError:
        _local.buffer = ffi.new("char[]", _CAPACITY)
        return _local.buffer


class UsageFiles:
    """The list of a leaf's files to read at the end."""

    __slots__ = ("_strings", "names")

    def __init__(self, files: Sequence[str]) -> None:
        self._strings = [ffi.new("char[]", file.encode()) for file in files]
        self.names: Any = ffi.new("char *[]", [*self._strings, ffi.NULL])


def await_end(epoll_fd: int, pidfd: int, stop_fd: int, timeout: float | None) -> bool:
    """Wait in this thread for the process of ``pidfd`` to end, in place of the loop that watches it by
    ``epoll_fd``. False: ``timeout`` seconds passed, or ``stop_fd`` became readable, or a signal came."""
    milliseconds = -1 if timeout is None else min(int(timeout * 1000) + 1, 0x7FFFFFFF)
    return int(lib.agentd_await(epoll_fd, pidfd, stop_fd, milliseconds)) == 1


def populated(events_fd: int) -> bool:
    """Whether the leaf of an open cgroup.events holds live processes. Raises OSError (ENODEV: removed)."""
    result: int = lib.agentd_populated(events_fd)
    if result < 0:
        raise OSError(-result, os.strerror(-result), "cgroup.events")
    return result == 1
