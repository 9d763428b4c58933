"""Signals as data: blocked, and read from a descriptor with who sent them (signalfd(2))."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from typing import NamedTuple

from agentd._shim import lib

_RECORD = 128
_HEAD = struct.Struct("=IiiIII")  # ssi_signo, ssi_errno, ssi_code, ssi_pid, ssi_uid, ssi_fd
_SI_KERNEL = 128  # asm-generic/siginfo.h: the kernel's own, as for a terminal's Ctrl-C


class Arrived(NamedTuple):
    """``from_kernel``: made by the kernel (a terminal, say), not by a process; then ``sender`` is 0."""

    signal: int
    sender: int
    from_kernel: bool


def mask_of(signals: Iterable[int]) -> int:
    """The kernel's set: bit N-1 is signal N."""
    mask = 0
    for number in signals:
        mask |= 1 << (number - 1)
    return mask


def open_signalfd(signals: Iterable[int]) -> int:
    """A non-blocking, close-on-exec descriptor for ``signals``, which the caller has blocked. Raises OSError."""
    result: int = lib.agentd_signalfd(mask_of(signals))
    if result < 0:
        raise OSError(-result, os.strerror(-result), "signalfd")
    return result


def parse(data: bytes) -> list[Arrived]:
    """The records in what was read from a signalfd."""
    found = []
    for offset in range(0, len(data) - _RECORD + 1, _RECORD):
        signal, _, code, sender, _, _ = _HEAD.unpack_from(data, offset)
        kernel = code == _SI_KERNEL
        found.append(Arrived(signal, 0 if kernel else sender, kernel))
    return found


def read(fd: int) -> list[Arrived]:
    """Everything that is pending now, [] if nothing."""
    try:
        return parse(os.read(fd, _RECORD * 32))
    except BlockingIOError:
        return []
