"""Many threads, one Supervisor: every wait comes back, whatever numbers the kernel gives to descriptors."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import agentd

large = pytest.mark.default


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Run ``work(number)`` in ``count`` threads; the first exception of any comes out."""
    with ThreadPoolExecutor(count) as pool:
        for done in [pool.submit(work, number) for number in range(count)]:
            done.result()


@pytest.mark.parametrize("runs", [60, pytest.param(400, marks=large)])
def test_a_descriptor_number_passes_from_one_child_to_the_next(runs: int, cgroup_root: str) -> None:
    """A child's pidfd is closed with its reap; the next one, of another thread, gets its number at once. Its
    route must survive the end of the first."""
    with agentd.Supervisor(cgroup_root) as supervisor:

        def work(_number: int) -> None:
            for _ in range(runs):
                assert supervisor.spawn(["/bin/true"]).wait(timeout=30).ok

        in_threads(8, work)
        assert supervisor.children == []


@pytest.mark.parametrize("runs", [4, pytest.param(50, marks=large)])
def test_a_lock_that_other_threads_hold_hangs_no_child(runs: int, cgroup_root: str) -> None:
    """B96: nothing of Python's runs between fork and exec, so no lock of the parent's can be waited for."""
    log = logging.getLogger("agentd-test")
    log.addHandler(logging.NullHandler())
    stop = threading.Event()

    def chatter() -> None:
        handler = log.handlers[0]
        while not stop.is_set():
            with handler.lock or threading.RLock():
                log.error("busy")

    talkers = [threading.Thread(target=chatter) for _ in range(2)]
    for talker in talkers:
        talker.start()
    try:
        with agentd.Supervisor(cgroup_root) as supervisor:

            def work(number: int) -> None:
                for _ in range(runs):
                    log.error("thread %d", number)
                    assert supervisor.spawn(["/bin/true"]).wait(timeout=60).ok

            in_threads(50, work)
    finally:
        stop.set()
        for talker in talkers:
            talker.join()
