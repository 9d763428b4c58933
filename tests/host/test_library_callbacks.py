"""Callbacks: each once, in a thread of agentd's own; what they do hurts nobody."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import Any

import pytest

import agentd


def test_it_is_called_once_with_the_report(cgroup_root: str) -> None:
    told: list[tuple[agentd.Report, str]] = []
    called = threading.Event()

    def on_exit(report: agentd.Report) -> None:
        told.append((report, threading.current_thread().name))
        called.set()

    with agentd.Supervisor(cgroup_root) as supervisor:
        child = supervisor.spawn(["sh", "-c", "exit 3"], on_exit=on_exit)
        assert called.wait(20)
        report = child.wait(timeout=0)
    assert told == [(report, "agentd-callbacks")]


@pytest.mark.parametrize("error", [ZeroDivisionError("of the callback"), SystemExit(3), KeyboardInterrupt()])
def test_an_exception_is_shown_and_the_next_is_called(
    error: BaseException, cgroup_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[BaseException] = []
    both = threading.Barrier(2)

    def hook(_kind: type[BaseException], value: BaseException, _trace: TracebackType | None) -> Any:
        shown.append(value)

    def fail(_report: agentd.Report) -> None:
        raise error

    monkeypatch.setattr(sys, "excepthook", hook)
    with agentd.Supervisor(cgroup_root) as supervisor:
        first = supervisor.spawn(["true"], on_exit=fail)
        assert first.wait(timeout=20).ok
        supervisor.spawn(["true"], on_exit=lambda _report: both.wait(20) and None)
        both.wait(20)
    assert shown == [error]


def test_one_that_blocks_delays_no_deadline(cgroup_root: str) -> None:
    blocked, go = threading.Event(), threading.Event()

    def block(_report: agentd.Report) -> None:
        blocked.set()
        assert go.wait(60)

    with agentd.Supervisor(cgroup_root) as supervisor:
        supervisor.spawn(["true"], on_exit=block)
        assert blocked.wait(20)
        began = time.monotonic()
        limits = agentd.Limits(wall=0.2)
        reports = [
            child.wait(timeout=20)
            for child in [supervisor.spawn(["sleep", "1000"], limits=limits, grace=0.1) for _ in range(5)]
        ]
        took = time.monotonic() - began
        go.set()
    assert {report.verdict.cause for report in reports} == {"deadline"}
    assert took < 10


def test_one_may_use_the_supervisor_and_close_it(cgroup_root: str) -> None:
    done: list[Any] = []
    called = threading.Event()

    def on_exit(_report: agentd.Report) -> None:
        done.append(supervisor.spawn(["sh", "-c", "exit 8"]).wait(timeout=20).verdict.code)
        supervisor.close()
        called.set()

    supervisor = agentd.Supervisor(cgroup_root)
    other = supervisor.spawn(["sleep", "1000"])
    supervisor.spawn(["true"], on_exit=on_exit)
    assert called.wait(30)
    assert done == [8]
    assert other.wait(timeout=0).verdict.cause == "parent"
