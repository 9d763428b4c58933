"""The Supervisor: forks, owns and ends every child that is spawned through it."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import select
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from weakref import WeakSet

from agentd.cgroup import control
from agentd.cgroup.limits import Limits
from agentd.cgroup.plan import LimitPlan, LimitWrite, explain_mismatch, in_force
from agentd.cgroup.apply import read_effect
from agentd.cgroup.usage import parse_flat
from agentd.errors import AgentdError, LimitNotInForceError, StartError, UsageError
from agentd.linux import proc
from agentd.linux.birth import Birth, Image, Refused, Session, Style, exec_result
from agentd.linux.end import Ending, UsageFiles
from agentd.process import command
from agentd.process.asked import NAME_RULE, Asked, check, valid_name
from agentd.process.child import Child, Leaf
from agentd.process.placing import Place, choose
from agentd.process.reaper import shared
from agentd.process.report import Enforcement, LimitsReport, Report
from agentd.process.stdio import open_stdio
from agentd.process.streams import Target

_counter = itertools.count(1)
_supervisors: WeakSet[Supervisor] = WeakSet()
_NO_LIMITS = Limits()
_EAGAIN_TRIES = 10
_EAGAIN_PAUSE = 0.02
_CLONE3_REFUSED = (errno.ENOSYS, errno.EPERM, errno.E2BIG, errno.EINVAL)
_refused_styles: set[Style] = set()

__all__ = ["NAME_RULE", "Supervisor", "valid_name"]


class Supervisor:
    """Owns children: spawns each into a leaf of its own, holds it to its limits, and ends it whole.

    ``cgroup``: "auto" makes leaves below this process's own cgroup, or contains by session where no cgroup
    can be had; "required" refuses then, and refuses a child that was not born in its leaf; "off" uses no
    cgroup; a path names the subtree. ``total`` are caps on all its children together.

    Use it as a context: leaving it kills and removes everything that is left. Any number of Supervisors may
    exist in a process, and any thread may use any of them. In a process forked from the one that made it, it
    does nothing: `spawn` refuses, `close` returns.

    Not promised: that a grandchild which left its leaf (as root it can) and its session is found, unless this
    process is a subreaper for agentd alone, as ``agentd run`` is.
    """

    def __init__(self, cgroup: str = "auto", *, total: Limits | None = None) -> None:
        if not isinstance(cgroup, str) or not (cgroup in ("auto", "required", "off") or cgroup.startswith("/")):
            raise UsageError(f"cgroup {cgroup!r} is none of auto, required, off, or an absolute path")
        self._required = cgroup == "required"
        self._owner = os.getpid()
        self._place: Place = choose(cgroup, total)
        self._children: set[Child] = set()
        self._forget_at = 64
        self._closed = False
        # Whoever holds it may be interrupted by a signal's handler that closes us: reentrant.
        self._gate = threading.Condition(threading.RLock())
        self._spawning: list[int] = []
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
        tty: bool = False,
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
        pseudo-terminal of its own for all three streams (its side is captured as ``stdout`` says).
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
        reaper.start()
        with self._open_for_spawn(), open_stdio(stdin, stdout, stderr, tty) as stdio:
            image = Image(
                command.candidates(asked.argv[0], asked.env),
                asked.argv,
                asked.env,
                cwd=os.fsencode(asked.cwd) if asked.cwd is not None else None,
                stdio=stdio.child_side,
                pass_fds=asked.pass_fds,
                session=Session.SAME_GROUP if same_group and not tty else Session.NEW_SESSION,
                terminal=tty,
                sigmask=sigmask,
            )
            with reaper.birth():
                attempt = _Attempt(self._place, image, plan, reaper.epoll_fd, best_effort, delegate)
                started_wall, started = time.time(), time.monotonic()
                child: Child | None = None
                try:
                    attempt.run(self._required, asked.cwd)
                    attempt.wait_for_exec(started, limits.wall, asked.cwd)
                    child = self._child(attempt, limits, asked, grace, background, on_exit, started, started_wall)
                    child._readings = stdio.readings(child._touched)
                    child.terminal_fd = stdio.terminal_fd
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
        return child

    @contextlib.contextmanager
    def _open_for_spawn(self) -> Iterator[None]:
        """While a child is being made, which `close` waits for: it could not kill what it does not know yet."""
        me = threading.get_ident()
        with self._gate:
            if self._closed:
                raise AgentdError("this Supervisor is closed")
            self._spawning.append(me)
        try:
            yield
        finally:
            with self._gate:
                self._spawning.remove(me)
                if self._closed:
                    self._gate.notify_all()

    def _keep(self, child: Child) -> None:
        with self._gate:
            self._children.add(child)
            if len(self._children) > self._forget_at:
                self._children = {kept for kept in self._children if not kept._done.is_set()}
                self._forget_at = 64 + 2 * len(self._children)

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
        try:
            alive = self.children
            for child in alive:
                child.stop("parent", grace=0)
            for child in alive:
                with contextlib.suppress(TimeoutError):
                    child.wait(timeout=15)
        finally:
            if self._place.subtree is not None:
                self._place.subtree.close()

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _child(
        self,
        attempt: _Attempt,
        limits: Limits,
        asked: Asked,
        grace: float,
        background: str,
        on_exit: Callable[[Report], object] | None,
        started: float,
        started_wall: float,
    ) -> Child:
        born = attempt.birth
        place = self._place
        leaf: Leaf | None = None
        if place.subtree is not None:
            leaf = Leaf(
                attempt.name,
                f"{place.subtree.path}/{attempt.name}",
                f"{place.cgroup}/{attempt.name}",
                born.leaf_fd,
                born.events_fd,
                place.subtree.fd,
            )
        return Child(
            run_id=f"{int(started_wall * 1000):012x}{os.urandom(5).hex()}",
            name=asked.name,
            argv=tuple(argument.decode(errors="backslashreplace") for argument in asked.argv),
            cwd=asked.cwd if asked.cwd is not None else command.own_directory(),
            pid=born.pid,
            pidfd=born.pidfd,
            leaf=leaf,
            limits=limits,
            limits_report=attempt.limits_report(limits),
            enforcement=Enforcement(
                "cgroup" if leaf else "session+subreaper" if shared().owns_process else "session",
                place.subtree.path if place.subtree else None,
                attempt.name if leaf else None,
                born.placement,
                place.hierarchy.kind,
                attempt.notes(),
            ),
            own_group=attempt.image.session is not Session.SAME_GROUP,
            grace=grace,
            background=background,
            started=started,
            started_wall=started_wall,
            on_exit=on_exit,
            readings={},
            reaper=shared(),
            files=place.files,
            supervisor=self,
        )


class _Attempt:
    """One birth, with its retries: another name, another style of clone, a subtree made again."""

    def __init__(
        self,
        place: Place,
        image: Image,
        plan: LimitPlan,
        epoll_fd: int,
        best_effort: bool,
        delegate: bool,
    ) -> None:
        self.place = place
        self.image = image
        self.plan = plan
        self.best_effort = best_effort
        self.delegate = delegate
        self.failed: dict[str, str] = dict(plan.not_in_force)
        self._aborted = False
        self.name = _leaf_name() if place.subtree is not None else ""
        self.style = Style.FORK if place.throttled else Style.VFORK
        if self.style in _refused_styles:
            self.style = Style.LEGACY
        self.birth = Birth(
            image,
            parent_fd=place.subtree.fd if place.subtree is not None else -1,
            name=self.name,
            before=plan.before,
            after=plan.after,
            epoll_fd=epoll_fd,
            style=self.style,
            accept_limits=best_effort,
        )

    def run(self, required: bool, cwd: str | None) -> None:
        """Until it is born. Raises what `Supervisor.spawn` raises; then nothing is left of it."""
        birth = self.birth
        if self._must_see_leaf_first():
            self._retry(birth.make_leaf, required, cwd)
            self._inspect_leaf()
        self._retry(birth.run, required, cwd)
        self._note_refused(self.plan.before, birth.refused_before())
        if required and birth.placement != "born":
            self.abort()
            raise StartError(
                "clone3 is refused here, so the child would not be born in its leaf",
                stage="clone",
                errno=errno.ENOSYS,
                remedy="allow clone3 in the seccomp profile, or use --cgroup auto",
            )
        if self.plan.after:
            self._note_refused(self.plan.after, birth.refused_after())

    def _must_see_leaf_first(self) -> bool:
        if self.place.subtree is None:
            return False
        return self.delegate or any(write.file in ("io.max", "cpuset.cpus") for write in self.plan.before)

    def _inspect_leaf(self) -> None:
        """What only shows in other files than the one that was written; and the mark of a delegated leaf."""
        birth = self.birth
        for write in self.plan.before:
            if write.expect is None:
                with contextlib.suppress(OSError):
                    read = read_effect(birth.leaf_fd, write)
                    if not in_force(write, read):
                        self.failed[write.limit] = explain_mismatch(write, 0, read)
        if self.failed and not self.best_effort:
            self.abort()
            raise LimitNotInForceError(self.failed, path=self.place.subtree.path if self.place.subtree else "")
        if self.delegate:
            with contextlib.suppress(OSError):
                os.setxattr(birth.leaf_fd, "user.delegate", b"1")

    def _retry(self, step: Callable[[], bool], required: bool, cwd: str | None) -> None:
        birth = self.birth
        tries = 0
        while not step():
            stage, number = birth.stage, birth.errno
            if stage == "mkdir" and number == errno.EEXIST:
                self.name = _leaf_name()
                birth.rename(self.name)
            elif stage == "mkdir" and number in (errno.ENOENT, errno.ENODEV) and tries < _EAGAIN_TRIES:
                assert self.place.subtree is not None
                self.place.subtree.reopen()
                birth.adopt_parent(self.place.subtree.fd)
                tries += 1
            elif stage == "clone" and number in _CLONE3_REFUSED and self.style is not Style.LEGACY and not required:
                self.style = Style.LEGACY
                birth.use(self.style)
            elif stage == "clone" and number == errno.EAGAIN and tries < _EAGAIN_TRIES:
                tries += 1
                time.sleep(_EAGAIN_PAUSE * tries)
            elif stage == "limit" and birth.pidfd < 0 and self._only_unneeded(birth.refused_before()):
                birth.accept_limits()
            else:
                self._fail(stage, number, cwd)
        if self.style is Style.LEGACY:
            _refused_styles.update((Style.VFORK, Style.FORK))

    def _only_unneeded(self, refused: list[Refused]) -> bool:
        """Whether every refused write is one that nobody asked for and that this kernel has no file for."""
        return all(self.plan.before[one.index].implicit and one.errno == errno.ENOENT for one in refused)

    def _note_refused(self, writes: Sequence[LimitWrite], refused: list[Refused]) -> None:
        for one in refused:
            write = writes[one.index]
            if not (write.implicit and one.errno == errno.ENOENT):
                self.failed[write.limit] = explain_mismatch(write, one.errno, one.read_back)

    def _fail(self, stage: str, number: int, cwd: str | None) -> None:
        birth = self.birth
        before, after = birth.refused_before(), birth.refused_after()
        starved = self._memory_event("oom")
        if birth.exec_fd >= 0:
            os.close(birth.exec_fd)
        self.abort()
        if stage == "limit":
            self._note_refused(self.plan.before, before)
            self._note_refused(self.plan.after, after)
            raise LimitNotInForceError(self.failed, path=self.place.subtree.path if self.place.subtree else "")
        raise command.start_error(stage, number, self.image.argv, self.image.candidates, cwd, starved=starved)

    def _memory_event(self, name: str) -> bool:
        """Whether the leaf counted any such event; it is new, so its counters began at zero (G57)."""
        if self.birth.leaf_fd < 0:
            return False
        text = control.read_or(self.birth.leaf_fd, "memory.events", "")
        return parse_flat(text).get(name, 0) > 0

    def abort(self) -> None:
        """Undo: whatever was cloned is killed and reaped, the leaf is removed. May be called twice."""
        if self._aborted:
            return
        self._aborted = True
        birth = self.birth
        if birth.pidfd < 0:
            birth.undo()
            return
        _finish_off(birth, self.name, self.place)

    def wait_for_exec(self, started: float, wall: float | None, cwd: str | None) -> None:
        """For a child that was cloned fork-style: until it executes, but no longer than its wall limit (from
        then on the loop ends it). Raises StartError if it could not execute."""
        fd = self.birth.exec_fd
        if fd < 0:
            return
        poller = select.poll()
        poller.register(fd, select.POLLIN)
        left = None if wall is None else max(0.0, started + wall - time.monotonic()) * 1000
        if not poller.poll(left):
            os.close(fd)
            return
        failed = exec_result(fd)
        if failed is not None:
            starved = self._memory_event("oom")
            self.abort()
            raise command.start_error(*failed, self.image.argv, self.image.candidates, cwd, starved=starved)
        if not proc.has_executed(self.birth.pid) and self._memory_event("oom_kill"):
            # In a vfork-style child the kernel refuses the exec; this one, in memory of its own, it kills.
            self.abort()
            raise command.too_low(os.fsdecode(self.image.argv[0]), "exec", errno.ENOMEM)

    def limits_report(self, limits: Limits) -> LimitsReport:
        asked = limits.asked()
        held: dict[str, str | float] = {
            write.limit: write.expect if write.expect is not None else write.value
            for write in (*self.plan.before, *self.plan.after)
            if write.limit not in self.failed
        }
        for clock in ("wall", "cpu_time", "idle"):
            if clock in asked and clock not in self.failed:
                held[clock] = asked[clock]
        return LimitsReport(asked, held, self.failed)

    def notes(self) -> tuple[str, ...]:
        notes = []
        if self.place.subtree is None:
            notes.append(f"no leaf: {self.place.why_none}")
        if self.birth.placement == "joined":
            notes.append("clone3 is refused here: the child joined its leaf before its exec")
        notes += [f"{limit} is not in force: {why}" for limit, why in self.failed.items()]
        return tuple(notes)


def _finish_off(birth: Birth, name: str, place: Place) -> None:
    """Kill and reap a child that never became one, and remove its leaf."""
    from agentd.linux import signals

    if birth.leaf_fd >= 0:
        signals.kill_leaf(birth.leaf_fd)
    signals.send(birth.pidfd, 9)
    ending = Ending(
        pid=birth.pid,
        pidfd=birth.pidfd,
        leaf_fd=birth.leaf_fd,
        events_fd=birth.events_fd,
        parent_fd=place.subtree.fd if place.subtree is not None else -1,
        name=name,
    )
    poller = select.poll()
    poller.register(birth.pidfd, select.POLLIN)
    poller.poll()
    until = time.monotonic() + 2.0
    nothing = UsageFiles(())  # those of the place belong to the loop's thread
    while True:
        ending.run(nothing)
        if ending.finished or time.monotonic() > until:
            break
        time.sleep(0.001)
    if ending.finished and not ending.removed and place.subtree is not None:
        from agentd.cgroup.remove import remove_tree

        os.close(birth.leaf_fd)
        remove_tree(place.subtree.fd, name)


def _leaf_name() -> str:
    return f"run-{os.getpid()}-{next(_counter)}"


def _close_all() -> None:
    for supervisor in list(_supervisors):
        with contextlib.suppress(Exception):
            supervisor.close()


import atexit  # noqa: E402 - registered once everything above exists

atexit.register(_close_all)
