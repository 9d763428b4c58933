"""What a long-lived program sees: nothing grows from one run to the next."""

from __future__ import annotations

import pytest

from tests.support import embedding, leftovers

CYCLES = """
import gc, os, sys, threading
import agentd

cycles, root = int(sys.argv[1]), sys.argv[2]

def descriptors():
    return sorted(os.listdir("/proc/self/fd"))

def resident():
    gc.collect()
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def drop(_data):
    pass

def cycle(number):
    with agentd.Supervisor(root) as supervisor:
        ended = supervisor.spawn(["sh", "-c", "echo hi; sleep 1000 & exit 3"], stdout=agentd.Capture(),
                                 stderr=agentd.Capture(sink=drop), on_exit=drop)
        supervisor.spawn(["sleep", "1000"], tty=number % 2 == 0, stdout=agentd.Capture(sink=drop))
        supervisor.spawn(["sleep", "1000"], limits=agentd.Limits(wall=1000, cpu_time=1000)).stop(grace=0.001)
        for wrong in (["/no/such/program"], [b"/bin"], ["true", "x" * (1 << 18)]):
            try:
                supervisor.spawn(wrong, stdout=agentd.Capture(), stderr=agentd.Capture(sink=drop))
            except agentd.StartError:
                pass
        supervisor._place.throttled = True  # and the fork-style clone's ways
        assert supervisor.spawn(["true"]).wait(timeout=30).ok
        try:
            supervisor.spawn(["/no/such/program"], stdout=agentd.Capture())
        except agentd.StartError as error:
            assert error.exit_code == 127
        assert ended.wait(timeout=30).verdict.code == 3

for number in range(20):
    cycle(number)
relays = lambda: [thread for thread in threading.enumerate() if thread.name == "agentd-relay"]
for relay in relays():
    relay.join(20)
before = descriptors(), threading.active_count(), os.listdir(root)
memory = resident()
for number in range(cycles):
    cycle(number)
for relay in relays():
    relay.join(20)
assert (descriptors(), threading.active_count(), os.listdir(root)) == before
grown = resident() - memory
assert grown < (2 << 20) + cycles * 2000, grown
from agentd.process.reaper import shared
loop = shared()
assert not loop._children and not loop._routes and not loop._leaf_routes and not loop._streams
assert len(loop.timers) <= 200, len(loop.timers)
print("grown by", grown)
"""


@pytest.mark.parametrize("cycles", [15, pytest.param(200, marks=pytest.mark.default)])
def test_nothing_grows(cycles: int, cgroup_root: str) -> None:
    """B22, B69, B93, B99: descriptors, leaves, threads and memory, on every way that a run can go."""
    print(embedding.run(CYCLES, str(cycles), cgroup_root))
    assert leftovers.leaves(cgroup_root) == []
