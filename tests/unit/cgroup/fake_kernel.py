"""A cgroup file system in a temporary directory: the directories are real, the control files are simulated.

It keeps the rules that delegation depends on (G01 to G08, G19): which write is refused with which errno, and
what it does to ``cgroup.type``. The kernel tests show that the real one keeps them too.
"""

from __future__ import annotations

import errno
import os
import weakref
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from agentd.cgroup import control
from agentd.cgroup.hierarchy import Hierarchy

DOMAIN_CONTROLLERS = {"memory", "io", "hugetlb"}


@dataclass
class State:
    procs: set[int] = field(default_factory=set)
    enabled: set[str] = field(default_factory=set)
    texts: dict[str, str] = field(default_factory=dict)


def _close(made: dict[str, int]) -> None:
    for fd in made.values():
        os.close(fd)


class FakeKernel:
    """``mount`` is the root, with the controllers ``offered``; the real root, or a namespace's."""

    def __init__(self, mount: Path, offered: str, *, real_root: bool = True) -> None:
        self.mount = mount
        self.offered = set(offered.split())
        self.real_root = real_root
        self.states: dict[int, State] = {}
        self.log: list[str] = []
        self.refuse: dict[tuple[str, str], list[int]] = {}
        self._made: dict[str, int] = {}
        weakref.finalize(self, _close, self._made)

    def install(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(control, "read", self.read)
        patch.setattr(control, "write", self.write)
        patch.setattr(control, "read_or", self.read_or)
        patch.setattr(control, "opened", self.opened)

    def hierarchy(self, own: str = "/", **changes: object) -> Hierarchy:
        fields: dict[str, object] = {
            "kind": "unified",
            "mount": str(self.mount),
            "mount_root": "/",
            "read_only": False,
            "own": own,
            "options": frozenset(),
            "v1_controllers": {},
        }
        return Hierarchy(**(fields | changes))  # type: ignore[arg-type]

    def make(self, path: str, *, procs: set[int] | None = None, enabled: str = "") -> int:
        """Make the cgroup ``path`` (below the mount) and return its descriptor, which is closed with the kernel."""
        os.makedirs(self.mount / path, exist_ok=True)
        fd = self._made.get(path, -1)
        if fd < 0:
            fd = self._made[path] = os.open(self.mount / path, control.DIRECTORY)
        state = self.state(fd)
        state.procs |= procs or set()
        state.enabled |= set(enabled.split())
        return fd

    def at(self, path: str) -> State:
        return self.states.setdefault((self.mount / path).stat().st_ino, State())

    def state(self, fd: int) -> State:
        return self.states.setdefault(os.fstat(fd).st_ino, State())

    def is_top(self, fd: int) -> bool:
        return os.path.samestat(os.fstat(fd), os.stat(self.mount))

    def above(self, fd: int) -> int:
        return os.open("..", control.DIRECTORY, dir_fd=fd)

    def controllers(self, fd: int) -> set[str]:
        if self.is_top(fd):
            return self.offered
        above = self.above(fd)
        try:
            return set(self.state(above).enabled)
        finally:
            os.close(above)

    def kind(self, fd: int) -> str:
        state = self.state(fd)
        if not self.is_top(fd):
            above = self.above(fd)
            try:
                if self.kind(above) in ("domain threaded", "domain invalid"):
                    return "domain invalid"
            finally:
                os.close(above)
        exempt = self.real_root and self.is_top(fd)
        if not exempt and state.procs and state.enabled - DOMAIN_CONTROLLERS:
            return "domain threaded"
        return "domain"

    def children(self, fd: int) -> list[int]:
        return [os.open(e.name, control.DIRECTORY, dir_fd=fd) for e in os.scandir(fd) if e.is_dir()]

    def read(self, fd: int, name: str) -> str:
        state = self.state(fd)
        exempt = self.real_root and self.is_top(fd)
        if name == "cgroup.controllers":
            return " ".join(sorted(self.controllers(fd))) + "\n"
        if name == "cgroup.subtree_control":
            return " ".join(sorted(state.enabled)) + "\n"
        if name == "cgroup.procs":
            return "".join(f"{pid}\n" for pid in sorted(state.procs))
        if name == "cgroup.type" and not exempt:
            return self.kind(fd) + "\n"
        if name in state.texts:
            return state.texts[name]
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)

    def read_or(self, fd: int, name: str, otherwise: str) -> str:
        try:
            return self.read(fd, name)
        except OSError:
            return otherwise

    def opened(self, fd: int, name: str) -> int:
        """No file is there: its directory stands for it."""
        return os.open(".", control.DIRECTORY, dir_fd=fd)

    def write(self, fd: int, name: str, text: str) -> None:
        path = os.path.relpath(os.readlink(f"/proc/self/fd/{fd}"), self.mount)
        if planned := self.refuse.get((path, f"{name} {text}")):
            raise OSError(planned[0], os.strerror(planned.pop(0)))
        self.log.append(f"{path} {name} {text}")
        state = self.state(fd)
        exempt = self.real_root and self.is_top(fd)
        if name == "cgroup.procs":
            pid = int(text)
            if state.enabled and not exempt:
                raise OSError(errno.EBUSY, "inner cgroup")
            for other in self.states.values():
                other.procs.discard(pid)
            state.procs.add(pid)
        elif name == "cgroup.subtree_control":
            controller = text[1:]
            if text[0] == "+":
                if controller not in self.controllers(fd):
                    raise OSError(errno.ENOENT, "not offered")
                if state.procs and controller in DOMAIN_CONTROLLERS and not exempt:
                    raise OSError(errno.EBUSY, "internal processes")
                state.enabled.add(controller)
            else:
                if any(controller in self.state(child).enabled for child in self.children(fd)):
                    raise OSError(errno.EBUSY, "enabled below")
                state.enabled.discard(controller)
        elif name in state.texts:
            state.texts[name] = text
        else:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
