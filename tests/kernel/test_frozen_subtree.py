"""A frozen subtree: nothing is started in it, and nothing waits for its thaw (G33)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agentd.cgroup.limits import Limits
from agentd.errors import StartError
from agentd.process.supervisor import Supervisor
from tests.support.runs import Agentd

from .cgroup_inside import write


def test_it_is_refused(supervisor: Supervisor, cgroup_root: str) -> None:
    write(f"{cgroup_root}/cgroup.freeze", "1")
    with pytest.raises(StartError, match=r"frozen cgroup.*thaw") as refusal:
        supervisor.spawn(["true"])
    assert (refusal.value.stage, refusal.value.exit_code) == ("frozen", 125)
    write(f"{cgroup_root}/cgroup.freeze", "0")
    assert supervisor.spawn(["true"]).wait(20).verdict.cause == "ok"


@pytest.mark.timeout(30)
def test_it_is_refused_too_where_the_child_is_forked(needs: Callable[..., None], cgroup_root: str) -> None:
    needs("cpu")
    with Supervisor(cgroup_root, total=Limits(cpu_max="90%")) as supervisor:
        write(f"{cgroup_root}/cgroup.freeze", "1")
        try:
            with pytest.raises(StartError, match="frozen"):
                supervisor.spawn(["true"], limits=Limits(wall=5))
        finally:
            write(f"{cgroup_root}/cgroup.freeze", "0")


def test_from_the_command_line(agentd: Agentd, cgroup_root: str) -> None:
    write(f"{cgroup_root}/cgroup.freeze", "1")
    done = agentd("--", "true")
    write(f"{cgroup_root}/cgroup.freeze", "0")
    assert done.code == 125
    assert "thaw" in done.line


def test_a_run_that_is_frozen_ends_at_its_deadline(supervisor: Supervisor) -> None:
    child = supervisor.spawn(["sleep", "1000"], limits=Limits(wall=0.5), grace=0.2)
    assert child.leaf is not None
    write(f"{child.leaf}/cgroup.freeze", "1")
    report = child.wait(20)
    assert report.verdict.cause == "deadline"
    assert report.teardown.complete
