"""Swap does not hide the memory limit, unless it is asked to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agentd.cgroup.limits import Limits
from agentd.process.streams import DEVNULL
from agentd.process.supervisor import Supervisor

from . import appetite


@pytest.fixture(autouse=True)
def _swap(needs: Callable[..., None]) -> None:
    needs("memory")
    if len(Path("/proc/swaps").read_text().splitlines()) < 2:
        pytest.skip("no swap space here (scripts/kernel --swap gives some)")


def test_none_is_used_by_default(supervisor: Supervisor) -> None:
    report = supervisor.spawn(appetite.memory("32M"), limits=Limits(memory_max="16M")).wait(60)
    assert report.verdict.cause == "memory"
    assert report.limits.in_force["memory_swap_max"] == "0"


def test_as_much_as_was_asked_for(supervisor: Supervisor) -> None:
    limits = Limits(memory_max="16M", memory_swap_max="32M")
    report = supervisor.spawn(appetite.memory("32M"), limits=limits, stderr=DEVNULL).wait(60)
    assert report.verdict.cause == "ok"
    assert report.limits.in_force["memory_swap_max"] == str(32 << 20)
    report = supervisor.spawn(appetite.memory("64M"), limits=limits, stderr=DEVNULL).wait(60)
    assert report.verdict.cause == "memory"
