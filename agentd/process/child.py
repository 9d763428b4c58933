"""One live process and what agentd knows of it; for callers, a handle to wait on and to stop."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from agentd.cgroup.limits import Limits
from agentd.errors import AgentdError, UsageError
from agentd.linux import signals
from agentd.linux.birth import Session
from agentd.linux.end import Ending
from agentd.linux.status import Status
from agentd.process import pausing
from agentd.process.asked import valid_grace
from agentd.process.attempt import Attempt
from agentd.process.ladder import Ladder
from agentd.process.latch import Latch
from agentd.process.left_behind import LeftBehind
from agentd.process.report import Enforcement, Event, Report
from agentd.process.stdio import Stdio
from agentd.process.timers import Timer
from agentd.process.verdict import CANCELLED, OURS, Intent

if TYPE_CHECKING:
    from agentd.process.reaper import Reaper
    from agentd.process.supervisor import Supervisor
    from agentd.process.throttle import Sample


class Leaf:
    """Where a child lives: ``path`` for people, the descriptors for us, ``cgroup`` as /proc shows it."""

    __slots__ = ("cgroup", "events_fd", "fd", "name", "parent_fd", "path", "watched")

    def __init__(self, name: str, path: str, cgroup: str, fd: int, events_fd: int, parent_fd: int) -> None:
        self.name = name
        self.path = path
        self.cgroup = cgroup
        self.fd = fd
        self.events_fd = events_fd
        self.parent_fd = parent_fd
        self.watched = False


class Child:
    """A child that was spawned. Made by `Supervisor.spawn`; its methods may be called from any thread.

    ``pid`` is its OS pid; ``id`` names the run for good. What has a leading underscore belongs to the loop,
    and is read and changed under ``_lock`` only.
    """

    def __init__(
        self,
        run_id: str,
        name: str,
        argv: Sequence[bytes],
        cwd: str | None,
        *,
        supervisor: Supervisor,
        attempt: Attempt,
        reaper: Reaper,
        limits: Limits,
        grace: float,
        background: str,
        started: float,
        started_wall: float,
        on_exit: Callable[[Report], object] | None,
        stdio: Stdio,
    ) -> None:
        birth, place = attempt.birth, attempt.place
        self.id = run_id
        self.name = name
        self._cwd = cwd
        self.pid = birth.pid
        self.limits = limits
        self.grace = grace
        self.terminal_fd = stdio.terminal_fd
        self._argv = argv
        self._attempt = attempt
        self._pidfd = birth.pidfd
        self._leaf: Leaf | None = None
        if place.subtree is not None:
            leaf = attempt.name
            self._leaf = Leaf(
                leaf,
                f"{place.subtree.path}/{leaf}",
                f"{place.cgroup}/{leaf}",
                birth.leaf_fd,
                birth.events_fd,
                place.subtree.fd,
            )
        self._own_group = attempt.image.session is not Session.SAME_GROUP
        self._background = background
        self._started = started
        self._started_wall = started_wall
        self._on_exit = on_exit
        self._reaper = reaper
        self._supervisor = (
            supervisor  # kept alive, to end this run at the program's exit if nobody does before
        )
        self._owner = reaper.pid
        self._ending = Ending(
            pid=self.pid,
            pidfd=self._pidfd,
            leaf_fd=birth.leaf_fd,
            events_fd=birth.events_fd,
            parent_fd=self._leaf.parent_fd if self._leaf else -1,
            name=attempt.name,
            own_group=self._own_group,
        )
        self._lock = threading.RLock()
        self._assist = threading.Lock()
        self._in_place = False  # a waiter takes the first step of the ending
        self._done = Latch()
        self._report: Report | None = None
        self._intent: Intent | None = None
        self._interrupted_at: float | None = None
        # Of agentd's own, called in the loop's thread: they must not block.
        self._when_done: Callable[[], object] | None = None
        self._ladder: Ladder | None = None
        self._ladder_since = 0.0
        self._status: Status | None = None
        self._exited = 0.0
        self._ended_wall = 0.0
        self._escaped = False
        self._executed = True
        self._oomd = False
        self._named: list[LeftBehind] | None = None
        self._left_count = 0
        self._signalled: set[int] = set()
        self._kill_since: float | None = None
        self._drain_until: float | None = None
        self._emptied: float | None = None
        self._remove_until: float | None = None
        self._adopting = 0
        self._events: list[Event] = []
        self._timers: list[Timer] = []
        self._last_output = started
        self._paused_at: float | None = None
        self._paused = 0.0
        self._memory_high: int | None = None
        self._samples: list[Sample] = []
        self._readings = stdio.readings(self._touched)

    def __repr__(self) -> str:
        state = "ended" if self._done.is_set() else "running"
        return f"<agentd.Child {self.name} pid {self.pid} {state}>"

    @property
    def leaf(self) -> str | None:
        """The path of its leaf, None where there is none."""
        return self._leaf.path if self._leaf else None

    @property
    def cwd(self) -> str:
        """The directory that it was started in, " (deleted)" after one that was removed, as in proc(5)."""
        return self._attempt.birth.where if self._cwd is None else self._cwd

    @property
    def argv(self) -> tuple[str, ...]:
        """What was asked to run, for people: bytes that are no text are escaped."""
        return tuple(argument.decode(errors="backslashreplace") for argument in self._argv)

    @property
    def enforcement(self) -> Enforcement:
        """How it is held, and what this host could not give it."""
        leaf, place = self._leaf, self._attempt.place
        return Enforcement(
            "cgroup" if leaf else "session+subreaper" if self._reaper.owns_process else "session",
            place.subtree.path if place.subtree else None,
            leaf.name if leaf else None,
            self._attempt.birth.placement,
            place.hierarchy.kind,
            self._attempt.notes(),
            self._reaper.keeper.to_dict() if leaf else None,
        )

    @property
    def report(self) -> Report | None:
        """The report once the run is over, else None."""
        return self._report

    def wait(self, timeout: float | None = None) -> Report:
        """The report, once the run is over: the command ended and nothing of it is left.

        ``timeout`` is in seconds, 0 only looks; TimeoutError when it passes. Waiting changes nothing of what
        it waits for: neither a wait that times out nor one that is interrupted ends or hurts the run. Any
        number of threads may wait.
        """
        if os.getpid() != self._owner:
            raise AgentdError(
                f"run {self.name} belongs to process {self._owner}: only that one can wait for it"
            )
        until = None if timeout is None else time.monotonic() + timeout
        if timeout != 0 and self._simple and self._assist.acquire(blocking=False):
            try:
                self._reaper.wait_in_place(self, until)
            finally:
                self._assist.release()
        if not self._done.wait(None if until is None else max(0.0, until - time.monotonic())):
            raise TimeoutError(f"run {self.name} (pid {self.pid}) has not ended within {timeout} s")
        assert self._report is not None
        return self._report

    @property
    def _simple(self) -> bool:
        """Whether its end is one step where nothing is left behind: then a waiter takes that step itself,
        and saves two changes of thread."""
        return self._leaf is not None and not self._readings and self._background == "kill"

    def poll(self) -> Report | None:
        """The report if the run is over, else None. Never waits."""
        return self._report if self._done.is_set() else None

    def stop(
        self, cause: str = "operator", *, grace: float | None = None, asked_by: int | None = None
    ) -> None:
        """Ask the child to end: TERM to its group now, SIGKILL to its whole leaf after ``grace`` seconds (its
        own grace if None; 0 kills at once). Returns at once; `wait` tells the end.

        ``cause`` is recorded before any signal, and the first one stands. A child that has ended keeps its
        own verdict; what it left behind is killed. Calling it again with a shorter grace shortens it.
        """
        problems = [] if cause in OURS else [f"cause {cause!r} is none of {', '.join(sorted(OURS))}"]
        if grace is not None and not valid_grace(grace):
            problems.append(f"grace {grace!r} is not a number of seconds from 0")
        if problems:
            raise UsageError(problems)
        if os.getpid() != self._owner or self._done.is_set():
            return
        seconds = self.grace if grace is None else grace
        self._record(cause, asked_by)
        ladder = Ladder.with_grace(seconds)
        self._reaper.post(lambda now: self._reaper.begin_ladder(self, ladder, now))

    def pause(self, timeout: float = 5.0) -> None:
        """Freeze every process of the run where it stands; returns when all of it is frozen. Its limits of time
        stand still until `resume`. A run that is paused already stays so; another
        thread may resume it meanwhile.

        Raises CgroupError where there is no leaf or the kernel cannot freeze, AgentdError when it has ended,
        TimeoutError when it was not frozen within ``timeout`` seconds; then it runs on. A run that is asked to
        end while it is paused is resumed for that; SIGKILL ends it as it is.
        """
        pausing.pause(self, timeout)

    def resume(self) -> None:
        """Let a paused run go on. Raises nothing; a run that is not paused is left alone."""
        pausing.resume(self)

    def kill(self, cause: str = "operator") -> None:
        """End it now: SIGKILL to the whole leaf. The same as ``stop(cause, grace=0)``."""
        self.stop(cause, grace=0)

    def send_signal(self, number: int) -> bool:
        """Pass a signal on to the child itself. False when it has ended. It is no intent of agentd's: a child
        that dies of it is reported as ended by a signal. Use `stop` to end a run."""
        if os.getpid() != self._owner:
            return False
        with self._lock:
            if self._done.is_set() or self._pidfd < 0:
                return False
            return signals.send(self._pidfd, number)

    def send_signal_to_group(self, number: int) -> bool:
        """Pass a signal on to the child's process group, as a terminal would; to the child alone where it
        leads no group of its own. False when there is nobody."""
        if os.getpid() != self._owner:
            return False
        with self._lock:
            if self._done.is_set() or self._pidfd < 0:
                return False
            if self._own_group and (sent := signals.send_group(self._pidfd, number)) is not None:
                return sent
            return signals.send(self._pidfd, number)

    def note_interrupt(self) -> None:
        """The terminal sent Ctrl-C to the child's group: remembered for the verdict, nothing is sent."""
        self._interrupted_at = time.monotonic()

    def _record(self, cause: str, asked_by: int | None) -> None:
        """The intent, before any signal; not for a child that has ended already."""
        with self._lock:
            if self._intent is not None or self._status is not None or self._pidfd < 0:
                return
            if _has_ended(self._pidfd):
                return
            self._intent = Intent(cause, time.monotonic(), asked_by)
        what = "asked to end" if cause in CANCELLED else "limit of time reached"
        self._note(what, cause)

    def _note(self, kind: str, detail: str = "") -> None:
        self._events.append(Event(round(time.monotonic() - self._started, 6), kind, detail))

    def _touched(self) -> None:
        self._last_output = time.monotonic()


def _has_ended(pidfd: int) -> bool:
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(0))
