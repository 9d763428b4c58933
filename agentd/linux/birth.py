"""The typed side of the shim's *birth*: make a leaf, write and read back its limits, spawn into it."""

from __future__ import annotations

import enum
import os
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from agentd._shim import ffi, lib
from agentd.linux.stages import STAGES

if TYPE_CHECKING:
    from typing import Protocol

    class Write(Protocol):
        """One limit to write: ``expect`` is what the kernel reads back when it took effect, None when any."""

        @property
        def file(self) -> str: ...
        @property
        def value(self) -> str: ...
        @property
        def expect(self) -> str | None: ...


class Style(enum.IntEnum):
    """VFORK shares memory with the child until its exec and suspends only the shim's forking thread. FORK is
    for leaves that an ancestor's ``cpu.max`` may keep from running (G32). LEGACY is for hosts where clone3 is
    refused: the child joins its leaf by its own write, before the exec. DETACHED makes a grandchild, which no
    wait of this process sees, and which is in no leaf."""

    VFORK = 0
    FORK = 1
    LEGACY = 2
    DETACHED = 3


class Session(enum.IntEnum):
    SAME_GROUP = 0
    NEW_GROUP = 1
    NEW_SESSION = 2


_SEEN = 256  # AGENTD_SEEN
_PATH = 4096

PLACEMENTS = ("none", "born", "joined")


class Refused(NamedTuple):
    """A limit that is not in force: its place in the list, ``errno`` of the write or 0, what the file reads."""

    place: int
    errno: int
    read_back: str


class Image(NamedTuple):
    """What to execute. ``candidates`` are tried in turn, as execvpe(3) does with PATH. ``env`` None
    means the environment of this process. ``sigmask`` is the kernel's set; None: the calling thread's."""

    candidates: Sequence[bytes]
    argv: Sequence[bytes]
    env: Mapping[bytes, bytes]
    cwd: bytes | None = None
    stdio: tuple[int, int, int] = (-1, -1, -1)
    pass_fds: Sequence[int] = ()
    session: Session = Session.NEW_SESSION
    terminal: bool = False
    no_new_privs: bool = False
    death_signal: int = 9
    sigmask: int | None = None


class Writes:
    """Limits to write, laid out once for any number of births."""

    __slots__ = ("_keep", "count", "laid_out")

    def __init__(self, writes: Sequence[Write] = ()) -> None:
        self.count = len(writes)
        self.laid_out: Any = ffi.new("struct agentd_write[]", self.count)
        self._keep: list[Any] = []
        for slot, write in zip(self.laid_out, writes, strict=True):
            slot.file = self._text(write.file)
            slot.value = self._text(write.value)
            if write.expect is not None:
                slot.expect = self._text(write.expect)

    def copy(self) -> Any:
        """For one birth: the results are written into it. Valid as long as this object is."""
        if not self.count:
            return ffi.NULL
        fresh = ffi.new("struct agentd_write[]", self.count)
        ffi.memmove(fresh, self.laid_out, ffi.sizeof(fresh))
        return fresh

    def _text(self, value: str) -> Any:
        held = ffi.new("char[]", value.encode())
        self._keep.append(held)
        return held


_NO_WRITES = Writes()

_local = threading.local()


def _path_buffer() -> Any:
    """Room for a path, one for each thread: what is in it is taken out right after the call."""
    try:
        return _local.path
    except AttributeError:
        _local.path = ffi.new("char[]", _PATH)
        return _local.path


_last_environment: tuple[dict[bytes, bytes], Any] = ({}, ffi.new("char[]", b"\0"))


def environment_block(env: Mapping[bytes, bytes]) -> Any:
    """The environment as the shim takes it. The last one is kept: mostly it is the same again."""
    global _last_environment
    known, held = _last_environment
    if known == env:
        return held
    copy = dict(env)
    held = ffi.new("char[]", b"\0".join([name + b"=" + value for name, value in copy.items()]) + b"\0")
    _last_environment = (copy, held)
    return held


