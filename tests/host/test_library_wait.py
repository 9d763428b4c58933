"""Waiting tells the end, and changes nothing of what it waits for."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

import agentd
from tests.support import embedding
from tests.support.embedding import Ready


def test_a_wait_that_times_out_hurts_nothing(cgroup_root: str) -> None:
    read, write = os.pipe()
    with agentd.Supervisor(cgroup_root) as supervisor:
        child = supervisor.spawn(["sh", "-c", "read line; exit 7"], stdin=read)
        os.close(read)
        for timeout in (0, 0.01, 0.0, -1):
            with pytest.raises(TimeoutError, match=r"sh \(pid \d+\) has not ended"):
                child.wait(timeout=timeout)
        assert child.poll() is None
        assert child.report is None
        os.write(write, b"go\n")
        report = child.wait(timeout=10)
    os.close(write)
    assert (report.verdict.cause, report.verdict.code) == ("error", 7)
    assert report.verdict.code == 7
    assert report.events == ()


def test_any_number_of_threads_get_the_same_report(cgroup_root: str) -> None:
    read, write = os.pipe()
    got: list[agentd.Report] = []
    with agentd.Supervisor(cgroup_root) as supervisor:
        child = supervisor.spawn(["sh", "-c", "read line"], stdin=read)
        os.close(read)
        waiters = [threading.Thread(target=lambda: got.append(child.wait(30))) for _ in range(8)]
        for waiter in waiters:
            waiter.start()
        os.write(write, b"go\n")
        for waiter in waiters:
            waiter.join()
    os.close(write)
    assert len(got) == 8
    assert all(report is child.report for report in got)


def test_an_interrupt_during_a_wait_hurts_nothing() -> None:
    said = embedding.run(
        """
        import os, signal, threading
        import agentd

        read, write = os.pipe()
        with agentd.Supervisor() as supervisor:
            child = supervisor.spawn(["sh", "-c", "read line; exit 3"], stdin=read)
            main = threading.main_thread().ident
            interrupt = threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGINT))
            interrupt.start()
            try:
                child.wait()
            except KeyboardInterrupt:
                print("interrupted", child.poll())
            interrupt.join()
            os.write(write, b"go\\n")
            print(child.wait(10).verdict.code)
        """
    )
    assert said.split() == ["interrupted", "None", "3"]


def test_a_signal_that_was_passed_on_is_no_intent(cgroup_root: str) -> None:
    ready = Ready()
    with agentd.Supervisor(cgroup_root) as supervisor:
        child = supervisor.spawn(
            ["sh", "-c", "trap 'echo got; exit 0' USR1; echo ready; while :; do sleep 0.01; done"],
            stdout=agentd.Capture(sink=ready),
        )
        ready.wait()
        assert child.send_signal(signal.SIGUSR1)
        report = child.wait(timeout=10)
        assert not child.send_signal(signal.SIGUSR1)
        assert not child.send_signal_to_group(signal.SIGUSR1)
    assert report.verdict.cause == "ok"
    assert report.tails["stdout"].tail == b"ready\ngot\n"


def test_a_child_that_died_of_a_signal_of_its_own(cgroup_root: str) -> None:
    with agentd.Supervisor(cgroup_root) as supervisor:
        report = supervisor.spawn(["sh", "-c", "kill -9 $$"]).wait(timeout=10)
    assert (report.verdict.exit, report.verdict.cause, report.verdict.signal) == ("crashed", "signal", 9)
    assert report.exit_code == 137


def test_durations_are_of_the_command(cgroup_root: str) -> None:
    before = time.time()
    with agentd.Supervisor(cgroup_root) as supervisor:
        report = supervisor.spawn(["sleep", "0.2"]).wait(timeout=10)
    assert 0.2 <= report.duration < 5
    assert before <= report.started <= report.ended <= time.time()
