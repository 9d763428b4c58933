"""TERM at a random instant of the first 200 ms, also to PID 1 of a pid namespace (B34)."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support import leftovers
from tests.support.runs import AGENTD, INIT

GRACE = 1.0
MARGIN = 4.0
"""Seconds that a loaded machine may take beyond the grace."""
AT_A_TIME = 4
COUNTS = [12, pytest.param(300, marks=pytest.mark.default)]

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="making a pid namespace needs root")


class Instants:
    """Runs agentd many times, each ended by TERM at another instant, and says how each ended."""

    def __init__(self, launcher: str, root: str, most_us: int) -> None:
        self.launcher = launcher
        self.root = root
        self.most_us = most_us
        self.seed = random.SystemRandom().getrandbits(32)

    def run(self, count: int, *before: str, options: tuple[str, ...] = ()) -> dict[str, int]:
        """How often each end came; ``before`` is what starts agentd. Prints the seed, seen on failure."""
        print(f"random seed {self.seed}")
        random_source = random.Random(self.seed)
        instants = [random_source.randrange(self.most_us) for _ in range(count)]
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            ends = list(pool.map(lambda instant: self.once(instant, *before, options=options), instants))
        for instant, end in zip(instants, ends, strict=True):
            print(f"{instant} us: {end}")
        counts: dict[str, int] = {}
        for end in ends:
            how, _, _ = end.rpartition(" ")
            counts[how] = counts.get(how, 0) + 1
        return counts

    def once(
        self, instant: int, *before: str, options: tuple[str, ...] = (), patience: float = GRACE + MARGIN
    ) -> str:
        command = [
            AGENTD,
            "run",
            "--quiet",
            "--cgroup",
            self.root,
            "--grace",
            f"{GRACE}s",
            "--",
            "sleep",
            "987654",
        ]
        done = subprocess.run(
            [self.launcher, *options, str(instant), str(int(patience * 1000)), *before, *command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert done.stderr == "", done.stderr
        return done.stdout.strip()


@pytest.fixture
def instants(cgroup_root: str, program: Callable[[str], str]) -> Instants:
    return Instants(program("term_after"), cgroup_root, 200_000)


@pytest.mark.parametrize("count", COUNTS)
def test_plain(instants: Instants, count: int) -> None:
    ends = instants.run(count)
    # Before agentd holds signals it dies of TERM as any program does, and has started nothing.
    assert set(ends) <= {"exit 143", f"signal {signal.SIGTERM.value}"}
    assert leftovers.leaves(instants.root) == []


@needs_root
@pytest.mark.parametrize("count", COUNTS)
def test_as_pid_1(instants: Instants, count: int) -> None:
    ends = instants.run(count, INIT, options=("--pid1", "--held"))
    assert ends == {"exit 143": count}
    assert leftovers.leaves(instants.root) == []


@pytest.mark.parametrize("count", [10, pytest.param(500, marks=pytest.mark.slow)])
def test_b34_in_the_first_five_milliseconds(instants: Instants, count: int) -> None:
    instants.most_us = 5_000
    ends = instants.run(count)
    assert set(ends) <= {"exit 143", f"signal {signal.SIGTERM.value}"}
    assert leftovers.leaves(instants.root) == []


@needs_root
def test_pid_1_without_agentd_init_loses_the_earliest_signal(instants: Instants) -> None:
    # The kernel drops what PID 1 neither blocks nor handles, as in an interpreter's first milliseconds. This is
    # what agentd-init is for: were this test to fail, it would be needed no more.
    # On a busy machine TERM may come later than it was sent for.
    said = (instants.once(0, options=("--pid1",), patience=0.5) for _ in range(5))
    assert any(one.startswith("late ") for one in said)


@needs_root
def test_pid_1_without_agentd_init_ends_on_a_later_signal(
    cgroup_root: str, program: Callable[[str], str]
) -> None:
    command = [AGENTD, "run", "--cgroup", cgroup_root, "--", "sh", "-c", "echo ready; exec sleep 987654"]
    with subprocess.Popen(
        ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as launcher:
        assert launcher.stdout is not None
        assert launcher.stdout.readline() == "ready\n"
        (pid_1,) = [process.pid for process in leftovers.processes() if process.ppid == launcher.pid]
        handle = os.pidfd_open(pid_1)
        signal.pidfd_send_signal(handle, signal.SIGTERM)
        os.close(handle)
        assert launcher.wait(timeout=30) == 143
    assert leftovers.leaves(cgroup_root) == []
