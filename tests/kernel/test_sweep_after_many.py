"""Many runs of many supervisors, a tenth of which are killed at some moment, and their keepers with them."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agentd.cgroup import control
from agentd.cgroup.sweep import sweep
from tests.support import doomed, embedding, leftovers

# A hundred interpreters' starts, on a kernel that takes a second for one.
pytestmark = pytest.mark.host

RUNS = 10
"""Of each supervisor."""

SUPERVISE = """
import os, sys
import agentd
from agentd.process.reaper import shared

supervisor = agentd.Supervisor(sys.argv[1])
supervisor.prepare()
print(os.getpid(), shared().keeper.pid, flush=True)
for number in range(int(sys.argv[2])):
    script = f"setsid sleep 1000 & sleep 0.01; exit {number % 5}"
    report = supervisor.spawn(["sh", "-c", script], stdin=agentd.DEVNULL, stdout=agentd.DEVNULL).wait(60)
    assert report.verdict.code == number % 5, report.to_dict()
    assert report.left_behind_count == 1, report.to_dict()
    assert report.teardown.complete and report.teardown.leaf_removed, report.to_dict()
supervisor.close()
print("done", flush=True)
"""


def _supervise(root: str, doom: Iterator[float], with_keeper: bool) -> str:
    """What became of one: done, or killed."""
    process = subprocess.Popen(
        embedding.program(SUPERVISE, root, str(RUNS)),
        env=embedding.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    pids = [int(word) for word in process.stdout.readline().split()]
    after = next(doom, None)
    if after is not None and len(pids) == 2:
        try:
            process.wait(after)
        except subprocess.TimeoutExpired:
            if with_keeper:
                _kill(pids[1])
            process.kill()
    said = process.communicate(timeout=100)[0]
    assert process.returncode in (0, -signal.SIGKILL), process.returncode
    if process.returncode:
        # The keeper, at its work; where it was killed, nobody is.
        assert doomed.gone(pids[1])
    return "killed" if process.returncode else said.strip()


def _kill(keeper: int) -> None:
    try:
        pidfd = os.pidfd_open(keeper)
    except ProcessLookupError:
        return
    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    os.close(pidfd)


@pytest.mark.parametrize(
    "runs",
    [
        40,
        pytest.param(200, marks=pytest.mark.default),
        pytest.param(2000, marks=[pytest.mark.slow, pytest.mark.timeout(1200)]),
    ],
)
def test_b68_after_one_sweep_nothing_is_left(cgroup_root: str, runs: int) -> None:
    before = _descendants(cgroup_root)
    supervisors = runs // RUNS
    chance = random.Random(runs)
    doomed_ones = max(1, supervisors // 10)
    lock = threading.Lock()
    deaths = [chance.uniform(0.005, 0.3) for _ in range(doomed_ones)]

    def dooms() -> Iterator[float]:
        while True:
            with lock:
                if not deaths:
                    return
                after = deaths.pop()
            yield after

    turns = [dooms() if number % 10 == 3 or number == 0 else iter(()) for number in range(supervisors)]
    with doomed.Doomed(cgroup_root, 3, "sh", "-c", "echo ready; exec sleep 1000") as lasting:
        live = leftovers.leaves(cgroup_root)
        with ThreadPoolExecutor(3) as pool:
            ends = list(
                pool.map(lambda n: _supervise(cgroup_root, turns[n], n % 20 < 10), range(supervisors))
            )
        assert set(ends) <= {"done", "killed"}
        assert ends.count("done") >= supervisors - doomed_ones
        root = os.open(cgroup_root, control.DIRECTORY)
        swept = sweep(root)
        os.close(root)
        print(f"{runs} runs, killed {ends.count('killed')}, swept {len(swept)}")
        assert all(one.removed for one in swept)
        assert leftovers.leaves(cgroup_root) == live
        assert lasting.ask("[child.poll() for child in children]") == [None] * 3
        assert _descendants(cgroup_root) == before + 3


def _descendants(root: str) -> int:
    for line in Path(root, "cgroup.stat").read_text().splitlines():
        name, _, number = line.partition(" ")
        if name == "nr_descendants":
            return int(number)
    raise AssertionError("no nr_descendants")
