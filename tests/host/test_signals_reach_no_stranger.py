"""No signal goes to a bare number that may have been reused: every way to end a run, with what is sent recorded,
on this kernel and as on older ones that lack its calls."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import agentd
from agentd.cgroup import control
from agentd.linux import signals
from tests.support import leftovers
from tests.support.runs import Agentd

TOKEN = f"AGENTD_TEST_SIGNALS={os.getpid()}"
ENVIRONMENT = {"PATH": os.environ["PATH"], **dict([TOKEN.split("=")])}
STUBBORN = "trap '' TERM HUP; echo ready; sleep 987654 & while :; do wait; done"
MEEK = "sleep 987654 & echo ready; wait"


class Recorder:
    """Stands between agentd and the kernel: sends on what goes to a process of the test's runs, fails at
    everything else. ``sent`` is what was sent, ``strangers`` what must not have been."""

    def __init__(self, root: str) -> None:
        self.cgroup = f"/{os.path.basename(root)}/"
        self.sent: list[tuple[str, int, int]] = []
        self.strangers: list[str] = []
        self.groups_by_pidfd = True

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        real_send, real_group, real_pinned = signals.send, signals.send_group, signals.send_pinned_group
        real_killpg = os.killpg

        def send(pidfd: int, number: int) -> bool:
            self.note("process", _pid_of(pidfd), number)
            return real_send(pidfd, number)

        def send_group(pidfd: int, number: int) -> bool | None:
            if not self.groups_by_pidfd:
                return None
            self.note("group", _pid_of(pidfd), number)
            return real_group(pidfd, number)

        def send_pinned_group(pidfd: int, leader: int, number: int) -> bool:
            os.waitid(
                os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT
            )  # raises for one that was reaped
            self.note("pinned group", leader, number)
            monkeypatch.setattr(os, "killpg", real_killpg)
            try:
                return real_pinned(pidfd, leader, number)
            finally:
                monkeypatch.setattr(os, "killpg", self.refuse)

        monkeypatch.setattr(signals, "send", send)
        monkeypatch.setattr(signals, "send_group", send_group)
        monkeypatch.setattr(signals, "send_pinned_group", send_pinned_group)
        for module, name in ((os, "kill"), (os, "killpg"), (signal, "pidfd_send_signal")):
            monkeypatch.setattr(module, name, self.refuse)

    def refuse(self, *arguments: object) -> None:
        self.strangers.append(f"a bare call with {arguments}")
        raise AssertionError(self.strangers[-1])

    def note(self, kind: str, pid: int, number: int) -> None:
        self.sent.append((kind, pid, number))
        if not self.is_ours(pid):
            self.strangers.append(f"signal {number} to {kind} {pid}")
            raise AssertionError(self.strangers[-1])

    def is_ours(self, pid: int) -> bool:
        """By the environment, which a run's processes inherit; by the cgroup for one that is dead."""
        if pid == -1:
            return True  # reaped since: a pidfd is nobody's from then on
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return True
        return (
            TOKEN.encode() in environment
            or stat.rpartition(")")[2].split()[0] in "ZX"
            or any(process.pid == pid for process in leftovers.below(self.cgroup.rstrip("/")))
        )

    def numbers(self) -> set[int]:
        return {number for _, _, number in self.sent}


def _pid_of(pidfd: int) -> int:
    for line in Path(f"/proc/self/fdinfo/{pidfd}").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "Pid":
            return int(value)
    raise AssertionError(f"descriptor {pidfd} is no pidfd")


class Case:
    """Children in one kind of containment. ``spawn`` returns when the program says that it is ready."""

    def __init__(self, supervisor: agentd.Supervisor, recorder: Recorder) -> None:
        self.supervisor = supervisor
        self.recorder = recorder

    def spawn(self, script: str, **options: Any) -> agentd.Child:
        read, write = os.pipe()
        try:
            child = self.supervisor.spawn(["sh", "-c", script], env=ENVIRONMENT, stdout=write, **options)
            os.close(write)
            write = -1
            assert os.read(read, 6) == b"ready\n"
        finally:
            os.close(read)
            if write >= 0:
                os.close(write)
        return child


@pytest.fixture
def bystander() -> Iterator[int]:
    """A process of the same user, in the same cgroup as the tests, with a session of its own."""
    with subprocess.Popen(["sleep", "5555"], start_new_session=True) as process:
        yield process.pid
        assert process.poll() is None
        process.send_signal(signal.SIGKILL)


KINDS = ("this kernel", "no group by pidfd", "no cgroup.kill", "no leaf", "no leaf, no group by pidfd")


@pytest.fixture(params=KINDS)
def case(
    request: pytest.FixtureRequest, cgroup_root: str, bystander: int, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Case]:
    kind = request.param
    with monkeypatch.context() as patches:
        recorder = Recorder(cgroup_root)
        recorder.install(patches)
        recorder.groups_by_pidfd = "no group" not in kind
        if kind == "no cgroup.kill":
            _take_away_cgroup_kill(patches)
        with agentd.Supervisor("off" if "no leaf" in kind else cgroup_root) as supervisor:
            yield Case(supervisor, recorder)
    assert recorder.strangers == []
    assert leftovers.carrying(TOKEN) == []


def _take_away_cgroup_kill(patches: pytest.MonkeyPatch) -> None:
    real = control.write

    def write(dirfd: int, name: str, text: str) -> None:
        if name == "cgroup.kill":
            raise FileNotFoundError(errno.ENOENT, "no such file")
        real(dirfd, name, text)

    patches.setattr(control, "write", write)
    patches.setattr(signals, "kill_leaf", lambda leaf_fd: errno.ENOENT)


