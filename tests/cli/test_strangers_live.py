"""Processes outside of the run are nobody's to kill."""

from __future__ import annotations

import signal
import subprocess

from tests.support.runs import Agentd


def test_b08_same_user_same_name(agentd: Agentd) -> None:
    with subprocess.Popen(["sleep", "5555"], start_new_session=True) as outside:
        run = agentd("--timeout", "200ms", "--grace", "100ms", "--", "sh", "-c", "sleep 5555 & sleep 5555")
        assert run.code == 124
        assert outside.poll() is None
        outside.send_signal(signal.SIGKILL)
