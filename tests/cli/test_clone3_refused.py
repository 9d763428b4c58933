"""Container runtimes' seccomp profiles that know no clone3 (B60)."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.support.runs import Agentd, CompletedRun

Deny = tuple[str, ...]


@pytest.fixture(params=[errno.ENOSYS, errno.EPERM], ids=["ENOSYS", "EPERM"])
def deny(request: pytest.FixtureRequest, program: Callable[[str], str]) -> Deny:
    return program("deny"), f"clone3={request.param}", "--"


@pytest.fixture
def no_threads(deny: Deny) -> bool:
    """Whether the C library cannot make a thread there: glibc falls back to clone on ENOSYS alone."""
    thread = "import threading; threading.Thread(target=int).start()"
    return (
        subprocess.run([*deny, sys.executable, "-I", "-c", thread], stderr=subprocess.DEVNULL).returncode != 0
    )


def test_b60_the_child_joins_its_leaf_before_its_exec(agentd: Agentd, deny: Deny, no_threads: bool) -> None:
    run = agentd("--", "sh", "-c", "grep -o 'run-.*' /proc/self/cgroup; sleep 987654 &", prefix=deny)
    if no_threads:
        _is_a_refusal(run)
        return
    assert run.code == 0
    enforcement = run.report["enforcement"]
    assert enforcement["placement"] == "joined"
    assert enforcement["containment"] == "cgroup"
    assert enforcement["leaf"] in run.stdout
    assert any("clone3" in note for note in enforcement["notes"])
    assert run.report["left_behind_count"] == 1


def test_b60_a_missing_command_is_still_told(agentd: Agentd, deny: Deny, no_threads: bool) -> None:
    run = agentd("--", "/nowhere/command", prefix=deny)
    if no_threads:
        _is_a_refusal(run)
        return
    assert run.code == 127
    assert "not found" in run.line


def test_b60_required_refuses(agentd: Agentd, deny: Deny) -> None:
    _is_a_refusal(agentd("--", "true", prefix=deny, cgroup="required"))


def _is_a_refusal(run: CompletedRun) -> None:
    assert run.code == 125
    assert "clone3" in run.line
    assert run.report["exit_code"] == 125
