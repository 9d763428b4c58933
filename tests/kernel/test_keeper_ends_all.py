"""A supervisor is killed: whatever its children have started is dead and every leaf gone, at once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest

from tests.support import doomed, leftovers
from tests.support.doomed import Doomed

from .cgroup_inside import write

Program = Callable[[str], str]


def _seconds_to_the_end(root: str, command: str, *signals: int, count: int = doomed.MANY) -> float:
    """From the last signal to the supervisor until nothing is left of its children."""
    with Doomed(root, count, command) as supervisor:
        keeper = supervisor.keeper
        assert len(leftovers.leaves(root)) == count
        for number in signals[:-1]:
            supervisor.signal(number)
        since = time.monotonic()
        supervisor.signal(signals[-1])
        elapsed = doomed.until_empty(root, since)
        assert supervisor.wait() == -signals[-1]
    assert doomed.gone(keeper)
    return elapsed


@pytest.mark.parametrize(
    "signals",
    [[signal.SIGKILL], [signal.SIGSTOP, signal.SIGKILL]],
    ids=["killed", "stopped-and-killed"],
)
def test_b18_everything_ends_with_the_supervisor(
    cgroup_root: str, program: Program, signals: list[int]
) -> None:
    # The machine may be busy with other things; the best of three is what the keeper takes.
    taken: list[float] = []
    while not taken or (min(taken) > doomed.IN_TIME and len(taken) < 3):
        taken.append(_seconds_to_the_end(cgroup_root, program("stubborn"), *signals))
    print(f"{doomed.MANY} children were gone after", *(f"{seconds * 1000:.0f} ms" for seconds in taken))
    assert min(taken) <= doomed.IN_TIME


HOG = "[bytearray(1 << 20) for _ in range(1 << 20)]"


def test_everything_ends_with_a_supervisor_that_the_oom_killer_took(
    cgroup_root: str, program: Program, needs: Callable[..., None]
) -> None:
    needs("memory")
    own, leaves = f"{cgroup_root}/own", f"{cgroup_root}/leaves"
    write(f"{os.path.dirname(cgroup_root)}/cgroup.subtree_control", "+memory")
    write(f"{cgroup_root}/cgroup.subtree_control", "+memory")
    os.mkdir(own)
    os.mkdir(leaves)
    write(f"{own}/memory.max", str(96 << 20))
    move = ["sh", "-c", 'echo $$ >"$0"; exec "$@"', f"{own}/cgroup.procs"]
    with Doomed(leaves, doomed.MANY, program("stubborn"), prefix=move) as supervisor:
        keeper = supervisor.keeper
        assert supervisor.process.stdin is not None
        supervisor.process.stdin.write(HOG + "\n")
        supervisor.process.stdin.flush()
        assert supervisor.wait() == -signal.SIGKILL
        assert doomed.until_empty(leaves, time.monotonic()) <= doomed.IN_TIME
    assert doomed.gone(keeper)
