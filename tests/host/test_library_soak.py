"""Tens of thousands of runs in one process: at the end it is as it was after the thousandth."""

from __future__ import annotations

import pytest

from tests.support import embedding, leftovers

SOAK = """
import gc, os, sys, threading, time
import agentd
from agentd.process.reaper import shared

runs, root = int(sys.argv[1]), sys.argv[2]
supervisor = agentd.Supervisor(root)
handed = []

def count(report):
    handed.append(report.verdict.cause)

def run(number):
    kind = number % 10
    if kind == 7:
        child = supervisor.spawn(["sh", "-c", "echo hello; exit 3"], stdout=agentd.Capture())
    elif kind == 8:
        child = supervisor.spawn(["sleep", "1000"], limits=agentd.Limits(wall=1000))
        child.kill()
    elif kind == 9:
        child = supervisor.spawn(["sh", "-c", "setsid sleep 1000 & exit 4"], on_exit=count)
    else:
        child = supervisor.spawn(["/bin/true"])
    report = child.wait(60)
    assert report.teardown.complete and report.teardown.leaf_removed, report.to_dict()
    assert report.verdict.cause == {7: "error", 8: "operator", 9: "error"}.get(kind, "ok"), report.to_dict()

def state():
    gc.collect()
    resident = int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return sorted(os.listdir("/proc/self/fd")), threading.active_count(), os.listdir(root), resident

since = time.monotonic()
for number in range(1000):
    run(number)
*before, memory = state()
for number in range(1000, runs):
    run(number)
until = time.monotonic() + 20
while len(handed) < runs // 10 and time.monotonic() < until:
    time.sleep(0.01)
assert len(handed) == runs // 10
handed.clear()
*after, now = state()
assert after == before, (before, after)
loop = shared()
assert not loop._children and not loop._routes and not loop._leaf_routes and not loop._streams
grown = now - memory
print(f"{runs} runs in {time.monotonic() - since:.0f} s, memory {memory >> 10} KiB and {grown >> 10} KiB more")
assert grown < 4 << 20, grown
"""


@pytest.mark.parametrize(
    "runs",
    [
        pytest.param(5_000, marks=[pytest.mark.default, pytest.mark.timeout(300)]),
        pytest.param(50_000, marks=[pytest.mark.slow, pytest.mark.timeout(1800)]),
    ],
)
def test_b22_the_end_is_as_the_thousandth(cgroup_root: str, runs: int) -> None:
    print(embedding.run(SOAK, str(runs), cgroup_root, timeout=1700))
    assert leftovers.leaves(cgroup_root) == []
