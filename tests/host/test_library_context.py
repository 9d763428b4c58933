"""Leaving the context kills and removes everything; so does the program's end."""

from __future__ import annotations

import os
import threading

import pytest

import agentd
from tests.support import embedding, leftovers


def test_leaving_the_context_ends_every_run(cgroup_root: str) -> None:
    with agentd.Supervisor(cgroup_root) as supervisor:
        children = [
            supervisor.spawn(["sh", "-c", "trap '' TERM HUP INT; setsid sleep 1000 & sleep 1000 & wait"])
            for _ in range(5)
        ]
        assert len(supervisor.children) == 5
    reports = [child.report for child in children]
    assert all(report is not None and report.verdict.cause == "parent" for report in reports)
    assert leftovers.leaves(cgroup_root) == []
    assert supervisor.children == []


def test_an_exception_in_the_context_ends_every_run_too(cgroup_root: str) -> None:
    def work() -> None:
        with agentd.Supervisor(cgroup_root) as supervisor:
            children.append(supervisor.spawn(["sleep", "1000"]))
            raise ZeroDivisionError

    children: list[agentd.Child] = []
    with pytest.raises(ZeroDivisionError):
        work()
    assert children[0].report is not None


def test_after_close_nothing_starts(cgroup_root: str) -> None:
    supervisor = agentd.Supervisor(cgroup_root)
    supervisor.close()
    supervisor.close()
    with pytest.raises(agentd.AgentdError, match="closed"):
        supervisor.spawn(["true"])
    assert supervisor.children == []


def test_close_meets_spawns_of_other_threads(cgroup_root: str) -> None:
    """Each spawn either comes before the close, and its child is ended, or is refused. None is left."""
    for _ in range(10):
        supervisor = agentd.Supervisor(cgroup_root)
        spawned: list[agentd.Child] = []
        started = threading.Barrier(5)

        def work(
            supervisor: agentd.Supervisor = supervisor,
            spawned: list[agentd.Child] = spawned,
            started: threading.Barrier = started,
        ) -> None:
            started.wait()
            while True:
                try:
                    spawned.append(supervisor.spawn(["sleep", "1000"]))
                except agentd.AgentdError:
                    return

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        started.wait()
        supervisor.close()
        for thread in threads:
            thread.join()
        assert [child for child in spawned if child.report is None] == []
        assert leftovers.leaves(cgroup_root) == []


UNCLOSED = {
    "held": "supervisor = agentd.Supervisor(sys.argv[1])\nsupervisor.spawn(TREE)",
    "dropped": "agentd.Supervisor(sys.argv[1]).spawn(TREE)\nimport gc; gc.collect()",
    "sys.exit": "supervisor = agentd.Supervisor(sys.argv[1])\nsupervisor.spawn(TREE)\nsys.exit(0)",
}


@pytest.mark.parametrize("how", UNCLOSED)
def test_the_end_of_the_program_ends_what_nobody_closed(how: str, cgroup_root: str) -> None:
    tree = "import sys, agentd\nTREE = ['sh', '-c', 'setsid sleep 1000 & sleep 1000']\n"
    embedding.run(tree + UNCLOSED[how], cgroup_root)
    assert leftovers.leaves(cgroup_root) == []
    left = leftovers.below("/" + os.path.basename(cgroup_root))
    assert [process for process in left if process.state not in "ZX"] == []


def test_a_program_that_is_killed_takes_its_children_along(cgroup_root: str) -> None:
    """By the parent-death signal; what the child itself had started is for the keeper to end."""
    said = embedding.run(
        """
        import os, sys, signal, agentd
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            child = agentd.Supervisor(sys.argv[1]).spawn(["sleep", "1000"])
            os.write(write, str(child.pid).encode())
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(pid, 0)
        print(os.read(read, 100).decode())
        """,
        cgroup_root,
    )
    pidfd = None
    try:
        pidfd = os.pidfd_open(int(said))
    except ProcessLookupError:
        return
    import select

    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    ended = poller.poll(10_000)
    os.close(pidfd)
    assert ended
