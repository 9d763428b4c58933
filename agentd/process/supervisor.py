"""The Supervisor: forks, owns and ends every child that is spawned through it."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from weakref import WeakSet

from agentd.cgroup.limits import Limits
from agentd.cgroup.sweep import Swept, sweep
from agentd.errors import AgentdError, LimitNotInForceError, UsageError
from agentd.linux.birth import Image, Session
from agentd.process import command
from agentd.process.asked import check
from agentd.process.attempt import Attempt
from agentd.process.child import Child
from agentd.process.left_behind import name_them
from agentd.process.placing import Place, choose
from agentd.process.reaper import shared
from agentd.process.report import Report
from agentd.process.stdio import INHERIT, Stdio
from agentd.process.streams import Target
from agentd.process.terminal import PseudoTerminal

_supervisors: WeakSet[Supervisor] = WeakSet()
_NO_LIMITS = Limits()
_runs = itertools.count(1)


class Supervisor:
    """Owns children: spawns each into a leaf of its own, holds it to its limits, and ends it whole.

    ``cgroup``: "auto" makes leaves below this process's own cgroup, or contains by session where no cgroup
    can be had; "required" refuses then, and refuses a child that was not born in its leaf; "off" uses no
    cgroup; a path names the subtree. ``total`` are caps on all its children together.

    Use it as a context: leaving it kills and removes everything that is left. Any number of Supervisors may
    exist in a process, and any thread may use any of them. In a process forked from the one that made it, it
    does nothing: `spawn` refuses, `close` returns.

    ``swept`` tells, once the first child was spawned, which leaves of dead supervisors were found and removed.

    Not promised: that a grandchild which left its leaf (as root it can) and its session is found, unless this
    process is a subreaper for agentd alone, as ``agentd run`` is.
    """

    def __init__(self, cgroup: str = "auto", *, total: Limits | None = None) -> None:
        if not isinstance(cgroup, str) or not (
            cgroup in ("auto", "required", "off") or cgroup.startswith("/")
        ):
            raise UsageError(f"cgroup {cgroup!r} is none of auto, required, off, or an absolute path")
        self._required = cgroup == "required"
        self._owner = os.getpid()
        self._place: Place = choose(cgroup, total)
        self._children: set[Child] = set()
        self._closed = False
        self._close_due = False
        # Whoever holds it may be interrupted by a signal's handler that closes us: reentrant.
        self._lock = threading.RLock()
        self._gate = threading.Condition(self._lock)
        self._spawning: list[int] = []
        self.swept: tuple[Swept, ...] | None = None
        self._salt = os.urandom(5).hex()
        _supervisors.add(self)

    @property
    def cgroup(self) -> str | None:
        """The subtree's directory, None where there is none."""
        return self._place.subtree.path if self._place.subtree else None

    @property
    def children(self) -> list[Child]:
        """Those whose run is not over."""
        return [child for child in list(self._children) if not child._done.is_set()]

    def spawn(
        self,
        argv: Sequence[str | bytes | os.PathLike[str]],
        *,
        limits: Limits = _NO_LIMITS,
        name: str | None = None,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        stdin: int | None = None,
        stdout: Target = None,
        stderr: Target = None,
        pass_fds: Sequence[int] = (),
        grace: float = 5.0,
        background: str = "kill",
        best_effort: bool = False,
        delegate: bool = False,
        tty: bool | PseudoTerminal = False,
        same_group: bool = False,
        sigmask: int | None = None,
        on_exit: Callable[[Report], object] | None = None,
    ) -> Child:
        """Start ``argv`` in a leaf of its own and return at once, when it executes.

        ``cwd`` and ``env`` default to this process's. ``stdin``, ``stdout``, ``stderr``: None inherits,
        a descriptor, `DEVNULL`, for output a `Capture`, for stderr `STDOUT`. ``pass_fds`` stay open in the
        child, every other descriptor does not. ``grace``: seconds from TERM to KILL when it is ended.
        ``background``: what becomes of processes that outlive the command, "kill" or "wait" (then the run
        is over when the last one ends). ``best_effort``: a limit that cannot be in force is reported, and
        the child runs without it. ``delegate``: the child may make cgroups below its leaf. ``tty``: a
        pseudo-terminal of its own for all three streams (its side is captured as ``stdout`` says); True, or
        one that the caller has made, and closes.
        ``same_group``: stay in this process's group and session, for a shared terminal. ``sigmask``: its
        signal mask, bit N-1 for signal N; this thread's if None. ``on_exit`` is called with the report, in
        a thread that is agentd's own.

        Raises UsageError (all problems in one), LimitNotInForceError, StartError (nothing of it runs, its
        leaf is gone; ``exit_code`` tells 126 and 127 apart), CgroupError.
        """
        if os.getpid() != self._owner:
            raise AgentdError(f"this Supervisor belongs to process {self._owner}: make one in this process")
        asked = check(
            argv, env=env, name=name, cwd=cwd, limits=limits, stdin=stdin, stdout=stdout, stderr=stderr, tty=tty,
            pass_fds=pass_fds, grace=grace, background=background, sigmask=sigmask, on_exit=on_exit,
        )  # fmt: skip
        plan = self._place.plan(limits)
        if plan.not_in_force and not best_effort:
            raise LimitNotInForceError(plan.not_in_force, path=self.cgroup or "")
        reaper = shared()
        self.prepare()
        self._begin_spawn()
        try:
            stdio = INHERIT
            if tty or not stdin is stdout is stderr is None:
                stdio = Stdio(stdin, stdout, stderr, tty)
            try:
                image = Image(
                    command.candidates(asked.argv[0], asked.env),
                    asked.argv,
                    asked.env,
                    cwd=os.fsencode(asked.cwd) if asked.cwd is not None else None,
                    stdio=stdio.child_side,
                    pass_fds=asked.pass_fds,
                    session=Session.SAME_GROUP if same_group and not tty else Session.NEW_SESSION,
                    terminal=bool(tty),
                    sigmask=sigmask,
                )
                attempt = Attempt(self._place, image, plan, reaper, best_effort, delegate)
                started_wall, started = time.time(), time.monotonic()
                child: Child | None = None
                reaper.begin_birth()
                try:
                    attempt.run(self._required, asked.cwd)
                    attempt.wait_for_exec(started, limits.wall, asked.cwd)
                    child = Child(
                        f"{int(started_wall * 1000):012x}{self._salt}{next(_runs):04x}",
                        asked.name,
                        asked.argv,
                        asked.cwd,
                        supervisor=self,
                        attempt=attempt,
                        reaper=reaper,
                        limits=limits,
                        grace=grace,
                        background=background,
                        started=started,
                        started_wall=started_wall,
                        on_exit=on_exit,
                        stdio=stdio,
                    )
                    self._keep(child)
                    reaper.track(child)
                except BaseException:
                    # Also a KeyboardInterrupt, between any two steps: what was born is owned, or gone.
                    if child is None:
                        attempt.abort()
                    else:
                        self._keep(child)
                        reaper.track(child)
                        child.kill()
                    raise
                finally:
                    reaper.end_birth()
            finally:
                stdio.close()
        finally:
            self._end_spawn()
        return child

    def _begin_spawn(self) -> None:
        """From here to `_end_spawn` a child is being made, which `close` waits for: it could not kill what it
        does not know yet."""
        with self._lock:
            if self._closed:
                raise AgentdError("this Supervisor is closed", remedy="make another")
            self._spawning.append(threading.get_ident())

    def _end_spawn(self) -> None:
        with self._lock:
            self._spawning.remove(threading.get_ident())
            if not self._closed:
                return
            self._gate.notify_all()
            due = self._close_due and not self._spawning
        if due:
            self._end_all()

    def _keep(self, child: Child) -> None:
        with self._lock:
            if not child._done.is_set():
                self._children.add(child)

    def _forget(self, child: Child) -> None:
        """Its run is over."""
        with self._lock:
            self._children.discard(child)

    def prepare(self) -> None:
        """Start what the first child brings: the loop, and where there are leaves the keeper, and a sweep of
        what dead supervisors left in the subtree (see `swept`)."""
        reaper = shared()
        reaper.start()
        subtree = self._place.subtree
        if subtree is None:
            return
        reaper.keeper.watch(subtree.path, remove=subtree.goes_when_empty)
        if self.swept is None:
            self.swept = ()
            with contextlib.suppress(OSError):
                self.swept = tuple(sweep(subtree.fd, describe=name_them))

    def close(self) -> None:
        """Kill and remove everything that is left, and give the subtree back. May be called twice."""
        if os.getpid() != self._owner:
            return
        with self._gate:
            if self._closed:
                return
            self._closed = True
            # Not for ourselves: a signal's handler may close us in the midst of this thread's spawn.
            me = threading.get_ident()
            self._gate.wait_for(lambda: all(other == me for other in self._spawning), timeout=15)
            # What that spawn has made so far needs the subtree to be undone: the rest is for its end.
            self._close_due = me in self._spawning
        self._end_all()

    def _end_all(self) -> None:
        try:
            alive = self.children
            for child in alive:
                child.stop("parent", grace=0)
            for child in alive:
                with contextlib.suppress(TimeoutError):
                    child.wait(timeout=15)
        finally:
            if not self._close_due or not self._spawning:
                keeper = shared().keeper.pid
                self._place.close(frozenset() if keeper is None else frozenset({keeper}))

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@atexit.register
def _close_all() -> None:
    for supervisor in list(_supervisors):
        with contextlib.suppress(Exception):
            supervisor.close()