def test_passed_on_to_the_child(case: Case) -> None:
    child = case.spawn("trap 'exit 7' USR1; sleep 987654 & echo ready; wait")
    assert child.send_signal(signal.SIGUSR1)
    assert child.wait(timeout=20).verdict.code == 7
    assert ("process", child.pid, signal.SIGUSR1) in case.recorder.sent


def test_passed_on_to_the_group(case: Case) -> None:
    child = case.spawn("trap 'exit 7' HUP; sleep 987654 & echo ready; wait")
    assert child.send_signal_to_group(signal.SIGHUP)
    assert child.wait(timeout=20).verdict.code == 7


def test_stop(case: Case) -> None:
    child = case.spawn(MEEK)
    child.stop()
    assert child.wait(timeout=20).verdict.cause == "operator"
    assert signal.SIGTERM in case.recorder.numbers()


def test_stop_of_one_that_does_not_listen(case: Case) -> None:
    child = case.spawn(STUBBORN)
    child.stop(grace=0.05)
    report = child.wait(timeout=20)
    assert report.verdict.signal == signal.SIGKILL
    assert report.teardown.complete


def test_kill(case: Case) -> None:
    child = case.spawn(STUBBORN)
    child.kill()
    assert child.wait(timeout=20).teardown.complete


def test_deadline(case: Case) -> None:
    child = case.spawn(STUBBORN, limits=agentd.Limits(wall=0.2), grace=0.05)
    assert child.wait(timeout=20).verdict.cause == "deadline"


def test_what_was_left_behind(case: Case) -> None:
    child = case.spawn("sleep 987654 & sleep 987654 & echo ready")
    report = child.wait(timeout=20)
    assert report.ok
    assert report.teardown.complete
    assert report.left_behind_count == 2


def test_leaving_the_context(case: Case) -> None:
    children = [case.spawn(STUBBORN) for _ in range(3)]
    case.supervisor.close()
    assert all(child.report and child.report.teardown.complete for child in children)


def test_a_command_that_does_not_start(case: Case) -> None:
    with pytest.raises(agentd.StartError):
        case.supervisor.spawn(["/nowhere/command"], env=ENVIRONMENT)


def test_nothing_is_sent_once_it_is_over(case: Case) -> None:
    child = case.spawn("echo ready")
    child.wait(timeout=20)
    before = list(case.recorder.sent)
    child.stop()
    child.kill()
    assert not child.send_signal(signal.SIGTERM)
    assert not child.send_signal_to_group(signal.SIGTERM)
    assert case.recorder.sent == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can leave its leaf")
def test_one_that_left_its_leaf(case: Case, cgroup_root: str) -> None:
    if case.supervisor.cgroup is None:
        pytest.skip("there is no leaf to leave")
    child = case.spawn(f"echo $$ > {cgroup_root}/cgroup.procs; echo ready; exec sleep 987654")
    report = child.wait(timeout=20)
    assert report.verdict.cause == "escaped"
    assert ("process", child.pid, signal.SIGKILL) in case.recorder.sent


def test_a_number_that_another_wait_has_freed_is_not_signalled(monkeypatch: pytest.MonkeyPatch) -> None:
    process = subprocess.Popen([sys.executable, "-c", "pass"], start_new_session=True)
    pidfd = os.pidfd_open(process.pid)
    try:
        process.wait()  # the number may be anybody's from here on

        def killpg(*_: int) -> None:
            pytest.fail("a signal was sent")

        monkeypatch.setattr(os, "killpg", killpg)
        assert signals.send_pinned_group(pidfd, process.pid, signal.SIGKILL) is False
    finally:
        os.close(pidfd)


@pytest.mark.parametrize("leader", [0, 1, -1])
def test_everybody_is_no_group(leader: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "killpg", lambda *_: pytest.fail("a signal was sent"))
    with pytest.raises(ValueError, match="must not be signalled"):
        signals.send_pinned_group(-1, leader, signal.SIGKILL)


def _takes_groups() -> bool:
    handle = os.pidfd_open(os.getpid())
    try:
        signal.pidfd_send_signal(handle, 0, None, 1 << 2)
    except OSError as error:
        return error.errno != errno.EINVAL  # ESRCH: we lead no group
    finally:
        os.close(handle)
    return True


@pytest.mark.skipif(not _takes_groups(), reason="needs PIDFD_SIGNAL_PROCESS_GROUP, Linux 6.9")
@pytest.mark.parametrize("cgroup", ["leaf", "off"])
def test_the_command_never_calls_kill(agentd: Agentd, program: Callable[[str], str], cgroup: str) -> None:
    # Whoever calls kill(2) or its kin dies of SIGSYS: agentd itself, the shim included, among them.
    deny = (program("deny"), "kill=kill", "tkill=kill", "rt_sigqueueinfo=kill", "--")
    place = None if cgroup == "leaf" else cgroup
    script = "sleep 987654 & trap '' TERM; echo ready; while :; do wait; done"
    run = agentd.start("--grace", "100ms", "--", "sh", "-c", script, prefix=deny, cgroup=place)
    assert run.read_line() == "ready"
    run.signal(signal.SIGTERM)
    done = run.finish()
    assert done.code == 143
    assert done.report["teardown"]["killed"] >= 2
    assert done.report["teardown"]["complete"]
