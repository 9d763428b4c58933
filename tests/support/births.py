"""The shim without the layers above it: a child from an `Image`, waited for and removed by hand."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from agentd.linux import signals
from agentd.linux.birth import Birth, Image, Style, exec_result
from agentd.linux.end import Ending, UsageFiles
from agentd.linux.status import Status

NOTHING = UsageFiles(())
STYLES = [Style.VFORK, Style.FORK, Style.LEGACY]


def image(*argv: str, **options: Any) -> Image:
    """To execute ``argv``, whose first word is a path; with our environment unless ``env`` is given."""
    encoded = [os.fsencode(argument) for argument in argv]
    return Image(
        options.pop("candidates", [encoded[0]]), encoded, options.pop("env", dict(os.environb)), **options
    )


def python(code: str, *arguments: str, **options: Any) -> Image:
    return image(sys.executable, "-I", "-c", code, *arguments, **options)


class Started:
    """A child that runs. ``end`` waits for it, kills what is left of its leaf, reaps it; its status."""

    def __init__(self, birth: Birth, parent_fd: int, name: str) -> None:
        self.birth = birth
        self.pid = birth.pid
        self.pidfd = birth.pidfd
        self._parent_fd = parent_fd
        self._name = name
        self._ended = False

    def end(self, *, kill: bool = False, timeout: float = 30) -> Status:
        assert not self._ended
        self._ended = True
        if kill:
            signals.send(self.pidfd, 9)
        assert readable(self.pidfd, timeout), f"pid {self.pid} has not ended"
        ending = Ending(
            pid=self.pid,
            pidfd=self.pidfd,
            leaf_fd=self.birth.leaf_fd,
            events_fd=self.birth.events_fd,
            parent_fd=self._parent_fd,
            name=self._name,
        )
        ending.run(NOTHING)
        while not ending.finished:
            signals.kill_leaf(self.birth.leaf_fd)
            poller = select.poll()
            poller.register(self.birth.events_fd, select.POLLPRI)
            poller.poll(10)
            ending.run(NOTHING)
        assert ending.removed or self.birth.leaf_fd < 0, os.strerror(ending.remove_errno)
        status = ending.status
        assert status is not None
        return status

    def close(self) -> None:
        if not self._ended:
            self.end(kill=True)


def readable(fd: int, timeout: float) -> bool:
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(timeout * 1000))


@contextmanager
def started(
    what: Image, *, style: Style = Style.VFORK, parent_fd: int = -1, name: str = "run"
) -> Iterator[Started]:
    """A child of ``what`` that got through its exec. It is killed and reaped at the end, if it was not."""
    birth = Birth(what, parent_fd=parent_fd, name=name, style=style)
    assert birth.run(), (birth.stage, os.strerror(birth.errno))
    child = Started(birth, parent_fd, name)
    try:
        if birth.exec_fd >= 0:
            assert exec_result(birth.exec_fd) is None
        yield child
    finally:
        child.close()


def refused(
    what: Image, *, style: Style = Style.VFORK, parent_fd: int = -1, name: str = "run", **options: Any
) -> tuple[str, int]:
    """(stage, errno) of a birth that is refused; what was cloned is reaped, and the leaf removed."""
    birth = Birth(what, parent_fd=parent_fd, name=name, style=style, **options)
    ok = birth.run()
    found = (birth.stage, birth.errno)
    if ok and birth.exec_fd >= 0:
        told = exec_result(birth.exec_fd)
        found = told or ("ok", 0)
    if birth.pidfd >= 0:
        status = Started(birth, parent_fd, name).end(kill=found[0] == "ok")
        assert found[0] == "ok" or status.code == 127 or status.signal == 9, status
    else:
        birth.undo()
    return found


def output_of(make: Any, *, style: Style = Style.VFORK, **options: Any) -> str:
    """What the child that ``make(stdio=...)`` describes writes on its standard output, and it ends with 0."""
    read, write = os.pipe()
    try:
        with started(make(stdio=(-1, write, -1), **options), style=style) as child:
            os.close(write)
            write = -1
            said = b""
            while piece := os.read(read, 65536):
                said += piece
            assert child.end().code == 0, said
        return said.decode()
    finally:
        os.close(read)
        if write >= 0:
            os.close(write)


def open_directory(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def numbers(text: str) -> Sequence[int]:
    return [int(word) for word in text.split()]
