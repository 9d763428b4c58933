"""What a report says of memory beside the verdict: partial kills, files in tmpfs, and other killers' marks."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator

import pytest

from agentd.cgroup.limits import Limits
from agentd.process.streams import DEVNULL
from agentd.process.supervisor import Supervisor
from tests.support.runs import Agentd

from . import appetite

MIB = 1 << 20
Needs = Callable[..., None]


@pytest.fixture
def tmpfs() -> Iterator[str]:
    if not os.path.isdir("/dev/shm"):
        pytest.skip("no tmpfs at /dev/shm here")
    folder = tempfile.mkdtemp(dir="/dev/shm")
    yield folder
    shutil.rmtree(folder)


def _fill(folder: str, then: str) -> str:
    first = f"dd if=/dev/zero of={folder}/x bs=1M count=12 status=none"
    return f"{first}; {then} dd if=/dev/zero of={folder}/y bs=1M count=12 status=none"


def test_b51_files_in_tmpfs_are_named(needs: Needs, supervisor: Supervisor, tmpfs: str) -> None:
    needs("memory")
    child = supervisor.spawn(
        ["sh", "-c", _fill(tmpfs, "exec")], limits=Limits(memory_max="16M"), stderr=DEVNULL
    )
    report = child.wait(30)
    assert (report.verdict.cause, report.verdict.scope) == ("memory", "leaf")
    assert report.oom is not None
    assert report.oom.shmem is not None
    assert 12 * MIB <= report.oom.shmem <= 16 * MIB
    assert any("tmpfs" in line and str(report.oom.shmem) in line for line in report.verdict.evidence)


def test_b51_from_the_command_line(needs: Needs, agentd: Agentd, tmpfs: str) -> None:
    """The writer is killed, its shell is not."""
    needs("memory")
    done = agentd("--memory-max", "16M", "--", "sh", "-c", _fill(tmpfs, ""))
    assert done.code == 137
    assert (done.report["verdict"]["cause"], done.report["oom"]["scope"]) == ("error", "leaf")
    assert 12 * MIB <= done.report["oom"]["shmem"] <= 16 * MIB
    assert "in tmpfs files and shared memory" in done.stderr.splitlines()[-1]


def test_memory_of_its_own_is_none_of_it(needs: Needs, supervisor: Supervisor) -> None:
    needs("memory")
    report = supervisor.spawn(appetite.memory("64M"), limits=Limits(memory_max="16M")).wait(30)
    assert report.oom is not None
    assert report.oom.to_dict() == {"scope": "leaf", "path": None, "group": False, "shmem": 0}
    assert not any("tmpfs" in line for line in report.verdict.evidence)


def test_b44_a_partial_kill_is_a_fact_and_a_group_kill_a_verdict(needs: Needs, agentd: Agentd) -> None:
    needs("memory")
    script = f"{appetite.shell_memory('64M')}; echo rc=$?; exit 0"
    done = agentd("--memory-max", "16M", "--", "sh", "-c", script)
    assert (done.code, done.stdout) == (0, "rc=137\n")
    assert done.report["verdict"]["cause"] == "ok"
    assert (done.report["oom"]["scope"], done.report["oom"]["group"]) == ("leaf", False)
    assert "killed at the memory limit (leaf)" in done.stderr
    done = agentd("--memory-max", "16M", "--oom-group", "--", "sh", "-c", script)
    assert (done.code, done.stdout) == (137, "")
    assert done.report["verdict"]["cause"] == "memory"
    assert done.report["oom"]["group"] is True


@pytest.mark.parametrize("marked", [True, False], ids=["systemd-oomd", "stranger"])
def test_a_strangers_kill(supervisor: Supervisor, marked: bool) -> None:
    """systemd-oomd's SIGKILL is told from others by its mark on the cgroup (systemd#25376)."""
    child = supervisor.spawn(["sleep", "1000"])
    assert child.leaf is not None
    if marked:
        try:
            os.setxattr(child.leaf, "user.oomd_kill", b"1")
        except OSError as error:
            pytest.skip(f"no user.* attributes on cgroups here: {error.strerror}")
    os.kill(child.pid, signal.SIGKILL)
    report = child.wait(20)
    if marked:
        assert (report.verdict.cause, report.verdict.scope, report.exit_code) == ("memory", "host", 137)
        assert any("systemd-oomd" in line for line in report.verdict.evidence)
    else:
        assert (report.verdict.exit, report.verdict.cause, report.exit_code) == ("crashed", "signal", 137)
    assert report.oom is None


def test_a_mark_on_a_run_that_ended_otherwise(supervisor: Supervisor) -> None:
    child = supervisor.spawn(["sh", "-c", "read go; exit 4"], stdin=(pipe := os.pipe())[0])
    os.close(pipe[0])
    assert child.leaf is not None
    try:
        os.setxattr(child.leaf, "user.oomd_kill", b"1")
    except OSError as error:
        pytest.skip(f"no user.* attributes on cgroups here: {error.strerror}")
    finally:
        os.close(pipe[1])
    report = child.wait(20)
    assert (report.verdict.cause, report.verdict.code) == ("error", 4)
