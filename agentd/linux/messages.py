"""Messages between two processes: SOCK_SEQPACKET sockets (unix(7)), without the import of the socket module."""

from __future__ import annotations

import os

from agentd._shim import ffi, lib


def pair() -> tuple[int, int]:
    """Two connected, close-on-exec descriptors. Raises OSError."""
    ends = ffi.new("int[2]")
    result: int = lib.agentd_message_pair(ends)
    if result < 0:
        raise OSError(-result, os.strerror(-result), "socketpair")
    return int(ends[0]), int(ends[1])


def send(fd: int, message: bytes) -> None:
    """Send one message whole; never a SIGPIPE. Raises OSError: BrokenPipeError where the reader is gone."""
    result: int = lib.agentd_send_message(fd, message, len(message))
    if result < 0:
        raise OSError(-result, os.strerror(-result), "send")
