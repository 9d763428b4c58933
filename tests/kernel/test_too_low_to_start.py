"""A limit that lets nothing execute: said as that, and not as a missing command or a long argument list.

Between 20 and 36 KiB the kernel of User-Mode Linux panics when a process is set up (seen with 6.1: no memory
for its own page in the new address space): no test goes there.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agentd.cgroup.limits import Limits
from agentd.errors import StartError
from agentd.process.streams import DEVNULL
from agentd.process.supervisor import Supervisor
from tests.support.runs import Agentd

Needs = Callable[..., None]
KIB = 1024
LONG = {"PADDING": "x" * 60_000}
"""An environment that the kernel cannot copy into less: the refusal is then sure to come from there."""


@pytest.mark.parametrize("limit", [4 * KIB, 8 * KIB, 16 * KIB])
def test_the_arguments_cannot_be_copied(needs: Needs, supervisor: Supervisor, limit: int) -> None:
    """The kernel says E2BIG as often as ENOMEM: it found no page to put the first word in."""
    needs("memory")
    with pytest.raises(StartError, match="memory limit is too low to start it") as refusal:
        supervisor.spawn(["/bin/true"], limits=Limits(memory_max=limit), env=LONG)
    assert (refusal.value.stage, refusal.value.exit_code) == ("exec", 125)
    assert supervisor.children == []


def test_a_list_that_is_too_long_is_still_called_that(needs: Needs, supervisor: Supervisor) -> None:
    needs("memory")
    with pytest.raises(StartError, match="argument list too long") as refusal:
        supervisor.spawn(["/bin/true", "x" * (1 << 18)], limits=Limits(memory_max="64M"))
    assert refusal.value.exit_code == 126


@pytest.mark.parametrize("limit", [48 * KIB, 64 * KIB, 96 * KIB])
def test_killed_before_its_first_instruction(needs: Needs, supervisor: Supervisor, limit: int) -> None:
    needs("memory")
    report = supervisor.spawn(["/bin/true"], limits=Limits(memory_max=limit)).wait(20)
    assert (report.exit_code, report.verdict.exit, report.verdict.cause) == (125, "failed", "start")
    assert report.verdict.scope == "leaf"
    assert report.teardown.complete


@pytest.mark.parametrize("limit", ["4096", "64K"])
def test_the_command_line_says_it_in_one_line(needs: Needs, agentd: Agentd, limit: str) -> None:
    needs("memory")
    done = agentd("--memory-max", limit, "--", "/bin/true")
    assert done.code == 125
    assert done.report["verdict"]["cause"] == "start"
    assert "too low to start it" in done.line


def test_a_program_that_starts_is_not_said_to_be_too_low(needs: Needs, supervisor: Supervisor) -> None:
    needs("memory")
    report = supervisor.spawn(["dd", "if=/dev/zero", "of=/dev/null", "bs=8M", "count=1"],
                              limits=Limits(memory_max="2M")).wait(20)  # fmt: skip
    assert (report.exit_code, report.verdict.cause) == (137, "memory")


def test_no_room_for_the_first_process(needs: Needs, cgroup_root: str) -> None:
    """pids.max above the leaf is reached: a refusal of the clone, and no fault of the command."""
    needs("pids")
    with Supervisor(cgroup_root, total=Limits(pids_max=1)) as supervisor:
        first = supervisor.spawn(["sleep", "1000"])
        with pytest.raises(StartError, match=r"clone.*EAGAIN.*pids\.max") as refusal:
            supervisor.spawn(["true"])
        assert (refusal.value.stage, refusal.value.exit_code) == ("clone", 125)
        assert supervisor.children == [first]


def test_room_for_one_process_alone(needs: Needs, supervisor: Supervisor) -> None:
    needs("pids")
    assert supervisor.spawn(["true"], limits=Limits(pids_max=1)).wait(20).verdict.cause == "ok"
    refused = supervisor.spawn(["sh", "-c", "true & wait"], limits=Limits(pids_max=1), stderr=DEVNULL).wait(
        20
    )
    assert refused.verdict.cause == "error"
    pids = refused.usage["pids"]
    assert isinstance(pids, dict)
    assert (pids["peak"], pids["max_hits"] >= 1) == (1, True)
