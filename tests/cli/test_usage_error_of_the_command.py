"""Usage errors as a shell sees them: see test_usage_errors for each option."""

from __future__ import annotations

import os

from tests.support.runs import Agentd


def test_bad_limits(agentd: Agentd) -> None:
    run = agentd("--memory-max", "lots", "--pids-max", "many", "--", "touch", str(agentd.folder / "made"))
    assert run.code == 2
    assert "--memory-max" in run.line
    assert "--pids-max" in run.line
    assert run.given_report is None
    assert os.listdir(agentd.folder) == []


def test_b11_a_name_chooses_no_place(agentd: Agentd) -> None:
    run = agentd("--name", "../../x", "--", "true")
    assert run.code == 2
    assert "--name" in run.line
