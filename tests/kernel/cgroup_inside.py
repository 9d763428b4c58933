"""Running a function of a test in another process, which sits in a cgroup of the test's choice."""

from __future__ import annotations

import os
import pickle
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Inside:
    """``function(*arguments)`` in a forked process that is moved into ``cgroup`` first.

    It begins at ``start``, or when ``result`` is asked for. ``uid``: it gives up root for that user first.
    """

    def __init__(self, cgroup: str, function: Callable[..., Any], *arguments: Any, uid: int = 0) -> None:
        reading, writing = os.pipe()
        waiting, self._start = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(reading)
                os.close(self._start)
                os.read(waiting, 1)
                if uid:
                    os.setgroups([])
                    os.setresgid(uid, uid, uid)
                    os.setresuid(uid, uid, uid)
                try:
                    answer: tuple[bool, Any] = (True, function(*arguments))
                except BaseException as error:
                    traceback.print_exc()
                    answer = (False, f"{type(error).__name__}: {error}")
                with os.fdopen(writing, "wb") as pipe:
                    pickle.dump(answer, pipe)
            finally:
                os._exit(0)
        os.close(waiting)
        os.close(writing)
        self._answer = os.fdopen(reading, "rb")
        enter(cgroup, self.pid)

    def start(self) -> None:
        if self._start >= 0:
            # A byte: the end of file would wait for those who were forked meanwhile, and hold a copy.
            os.write(self._start, b"!")
            os.close(self._start)
            self._start = -1

    def result(self) -> Any:
        """What the function returned; the test fails with what it raised."""
        self.start()
        with self._answer as pipe:
            data = pipe.read()
        os.waitpid(self.pid, 0)
        assert data, "the process died"
        good, value = pickle.loads(data)
        assert good, value
        return value


def inside(cgroup: str, function: Callable[..., T], *arguments: Any, uid: int = 0) -> T:
    """The result of ``Inside``."""
    result: T = Inside(cgroup, function, *arguments, uid=uid).result()
    return result


def enter(cgroup: str, pid: int) -> None:
    """Move the process (0: this one) into the cgroup."""
    with open(f"{cgroup}/cgroup.procs", "w") as file:
        file.write(str(pid))


def read(path: str) -> str:
    with open(path) as file:
        return file.read().strip()


def write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
