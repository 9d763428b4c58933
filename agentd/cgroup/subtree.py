"""The delegated cgroup under which leaves are made: resolving it, taking it, giving it back."""

from __future__ import annotations

import _thread
import fcntl
import os
import time
from collections.abc import Mapping
from types import TracebackType

from agentd.cgroup import aside, control
from agentd.cgroup.apply import apply
from agentd.cgroup.capacity import parse_meminfo, smallest
from agentd.cgroup.delegation import ORDER, Delegation, Level, Vanished, delegate
from agentd.cgroup.hierarchy import Hierarchy, read_hierarchy
from agentd.cgroup.leaf import subcgroups
from agentd.cgroup.limits import TIMES, Limits
from agentd.cgroup.occupants import named, sitting_in
from agentd.cgroup.path import (
    DELEGATE_REMEDY,
    auto_path,
    check_text,
    open_cgroup,
    require_v2,
)
from agentd.cgroup.plan import NOTHING, LimitFacts, LimitPlan, plan
from agentd.errors import LimitNotInForceError, NoCgroupError, UsageError

_ATTEMPTS = 20
_PLANS_KEPT = 256
_LOCK_SECONDS = 2.0


def resolve(spec: str, hierarchy: Hierarchy) -> str:
    """The path that ``spec`` ("auto" or an absolute path) means. Nothing is opened or made but our own
    cgroup's directory, to see its mark. Raises UsageError, NoCgroupError."""
    require_v2(hierarchy)
    return auto_path(hierarchy) if spec == "auto" else check_text(spec, hierarchy.mount)


