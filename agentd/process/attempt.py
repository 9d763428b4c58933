"""One birth with its retries: another name, another style of clone, a subtree made again; or nothing left."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import select
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from agentd.cgroup import control
from agentd.cgroup.apply import read_effect
from agentd.cgroup.plan import LimitPlan, LimitWrite, explain_mismatch, in_force
from agentd.cgroup.remove import remove_tree
from agentd.cgroup.usage import parse_flat
from agentd.errors import LimitNotInForceError, StartError
from agentd.linux import proc, signals
from agentd.linux.birth import Birth, Image, Refused, Style, exec_result
from agentd.linux.end import Ending
from agentd.process import command
from agentd.process.placing import Place

if TYPE_CHECKING:
    from agentd.process.reaper import Reaper

_counter = itertools.count(1)
_TRIES = 10
_PAUSE = 0.02
# What clone3 says where it, or its way into a cgroup, is not to be had: old kernels and seccomp filters (G17).
_CLONE3_REFUSED = (errno.ENOSYS, errno.EPERM, errno.E2BIG, errno.EINVAL)
_SWEPT = (errno.ENOENT, errno.ENODEV, errno.EWOULDBLOCK)
_refused_styles: set[Style] = set()


class Attempt:
    """``failed`` maps each limit that is not in force to why. After `run` the child of ``birth`` lives."""

    __slots__ = (
        "_aborted",
        "best_effort",
        "birth",
        "delegate",
        "failed",
        "image",
        "name",
        "place",
        "plan",
        "reaper",
        "style",
    )

    def __init__(
        self, place: Place, image: Image, plan: LimitPlan, reaper: Reaper, best_effort: bool, delegate: bool
    ) -> None:
        self.reaper = reaper
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
        before, after = place.laid_out(plan)
        self.birth = Birth(
            image,
            parent_fd=place.subtree.fd if place.subtree is not None else -1,
            name=self.name,
            before=before,
            after=after,
            epoll_fd=reaper.epoll_fd,
            style=self.style,
            accept_limits=best_effort,
            watched=place.above.fds,
        )

    def run(self, required: bool, cwd: str | None) -> None:
        """Until it is born. Raises what `Supervisor.spawn` raises; then nothing is left of it."""
        birth = self.birth
        if self._must_see_leaf_first():
            self._retry(birth.make_leaf, required, cwd)
            self._inspect_leaf()
        self._retry(birth.run, required, cwd)
        if self.best_effort:
            self._note_refused(self.plan.before, birth.refused_before())
            self._note_refused(self.plan.after, birth.refused_after())
        if required and birth.placement != "born":
            self.abort()
            raise StartError(
                "clone3 is refused here, so the child would not be born in its leaf",
                stage="clone",
                errno=errno.ENOSYS,
                remedy="allow clone3 in the seccomp profile, or use --cgroup auto",
            )

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

    def notes(self) -> tuple[str, ...]:
        """What this host could not give, a line each."""
        if self.place.subtree is not None and not self.failed and self.style is not Style.LEGACY:
            return ()
        notes = []
        if self.place.subtree is None:
            notes.append(f"no leaf: {self.place.why_none}")
        elif self.style is Style.LEGACY:
            notes.append("clone3 is refused here: the child joined its leaf before its exec")
        notes += [f"{limit} is not in force: {why}" for limit, why in self.failed.items()]
        return tuple(notes)

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
            raise self._not_in_force()
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
            elif stage == "mkdir" and number in (errno.ENOENT, errno.ENODEV) and tries < _TRIES:
                assert self.place.subtree is not None
                self.place.reopen()
                self.reaper.keeper.renew(self.place.subtree.path)
                birth.adopt_parent(self.place.subtree.fd)
                tries += 1
            elif stage in ("open-leaf", "lock-leaf") and number in _SWEPT and tries < _TRIES:
                # Before it was locked, a sweep took it for a dead supervisor's.
                birth.undo()
                self.name = _leaf_name()
                birth.rename(self.name)
                tries += 1
            elif self._clone3_refused(stage, number) and not required:
                self.style = Style.LEGACY
                birth.use(self.style)
            elif stage == "clone" and number == errno.EAGAIN and tries < _TRIES:
                tries += 1
                time.sleep(_PAUSE * tries)
            elif stage == "limit" and birth.pidfd < 0 and self._only_unneeded(birth.refused_before()):
                birth.accept_limits()
            else:
                self._fail(stage, number, cwd)
        if self.style is Style.LEGACY:
            _refused_styles.update((Style.VFORK, Style.FORK))

    def _clone3_refused(self, stage: str, number: int) -> bool:
        return stage == "clone" and number in _CLONE3_REFUSED and self.style is not Style.LEGACY

    def _only_unneeded(self, refused: list[Refused]) -> bool:
        """Whether every refused write is one that nobody asked for and that this kernel has no file for."""
        return all(self.plan.before[one.place].implicit and one.errno == errno.ENOENT for one in refused)

    def _note_refused(self, writes: Sequence[LimitWrite], refused: list[Refused]) -> None:
        for one in refused:
            write = writes[one.place]
            if not (write.implicit and one.errno == errno.ENOENT):
                self.failed[write.limit] = explain_mismatch(write, one.errno, one.read_back)

    def _not_in_force(self) -> LimitNotInForceError:
        return LimitNotInForceError(self.failed, path=self.place.subtree.path if self.place.subtree else "")

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
            raise self._not_in_force()
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
        if self.birth.pidfd < 0:
            self.birth.undo()
        else:
            _finish_off(self.birth, self.name, self.place)


def _finish_off(birth: Birth, name: str, place: Place) -> None:
    """Kill and reap a child that never became one, and remove its leaf."""
    parent_fd = place.subtree.fd if place.subtree is not None else -1
    if birth.leaf_fd >= 0:
        signals.kill_leaf(birth.leaf_fd)
    signals.send(birth.pidfd, 9)
    ending = Ending(
        pid=birth.pid,
        pidfd=birth.pidfd,
        leaf_fd=birth.leaf_fd,
        events_fd=birth.events_fd,
        parent_fd=parent_fd,
        name=name,
    )
    poller = select.poll()
    poller.register(birth.pidfd, select.POLLIN)
    poller.poll()
    until = time.monotonic() + 2.0
    while not ending.finished and time.monotonic() < until:
        ending.run(place.files)
        if not ending.finished:
            time.sleep(0.001)
    if ending.finished and not ending.removed and parent_fd >= 0:
        os.close(birth.leaf_fd)
        remove_tree(parent_fd, name)


def _leaf_name() -> str:
    return f"run-{os.getpid()}-{next(_counter)}"
