"""Pausing a run: all of it stands still, its clocks too, and every way on from there works."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agentd.cgroup.limits import Limits
from agentd.errors import AgentdError, CgroupError
from agentd.process.child import Child
from agentd.process.streams import Capture
from agentd.process.supervisor import Supervisor
from tests.support import doomed, leftovers
from tests.support.embedding import Ready

from .cgroup_inside import write

COUNT = 'import os, time\nprint("ready", flush=True)\nwhile True: print("x", end="", flush=True); time.sleep(0.001)'


@pytest.fixture
def stubborn(supervisor: Supervisor, program: Callable[[str], str]) -> Child:
    ready = Ready()
    child = supervisor.spawn([program("stubborn"), "5"], stdout=Capture(sink=ready), grace=0.2)
    ready.wait()
    return child


def _states(child: Child) -> set[str]:
    assert child.leaf is not None
    pids = {int(pid) for pid in Path(child.leaf, "cgroup.procs").read_text().split()}
    return {process.state for process in leftovers.processes() if process.pid in pids}


def _frozen(child: Child) -> bool:
    return "frozen 1" in Path(f"{child.leaf}/cgroup.events").read_text()


def test_all_of_it_stands_still_and_goes_on(supervisor: Supervisor) -> None:
    ready = Ready()
    child = supervisor.spawn(["python3", "-S", "-c", COUNT], stdout=Capture(sink=ready))
    ready.wait()
    for _ in range(3):
        child.pause()
        assert _frozen(child)
        settled = _when_settled(ready)
        child.resume()
        assert not Path(f"{child.leaf}/cgroup.freeze").read_text().startswith("1")
        doomed.until(lambda seen=settled: len(ready.data) > seen + 5, "it goes on")  # type: ignore[misc]
    child.kill()
    report = child.wait(20)
    assert [event.kind for event in report.events if event.kind in ("paused", "resumed")] == [
        "paused",
        "resumed",
    ] * 3
    assert 0 < report.paused < report.duration


def _when_settled(ready: Ready) -> int:
    """How much it has written: what is in the pipe is read, and nothing comes after."""
    while True:
        seen = len(ready.data)
        threading.Event().wait(0.05)
        if len(ready.data) == seen:
            return seen


def test_descendants_wherever_they_went(stubborn: Child) -> None:
    stubborn.pause()
    assert _frozen(stubborn)
    assert "R" not in _states(stubborn)
    assert stubborn.poll() is None


def test_stop_while_paused(supervisor: Supervisor) -> None:
    child = supervisor.spawn(
        ["sh", "-c", 'trap "exit 9" TERM; echo ready; while :; do sleep 0.01; done'], grace=20
    )
    child.pause()
    child.stop()
    report = child.wait(20)
    assert report.verdict.cause == "operator"
    assert report.verdict.code in (9, None)
    assert report.duration < 15
    assert report.teardown.complete


@pytest.mark.parametrize("end", ["stop", "kill", "close"])
def test_a_frozen_leaf_is_killed_and_removed(supervisor: Supervisor, stubborn: Child, end: str) -> None:
    stubborn.pause()
    if end == "stop":
        stubborn.stop()
    elif end == "kill":
        stubborn.kill()
    else:
        supervisor.close()
    report = stubborn.wait(20)
    assert report.verdict.cause == ("parent" if end == "close" else "operator")
    assert report.teardown.complete
    assert report.teardown.leaf_removed
    assert report.duration < 10


def test_the_wall_clock_stands_still(supervisor: Supervisor) -> None:
    child = supervisor.spawn(["sleep", "1000"], limits=Limits(wall=0.2), grace=0)
    child.pause()
    with pytest.raises(TimeoutError):
        child.wait(0.4)
    child.resume()
    report = child.wait(20)
    assert report.verdict.cause == "deadline"
    assert report.paused >= 0.4
    assert report.duration - report.paused >= 0.2
    assert report.duration - report.paused < 0.2 + 2


def test_the_idle_clock_stands_still(supervisor: Supervisor) -> None:
    child = supervisor.spawn(["sleep", "1000"], limits=Limits(idle=0.2), grace=0, stdout=Capture())
    child.pause()
    with pytest.raises(TimeoutError):
        child.wait(0.4)
    child.resume()
    report = child.wait(20)
    assert report.verdict.cause == "idle"
    assert report.paused >= 0.4
    assert report.duration - report.paused >= 0.2


def test_twice_is_once(supervisor: Supervisor) -> None:
    child = supervisor.spawn(["sleep", "1000"])
    child.resume()
    child.pause()
    child.pause()
    child.resume()
    child.resume()
    child.kill()
    kinds = [event.kind for event in child.wait(20).events]
    assert (kinds.count("paused"), kinds.count("resumed")) == (1, 1)


def test_an_ended_run(supervisor: Supervisor) -> None:
    child = supervisor.spawn(["true"])
    child.wait(20)
    with pytest.raises(AgentdError, match="has ended"):
        child.pause()
    child.resume()


def test_without_a_leaf() -> None:
    with Supervisor("off") as supervisor:
        child = supervisor.spawn(["sleep", "1000"])
        with pytest.raises(CgroupError, match="no leaf"):
            child.pause()
        child.resume()


class Slow:
    """In place of `leaf.frozen`: false until it is let."""

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)
        self.let = threading.Event()

    def __call__(self, fd: int) -> bool:
        self.asked.release()
        return self.let.is_set()


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    """Freezing takes its time: something of the run is in the kernel."""
    slow = Slow()
    monkeypatch.setattr("agentd.process.pausing.leaf.frozen", slow)
    return slow


def _pausing(child: Child, timeout: float, ends: list[object]) -> threading.Thread:
    def go() -> None:
        try:
            ends.append(child.pause(timeout))  # type: ignore[func-returns-value]
        except TimeoutError as error:
            ends.append(error)

    thread = threading.Thread(target=go)
    thread.start()
    return thread


def test_two_threads_return_when_all_of_it_is_frozen(supervisor: Supervisor, slow: Slow) -> None:
    child = supervisor.spawn(["sleep", "1000"])
    ends: list[object] = []
    threads = []
    for _ in range(2):
        threads.append(_pausing(child, 20, ends))
        for _ in range(3):
            assert slow.asked.acquire(timeout=20)
    assert ends == []
    slow.let.set()
    for thread in threads:
        thread.join()
    assert ends == [None, None]
    child.kill()
    assert [event.kind for event in child.wait(20).events].count("paused") == 1


def test_a_pause_that_is_taken_back_meanwhile_does_not_wait(supervisor: Supervisor, slow: Slow) -> None:
    child = supervisor.spawn(["sleep", "1000"])
    ends: list[object] = []
    thread = _pausing(child, 20, ends)
    assert slow.asked.acquire(timeout=20)
    child.resume()
    thread.join(10)
    assert ends == [None]


def test_one_that_cannot_be_frozen_runs_on(supervisor: Supervisor, slow: Slow) -> None:
    child = supervisor.spawn(["sleep", "1000"])
    with pytest.raises(TimeoutError, match="in the kernel"):
        child.pause(timeout=0.1)
    assert "0" in Path(f"{child.leaf}/cgroup.freeze").read_text()


def test_pauses_of_runs_that_are_about_to_end(supervisor: Supervisor) -> None:
    """Whenever it comes: frozen, or said to have ended; and every run ends."""
    refused = []
    for number in range(30):
        child = supervisor.spawn(["sleep", str(number % 6 / 1000)])
        try:
            child.pause()
        except AgentdError as error:
            refused.append(str(error))
        child.resume()
        report = child.wait(20)
        assert report.verdict.cause == "ok"
        assert report.teardown.complete
    assert all("has ended" in why for why in refused)


def test_the_supervisor_is_killed_meanwhile(cgroup_root: str, program: Callable[[str], str]) -> None:
    with doomed.Doomed(cgroup_root, 3, program("stubborn")) as dying:
        dying.ask("[child.pause() for child in children]")
        since = time.monotonic()
        dying.signal(9)
        assert doomed.until_empty(cgroup_root, since) <= 2 * doomed.IN_TIME


def test_below_a_frozen_cgroup(cgroup_root: str, supervisor: Supervisor) -> None:
    """Somebody froze all of the subtree: a pause of one's own is one more, and neither thaws the other."""
    child = supervisor.spawn(["sleep", "1000"])
    write(f"{cgroup_root}/cgroup.freeze", "1")
    try:
        child.pause()
        child.resume()
        assert _frozen(child)
        child.kill()
        report = child.wait(20)
    finally:
        write(f"{cgroup_root}/cgroup.freeze", "0")
    assert report.verdict.cause == "operator"
    assert report.teardown.complete
    assert not os.path.exists(child.leaf or "")
