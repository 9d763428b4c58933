"""Signals as records: signalfd_siginfo of signalfd(2)."""

from __future__ import annotations

import os
import signal
import struct
import threading

from hypothesis import given
from hypothesis import strategies as st

from agentd.linux import signalfd
from agentd.linux.signalfd import Arrived

SI_USER, SI_KERNEL, SI_TKILL = 0, 128, -6


def record(number: int, code: int, sender: int) -> bytes:
    return struct.pack("=IiiIII", number, 0, code, sender, 0, 0).ljust(128, b"\xaa")


@given(
    records=st.lists(
        st.tuples(
            st.integers(1, 64), st.sampled_from([SI_USER, SI_TKILL, SI_KERNEL, -1]), st.integers(0, 2**22)
        ),
        max_size=5,
    ),
    rest=st.binary(max_size=127),
)
def test_records(records: list[tuple[int, int, int]], rest: bytes) -> None:
    """What the kernel made has no sender, whatever stands there; half a record is none."""
    data = b"".join(record(*one) for one in records) + rest
    expected = [
        Arrived(number, 0 if code == SI_KERNEL else sender, code == SI_KERNEL)
        for number, code, sender in records
    ]
    assert signalfd.parse(data) == expected


def test_the_mask_is_the_kernels() -> None:
    assert signalfd.mask_of([1, 2, 64]) == 0b11 | 1 << 63
    assert signalfd.mask_of([]) == 0


def test_a_real_signal_tells_its_sender() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    fd = signalfd.open_signalfd([signal.SIGUSR1])
    try:
        assert signalfd.read(fd) == []
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        assert signalfd.read(fd) == [Arrived(signal.SIGUSR1, os.getpid(), False)]
        assert not os.get_inheritable(fd)
    finally:
        os.close(fd)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
