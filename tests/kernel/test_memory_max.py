"""The hard memory limit, and which kills are its doing."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import pytest

from agentd.cgroup.limits import Limits
from agentd.process.streams import DEVNULL
from agentd.process.supervisor import Supervisor
from tests.support.runs import Agentd

from . import appetite

MIB = 1 << 20
Needs = Callable[..., None]


@pytest.fixture(autouse=True)
def _memory(needs: Needs) -> None:
    needs("memory")


def test_an_allocation_past_the_limit(agentd: Agentd) -> None:
    """claude-code#68647: no cap, and the host went down."""
    hungry = "a = []\nwhile 1: a.append(bytearray(1 << 20))"
    done = agentd("--memory-max", "64M", "--", "python3", "-S", "-c", hungry)
    assert done.code == 137
    verdict = done.report["verdict"]
    assert (verdict["exit"], verdict["cause"], verdict["scope"]) == ("failed", "memory", "leaf")
    assert verdict["signal"] == signal.SIGKILL
    memory = done.report["usage"]["memory"]
    assert 60 * MIB < memory["peak"] <= 64 * MIB
    assert memory["oom"] >= 1
    assert memory["oom_kill"] >= 1
    # The limit is no limit if what is above it may be swapped out.
    assert done.report["limits"]["in_force"] == {"memory_max": str(64 * MIB), "memory_swap_max": "0"}
    assert done.report["limits"]["asked"] == {"memory_max": "64M"}
    assert done.report["teardown"]["complete"]
    assert "memory, leaf" in done.line


def test_a_kill_that_is_not_the_limits(agentd: Agentd) -> None:
    """nomad PR#12735: 137 was taken for the OOM killer."""
    done = agentd("--memory-max", "200M", "--", "sh", "-c", "kill -9 $$")
    assert done.code == 137
    assert done.report["verdict"]["cause"] == "signal"
    assert done.report["usage"]["memory"]["oom_kill"] == 0
    assert "memory" not in done.line


def test_a_kill_of_our_own(supervisor: Supervisor) -> None:
    """ianvs#820: a kill of the supervisor's own was reported as the OOM killer's."""
    report = supervisor.spawn(["sleep", "1000"], limits=Limits(memory_max="64M", wall=0.3)).wait(20)
    assert (report.exit_code, report.verdict.cause) == (124, "deadline")


@pytest.mark.parametrize("runs", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_every_kill_is_counted_before_the_leaf_goes(supervisor: Supervisor, runs: int) -> None:
    """containerd#8180: the event came after the exit, and the cause was lost."""
    causes = [
        supervisor.spawn(appetite.memory("64M"), limits=Limits(memory_max="16M")).wait(20).verdict.cause
        for _ in range(runs)
    ]
    assert causes == ["memory"] * runs


def test_a_victim_that_the_command_survives(supervisor: Supervisor) -> None:
    """kubernetes#117070: the whole group was killed where a program could have gone on."""
    script = f"{appetite.shell_memory('64M')}; test $? = 137 && exit 0"
    report = supervisor.spawn(["sh", "-c", script], limits=Limits(memory_max="16M"), stderr=DEVNULL).wait(20)
    assert (report.exit_code, report.verdict.cause, report.verdict.scope) == (0, "ok", None)
    memory = report.usage["memory"]
    assert isinstance(memory, dict)
    assert memory["oom_kill"] >= 1
    assert memory["oom_group_kill"] == 0


def test_a_group_that_dies_as_one(supervisor: Supervisor) -> None:
    limits = Limits(memory_max="16M", memory_oom_group=True)
    script = f"sleep 1000 & {appetite.shell_memory('64M')}; exit 0"
    report = supervisor.spawn(["sh", "-c", script], limits=limits, stderr=DEVNULL).wait(20)
    assert (report.exit_code, report.verdict.cause, report.verdict.scope) == (137, "memory", "leaf")
    assert report.limits.in_force["memory_oom_group"] == "1"
    memory = report.usage["memory"]
    assert isinstance(memory, dict)
    assert memory["oom_group_kill"] == 1
    assert report.teardown.complete


def test_a_victim_is_noted_beside_the_verdict(agentd: Agentd) -> None:
    script = f"{appetite.shell_memory('64M')}; exit 0"
    done = agentd("--memory-max", "16M", "--", "sh", "-c", script)
    assert done.code == 0
    last = done.stderr.splitlines()[-1]
    assert "completed (ok)" in last
    assert "killed at the memory limit" in last


def test_files_in_shared_memory_count(supervisor: Supervisor, tmpfs: str) -> None:
    script = (
        f"dd if=/dev/zero of={tmpfs}/x bs=1M count=12 && exec dd if=/dev/zero of={tmpfs}/y bs=1M count=12"
    )
    child = supervisor.spawn(["sh", "-c", script], limits=Limits(memory_max="16M"), stderr=DEVNULL)
    report = child.wait(20)
    assert (report.verdict.cause, report.verdict.scope) == ("memory", "leaf")
    # The files hold on to the memory; the leaf is gone all the same.
    assert report.teardown.complete
    assert report.teardown.leaf_removed


@pytest.fixture
def tmpfs() -> Iterator[str]:
    import os
    import shutil
    import tempfile

    if not os.path.isdir("/dev/shm"):
        pytest.skip("no tmpfs at /dev/shm here")
    folder = tempfile.mkdtemp(dir="/dev/shm")
    yield folder
    shutil.rmtree(folder)
