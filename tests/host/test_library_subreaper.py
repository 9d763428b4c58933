"""Embedded in a child subreaper: orphans of our leaves are reaped, foreign zombies are left to their owner."""

from __future__ import annotations

from tests.support import embedding, leftovers

PROGRAM = """
import os, subprocess, sys, time
import agentd
from agentd.linux import prctl, proc

prctl.set_subreaper(True)
# A foreign zombie of the program's own, and one that it was handed.
mine = subprocess.Popen(["sh", "-c", "exit 7"])
handed = int(subprocess.check_output(["sh", "-c", "sh -c 'sleep 0.2; exit 8' >/dev/null & echo $!"]))
wait = lambda pid: os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
wait(mine.pid)
wait(handed)

def zombies():
    return {stat.pid for stat in proc.all_stats() if stat.ppid == os.getpid() and stat.state == "Z"}

assert zombies() == {mine.pid, handed}, zombies()
with agentd.Supervisor(sys.argv[1]) as supervisor:
    for number in range(20):
        # Killed with the leaf, and dead before their command: both are handed to us.
        script = "setsid sleep 1000 & (sh -c 'exit 9' & exit 0); sh -c 'setsid true & exit 0'; exit 5"
        report = supervisor.spawn(["sh", "-c", script]).wait(timeout=20)
        assert report.verdict.code == 5
        assert report.teardown.complete
        assert zombies() == {mine.pid, handed}, (number, zombies(), mine.pid, handed)
assert mine.wait() == 7
assert os.waitstatus_to_exitcode(os.waitpid(handed, 0)[1]) == 8
try:
    assert os.waitpid(-1, os.WNOHANG) == (0, 0)  # the keeper, at the most
except ChildProcessError:
    pass
print("nothing is left")
"""


def test_orphans_of_ours_are_reaped_and_foreign_zombies_are_not(cgroup_root: str) -> None:
    said = embedding.run(PROGRAM, cgroup_root)
    assert said.split() == ["nothing", "is", "left"]
    assert leftovers.leaves(cgroup_root) == []
