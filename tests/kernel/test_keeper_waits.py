"""No wait of an embedding program sees the keeper, or the process that it is made by."""

from __future__ import annotations

import pytest

from tests.support import embedding

pytestmark = pytest.mark.host

ALONE = """
import errno, os, sys, threading, time
import agentd
from agentd.process.reaper import shared

seen, stop = [], threading.Event()

def loop():
    # Whoever waits for any child, all the time.
    while not stop.is_set():
        try:
            seen.append(os.waitpid(-1, os.WNOHANG))
        except ChildProcessError:
            pass

waiting = threading.Thread(target=loop)
waiting.start()
keeper = shared().keeper
for number in range(10):
    shared().start()
    keeper.watch(sys.argv[1], remove=False)
    assert keeper.pid is not None, keeper.problem
    os.kill(keeper.pid, 9)
    until = time.monotonic() + 20
    while keeper.pid is not None and time.monotonic() < until:
        time.sleep(0.001)
    assert keeper.pid is None
stop.set()
waiting.join()
assert [one for one in seen if one != (0, 0)] == [], seen
keeper.watch(sys.argv[1], remove=False)
for options in (0, os.WNOHANG, 0x40000000, -0x80000000):  # __WALL, __WCLONE
    try:
        os.waitpid(-1, options)
    except ChildProcessError as error:
        assert error.errno == errno.ECHILD
    else:
        raise AssertionError("there is a child")
print("no child")
"""


def test_a_program_without_other_children(cgroup_root: str) -> None:
    assert embedding.run(ALONE, cgroup_root).strip() == "no child"


BESIDE = """
import os, subprocess, sys
import agentd

supervisor = agentd.Supervisor(sys.argv[1])
mine = [subprocess.Popen(["sh", "-c", "read x; exit 4"], stdin=subprocess.PIPE) for _ in range(3)]
children = [supervisor.spawn(["sh", "-c", "read x; exit 5"], stdin=agentd.DEVNULL) for _ in range(3)]
reports = [child.wait(20) for child in children]
assert all(report.enforcement.keeper["pid"] for report in reports)
for one in mine:
    one.stdin.close()
ended = set()
while True:
    try:
        pid, status = os.wait()
    except ChildProcessError:
        break
    ended.add((pid, os.waitstatus_to_exitcode(status)))
assert ended == {(one.pid, 4) for one in mine}, (ended, mine)
assert supervisor.spawn(["true"]).wait(20).ok
print("only its own")
"""


def test_a_loop_of_os_wait_ends(cgroup_root: str) -> None:
    assert embedding.run(BESIDE, cgroup_root).strip() == "only its own"


SUBREAPER = """
import os, sys, threading, time
import agentd
from agentd.linux import prctl, proc
from agentd.process.reaper import shared

prctl.set_subreaper(True)
with agentd.Supervisor(sys.argv[1]) as supervisor:
    for number in range(3):
        pid = supervisor.spawn(["true"]).wait(20).enforcement.keeper["pid"]
        os.kill(pid, 9)
        until = time.monotonic() + 20
        while shared().keeper.pid is not None and time.monotonic() < until:
            time.sleep(0.001)
        assert shared().keeper.pid is None
        # A subreaper is handed the keeper: its zombie is nobody else's to reap.
        reaped = threading.Event()
        shared().post(lambda now: reaped.set())
        assert reaped.wait(20)
        assert not [stat for stat in proc.all_stats() if stat.ppid == os.getpid() and stat.state == "Z"]
print("no zombie")
"""


def test_a_dead_keeper_leaves_no_zombie_to_a_subreaper(cgroup_root: str) -> None:
    assert embedding.run(SUBREAPER, cgroup_root).strip() == "no zombie"
