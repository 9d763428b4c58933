"""The status is COMMAND's, whatever agentd was started with."""

from __future__ import annotations

import signal
import sys

import pytest

from tests.support.runs import Agentd

IGNORING = """
import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.parametrize("code", [0, 42])
def test_b30_started_with_sigchld_ignored(agentd: Agentd, code: int) -> None:
    run = agentd("--", "sh", "-c", f"exit {code}", prefix=(sys.executable, "-I", "-S", "-c", IGNORING))
    assert run.code == code
    assert run.report["verdict"]["code"] == code


def test_b30_a_signal_with_sigchld_ignored(agentd: Agentd) -> None:
    run = agentd("--", "sh", "-c", "kill -9 $$", prefix=(sys.executable, "-I", "-S", "-c", IGNORING))
    assert run.code == 128 + signal.SIGKILL
    assert run.report["verdict"]["cause"] == "signal"


def test_b30_the_command_has_sigchld_at_its_default(agentd: Agentd) -> None:
    script = "sleep 0 & wait $!; echo $?; false & wait $!; echo $?"
    run = agentd("--", "sh", "-c", script, prefix=(sys.executable, "-I", "-S", "-c", IGNORING))
    assert run.stdout == "0\n1\n"
