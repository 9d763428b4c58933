"""Descriptors held back: lent when none is to be had, and taken back."""

from __future__ import annotations

import errno
import os
import resource

import pytest

from agentd.process.spares import Spares, are_missing


def take_all(taken: list[int]) -> None:
    while True:
        taken.append(os.dup(0))


def test_lent_and_taken_back() -> None:
    spares = Spares()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 20, hard))
    try:
        with pytest.raises(OSError, match="Too many open files") as caught:
            take_all(taken)
        assert are_missing(caught.value)
        with spares.lent():
            assert spares.held == ()
            inside = [os.dup(0) for _ in range(3)]
            with pytest.raises(OSError, match="Too many open files"):
                os.dup(0)
        assert spares.held == ()
        for fd in (*inside, taken.pop()):
            os.close(fd)
        spares.fill()
        assert len(spares.held) == 3
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in (*taken, *spares.held):
            os.close(fd)


def test_what_says_that_they_are_missing() -> None:
    assert are_missing(OSError(errno.ENFILE, ""))
    assert not are_missing(OSError(errno.ENOENT, ""))
    assert not are_missing(ValueError())
