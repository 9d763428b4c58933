"""Whatever a command leaves behind is dead when `agentd run` ends, and was named."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import agentd as library
from agentd.process.streams import Capture
from tests.support import leftovers
from tests.support.runs import Agentd, CompletedRun

FOUR = {"in-session", "double-forked", "no-hangup", "writer"}
AT_A_TIME = 20
LATEST = 0.5
"""Seconds after the end of COMMAND."""


@pytest.mark.parametrize("count", [20, pytest.param(200, marks=pytest.mark.default)])
def test_four_daemons_of_each_run_are_gone_and_named(
    agentd: Agentd, program: Callable[[str], str], count: int
) -> None:
    command = program("leave_four")
    with Load() as load, ThreadPoolExecutor(AT_A_TIME) as pool:
        runs = list(pool.map(lambda _: agentd("--", command), range(count)))
    after = sorted(_seconds_after_command(run) for run in runs)
    print(f"agentd's end after COMMAND's: median {after[count // 2]:.3f} s, last {after[-1]:.3f} s, {load}")
    assert after[-1] < LATEST + load.worst
    for run in runs:
        report = run.report
        assert run.code == 0
        assert {process["name"] for process in report["left_behind"]} == FOUR
        assert report["left_behind_count"] == 4
        assert report["teardown"]["complete"]
        assert report["teardown"]["killed"] == 4
        assert report["teardown"]["waited"] < LATEST
        assert all(name in run.line for name in FOUR)


class Load:
    """What the machine, with these runs and whatever else it has to do, makes of some 15 ms of work: the longest
    time that an interpreter takes from its start to its end."""

    def __init__(self) -> None:
        self.worst = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._measure)

    def _measure(self) -> None:
        while not self._over.wait(0.05):
            start = time.monotonic()
            subprocess.run([sys.executable, "-I", "-S", "-c", "pass"], check=True)
            self.worst = max(self.worst, time.monotonic() - start)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def __str__(self) -> str:
        return f"an interpreter takes up to {self.worst:.3f} s"


def _seconds_after_command(run: CompletedRun) -> float:
    ended = re.search(r"^ended (\d+)$", run.stdout, re.MULTILINE)
    assert ended, run
    return run.ended_at - int(ended[1]) / 1e9


@pytest.mark.parametrize("count", [200])
def test_four_daemons_of_each_run_from_twenty_threads(
    cgroup_root: str, program: Callable[[str], str], count: int
) -> None:
    command = program("leave_four")
    with library.Supervisor(cgroup_root) as supervisor:
        supervisor.spawn(["/bin/true"]).wait()  # what the process keeps from its first run on
        before = leftovers.open_descriptors()
        threads = threading.active_count()
        ended: list[float] = []

        def run(_: int) -> library.Report:
            report = supervisor.spawn([command], stdout=Capture()).wait(timeout=30)
            said = re.search(rb"^ended (\d+)$", report.tails["stdout"].tail, re.MULTILINE)
            assert said
            ended.append(time.monotonic() - int(said[1]) / 1e9)
            return report

        with ThreadPoolExecutor(AT_A_TIME) as pool:
            reports = list(pool.map(run, range(count)))
        for report in reports:
            assert report.ok
            assert {process.name for process in report.left_behind} == FOUR
            assert report.teardown.complete
            assert report.teardown.waited < LATEST
        assert [after for after in ended if after > LATEST] == []
        assert leftovers.leaves(cgroup_root) == []
        assert not leftovers.own_zombies()
        assert leftovers.open_descriptors() == before
        assert threading.active_count() == threads
