"""What a child is born as: signals, session, group, terminal, death signal."""

from __future__ import annotations

import json
import os
import pty
import signal
import threading
from functools import partial
from typing import Any

import pytest

from agentd.linux.birth import Session, Style
from agentd.linux.signalfd import mask_of
from tests.support import embedding
from tests.support.births import STYLES, image, output_of, python, readable, started

STATE = """
import json, os
status = open("/proc/self/status").read()
field = lambda name: int(status.split(name + ":")[1].split()[0], 16)
print(json.dumps({
    "blocked": field("SigBlk"), "ignored": field("SigIgn"), "caught": field("SigCgt"), "pending": field("ShdPnd"),
    "pid": os.getpid(), "ppid": os.getppid(), "session": os.getsid(0), "group": os.getpgrp(),
    "no_new_privs": field("NoNewPrivs"),
}))
"""


def state(style: Style, **options: Any) -> dict[str, int]:
    found: dict[str, int] = json.loads(output_of(partial(python, STATE), style=style, **options))
    return found


@pytest.mark.parametrize("style", STYLES)
def test_the_mask_is_the_callers_or_the_one_asked_for(style: Style) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    try:
        assert state(style)["blocked"] == mask_of([*before, signal.SIGUSR1])
        assert state(style, sigmask=mask_of([signal.SIGUSR2, signal.SIGRTMAX]))["blocked"] == mask_of(
            [signal.SIGUSR2, signal.SIGRTMAX]
        )
        assert state(style, sigmask=0)["blocked"] == 0
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@pytest.mark.parametrize("style", STYLES)
def test_what_was_ignored_stays_so_and_handlers_are_gone(style: Style) -> None:
    """nohup's HUP stays ignored. PIPE and XFSZ, which Python ignores for itself, and CHLD are default."""
    numbers = (signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR1)
    before = {number: signal.getsignal(number) for number in numbers}
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, lambda *_: None)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        listing = partial(image, "/bin/grep", "-E", "^Sig(Ign|Cgt)", "/proc/self/status")
        said = output_of(listing, style=style).split()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    ignored, caught = int(said[1], 16), int(said[3], 16)
    assert ignored & mask_of([signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD]) == mask_of(
        [signal.SIGHUP]
    )
    assert not caught & mask_of([signal.SIGUSR1, signal.SIGINT, signal.SIGTERM])


@pytest.mark.parametrize("style", STYLES)
def test_session_and_group(style: Style) -> None:
    own = state(style, session=Session.NEW_SESSION)
    assert own["session"] == own["group"] == own["pid"]
    group = state(style, session=Session.NEW_GROUP)
    assert group["group"] == group["pid"]
    assert group["session"] == os.getsid(0)
    same = state(style, session=Session.SAME_GROUP)
    assert (same["session"], same["group"]) == (os.getsid(0), os.getpgrp())
    assert {own["ppid"], group["ppid"], same["ppid"]} == {os.getpid()}


@pytest.mark.parametrize("style", STYLES)
def test_no_new_privileges(style: Style) -> None:
    assert state(style)["no_new_privs"] == 0
    assert state(style, no_new_privs=True)["no_new_privs"] == 1


@pytest.mark.parametrize("style", STYLES)
def test_a_terminal_of_its_own(style: Style) -> None:
    """B94: session and controlling terminal are there before the exec."""
    master, slave = pty.openpty()
    code = "import os; print(os.ttyname(0), os.tcgetpgrp(0) == os.getpid(), open('/dev/tty').isatty())"
    try:
        what = python(code, stdio=(slave, slave, slave), terminal=True, session=Session.NEW_SESSION)
        with started(what, style=style) as child:
            assert child.end().code == 0
        said = os.read(master, 1000).decode().split()
        assert said == [os.ttyname(slave), "True", "True"]
    finally:
        os.close(master)
        os.close(slave)


@pytest.mark.parametrize("style", STYLES)
def test_a_thread_that_spawned_may_end(style: Style) -> None:
    """B32: the death signal fires when the *thread* that forked ends; that is the shim's own, for good."""
    pids: list[int] = []
    with_pipe, write = os.pipe()

    def work() -> None:
        context = started(image("/bin/cat", stdio=(with_pipe, -1, -1)), style=style)
        pids.append(context.__enter__().pid)
        contexts.append(context)

    contexts: list[Any] = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    try:
        pidfd = os.pidfd_open(pids[0])
        assert not readable(pidfd, 0.1)
        os.write(write, b"")
        os.close(pidfd)
    finally:
        contexts[0].__exit__(None, None, None)
        os.close(write)
        os.close(with_pipe)


ORPHANING = """
import os, signal, sys
from agentd.linux.birth import Style
from tests.support.births import image, started

read, write = os.pipe()
pid = os.fork()
if pid == 0:
    with started(image("/bin/sleep", "1000"), style=Style(int(sys.argv[1]))) as child:
        os.write(write, str(child.pid).encode())
        signal.pause()
child = int(os.read(read, 100))
pidfd = os.pidfd_open(child)
os.kill(pid, signal.SIGKILL)
os.waitpid(pid, 0)
from tests.support.births import readable
assert readable(pidfd, 30), "it outlived its supervisor"
"""


@pytest.mark.parametrize("style", STYLES)
def test_a_supervisor_that_is_killed_takes_its_child_along(style: Style) -> None:
    embedding.run(ORPHANING, str(int(style)))
