"""No room for another thread of agentd's own (pids.max, RLIMIT_NPROC): said, or done without."""

from __future__ import annotations

import threading

import pytest

from agentd.errors import StartError
from agentd.process.reaper import Reaper, shared
from agentd.process.report import Report
from agentd.process.supervisor import Supervisor


def refuse(_thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_the_reaper_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    reaper = Reaper()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(StartError, match=r"cannot run a thread.*pids\.max") as refusal:
            reaper.start()
    assert refusal.value.exit_code == 125
    assert reaper._thread is None  # so that it is tried again, once there is room
    reaper.close_in_fork()


def test_the_owner_is_called_all_the_same(supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    shared().start()
    monkeypatch.setattr(shared(), "_callback_ready", None)
    told: list[Report] = []
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        report = supervisor.spawn(["true"], on_exit=told.append).wait(20)
    assert told == [report]
