"""The shared reaper: one loop in the process that sees every tracked child end and tells its owner.

Tracked children are waited for by pidfd, so a status that some other component waits for is never consumed,
and any number of Supervisors share the loop. Nothing polls: it sleeps in epoll on pidfds, on the leaves'
events, on captured streams and on its mailbox, until the next deadline.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable

from agentd.errors import StartError
from agentd.linux.end import await_end
from agentd.process import ending, orphans, watch
from agentd.process.child import Child
from agentd.process.keeper import Keeper
from agentd.process.ladder import Ladder
from agentd.process.report import Report
from agentd.process.spares import Spares, are_missing
from agentd.process.streams import Reading
from agentd.process.timers import Action, Timers

_LOOK_UP = 1.0
"""Seconds after which a waiter in place looks up: a signal whose Python handler is to run may have come in the
instant before it went to sleep."""

_SHORT = 0.05
"""Seconds after which a run is watched for leaving its leaf: most are over before, and pay nothing."""


Step = Callable[["Reaper", Child, float], None]


def _call(callback: Callable[[Report], object], report: Report) -> None:
    try:
        callback(report)
    except BaseException:  # sys.exit() in a callback, too, ends that callback alone
        sys.excepthook(*sys.exc_info())


class Reaper:
    """The loop, its thread and the routes from descriptors to children. Made by `shared`, once a process."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.owns_process = False
        self.before_verdict: Callable[[Child], object] | None = None
        self.timers = Timers()
        self._epoll = select.epoll()
        self.epoll_fd = self._epoll.fileno()
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll.register(self._wake_fd, select.EPOLLIN)
        self._spares = Spares()
        self._lock = threading.Lock()
        self._children: set[Child] = set()
        self._routes: dict[int, Child] = {}
        self._leaf_routes: dict[int, Child] = {}
        self._streams: dict[int, Reading] = {}
        self._early: set[int] = set()
        self._notices: dict[int, Callable[[], None]] = {}
        self.keeper = Keeper(self.notice)
        self._births = 0
        self._given_up = False
        self._give_up_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._orphans_due = False
        self._mailbox: deque[Action] = deque()
        self._asleep = False
        self._callbacks: deque[tuple[Callable[[Report], object], Report]] = deque()
        self._callback_ready: threading.Semaphore | None = None
        self._thread: threading.Thread | None = None

    # -- for any thread ---------------------------------------------------------------------------------

    def post(self, action: Action) -> None:
        """Have ``action(now)`` run in the loop, soon and in order."""
        self._mailbox.append(action)
        if self._asleep:
            self._wake()

    def start(self) -> None:
        """Start the loop's thread if it does not run yet. Raises StartError where no thread can be had."""
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    thread = threading.Thread(target=self._loop, name="agentd-reaper", daemon=True)
                    try:
                        thread.start()
                    except RuntimeError as error:
                        # Python keeps no errno. The C library makes threads with clone3 and knows another way
                        # where that is unknown (ENOSYS), but not where a seccomp profile forbids it (EPERM).
                        raise StartError(
                            f"cannot run a thread: {error}",
                            stage="thread",
                            errno=errno.EAGAIN,
                            remedy="raise the limit on processes (ulimit -u, pids.max); or have the seccomp "
                            "profile allow clone3, or answer it with ENOSYS",
                        ) from error
                    self._thread = thread

    def track(self, child: Child) -> None:
        """Route the end of a child that was just spawned. Its pidfd is in the epoll set since its birth; an
        end that came before this call is not lost."""
        pidfd = child._pidfd
        self._spares.fill()
        with self._lock:
            self._children.add(child)
            self._routes[pidfd] = child
            early = pidfd in self._early
            self._early.discard(pidfd)
        if early:
            self.post(lambda now: self.step(child, ending.exited, now))
        if child._readings:
            self.post(lambda now: self.step(child, Reaper._read_streams, now))
        watch.start(self, child)
        if child._leaf is not None:
            self.at(child, child._started + _SHORT, lambda now: self._watch_leaf(child, now))

    def notice(self, fd: int, action: Callable[[], None]) -> None:
        """Call ``action`` in the loop, once, when ``fd`` becomes readable; it is not to be closed before."""
        self._notices[fd] = action
        self._epoll.register(fd, select.EPOLLIN | select.EPOLLONESHOT)

    def begin_birth(self) -> None:
        """From here to `end_birth` no zombie is taken for an orphan: one may be a child that ended before
        its owner could `track` it."""
        with self._lock:
            self._births += 1

    def end_birth(self) -> None:
        with self._lock:
            self._births -= 1
            due = self._orphans_due and not self._births
        if due:
            self.adopt_orphans()

    def wait_in_place(self, child: Child, until: float | None) -> None:
        """Wait for a child's end in the caller's thread, and take the first step of its ending there.

        Returns when that is done, at ``until``, or when some run was given up on: then the loop alone knows.
        """
        with child._lock:
            if child._done.is_set() or child._status is not None or child._pidfd < 0:
                return
            # From here on nobody else takes the step that closes the pidfd: its number stays this child's.
            child._in_place = True
        try:
            while child._in_place and not self._given_up:
                left = _LOOK_UP if until is None else min(until - time.monotonic(), _LOOK_UP)
                if left <= 0:
                    return
                if await_end(self.epoll_fd, child._pidfd, self._give_up_fd, left):
                    with child._lock:
                        child._in_place = False
                        self.step(child, ending.exited, time.monotonic())
                        child._in_place = child._status is None and not child._done.is_set()
        finally:
            with child._lock:
                if child._in_place:
                    child._in_place = False
                    self.rearm(child)  # the loop may have passed over its end, for us

    def reap_orphans(self) -> None:
        """In the loop's thread: reap what this process adopted, or leave it for the end of a birth."""
        with self._lock:
            self._orphans_due = self._births > 0
        if not self._orphans_due:
            orphans.reap(self)

    def tracked_pids(self) -> set[int]:
        with self._lock:
            return {child.pid for child in self._children}

    def children(self) -> list[Child]:
        with self._lock:
            return list(self._children)

    def adopt_orphans(self) -> None:
        """Reap, soon, the zombies that were handed to this process by the death of their parents."""
        self.post(lambda _now: self.reap_orphans())

    # -- for the loop's thread --------------------------------------------------------------------------

    def begin_ladder(self, child: Child, ladder: Ladder, now: float) -> None:
        self.step(child, lambda reaper, child, now: ending.begin_ladder(reaper, child, ladder, now), now)

    def at(self, child: Child, when: float, action: Action) -> None:
        """``action(now)`` for a child at a time, unless it is over by then. For any thread."""
        timer, sooner = self.timers.add(
            when, lambda now: self.step(child, lambda _r, _c, now: action(now), now)
        )
        child._timers.append(timer)
        if len(child._timers) > 32:
            child._timers = [kept for kept in child._timers if kept.action is not None]
        if sooner:
            self._wake()

    def step(self, child: Child, step: Step, now: float) -> None:
        """One step of a child's course, unless it is over. A defect in it must not take the loop, and every
        other child, with it."""
        with child._lock:
            if child._done.is_set():
                return
            try:
                try:
                    step(self, child, now)
                except OSError as error:
                    if not are_missing(error):
                        raise
                    with self._spares.lent():
                        step(self, child, now)
            except Exception as error:
                ending.abandon(self, child, _trace(error))

    def give_up(self) -> None:
        """Some run cannot be ended: those who wait in place look up."""
        self._given_up = True
        os.eventfd_write(self._give_up_fd, 1)

    def rearm(self, child: Child) -> None:
        """Wait for the pidfd again, after a wake-up that was none."""
        with self._lock:
            self._routes[child._pidfd] = child
        try:
            self._epoll.modify(child._pidfd, select.EPOLLIN | select.EPOLLONESHOT)
        except FileNotFoundError:
            self._epoll.register(child._pidfd, select.EPOLLIN | select.EPOLLONESHOT)
        except OSError:
            return

    def deregister(self, child: Child) -> None:
        """Forget a child: its routes and its timers."""
        self.drop_routes(child)
        self.forget(child)
        for timer in child._timers:
            timer.cancel()
        child._timers.clear()

    def drop_routes(self, child: Child) -> None:
        """Before its descriptors are closed: their numbers may be the next child's at once, which may end before
        it is tracked, and what comes by them must not be taken for news of this one."""
        with self._lock:
            if self._routes.get(child._pidfd) is child:
                del self._routes[child._pidfd]
            if child._leaf is not None and self._leaf_routes.get(child._leaf.events_fd) is child:
                del self._leaf_routes[child._leaf.events_fd]

    def route_leaf(self, child: Child) -> None:
        """Be told of its leaf, if that is watched: it is not closed after all."""
        if child._leaf is not None and child._leaf.watched:
            with self._lock:
                self._leaf_routes[child._leaf.events_fd] = child

    def forget(self, child: Child) -> None:
        """It is reaped: its number is not ours any more."""
        with self._lock:
            self._children.discard(child)

    def drop_stream(self, reading: Reading) -> None:
        """Stop reading; closes our end."""
        if self._streams.pop(reading.fd, None) is not None:
            with contextlib.suppress(OSError):
                self._epoll.unregister(reading.fd)
        reading.close()

    def call_back(self, callback: Callable[[Report], object], report: Report) -> None:
        """Run an owner's callback in a thread of its own kind: one that blocks holds up later callbacks, and
        neither the loop nor a deadline."""
        if self._callback_ready is None:
            self._callback_ready = threading.Semaphore(0)
            try:
                threading.Thread(target=self._serve_callbacks, name="agentd-callbacks", daemon=True).start()
            except RuntimeError:
                # No room for another thread (pids.max): better here than never.
                self._callback_ready = None
                _call(callback, report)
                return
        self._callbacks.append((callback, report))
        self._callback_ready.release()

    # -- inside -----------------------------------------------------------------------------------------

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_write(self._wake_fd, 1)

    def _watch_leaf(self, child: Child, now: float) -> None:
        """A run that is not over at once: be told when its leaf becomes empty, and look whether it has."""
        leaf = child._leaf
        assert leaf is not None
        ending.leaf_changed(self, child, now)
        if not child._done.is_set() and not leaf.watched:
            leaf.watched = True
            with self._lock:
                self._leaf_routes[leaf.events_fd] = child
            self._epoll.register(leaf.events_fd, select.EPOLLPRI | select.EPOLLET)

    def _read_streams(self, child: Child, now: float) -> None:
        for reading in child._readings.values():
            if reading.thread is not None or reading.fd in self._streams:
                continue
            if reading.sink is not None:
                reading.start_relay(lambda: self.post(lambda now: self._stream_ended(child, now)))
            elif reading.fd >= 0:
                os.set_blocking(reading.fd, False)
                self._streams[reading.fd] = reading
                self._epoll.register(reading.fd, select.EPOLLIN)

    def _stream_ended(self, child: Child, now: float) -> None:
        if child._status is not None:
            self.step(child, ending.proceed, now)

    def _read(self, reading: Reading) -> None:
        reading.read_ready()
        if reading.at_end:
            self.drop_stream(reading)

    def _loop(self) -> None:
        # The process's own handlers are the main thread's: none is ever to interrupt this one.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while True:
            self._pass()

    def _pass(self) -> None:
        """One pass: what was written is read before an end is handled, then the mailbox, then deadlines."""
        self._asleep = True
        at = self.timers.sleep_until()
        timeout = None if at is None else max(0.0, at - time.monotonic())
        ready = self._epoll.poll(0 if self._mailbox else timeout)
        self._asleep = False
        self.timers.awake()
        now = time.monotonic()
        ended: list[Child] = []
        emptied: list[Child] = []
        for fd, _ in ready:
            reading = self._streams.get(fd)
            if reading is not None:
                self._read(reading)
            elif fd == self._wake_fd:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(fd)
            else:
                self._sort(fd, ended, emptied)
        for child in ended:
            self.step(child, ending.exited, now)
        for child in emptied:
            self.step(child, ending.leaf_changed, now)
        for _ in range(len(self._mailbox)):
            self._run(self._mailbox.popleft(), now)
        for action in self.timers.due(now):
            self._run(action, now)

    def _run(self, action: Action, now: float) -> None:
        try:
            action(now)
        except Exception:
            sys.excepthook(*sys.exc_info())  # a defect of agentd's own: the loop goes on for all the others

    def _sort(self, fd: int, ended: list[Child], emptied: list[Child]) -> None:
        with self._lock:
            child = self._routes.get(fd)
            leaf_of = self._leaf_routes.get(fd)
            noticed = self._notices.pop(fd, None) if child is None else None
            if child is None and leaf_of is None and noticed is None:
                self._early.add(fd)  # born and gone before its owner could register it
        if child is not None:
            ended.append(child)
        elif noticed is not None:
            noticed()
        elif leaf_of is not None:
            emptied.append(leaf_of)

    def _serve_callbacks(self) -> None:
        assert self._callback_ready is not None
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while True:
            self._callback_ready.acquire()
            _call(*self._callbacks.popleft())

    def close_in_fork(self) -> None:
        """In a forked copy of this process: close what it inherited, above all the leaves, whose locks would
        otherwise outlive their owner. Nothing is signalled, waited for or removed."""
        fds = {self._wake_fd, self._give_up_fd, *self._streams, *self._spares.held}
        for child in self._children:
            fds.add(child._pidfd)
            child._pidfd = -1
            if child._leaf is not None:
                fds.update((child._leaf.fd, child._leaf.events_fd))
            # Those that a relay reads, too: as long as any copy is open, the child sees a reader.
            for reading in child._readings.values():
                fds.update(fd for fd in (reading.fd, reading._stop_fd) if fd >= 0)
        self.keeper.close_in_fork()
        with contextlib.suppress(OSError):
            self._epoll.close()
        for fd in fds:
            with contextlib.suppress(OSError):
                os.close(fd)


def _trace(error: Exception) -> str:
    try:
        import traceback
    except Exception:  # no descriptor to read the module with
        return repr(error)
    return "".join(traceback.format_exception(error))


_shared: Reaper | None = None
_shared_lock = threading.Lock()


def shared() -> Reaper:
    """The one Reaper of this process."""
    global _shared
    if _shared is None:
        with _shared_lock:
            if _shared is None:
                _shared = Reaper()
    return _shared


def _after_fork_in_child() -> None:
    global _shared, _shared_lock
    _shared_lock = threading.Lock()
    if _shared is not None:
        inherited, _shared = _shared, None
        inherited.close_in_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
