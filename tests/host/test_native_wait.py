"""Statuses by pidfd: looked at, consumed, and told after somebody else consumed them."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from agentd._shim import ffi, lib
from agentd.linux import prctl, status
from agentd.linux.birth import Birth, Style
from agentd.linux.end import Ending
from agentd.linux.status import Status
from tests.support import embedding
from tests.support.births import NOTHING, STYLES, image, python, readable, started


def look(pidfd: int, reap: int = 0) -> tuple[int, Any]:
    raw = ffi.new("struct agentd_status *")
    return int(lib.agentd_wait(pidfd, reap, raw)), raw


def born(*argv: str, style: Style = Style.VFORK) -> Birth:
    birth = Birth(image(*argv), style=style)
    assert birth.run()
    if birth.exec_fd >= 0:
        os.close(birth.exec_fd)
    return birth


@pytest.mark.parametrize("style", STYLES)
def test_looking_does_not_consume(style: Style) -> None:
    birth = born("/bin/sh", "-c", "exit 7", style=style)
    assert readable(birth.pidfd, 30)
    for _ in range(3):
        error, raw = look(birth.pidfd)
        assert (error, raw.known, raw.gone, raw.code, raw.status) == (0, 1, 0, os.CLD_EXITED, 7)
    assert os.waitpid(birth.pid, 0)[1] == 7 << 8
    os.close(birth.pidfd)


def test_a_child_that_runs_has_no_status_yet() -> None:
    with started(image("/bin/sleep", "1000")) as child:
        error, raw = look(child.pidfd, 1)
        assert (error, raw.known, raw.gone) == (0, 0, 0)
        assert child.end(kill=True).signal == 9


@pytest.mark.parametrize(
    ("script", "code", "number"), [("exit 0", 0, None), ("exit 255", 255, None), ("kill -9 $$", None, 9)]
)
def test_statuses(script: str, code: int | None, number: int | None) -> None:
    with started(image("/bin/sh", "-c", script)) as child:
        told = child.end()
    assert (told.known, told.code, told.signal, told.foreign) == (True, code, number, False)
    assert told.user_us is not None
    assert told.max_rss_bytes


def test_processor_time_and_memory_are_the_childs() -> None:
    code = "x = bytearray(30 << 20)\nimport time\nend = time.process_time() + 0.2\nwhile time.process_time() < end: 0"
    with started(python(code)) as child:
        told = child.end()
    assert told.user_us is not None
    assert told.system_us is not None
    assert told.max_rss_bytes is not None
    assert 200_000 <= told.user_us + told.system_us < 20_000_000
    assert told.max_rss_bytes >= 30 << 20


@pytest.mark.parametrize(
    ("script", "code", "number"), [("exit 6", 6, None), ("kill -TERM $$", None, int(signal.SIGTERM))]
)
def test_the_status_after_a_foreign_wait(script: str, code: int | None, number: int | None) -> None:
    birth = born("/bin/sh", "-c", script)
    os.waitpid(birth.pid, 0)
    ending = Ending(pid=birth.pid, pidfd=birth.pidfd)
    ending.run(NOTHING)
    assert ending.finished
    told = ending.status
    assert told is not None
    if not told.known:
        assert told == status.UNKNOWN
        pytest.skip("this kernel has no PIDFD_GET_INFO with an exit status (Linux 6.15): it is unknown")
    assert told == Status(True, code, number, False, True, None, None, None)


def test_by_number() -> None:
    birth = born("/bin/sh", "-c", "exit 9")
    assert readable(birth.pidfd, 30)
    os.close(birth.pidfd)
    seen = status.look_at_pid(birth.pid)
    assert seen is not None
    assert seen.code == 9
    reaped = status.reap_pid(birth.pid)
    assert reaped is not None
    assert reaped.code == 9
    with pytest.raises(ChildProcessError):
        status.reap_pid(birth.pid)


PRCTL = """
from agentd.linux import prctl
assert not prctl.is_subreaper()
prctl.set_subreaper(True)
assert prctl.is_subreaper()
prctl.set_subreaper(False)
assert not prctl.is_subreaper()
assert prctl.is_dumpable()
prctl.set_dumpable(False)
assert not prctl.is_dumpable()
prctl.set_dumpable(True)
assert prctl.parent_death_signal() == 0
prctl.set_parent_death_signal(10)
assert prctl.parent_death_signal() == 10
prctl.set_parent_death_signal(0)
try:
    prctl.set_parent_death_signal(999)
except OSError as error:
    assert (error.errno, error.filename) == (22, "PR_SET_PDEATHSIG"), error
else:
    raise AssertionError("999 is no signal")
prctl.set_name("a name that is too long")
assert open("/proc/self/comm").read() == "a name that is \\n"
assert not prctl.has_no_new_privs()
prctl.set_no_new_privs()
assert prctl.has_no_new_privs()
"""


def test_prctl() -> None:
    """In a process of its own: one of them cannot be undone."""
    embedding.run(PRCTL)
    assert not prctl.has_no_new_privs()
