"""Prints `size ROWS COLUMNS` of its terminal at once and whenever SIGWINCH says that it changed; a line of
input ends it."""

import os
import select
import signal

reading, writing = os.pipe2(os.O_NONBLOCK)
signal.set_wakeup_fd(writing)
signal.signal(signal.SIGWINCH, lambda _number, _frame: None)


def show() -> None:
    size = os.get_terminal_size(0)
    print("size", size.lines, size.columns, flush=True)


show()
poller = select.poll()
poller.register(0, select.POLLIN)
poller.register(reading, select.POLLIN)
while True:
    ready = [fd for fd, _ in poller.poll()]
    if reading in ready:
        os.read(reading, 64)
        show()
    if 0 in ready:
        break
