"""After os.fork in the embedding program: the copy can make its own Supervisor; what it inherited does nothing."""

from __future__ import annotations

import os

from tests.support import embedding, leftovers

COPY = """
import fcntl, os, sys, traceback
import agentd

root = sys.argv[1]
supervisor = agentd.Supervisor(root)
child = supervisor.spawn(["sleep", "1000"])
captured = supervisor.spawn(["sleep", "1000"], stdout=agentd.Capture(), stderr=agentd.Capture(sink=len))
leaf = child.leaf

def links():
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
        except FileNotFoundError:
            pass
    return found

read, write = os.pipe()
if os.fork() == 0:
    code = 1
    try:
        # The inherited one does nothing, and holds nothing of the runs.
        assert [name for name in links() if "run-" in name or "eventpoll" in name or "pidfd" in name] == [], links()
        supervisor.close()
        child.stop()
        child.kill()
        assert not child.send_signal(9)
        assert child.poll() is None
        for refused in (lambda: supervisor.spawn(["true"]), lambda: child.wait(timeout=0)):
            try:
                refused()
            except agentd.AgentdError as error:
                assert "belongs to process" in str(error), error
            else:
                raise AssertionError("not refused")
        # Its own works.
        with agentd.Supervisor(root) as own:
            assert own.spawn(["sh", "-c", "exit 6"]).wait(timeout=20).verdict.code == 6
        code = 0
    except BaseException:
        traceback.print_exc()
    os.write(write, b"x")
    go = os.open(f"{sys.argv[2]}/go", os.O_RDONLY)  # until the other end was opened
    os._exit(code)
os.read(read, 1)
# The copy lives on: the locks of the leaves are ours alone.
assert child.poll() is None
fds = [os.open(path, os.O_RDONLY) for path in (leaf, captured.leaf)]
for run in (child, captured):
    run.kill()
    assert run.wait(timeout=20).teardown.complete
for fd in fds:
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
os.close(os.open(f"{sys.argv[2]}/go", os.O_WRONLY))
assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
supervisor.close()
"""


def test_a_forked_copy(cgroup_root: str, tmp_path: os.PathLike[str]) -> None:
    os.mkfifo(f"{os.fspath(tmp_path)}/go")
    embedding.run(COPY, cgroup_root, os.fspath(tmp_path))
    assert leftovers.leaves(cgroup_root) == []


POOL = """
import multiprocessing, sys
import agentd

def work(number):
    with agentd.Supervisor(sys.argv[1]) as own:
        return own.spawn(["sh", "-c", f"exit {number}"]).wait(timeout=30).verdict.code

if __name__ == "__main__":
    with agentd.Supervisor(sys.argv[1]) as supervisor:
        child = supervisor.spawn(["sleep", "1000"])
        with multiprocessing.get_context("fork").Pool(3) as pool:
            assert pool.map(work, range(30)) == list(range(30))
        assert child.poll() is None
"""


def test_multiprocessing(cgroup_root: str) -> None:
    embedding.run(POOL, cgroup_root)
    assert leftovers.leaves(cgroup_root) == []