class Subtree:
    """A cgroup that is ours to make leaves in, open until ``close``. Made by ``Subtree.open``.

    ``path`` is its directory, ``fd`` that directory's descriptor (close-on-exec; the number stays the same
    for the object's life). ``controllers`` are usable in leaves, ``missing`` says of each other one that
    agentd wants why it is not. ``created``: it was made by this object. ``moved_aside``: this object moved
    the processes of a cgroup, usually the one that holds it, into ``supervisor`` below that.

    Any number of processes, and of objects in one process, may have the same subtree open. Methods may be
    called from several threads.
    """

    def __init__(self, path: str, spec: str, hierarchy: Hierarchy, total: Limits | None) -> None:
        """Not for callers: see ``open``."""
        self.path = path
        self.fd = -1
        self.controllers: frozenset[str] = frozenset()
        self.missing: Mapping[str, str] = {}
        self.created = False
        self.hierarchy = hierarchy
        self._spec = spec
        self._total = total
        self._owner = os.getpid()
        self._enabled: dict[str, tuple[str, ...]] = {}
        self._moved: frozenset[str] = frozenset()
        self._facts: LimitFacts | None = None
        self._plans: dict[Limits, LimitPlan] = {}
        self._extra: frozenset[str] = frozenset()
        self._lock = _thread.allocate_lock()

    @classmethod
    def open(
        cls, spec: str = "auto", *, total: Limits | None = None, hierarchy: Hierarchy | None = None
    ) -> Subtree:
        """Resolve ``spec``, make the directory if it is missing, and enable controllers down to it.

        ``spec`` is "auto" (our own cgroup + "/agentd") or an absolute path at or below the v2 mount, of which
        the last component is made if it is missing. ``total`` are caps on all leaves together, without times.
        ``hierarchy`` is read anew unless it is given.

        A controller that cannot be had is no error: see ``missing``. Raises UsageError for a bad path or
        ``total``, NoCgroupError where no leaf could be made or entered, LimitNotInForceError for ``total``.
        """
        if total is not None and (timed := [name for name in TIMES if getattr(total, name) is not None]):
            raise UsageError(
                [f"{name}: a subtree's caps cannot be of time; limit each run" for name in timed]
            )
        if hierarchy is None:
            hierarchy = read_hierarchy(prefer="" if spec == "auto" else spec)
        subtree = cls(resolve(spec, hierarchy), spec, hierarchy, total)
        try:
            subtree._take()
        except BaseException:
            subtree.close()
            raise
        return subtree

    @property
    def goes_when_empty(self) -> bool:
        """Whether the directory is agentd's to remove: it is not one that was there and was named by path."""
        return self.created or self._spec == "auto"

    @property
    def moved_aside(self) -> bool:
        return bool(self._moved)

    def reopen(self) -> None:
        """Make the subtree anew, and delegate again, after another process removed it: making a leaf gave
        ENOENT. Nothing happens to the directory if it is still there. Raises as ``open`` does."""
        with self._lock:
            self._take()

    def _take(self) -> None:
        for _ in range(_ATTEMPTS):
            try:
                self._take_once()
            except (Vanished, FileNotFoundError):
                # Another supervisor's close removed the empty subtree between two of our steps.
                continue
            return
        raise NoCgroupError(f"the cgroup {self.path} is removed as often as it is made", path=self.path)

    def _take_once(self) -> None:
        opened = open_cgroup(self.path, self.hierarchy.mount)
        self.created = self.created or opened.created
        if self.fd < 0:
            self.fd = opened.fd
        else:
            # The number stays valid for those who hold it in other threads.
            os.dup2(opened.fd, self.fd, inheritable=False)
            os.close(opened.fd)
        self._check_usable()
        self._delegate()
        if self._total is not None:
            self._cap(self._total)

    def _check_usable(self) -> None:
        if not os.access(".", os.W_OK | os.X_OK, dir_fd=self.fd, effective_ids=True):
            os.stat("cgroup.procs", dir_fd=self.fd)
            raise NoCgroupError(
                f"no permission to make leaves in {self.path}", path=self.path, remedy=DELEGATE_REMEDY
            )
        self._check_entry()
        kind = control.read_or(self.fd, "cgroup.type", "domain").strip()
        if kind == "domain":
            return
        above = os.open("..", control.DIRECTORY, dir_fd=self.fd)
        try:
            threaded, who = control.read_or(above, "cgroup.type", "").strip(), named(sitting_in(above))
        finally:
            os.close(above)
        raise NoCgroupError(
            f"{self.path} cannot hold processes ({kind}): "
            f"{os.path.dirname(self.path)} is {threaded or 'threaded'}, with {who or 'nobody'} in it",
            path=self.path,
            remedy="start agentd in a cgroup whose cgroup.type is domain",
        )

    def _check_entry(self) -> None:
        """The kernel lets us put a process into a leaf only if we may write ``cgroup.procs`` of the cgroup
        that is above both it and us (G23); so does clone3."""
        own = self.hierarchy.own_path
        if not own:
            return
        common = os.path.commonpath([own, self.path])
        procs = f"{common}/cgroup.procs"
        if os.path.exists(procs) and not os.access(procs, os.W_OK, effective_ids=True):
            raise NoCgroupError(
                f"no permission to move a process from {own} into {self.path}: "
                f"{procs}, of the cgroup above both, is not writable",
                path=self.path,
                remedy=DELEGATE_REMEDY,
            )

    def _delegate(self) -> None:
        above = self._above()
        try:
            lock = _lock(above) if above >= 0 else -1
            try:
                result = self._delegate_from(above)
            finally:
                if lock >= 0:
                    os.close(lock)
        finally:
            if above >= 0:
                os.close(above)
        self.controllers = result.controllers
        self.missing = result.missing
        self._moved |= result.moved
        for path, enabled in result.enabled.items():
            self._enabled[path] = tuple(dict.fromkeys((*self._enabled.get(path, ()), *enabled)))
        self._facts = None
        self._plans.clear()

    def _above(self) -> int:
        """A descriptor of the cgroup that holds the subtree, -1 where the subtree is the mount itself."""
        if self.path == self.hierarchy.mount:
            return -1
        return os.open("..", control.DIRECTORY, dir_fd=self.fd)

    def _delegate_from(self, above: int) -> Delegation:
        auto = self._spec == "auto"
        levels = [Level(self.fd, self.path, not auto, self._is_namespace_root(self.path))]
        if above >= 0:
            path = os.path.dirname(self.path)
            levels.insert(0, Level(above, path, auto, self._is_namespace_root(path)))
        return delegate(levels, self.hierarchy, also=sorted(self._extra))

    def _is_namespace_root(self, path: str) -> bool:
        # Both paths in mountinfo are as our cgroup namespace has them: what is shown as "/" is its root.
        return path == self.hierarchy.mount and self.hierarchy.mount_root == "/"

    def _cap(self, total: Limits) -> None:
        # A share is of what the cgroups above have: the subtree's own caps may be those of an earlier run.
        facts = self._read_facts(os.path.dirname(self.path))
        offered = frozenset(control.read(self.fd, "cgroup.controllers").split())
        planned = plan(total, facts._replace(controllers=offered))
        reasons = planned.not_in_force | apply(self.fd, (*planned.before, *planned.after))
        if reasons:
            raise LimitNotInForceError(reasons, path=self.path)

    def facts(self) -> LimitFacts:
        """What leaves here can do, for ``plan``. Read once, and anew after ``reopen``."""
        if self._facts is None:
            self._facts = self._read_facts(self.path)
        return self._facts

    def _read_facts(self, bounded_from: str) -> LimitFacts:
        mount = self.hierarchy.mount
        machine = parse_meminfo(_file("/proc/meminfo"))
        pid_limits = [_file("/proc/sys/kernel/pid_max"), _file("/proc/sys/kernel/threads-max")]
        # The subtree has a cgroup.type, and with it a leaf's files, unless it is the real root.
        files = frozenset(os.listdir(self.fd))
        return LimitFacts(
            path=self.path,
            controllers=self.controllers,
            missing=self.missing,
            files=files if "cgroup.type" in files else None,
            memory=smallest(_upward(bounded_from, mount, "memory.max"), machine["memory"]),
            swap=smallest(_upward(bounded_from, mount, "memory.swap.max"), machine["swap"]),
            pids=smallest([*_upward(bounded_from, mount, "pids.max"), *pid_limits], 4_194_304),
            page_size=os.sysconf("SC_PAGE_SIZE"),
            device=block_device,
        )

    def plan(self, limits: Limits) -> LimitPlan:
        """``plan(limits, facts())``, kept for the next leaf with the same limits.

        A file in ``limits.files`` whose controller is none of those that agentd wants has that controller
        enabled first, where it can be.
        """
        if not limits.for_leaf:
            return NOTHING
        planned = self._plans.get(limits)
        if planned is None:
            with self._lock:
                self._ask_for(frozenset(file.partition(".")[0] for file, _ in limits.files))
                planned = plan(limits, self.facts())
                if len(self._plans) >= _PLANS_KEPT:
                    self._plans.clear()
                self._plans[limits] = planned
        return planned

    def _ask_for(self, controllers: frozenset[str]) -> None:
        extra = controllers - self._extra - {"cgroup", *ORDER}
        if extra:
            self._extra |= extra
            try:
                self._delegate()
            except (Vanished, FileNotFoundError):
                self._take()

    def close(self, *, remove: bool = True, companions: frozenset[int] = frozenset()) -> None:
        """Give the subtree back. Best effort, raises nothing, may be called twice.

        With ``remove`` the directory goes if nobody has a leaf in it; one that was named by path only if this
        object made it. If this object moved processes aside, and this process and its ``companions`` are
        alone there by now, they return to where they were. In a process forked from the opener, only the
        descriptor is closed.
        """
        with self._lock:
            if self.fd < 0:
                return
            try:
                if remove and self._owner == os.getpid():
                    self._give_back(companions)
            except OSError:
                pass
            finally:
                fd, self.fd = self.fd, -1
                os.close(fd)

    def _give_back(self, companions: frozenset[int]) -> None:
        above = self._above()
        if above < 0:
            return
        lock = _lock(above)
        try:
            if lock >= 0:
                self._move_back(self.path, self.fd, companions)
                if self.goes_when_empty:
                    os.rmdir(os.path.basename(self.path), dir_fd=above)
                    self._move_back(os.path.dirname(self.path), above, companions)
        finally:
            if lock >= 0:
                os.close(lock)
            os.close(above)

    def _move_back(self, path: str, dirfd: int, companions: frozenset[int]) -> None:
        if path in self._moved and subcgroups(dirfd) == [aside.NAME]:
            aside.move_back(dirfd, self._enabled.get(path, ()), companions)

    def __enter__(self) -> Subtree:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def block_device(path: str) -> str:
    """``MAJ:MIN`` of the block device at ``path``. Raises OSError, or ValueError if it is no block device."""
    import stat

    status = os.stat(path)
    if not stat.S_ISBLK(status.st_mode):
        raise ValueError(f"{path} is not a block device; give a whole disk such as /dev/sda, or MAJ:MIN")
    return f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"


def _lock(dirfd: int) -> int:
    """The lock by which supervisors set up and give back below the same cgroup one after another: held until
    the descriptor is closed; -1 without it.

    It is on a file in the cgroup: the directory's own lock says whose leaf it is, and in a nested run the outer
    supervisor holds that for as long as we live. Bounded, because whoever may open the file may hold it: after
    two seconds it is done without. Not taken where the kernel has no locks for the file.
    """
    try:
        fd = control.opened(dirfd, "cgroup.subtree_control")
    except OSError:
        return -1
    until = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() <= until:
                time.sleep(0.002)
                continue
        except OSError:
            pass
        else:
            return fd
        os.close(fd)
        return -1


def _upward(path: str, mount: str, name: str) -> list[str]:
    """The texts of ``name`` in the cgroup at ``path`` and in each one above it, up to the mount."""
    texts = []
    while path == mount or path.startswith(mount.rstrip("/") + "/"):
        texts.append(_file(f"{path}/{name}"))
        path = os.path.dirname(path)
    return texts


def _file(path: str) -> str:
    try:
        with open(path, "rb", buffering=0) as file:
            return os.fsdecode(file.read())
    except OSError:
        return ""
