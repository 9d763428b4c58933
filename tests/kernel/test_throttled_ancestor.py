"""G32: below a tight cpu.max the fork-style clone is used, so that nobody waits for the child's turn to execute."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agentd.errors import StartError
from agentd.linux.birth import Style
from agentd.process.streams import Capture
from agentd.process.supervisor import Supervisor


def test_the_fork_style_is_used_and_works(cgroup_root: str, needs: Callable[..., None]) -> None:
    needs("cpu")
    with Supervisor(cgroup_root):  # has the controllers enabled
        Path(cgroup_root, "cpu.max").write_text("5000 100000\n")
        with Supervisor(f"{cgroup_root}/tight") as supervisor:
            spinner = supervisor.spawn(["sh", "-c", "while :; do :; done"])
            assert spinner._attempt.style is Style.FORK
            child = supervisor.spawn(["sh", "-c", "echo hi; exit 3"], stdout=Capture())
            assert child.enforcement.placement == "born"
            report = child.wait(timeout=120)
            assert (report.verdict.code, report.tails["stdout"].tail) == (3, b"hi\n")
            with pytest.raises(StartError) as caught:
                supervisor.spawn(["/no/such/program"])
            assert (caught.value.stage, caught.value.exit_code) == ("exec", 127)
            assert len(supervisor.children) == 1