class Birth:
    """One child's way into the world; may be run again after a refusal, with another style.

    After `run`: ``pid``, ``pidfd`` (-1 when nothing was cloned), ``leaf_fd``, ``events_fd``, ``exec_fd`` (FORK
    style: ask `exec_result`), ``placement``, ``where`` (the working directory that the child inherited, "" if it was
    given one); after a refusal ``stage`` and ``errno``, and `refused` limits.
    The descriptors are the caller's.
    """

    __slots__ = ("_after", "_before", "_keep", "_raw", "_seen", "_where", "where")

    def __init__(
        self,
        image: Image,
        *,
        parent_fd: int = -1,
        name: str = "",
        before: Writes = _NO_WRITES,
        after: Writes = _NO_WRITES,
        epoll_fd: int = -1,
        style: Style = Style.VFORK,
        accept_limits: bool = False,
        watched: Sequence[int] = (),
    ) -> None:
        raw = ffi.new("struct agentd_birth *")
        keep: list[Any] = []

        def text(value: bytes) -> Any:
            held = ffi.new("char[]", value)
            keep.append(held)
            return held

        def block(strings: Sequence[bytes]) -> Any:
            return text(b"\0".join(strings) + b"\0")

        spawn = raw.spawn
        spawn.candidates, spawn.n_candidates = block(image.candidates), len(image.candidates)
        spawn.argv, spawn.n_argv = block(image.argv), len(image.argv)
        variables = environment_block(image.env)
        keep.append(variables)
        spawn.env, spawn.n_env = variables, len(image.env)
        self.where = ""
        self._where = ffi.NULL
        if image.cwd is not None:
            spawn.cwd = text(image.cwd)
        else:
            self._where = _path_buffer()
            raw.where, raw.where_size = self._where, _PATH
        if image.pass_fds:
            passed = ffi.new("int[]", list(image.pass_fds))
            keep.append(passed)
            spawn.pass_fds, spawn.n_pass_fds = passed, len(image.pass_fds)
        spawn.stdio = image.stdio
        spawn.session = image.session
        spawn.terminal = image.terminal
        spawn.no_new_privs = image.no_new_privs
        spawn.death_signal = image.death_signal
        if image.sigmask is not None:
            spawn.own_mask, spawn.sigmask = 1, image.sigmask
        spawn.style = style
        raw.parent_fd = parent_fd
        raw.name = text(name.encode())
        raw.leaf_fd = raw.events_fd = -1
        raw.epoll_fd = epoll_fd
        raw.accept_limits = accept_limits
        self._seen = ffi.NULL
        if watched:
            held = ffi.new("int[]", list(watched))
            self._seen = ffi.new("char[]", len(watched) * _SEEN)
            keep += (held, self._seen)
            raw.watched, raw.n_watched, raw.seen = held, len(watched), self._seen
        self._before = before.copy()
        self._after = after.copy()
        raw.before, raw.n_before = self._before, before.count
        raw.after, raw.n_after = self._after, after.count
        keep += (before, after)
        self._raw = raw
        self._keep = keep

    def run(self) -> bool:
        """True: the child runs (FORK style: it was cloned). False: see stage and errno; the leaf is kept."""
        born = int(lib.agentd_birth(self._raw)) == 0
        if self._where:
            self.where = os.fsdecode(ffi.string(self._where))
        return born

    def make_leaf(self) -> bool:
        """Only make the leaf and write its limits; `run` goes on from there. False: see stage and errno."""
        self._raw.leaf_only = 1
        made = int(lib.agentd_birth(self._raw)) == 0
        self._raw.leaf_only = 0
        return made

    def undo(self) -> None:
        """Close and remove the leaf of a refused birth. The caller has reaped any child before."""
        lib.agentd_birth_undo(self._raw)

    def rename(self, name: str) -> None:
        held = ffi.new("char[]", name.encode())
        self._keep.append(held)
        self._raw.name = held

    def use(self, style: Style) -> None:
        self._raw.spawn.style = style

    def accept_limits(self) -> None:
        """Go on although limits are refused: whoever asks for this reports them."""
        self._raw.accept_limits = 1

    def adopt_parent(self, parent_fd: int) -> None:
        """Make the leaf in another directory: the subtree was made again."""
        self._raw.parent_fd = parent_fd

    @property
    def pid(self) -> int:
        return int(self._raw.spawn.pid)

    @property
    def pidfd(self) -> int:
        return int(self._raw.spawn.pidfd)

    @property
    def leaf_fd(self) -> int:
        return int(self._raw.leaf_fd)

    @property
    def events_fd(self) -> int:
        return int(self._raw.events_fd)

    @property
    def exec_fd(self) -> int:
        return int(self._raw.spawn.exec_fd)

    @property
    def placement(self) -> str:
        return PLACEMENTS[self._raw.spawn.placement]

    @property
    def stage(self) -> str:
        return STAGES[self._raw.spawn.error.stage]

    @property
    def errno(self) -> int:
        return int(self._raw.spawn.error.err)

    def seen(self) -> list[str]:
        """The text of each of ``watched`` just before the clone, "" where it could not be read."""
        return [
            ffi.string(self._seen + place * _SEEN).decode(errors="replace")
            for place in range(self._raw.n_watched)
        ]

    def refused_before(self) -> list[Refused]:
        return _refused(self._before, self._raw.n_before)

    def refused_after(self) -> list[Refused]:
        return _refused(self._after, self._raw.n_after)


def exec_result(exec_fd: int) -> tuple[str, int] | None:
    """Wait for a FORK-style child's exec: None when it runs, else (stage, errno). Closes ``exec_fd``."""
    error = ffi.new("struct agentd_error *")
    if lib.agentd_exec_result(exec_fd, error) == 0:
        return None
    return STAGES[error.stage], int(error.err)


def write_limits(directory_fd: int, writes: Sequence[Write]) -> list[Refused]:
    """Write limits on a cgroup and read each back; what is not in force comes back. Raises nothing."""
    laid_out = Writes(writes)
    lib.agentd_write_limits(directory_fd, laid_out.laid_out, laid_out.count)
    return _refused(laid_out.laid_out, laid_out.count)


def _refused(raw: Any, count: int) -> list[Refused]:
    return [
        Refused(index, raw[index].err, ffi.string(raw[index].readback).decode(errors="replace"))
        for index in range(count)
        if raw[index].err or raw[index].differs
    ]
