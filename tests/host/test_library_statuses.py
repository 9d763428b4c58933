"""Every status reaches its owner: agentd's children, and those of the program that agentd is embedded in."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from collections import defaultdict

import pytest

import agentd
from tests.support import embedding

THREADS = 8

PROGRAM = """
import sys
from tests.host.test_library_statuses import main
main(int(sys.argv[1]), sys.argv[2])
"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("count", [800, pytest.param(10_000, marks=pytest.mark.default)])
def test_every_status_reaches_its_owner(count: int, cgroup_root: str) -> None:
    """Children of 3 Supervisors from 8 threads, beside `subprocess.run`, asyncio and an `os.wait()` loop."""
    said = embedding.run(PROGRAM, str(count), cgroup_root, timeout=280)
    print(said)
    assert "all statuses were told" in said


def sh(code: int) -> list[str]:
    return ["/bin/sh", "-c", f"exit {code}"]


class Stealing:
    """An `os.wait()` loop: it takes whatever zombie is there, also those that others wait for."""

    def __init__(self) -> None:
        self.taken: dict[int, list[int]] = defaultdict(list)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop)

    def __enter__(self) -> Stealing:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _loop(self) -> None:
        while not self._stop.is_set():
            try:
                pid, status = os.wait()
            except ChildProcessError:
                self._stop.wait(0.001)  # no child at all: there is nothing to sleep on
                continue
            self.taken[pid].append(os.waitstatus_to_exitcode(status))


class Owners:
    """Of the foreign children: the pid, the code that it is to end with, and the one that its owner was told."""

    def __init__(self) -> None:
        self.told: list[tuple[int, int, int | None]] = []

    def expect(self, pid: int, code: int, told: int | None) -> None:
        """``told``: what its owner was told; None if somebody else had taken the status."""
        self.told.append((pid, code, told))


def run_subprocesses(stop: threading.Event, owners: Owners, count: list[int]) -> None:
    while not stop.is_set():
        code = count[0] % 50 + 1
        process = subprocess.Popen(sh(code))
        process.wait()
        # subprocess says 0 where another wait of the process took the status: bpo-1731717.
        owners.expect(process.pid, code, process.returncode or None)
        count[0] += 1


async def run_asyncio(stop: threading.Event, owners: Owners, count: list[int]) -> None:
    while not stop.is_set():
        code = count[0] % 50 + 101
        process = await asyncio.create_subprocess_exec(*sh(code))
        returned = await process.wait()
        # asyncio says 255 where another wait of the process took the status.
        owners.expect(process.pid, code, None if returned == 255 else returned)
        count[0] += 1


def run_plain(stop: threading.Event, owners: Owners, count: list[int]) -> None:
    """Children that only the `os.wait()` loop waits for."""
    while not stop.is_set():
        code = count[0] % 50 + 151
        pid = os.posix_spawn("/bin/sh", sh(code), os.environ)
        owners.expect(pid, code, None)
        count[0] += 1
        stop.wait(0.01)


def main(count: int, root: str) -> None:
    """In an interpreter of its own: `os.wait()` would take pytest's children."""
    supervisors = [agentd.Supervisor(root) for _ in range(3)]
    owners, stop = Owners(), threading.Event()
    counts = [[0], [0], [0]]
    known = kernel_keeps_statuses()
    with Stealing() as stealing:
        others = [
            threading.Thread(target=run_subprocesses, args=(stop, owners, counts[0])),
            threading.Thread(target=lambda: asyncio.run(run_asyncio(stop, owners, counts[1]))),
            threading.Thread(target=run_plain, args=(stop, owners, counts[2])),
        ]
        for other in others:
            other.start()
        wrong: list[str] = []
        pids: list[int] = []
        workers = [
            threading.Thread(target=work, args=(number, count // THREADS, supervisors, wrong, pids, known))
            for number in range(THREADS)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        stop.set()
        for other in others:
            other.join()
        for supervisor in supervisors:
            supervisor.close()
        # What is foreign and unwaited is the loop's: it goes on until there is no child left.
        while children_left():
            threading.Event().wait(0.001)
    assert wrong == [], wrong[:10]
    for pid, code, told in owners.told:
        seen = stealing.taken[pid]
        assert told == code or code in seen, f"pid {pid}: {code} was told as {told}, os.wait() had {seen}"
    taken = sum(pid in stealing.taken for pid in pids)
    print(f"{count} children, of which os.wait() took {taken}; beside them {len(owners.told)} foreign ones")
    print("all statuses were told")


def children_left() -> bool:
    try:
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False


def kernel_keeps_statuses() -> bool:
    """Whether a pidfd still tells the status once another wait has consumed it (PIDFD_GET_INFO)."""
    with agentd.Supervisor("off") as supervisor:
        child = supervisor.spawn(["sh", "-c", "read line"], stdin=agentd.DEVNULL)
        os.waitpid(child.pid, 0)
        return child.wait(timeout=10).verdict.cause != "unknown"


def work(
    number: int,
    count: int,
    supervisors: list[agentd.Supervisor],
    wrong: list[str],
    pids: list[int],
    known: bool,
) -> None:
    """Wait in four ways; `wrong` gets a line for each child of which something else was told."""
    ways = (plain_wait, timed_wait, callback)
    for turn in range(count):
        code = (number * 31 + turn) % 250
        supervisor = supervisors[(number + turn) % len(supervisors)]
        try:
            if turn % 4 == 3:
                by_context(supervisor.cgroup or "", code, wrong)
                continue
            child, report = ways[turn % 4](supervisor, code)
        except Exception as error:
            wrong.append(f"{number}.{turn}: {error!r}")
            return
        pids.append(child.pid)
        verdict = report.verdict
        if verdict.code != code and (known or verdict.cause != "unknown"):
            wrong.append(f"{number}.{turn}: {code} was told as {verdict}")


def plain_wait(supervisor: agentd.Supervisor, code: int) -> tuple[agentd.Child, agentd.Report]:
    child = supervisor.spawn(sh(code))
    return child, child.wait()


def timed_wait(supervisor: agentd.Supervisor, code: int) -> tuple[agentd.Child, agentd.Report]:
    child = supervisor.spawn(sh(code))
    while True:
        try:
            return child, child.wait(timeout=0.0005)
        except TimeoutError:
            continue


def callback(supervisor: agentd.Supervisor, code: int) -> tuple[agentd.Child, agentd.Report]:
    told: list[agentd.Report] = []
    ended = threading.Event()

    def on_exit(report: agentd.Report) -> None:
        told.append(report)
        ended.set()

    child = supervisor.spawn(sh(code), on_exit=on_exit)
    if not ended.wait(60):
        raise TimeoutError(f"no callback for {child!r}")
    if told != [child.report]:
        raise ValueError(f"the callback of {child!r} was told {told}")
    return child, told[0]


def by_context(root: str, code: int, wrong: list[str]) -> None:
    """Its own code if it had ended by itself, else the supervisor's kill: never somebody else's."""
    with agentd.Supervisor(root) as supervisor:
        child = supervisor.spawn(sh(code))
    report = child.report
    if report is None:
        wrong.append(f"{child!r} was left by its context")
    elif report.verdict.cause not in ("parent", "unknown") and report.verdict.code != code:
        wrong.append(f"by context: {code} was told as {report.verdict}")
