"""A run that stands still under its memory.high is ended and said to be; one that works near it is not."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from agentd.cgroup.limits import Limits
from agentd.process.streams import DEVNULL
from agentd.process.supervisor import Supervisor
from agentd.process.throttle import STUCK_FOR
from tests.support.runs import Agentd

HUNGRY = ["python3", "-S", "-c", "x = bytearray(48 << 20)"]
Needs = Callable[..., None]


@pytest.fixture(autouse=True)
def _memory(needs: Needs) -> None:
    needs("memory")
    if len(Path("/proc/swaps").read_text().splitlines()) > 1:
        pytest.skip("with swap it goes on, slowly")


def test_b46_at_a_deadline(agentd: Agentd) -> None:
    done = agentd("--memory-high", "16M", "--timeout", "3s", "--grace", "100ms", "--", *HUNGRY)
    assert done.code == 124
    assert done.report["verdict"]["cause"] == "throttled"
    assert done.report["usage"]["memory"]["high_hits"] > 10
    assert done.report["usage"]["memory"]["oom_kill"] == 0


def test_b46_by_the_watchdog(supervisor: Supervisor) -> None:
    report = supervisor.spawn(HUNGRY, limits=Limits(memory_high="16M"), grace=0.1).wait(60)
    assert (report.verdict.cause, report.exit_code) == ("throttled", 124)
    assert 10 <= report.duration < 30
    assert report.teardown.complete


def test_a_deadline_of_a_run_that_works_is_a_deadline(supervisor: Supervisor) -> None:
    limits = Limits(memory_high="16M", wall=2.5)
    report = supervisor.spawn(["sh", "-c", "while :; do :; done"], limits=limits, grace=0).wait(60)
    assert report.verdict.cause == "deadline"


READ = """
import os, sys, time
until = time.monotonic() + float(sys.argv[1])
files = [os.open(path, os.O_RDONLY) for path in sys.argv[2:]]  # open: a guest's hostfs forgets a file at its close
while time.monotonic() < until:
    for fd in files:
        at = 0
        while time.monotonic() < until and (piece := os.pread(fd, 1 << 16, at)):
            at += len(piece)
"""


def test_a_program_that_reads_files_near_its_limit(supervisor: Supervisor) -> None:
    """Its memory is mostly the page cache's, which is taken back, over and over: the events are the same as of
    one that stands still."""
    files = _files_of(32 << 20)
    command = ["python3", "-S", "-c", READ, str(STUCK_FOR + 1.5), *files]
    report = supervisor.spawn(command, limits=Limits(memory_high="12M"), stderr=DEVNULL).wait(90)
    assert (report.verdict.cause, report.verdict.code) == ("ok", 0)
    assert report.usage["memory"]["high_hits"] > 100


def _files_of(size: int) -> list[str]:
    """Paths of large files, of so many bytes in all."""
    found: list[str] = []
    for folder, _, names in os.walk("/usr/lib"):
        for name in names:
            path = os.path.join(folder, name)
            if not os.path.islink(path) and (length := os.path.getsize(path)) > 1 << 20:
                found.append(path)
                size -= length
                if size < 0:
                    return found
    pytest.skip("not enough large files in /usr/lib")
