"""A supervisor in a program of its own, to be killed; and what is then left of its children."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from agentd.cgroup import control
from agentd.cgroup.sweep import sweep
from tests.support import embedding, leftovers

PATIENCE = 30.0

IN_TIME = 0.2 if os.environ.get("AGENTD_KERNEL", "host") == "host" else 10.0
"""Seconds from a supervisor's death to the end of all that it had started. A guest is slow, and shares one
processor with whatever else runs in it."""

MANY = 50 if os.environ.get("AGENTD_KERNEL", "host") == "host" else 8

PROGRAM = """
import json, os, signal, sys, threading
import agentd

root, count, command = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
supervisor = agentd.Supervisor(root)
read, write = os.pipe()
children = [supervisor.spawn(command, stdout=write, stdin=agentd.DEVNULL) for _ in range(count)]
said = b""
while said.count(b"\\n") < count:
    said += os.read(read, 65536)
print(json.dumps([os.getpid(), agentd.process.reaper.shared().keeper.pid]), flush=True)
for line in sys.stdin:
    print(json.dumps(eval(line)), flush=True)
"""


class Doomed:
    """``count`` children of ``command``, each of which has said a line. ``ask`` evaluates an expression there
    (``agentd``, ``supervisor`` and ``children`` are at hand). ``prefix`` is a program that becomes it.

    As a context, it is killed at the end, and its first keeper waited for. It ends by itself when its input does.
    """

    def __init__(self, root: str, count: int, *command: str, prefix: Sequence[str] = ()) -> None:
        self.root = root
        self.process = subprocess.Popen(
            [*prefix, *embedding.program(PROGRAM, root, str(count), *command)],
            env=embedding.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._pidfd = os.pidfd_open(self.process.pid)
        self.own_pid, keeper = self._answer()
        """Its pid as it sees it itself."""
        self._first_keeper = keeper if self.own_pid == self.process.pid else None

    def ask(self, expression: str) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(expression + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], PATIENCE)[0], "it says nothing"
        line = self.process.stdout.readline()
        assert line, f"it has ended, with {self.process.wait()}"
        return json.loads(line)

    @property
    def keeper(self) -> int:
        """The pid of its keeper, as it reports it."""
        pid = self.ask("children[0].enforcement.keeper['pid']")
        assert isinstance(pid, int)
        return pid

    def signal(self, number: int) -> None:
        signal.pidfd_send_signal(self._pidfd, number)

    def wait(self) -> int:
        return self.process.wait(PATIENCE)

    def end(self) -> int:
        """By the end of its input, as a program that is done; its status."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.wait()

    def __enter__(self) -> Doomed:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.signal(signal.SIGKILL)
        self.process.wait(PATIENCE)
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        os.close(self._pidfd)
        if self._first_keeper is not None:
            assert gone(self._first_keeper)


def until_empty(root: str, since: float) -> float:
    """Wait until no leaf and no process is left in the cgroup; the seconds from ``since`` (monotonic)."""
    try:
        until(lambda: not leftovers.leaves(root) and not populated(root), "nothing is left")
    except AssertionError as error:
        raise AssertionError(f"{leftovers.leaves(root)} {members(root)}") from error
    return time.monotonic() - since


def until(holds: Callable[[], bool], what: str) -> None:
    """For what the kernel has no event for: look until it holds."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, f"it never came to this: {what}"
        time.sleep(0.001)


def sweep_up(root: str) -> None:
    """Remove the leaves of supervisors that die with their keepers."""
    fd = os.open(root, control.DIRECTORY)
    try:
        until(lambda: not (sweep(fd) or leftovers.leaves(root)), "all leaves are swept")
    finally:
        os.close(fd)


def populated(root: str) -> bool:
    try:
        return "populated 1" in Path(root, "cgroup.events").read_text()
    except OSError:
        return False  # with the last leaf, the subtree went too


def members(root: str) -> list[str]:
    return [str(process) for process in leftovers.processes() if os.path.basename(root) in process.cgroup]


def gone(pid: int) -> bool:
    """Whether the process ends within our patience. A zombie has ended."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([pidfd], [], [], PATIENCE)[0])
    finally:
        os.close(pidfd)
