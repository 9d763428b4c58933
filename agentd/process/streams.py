"""What becomes of a child's standard streams, and how much of them is kept."""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Callable

from agentd.errors import UsageError
from agentd.process.tail import Tail

DEVNULL = -3  # the values that subprocess gives these names
STDOUT = -2

Sink = int | Callable[[bytes], object]

_CHUNK = 65536


class Capture:
    """Read a stream of the child: keep its last ``tail`` bytes for the report and, with ``sink``, pass every
    byte on, to a descriptor or a callable, in order. A sink that blocks holds up the child, and nothing else:
    it is served by a thread of its own. Memory is constant in either case.

    Not promised: what is written after the run's end, or more than two seconds of a sink's slowness then; the
    report's tail says whether it is complete.
    """

    __slots__ = ("sink", "tail")

    def __init__(self, tail: int = 65536, sink: Sink | None = None) -> None:
        if isinstance(tail, bool) or not isinstance(tail, int) or not 0 <= tail <= 1 << 30:
            raise UsageError(f"tail {tail!r} is not a number of bytes from 0 to 1 GiB")
        if sink is not None and not isinstance(sink, int) and not callable(sink):
            raise UsageError(f"sink {sink!r} is neither a descriptor nor a callable")
        self.tail = tail
        self.sink = sink

    def __repr__(self) -> str:
        return f"Capture(tail={self.tail}, sink={self.sink!r})"


Target = int | Capture | None


class Reading:
    """One captured stream: its tail, and whether its end was reached. ``touched`` is told of every arrival.

    Without a sink the loop reads it (`read_ready`), with one a thread does (`start_relay`).
    """

    __slots__ = (
        "_closing",
        "_stop_fd",
        "at_end",
        "fd",
        "lost",
        "sink",
        "tail",
        "terminal",
        "thread",
        "touched",
    )

    def __init__(
        self, fd: int, capture: Capture, touched: Callable[[], None], *, terminal: bool = False
    ) -> None:
        self.fd = fd
        self.sink = capture.sink
        self.tail = Tail(capture.tail)
        self.touched = touched
        self.terminal = terminal
        self.at_end = False
        self.lost = False
        self.thread: threading.Thread | None = None
        self._stop_fd = -1
        self._closing = threading.Lock()

    def read_ready(self) -> None:
        """Take what is there, a bounded amount; at the end, close. Raises nothing."""
        try:
            data = os.read(self.fd, _CHUNK)
        except BlockingIOError:
            return
        except OSError:  # EIO: the last holder of a pseudo-terminal closed it
            data = b""
        if data:
            self.touched()
            self.tail.feed(data)
        else:
            self.at_end = True

    def start_relay(self, ended: Callable[[], None]) -> None:
        """Copy to the sink in a thread until the end; then call ``ended`` in it. From here on the descriptor is
        that thread's to close. Raises OSError, RuntimeError."""
        self._stop_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        thread = threading.Thread(target=self._relay, args=(ended,), name="agentd-relay", daemon=True)
        try:
            thread.start()
        except BaseException:
            os.close(self._stop_fd)
            self._stop_fd = -1
            raise
        self.thread = thread

    def _relay(self, ended: Callable[[], None]) -> None:
        # None of the process's handlers is ever to run here: it may sit in a sink for long.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        poller = select.poll()
        poller.register(self.fd, select.POLLIN)
        poller.register(self._stop_fd, select.POLLIN)
        try:
            while not any(fd == self._stop_fd for fd, _ in poller.poll()):
                try:
                    data = os.read(self.fd, _CHUNK)
                except OSError:  # EIO: the last holder of a pseudo-terminal closed it
                    data = b""
                if not data:
                    self.at_end = True
                    break
                self.touched()
                self.tail.feed(data)
                if not self.lost:
                    self._pass_on(data)
        finally:
            with self._closing:
                for fd in (self.fd, self._stop_fd):
                    os.close(fd)
                self.fd = self._stop_fd = -1
            ended()

    def _pass_on(self, data: bytes) -> None:
        """To the sink. One that fails is not asked again; the child's output is read on, so it does not hang."""
        sink = self.sink
        try:
            if isinstance(sink, int):
                view = memoryview(data)
                while view:
                    try:
                        view = view[os.write(sink, view) :]
                    except BlockingIOError:  # somebody else's O_NONBLOCK, on a pipe that we share
                        room = select.poll()
                        room.register(sink, select.POLLOUT)
                        room.poll()
            elif sink is not None:
                sink(data)
        except BaseException:  # SystemExit, too, ends the sink and not the relay
            self.lost = True

    def close(self) -> None:
        """Close our end, at once or, with a relay, as soon as its sink lets it; it reads no more."""
        with self._closing:
            if self.fd < 0:
                return
            if self.thread is None:
                os.close(self.fd)
                self.fd = -1
            else:
                os.eventfd_write(self._stop_fd, 1)
