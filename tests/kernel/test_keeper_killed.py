"""The keeper is killed first: the next start does its work, reports say so, and the next child brings another."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable

import pytest

from agentd.process.supervisor import Supervisor
from tests.support import doomed, leftovers
from tests.support.doomed import Doomed
from tests.support.runs import AGENTD

Program = Callable[[str], str]


@pytest.fixture
def orphaned(cgroup_root: str, program: Program) -> list[str]:
    """The leaves of a supervisor whose keeper was killed before it."""
    with Doomed(cgroup_root, 5, program("stubborn")) as supervisor:
        _kill(supervisor.keeper)
        _await(supervisor, "supervisor.children[0].enforcement.keeper['pid'] is None")
        supervisor.signal(signal.SIGKILL)
        supervisor.wait()
    # The commands died by their death signal; what they had started is left.
    left = leftovers.leaves(cgroup_root)
    assert len(left) == 5
    assert doomed.populated(cgroup_root)
    return left


def _kill(pid: int) -> None:
    pidfd = os.pidfd_open(pid)
    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    os.close(pidfd)
    assert doomed.gone(pid)


def _await(supervisor: Doomed, expression: str) -> None:
    doomed.until(lambda: bool(supervisor.ask(expression)), expression)


def test_b18_the_next_start_sweeps(cgroup_root: str, orphaned: list[str]) -> None:
    with Supervisor(cgroup_root) as supervisor:
        assert supervisor.swept is None
        assert supervisor.spawn(["true"]).wait(30).ok
        swept = supervisor.swept
    assert swept is not None
    assert sorted(one.name for one in swept) == orphaned
    assert all(one.removed and not one.problem for one in swept)
    assert {process.name for one in swept for process in one.processes} == {"stubborn"}
    assert leftovers.leaves(cgroup_root) == []


def test_b18_the_next_agentd_run_sweeps(cgroup_root: str, orphaned: list[str]) -> None:
    assert orphaned
    done = subprocess.run(
        [AGENTD, "run", "--cgroup", cgroup_root, "--", "true"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert leftovers.leaves(cgroup_root) == []


def test_b18_the_command_sweeps_and_names(cgroup_root: str, orphaned: list[str]) -> None:
    done = subprocess.run(
        [AGENTD, "cgroup", "sweep", "--cgroup", cgroup_root, "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    told = json.loads(done.stdout)
    assert sorted(leaf["name"] for leaf in told["leaves"]) == orphaned
    assert {process["name"] for leaf in told["leaves"] for process in leaf["processes"]} == {"stubborn"}
    assert not doomed.populated(cgroup_root)
    assert leftovers.leaves(cgroup_root) == []


def test_reports_say_so_and_the_next_child_brings_another(cgroup_root: str) -> None:
    with Doomed(cgroup_root, 1, "sh", "-c", "echo ready; exec sleep 1000") as supervisor:
        first = supervisor.keeper
        _kill(first)
        _await(supervisor, "children[0].enforcement.keeper['pid'] is None")
        told = supervisor.ask("children[0].enforcement.keeper")
        assert told["pid"] is None
        assert "killed" in told["problem"]
        second = supervisor.ask("supervisor.spawn(['sleep', '1000']).enforcement.keeper")
        assert second["problem"] is None
        assert second["pid"] not in (None, first)
        # It looks after what was there before it, too.
        supervisor.signal(signal.SIGKILL)
        assert doomed.gone(second["pid"])
        assert leftovers.leaves(cgroup_root) == []


def test_a_report_of_a_run_that_lost_its_keeper(cgroup_root: str) -> None:
    with Doomed(cgroup_root, 1, "sh", "-c", "echo ready; exec sleep 1000") as supervisor:
        _kill(supervisor.keeper)
        _await(supervisor, "children[0].enforcement.keeper['pid'] is None")
        report = supervisor.ask("(children[0].kill(), children[0].wait(20).to_dict())[1]")
    assert report["enforcement"]["keeper"]["pid"] is None
    assert report["enforcement"]["keeper"]["problem"]
    assert report["verdict"]["cause"] == "operator"


AT_ONCE = """
(os.kill(KEEPER, 9), supervisor.spawn(['true']).wait(20), agentd.Supervisor(OTHER).spawn(['true']).wait(20),
 [supervisor.spawn(['true']).wait(20).ok for _ in range(50)].count(True))[-1]
"""


@pytest.mark.host
def test_runs_right_after_its_death_lose_nothing(cgroup_root: str) -> None:
    """What is told to a dead keeper, or shares its descriptors' numbers, must not be lost."""
    other = f"{cgroup_root}/other"
    with Doomed(cgroup_root, 1, "sh", "-c", "echo ready; exec sleep 1000") as supervisor:
        for _ in range(3):
            keeper = supervisor.keeper
            code = " ".join(AT_ONCE.split()).replace("KEEPER", str(keeper)).replace("OTHER", repr(other))
            assert supervisor.ask(code) == 50
            assert supervisor.keeper != keeper
        last = supervisor.keeper
    assert doomed.gone(last)
