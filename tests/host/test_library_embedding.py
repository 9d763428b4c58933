"""Programs of other kinds around a Supervisor: asyncio, its REPL, an ignored SIGCHLD, handlers, an exit hook."""

from __future__ import annotations

import subprocess
import sys

from tests.support import embedding, leftovers

ASYNCIO = """
import asyncio, sys
import agentd

async def main():
    loop = asyncio.get_running_loop()
    with agentd.Supervisor(sys.argv[1]) as supervisor:
        async def run(code):
            ended = loop.create_future()
            tell = lambda report: loop.call_soon_threadsafe(ended.set_result, report)
            supervisor.spawn(["sh", "-c", f"exit {code}"], on_exit=tell)
            return (await asyncio.wait_for(ended, 30)).verdict.code

        async def wait(code):
            child = await asyncio.to_thread(supervisor.spawn, ["sh", "-c", f"exit {code}"])
            return (await asyncio.to_thread(child.wait, 30)).verdict.code

        async def own(code):
            process = await asyncio.create_subprocess_exec("sh", "-c", f"exit {code}")
            return await process.wait()

        for way in (run, wait, own):
            assert await asyncio.gather(*map(way, range(20))) == list(range(20)), way
        cancelled = asyncio.create_task(asyncio.to_thread(supervisor.spawn(["sleep", "1000"]).wait))
        await asyncio.sleep(0.05)
        cancelled.cancel()
        assert len(supervisor.children) == 1

asyncio.run(main())
print("done")
"""


def test_asyncio(cgroup_root: str) -> None:
    assert embedding.run(ASYNCIO, cgroup_root) == "done\n"
    assert leftovers.leaves(cgroup_root) == []


REPL = """
import agentd
supervisor = agentd.Supervisor({root!r})
child = supervisor.spawn(["sh", "-c", "exit 3"])
report = await asyncio.to_thread(child.wait, 30)
print("code", report.verdict.code)
other = supervisor.spawn(["sleep", "1000"])
print("running", len(supervisor.children))
"""


def test_the_repl_of_asyncio(cgroup_root: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "asyncio"],
        input=REPL.format(root=cgroup_root),
        env=embedding.environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "code 3" in done.stdout, done
    assert "running 1" in done.stdout, done
    assert leftovers.leaves(cgroup_root) == []


IGNORED = """
import os, signal, sys
import agentd

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
with agentd.Supervisor(sys.argv[1]) as supervisor:
    told = []
    for code in range(20):
        report = supervisor.spawn(["sh", "-c", f"setsid sleep 1000 & exit {code}"]).wait(timeout=20)
        assert report.teardown.complete
        assert report.left_behind_count == 1
        told.append(report.verdict.code)
    dies = supervisor.spawn(["sh", "-c", "kill -9 $$"]).wait(timeout=20).verdict
    # The kernel reaps them itself. Where a pidfd keeps the status (Linux 6.15) it is told, else unknown.
    if dies.cause == "unknown":
        assert told == [None] * 20, told
    else:
        assert told == list(range(20)), told
        assert (dies.cause, dies.signal) == ("signal", 9), dies
    # And the child's own children have statuses.
    script = "sh -c 'exit 3'; exit $?"
    code = supervisor.spawn(["sh", "-c", script]).wait(timeout=20).verdict.code
    assert code in (3, None), code
"""


def test_sigchld_is_ignored_in_the_program(cgroup_root: str) -> None:
    """B30, G47: such programs exist, and leave it to what they start."""
    embedding.run(IGNORED, cgroup_root)
    assert leftovers.leaves(cgroup_root) == []


HANDLERS = """
import os, signal, sys, threading
import agentd

seen = []
def handler(number, frame):
    seen.append((number, threading.current_thread() is threading.main_thread()))

for number in (signal.SIGALRM, signal.SIGUSR1, signal.SIGCHLD):
    signal.signal(number, handler)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
with agentd.Supervisor(sys.argv[1]) as supervisor:
    for code in range(100):
        child = supervisor.spawn(["sh", "-c", f"exit {code}"], stdout=agentd.Capture(sink=len))
        os.kill(os.getpid(), signal.SIGUSR1)
        assert child.wait(timeout=20).verdict.code == code
        assert supervisor.spawn(["sh", "-c", f"exit {code}"]).wait(timeout=20).verdict.code == code
signal.setitimer(signal.ITIMER_REAL, 0)
assert {number for number, _ in seen} >= {signal.SIGALRM, signal.SIGUSR1}, set(seen)
assert all(main for _, main in seen)
"""


def test_a_program_with_handlers_and_an_interval_timer(cgroup_root: str) -> None:
    """G75: signals that come all the time, to any thread, break nothing, and agentd's threads take none."""
    embedding.run(HANDLERS, cgroup_root)


CLOSING = """
import os, signal, sys, threading
import agentd

supervisor = agentd.Supervisor(sys.argv[1])

def handler(number, frame):
    supervisor.close()
    raise SystemExit(0)

signal.signal(signal.SIGTERM, handler)
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
while True:
    supervisor.spawn(["sleep", "1000"])
"""


def test_a_handler_may_close_in_the_midst_of_a_spawn(cgroup_root: str) -> None:
    for _ in range(3):
        embedding.run(CLOSING, cgroup_root, timeout=60)
        assert leftovers.leaves(cgroup_root) == []
