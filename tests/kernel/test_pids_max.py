"""The limit of processes: held, counted, and no obstacle to the end of those that reach it."""

from __future__ import annotations

import os
import select
from collections.abc import Callable

import pytest

from agentd.cgroup.limits import Limits
from agentd.process.report import Report
from agentd.process.streams import DEVNULL
from agentd.process.supervisor import Supervisor
from tests.support.runs import Agentd

BOMB = """
import os
while True:
    try:
        os.fork()
    except OSError:
        pass
    os.setsid() if os.getpid() != os.getpgrp() else None
"""
"""Never stops forking, each process in a session of its own."""


@pytest.fixture(autouse=True)
def _pids(needs: Callable[..., None]) -> None:
    needs("pids")


def pids(report: Report) -> dict[str, int]:
    found = report.usage["pids"]
    assert isinstance(found, dict)
    return found


def await_refused_fork(leaf: str) -> None:
    """Return once the limit was reached, as the kernel tells."""
    with open(f"{leaf}/pids.events", "rb", buffering=0) as events:
        poll = select.poll()
        poll.register(events, select.POLLPRI)
        while os.pread(events.fileno(), 100, 0).startswith(b"max 0\n"):
            assert poll.poll(20_000), "it never forked so often"


def test_forks_past_it_are_counted(supervisor: Supervisor) -> None:
    """podman#17647: a limit of processes shows as the oddest failures."""
    script = "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 1000 & done"
    child = supervisor.spawn(["sh", "-c", script], limits=Limits(pids_max=8, wall=20), stderr=DEVNULL)
    report = child.wait(30)
    assert report.verdict.cause == "error"  # the shell's own: it could not fork
    assert pids(report)["peak"] == 8
    assert pids(report)["max_hits"] >= 1
    assert report.limits.in_force["pids_max"] == "8"
    assert report.left_behind_count == 7


def test_the_closing_line_says_so(agentd: Agentd) -> None:
    done = agentd("--pids-max", "2", "--", "sh", "-c", "sleep 1000 & sleep 1000 & wait")
    assert "pids limit hit 1 times" in done.stderr.splitlines()[-1]


def test_a_fork_bomb(supervisor: Supervisor) -> None:
    """stress-ng#384. While it goes off others run, and at its deadline it is gone at once."""
    limits = Limits(pids_max=64, wall=5)
    bomb = supervisor.spawn(["python3", "-S", "-c", BOMB], limits=limits, stderr=DEVNULL)
    assert bomb.leaf is not None
    await_refused_fork(bomb.leaf)
    meanwhile = supervisor.spawn(["true"])
    assert meanwhile.wait(20).verdict.cause == "ok"
    assert bomb.poll() is None
    report = bomb.wait(20)
    assert (report.exit_code, report.verdict.cause) == (124, "deadline")
    assert pids(report)["peak"] == 64
    assert pids(report)["max_hits"] >= 1
    assert report.teardown.complete
    assert report.teardown.killed >= 63
    assert report.teardown.waited < 1
    assert report.duration < 5 + 1


def test_a_fork_bomb_that_ignores_requests(supervisor: Supervisor) -> None:
    limits = Limits(pids_max=32, wall=2)
    command = ["sh", "-c", 'trap "" TERM; exec python3 -S -c "$0"', BOMB]
    report = supervisor.spawn(command, limits=limits, stderr=DEVNULL, grace=0.5).wait(20)
    assert report.verdict.cause == "deadline"
    assert report.teardown.complete
    assert report.duration < 2 + 0.5 + 1


def test_a_fork_bomb_whose_first_process_ends(supervisor: Supervisor) -> None:
    child = supervisor.spawn(["bash", "-c", ":(){ :|:& };:"], limits=Limits(pids_max=64), stderr=DEVNULL)
    report = child.wait(20)
    assert report.verdict.code is not None
    assert pids(report)["peak"] <= 64
    assert report.teardown.complete
    assert report.teardown.waited < 1


ORPHANS = """
import os
for _ in range(30):
    while True:
        try:
            pid = os.fork()
        except BlockingIOError:
            os.sched_yield()
            continue
        break
    if pid == 0:
        try:
            os.fork()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
"""
"""One short-lived orphan after another; waits, for ever if need be, until there is room for the next."""


def test_ended_orphans_make_room(agentd: Agentd) -> None:
    """A zombie counts until somebody reaps it (G42)."""
    done = agentd("--pids-max", "4", "--timeout", "20s", "--", "python3", "-S", "-c", ORPHANS)
    assert (done.code, done.report["verdict"]["cause"]) == (0, "ok")
    assert done.report["usage"]["pids"]["peak"] <= 4
