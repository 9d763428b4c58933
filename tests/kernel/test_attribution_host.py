"""The machine itself runs out of memory, and no cgroup's limit was hit: only in a guest that is small enough."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentd.process.streams import DEVNULL
from agentd.process.supervisor import Supervisor

pytestmark = pytest.mark.uml
SMALL = 300 << 20

HOG = "a = []\nwhile True: a.append(bytearray(b'x') * (1 << 20))"


def test_a_host_without_memory(supervisor: Supervisor) -> None:
    total = int(Path("/proc/meminfo").read_text().split()[1]) << 10
    if total > SMALL:
        pytest.skip("the guest is too large to be filled: scripts/kernel uml --memory 256M -- pytest …")
    # Of all processes it is to be the one that is taken.
    child = supervisor.spawn(
        ["sh", "-c", 'echo 1000 >/proc/self/oom_score_adj; exec "$@"', "sh", "python3", "-S", "-c", HOG],
        stderr=DEVNULL,
    )
    report = child.wait(100)
    assert (report.verdict.cause, report.verdict.scope, report.verdict.path) == ("memory", "host", None)
    assert report.oom is not None
    assert report.oom.scope == "host"
    assert report.exit_code == 137
    assert report.teardown.complete
    assert not os.path.exists(child.leaf or "")
