"""agentd itself is killed. COMMAND dies with it at once, by its parent-death signal, whatever the keeper does.

What COMMAND had started, and the leaf, are the keeper's.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Iterator

import pytest

from tests.support import leftovers
from tests.support.runs import Agentd, Run


@pytest.fixture
def agentd_to_kill(agentd: Agentd) -> Iterator[Agentd]:
    agentd.orphans_are_for_pid_1 = True
    yield agentd
    for process in leftovers.carrying(agentd.token):  # the keeper, at its work
        with contextlib.suppress(ProcessLookupError):
            assert _ends(os.pidfd_open(process.pid), 10)
    for name in leftovers.leaves(agentd.root):
        os.rmdir(f"{agentd.root}/{name}")


def _command_of(run: Run) -> int:
    """A pidfd of COMMAND, which says its pid and then stays."""
    return os.pidfd_open(int(run.read_line()))


def _ends(pidfd: int, within: float) -> bool:
    try:
        return bool(select.select([pidfd], [], [], within)[0])
    finally:
        os.close(pidfd)


def test_b18_sigkill_to_agentd_ends_the_command(agentd_to_kill: Agentd) -> None:
    run = agentd_to_kill.start("--", "sh", "-c", "echo $$; exec sleep 987654")
    command = _command_of(run)
    run.signal(signal.SIGKILL)
    assert _ends(command, 1.0)
    assert run.finish().code == -signal.SIGKILL


def test_b79_a_command_that_kills_its_supervisor_dies_with_it(agentd_to_kill: Agentd) -> None:
    # Of the same user, and in the same pid namespace, nothing keeps it from that; a sandbox will.
    read, write = os.pipe()
    run = agentd_to_kill.start(
        "--", "sh", "-c", "echo $$; read go; kill -9 $PPID; exec sleep 987654", stdin=read
    )
    os.close(read)
    with os.fdopen(write, "wb") as gate:
        command = _command_of(run)
        gate.write(b"go\n")
    assert _ends(command, 2.0)
    assert run.finish().code == -signal.SIGKILL


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT])
def test_a_crash_of_agentd_ends_the_command(agentd_to_kill: Agentd, number: signal.Signals) -> None:
    run = agentd_to_kill.start("--", "sh", "-c", "echo $$; exec sleep 987654")
    command = _command_of(run)
    run.signal(number)
    assert _ends(command, 1.0)
    assert run.finish().code == -number
