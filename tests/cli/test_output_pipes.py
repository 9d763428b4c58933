"""Pipes that outlive the command, and output without end."""

from __future__ import annotations

import os
import time

import pytest

import agentd as library
from agentd.process.streams import Capture
from tests.support import leftovers
from tests.support.runs import Agentd

DRAIN = 2.0


def test_b86_a_grandchild_that_holds_the_pipe(agentd: Agentd) -> None:
    run = agentd("--", "sh", "-c", "sleep 987654 & echo hi")
    assert (run.code, run.stdout) == (0, "hi\n")
    assert run.elapsed < DRAIN + 2


def test_b87_a_grandchild_that_holds_the_pipe_of_the_library(cgroup_root: str) -> None:
    with library.Supervisor(cgroup_root) as supervisor:
        start = time.monotonic()
        child = supervisor.spawn(["sh", "-c", "sleep 987654 & echo hi"], stdout=Capture())
        report = child.wait(timeout=20)
        assert time.monotonic() - start < DRAIN + 1
        assert report.ok
        assert report.tails["stdout"].tail == b"hi\n"
        assert report.tails["stdout"].complete
        assert leftovers.leaves(cgroup_root) == []


@pytest.mark.parametrize("options", [(), ("--idle-timeout", "1h")], ids=["straight through", "relayed"])
def test_b90_a_flood(agentd: Agentd, options: tuple[str, ...]) -> None:
    with open(os.devnull, "wb") as null:
        run = agentd.start("--timeout", "500ms", *options, "--", "yes", stdout=null.fileno())
    peaks = list(iter(run.peak_memory, None))
    assert run.finish().code == 124
    assert 0 < max(peaks) < 100 << 20


def test_b90_a_flood_that_is_captured_says_so(cgroup_root: str) -> None:
    with library.Supervisor(cgroup_root) as supervisor:
        flood = ["sh", "-c", "yes | head -c 20000000; echo the end"]
        report = supervisor.spawn(flood, stdout=Capture(tail=1000)).wait(timeout=60)
    tail = report.to_dict()["tails"]["stdout"]  # type: ignore[index]
    assert report.ok
    assert tail["bytes"] == 20_000_000 + len("the end\n")
    assert tail["truncated"]
    assert tail["tail"].endswith("y\nthe end\n")
    assert len(tail["tail"]) == 1000
