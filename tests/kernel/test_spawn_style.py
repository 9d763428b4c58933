"""How a child is cloned where its leaf, or a cgroup above, keeps it from running."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from agentd.cgroup.limits import Limits
from agentd.errors import StartError
from agentd.process.streams import DEVNULL
from agentd.process.supervisor import Supervisor

from . import appetite
from .cgroup_inside import write

Needs = Callable[..., None]
A_THOUSANDTH = "1000 1000000"
"""A millisecond of processor in each second: a start takes several seconds."""


def test_a_leafs_own_limit_does_not_slow_its_start(needs: Needs, supervisor: Supervisor) -> None:
    """It is written after the exec: before, the clone would wait for the child's turn (G32)."""
    needs("cpu")
    started = time.monotonic()
    for _ in range(5):
        child = supervisor.spawn(["sleep", "1000"], limits=Limits(cpu_max=A_THOUSANDTH))
        assert child.enforcement.placement == "born"
        child.kill()
        assert child.wait(20).limits.in_force["cpu_max"] == A_THOUSANDTH
    assert time.monotonic() - started < 5


def test_others_start_while_one_waits_for_its_turn(needs: Needs, cgroup_root: str) -> None:
    """A vfork-style clone there would hold up every other one; and the reaper goes on (cpython#104372)."""
    needs("cpu")
    with (
        Supervisor(f"{cgroup_root}/slow", total=Limits(cpu_max=A_THOUSANDTH)) as slow,
        Supervisor(f"{cgroup_root}/fast") as fast,
        ThreadPoolExecutor() as threads,
    ):
        begun = threading.Event()

        def spawn() -> str:
            begun.set()
            return slow.spawn(["true"], limits=Limits(wall=60)).wait(60).verdict.cause

        waiting = threads.submit(spawn)
        assert begun.wait(20)
        for _ in range(3):
            assert fast.spawn(["true"]).wait(20).verdict.cause == "ok"
        assert not waiting.done()
        write(f"{cgroup_root}/slow/cpu.max", "max")
        assert waiting.result(60) == "ok"


def test_a_deadline_passes_while_one_waits_for_its_turn(needs: Needs, cgroup_root: str) -> None:
    needs("cpu")
    # To die takes time too, and there is nothing that could be done about a limit above.
    with Supervisor(cgroup_root, total=Limits(cpu_max="20000 1000000")) as supervisor:
        report = supervisor.spawn(appetite.SPIN, limits=Limits(wall=0.3), grace=0).wait(20)
        assert report.verdict.cause == "deadline"
        assert report.teardown.complete


@pytest.mark.parametrize(
    ("command", "code"),
    [(["/no/such/command"], 127), (["/"], 126), (["/etc/passwd"], 126)],
    ids=["none", "dir", "data"],
)
def test_what_cannot_be_executed(needs: Needs, cgroup_root: str, command: list[str], code: int) -> None:
    needs("cpu")
    started = time.monotonic()
    with Supervisor(cgroup_root, total=Limits(cpu_max="90%")) as supervisor:
        with pytest.raises(StartError) as refusal:
            supervisor.spawn(command)
        assert refusal.value.exit_code == code
        assert supervisor.children == []
    # The end waits for nobody.
    assert time.monotonic() - started < 5


def test_no_memory_to_execute(needs: Needs, cgroup_root: str) -> None:
    """In memory of its own the child is killed where a vfork-style one is refused (G34)."""
    needs("cpu", "memory")
    with Supervisor(cgroup_root, total=Limits(cpu_max="90%")) as supervisor:
        for limit in (4096, 16384):
            with pytest.raises(StartError, match="memory limit is too low to start it"):
                supervisor.spawn(
                    ["/bin/true"], limits=Limits(memory_max=limit), env={"PADDING": "x" * 60_000}
                )
        report = supervisor.spawn(["/bin/true"], limits=Limits(memory_max="64K"), stderr=DEVNULL).wait(20)
        assert (report.exit_code, report.verdict.cause) == (125, "start")


def test_a_limit_refused_after_the_exec(needs: Needs, cgroup_root: str) -> None:
    needs("cpu")
    with Supervisor(cgroup_root, total=Limits(cpu_max="90%")) as supervisor:
        limits = Limits(cpu_max="50%", files={"cpu.max.burst": "999999999"})
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            with pytest.raises(Exception, match=r"cpu\.max\.burst"):
                supervisor.spawn(["sleep", "1000"], limits=limits)
        # The first spawn may have started the loop, which has descriptors of its own.
        after = len(os.listdir("/proc/self/fd"))
        with pytest.raises(Exception, match=r"cpu\.max\.burst"):
            supervisor.spawn(["sleep", "1000"], limits=limits)
        assert len(os.listdir("/proc/self/fd")) == after
        assert after - before < 3
