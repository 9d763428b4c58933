"""Starts that fail: one typed error each, and nothing is left. In every style of clone."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

import agentd
from agentd.linux.birth import Style
from agentd.process import attempt
from tests.support import embedding, leftovers


@pytest.fixture(params=[Style.VFORK, Style.FORK, Style.LEGACY], ids=lambda style: style.name)
def supervisor(
    request: pytest.FixtureRequest, cgroup_root: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[agentd.Supervisor]:
    """One whose children are cloned in that style, as where a cpu.max is above, or clone3 is refused."""
    refused = {Style.VFORK, Style.FORK} if request.param is Style.LEGACY else set()
    monkeypatch.setattr(attempt, "_refused_styles", refused)
    with agentd.Supervisor(cgroup_root) as made:
        made._place.throttled = request.param is Style.FORK
        assert (
            made.spawn(["true"], stdout=agentd.Capture()).wait(timeout=30).ok
        )  # the loop and the keeper are there
        before = leftovers.open_descriptors()
        yield made
        assert leftovers.leaves(cgroup_root) == []
        assert made.children == []
        assert leftovers.open_descriptors() == before


def test_placement(supervisor: agentd.Supervisor) -> None:
    child = supervisor.spawn(["sh", "-c", "exit 3"])
    legacy = bool(attempt._refused_styles)
    assert child.enforcement.placement == ("joined" if legacy else "born")
    assert child.wait(timeout=30).verdict.code == 3
    assert bool(child.enforcement.notes) == legacy


def test_exec_failures(supervisor: agentd.Supervisor, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.touch()
    for argv, number, code in (
        (["/no/such/program"], errno.ENOENT, 127),
        (["no-such-program-in-path"], errno.ENOENT, 127),
        ([plain], errno.EACCES, 126),
        ([tmp_path], errno.EACCES, 126),
        (["true", "x" * (1 << 18)], errno.E2BIG, 126),
    ):
        with pytest.raises(agentd.StartError) as caught:
            supervisor.spawn(argv, stdout=agentd.Capture(), stderr=agentd.Capture(sink=print))
        assert (caught.value.stage, caught.value.errno, caught.value.exit_code) == ("exec", number, code)


def test_a_missing_directory(supervisor: agentd.Supervisor) -> None:
    with pytest.raises(agentd.StartError, match="working directory /no/such: No such file") as caught:
        supervisor.spawn(["true"], cwd="/no/such")
    assert (caught.value.stage, caught.value.exit_code) == ("chdir", 125)


def test_a_bad_descriptor(supervisor: agentd.Supervisor) -> None:
    with pytest.raises(agentd.StartError) as caught:
        supervisor.spawn(["true"], pass_fds=[9999])
    assert (caught.value.stage, caught.value.errno) == ("descriptors", errno.EBADF)


def test_a_limit_that_the_kernel_does_not_take(supervisor: agentd.Supervisor) -> None:
    limits = agentd.Limits(files={"cgroup.max.depth": "x"})
    with pytest.raises(agentd.LimitNotInForceError) as caught:
        supervisor.spawn(["true"], limits=limits)
    assert list(caught.value.reasons) == ["cgroup.max.depth"]
    report = supervisor.spawn(["true"], limits=limits, best_effort=True).wait(timeout=30)
    assert report.ok
    assert list(report.limits.why_not) == ["cgroup.max.depth"]
    assert report.limits.in_force == {}


def test_a_frozen_subtree_is_refused_and_hangs_nobody(
    supervisor: agentd.Supervisor, cgroup_root: str
) -> None:
    """G33."""
    freeze = Path(cgroup_root, "cgroup.freeze")
    freeze.write_text("1")
    try:
        with pytest.raises(agentd.StartError, match="thaw") as caught:
            supervisor.spawn(["true"])
        assert (caught.value.stage, caught.value.errno) == ("frozen", errno.EBUSY)
    finally:
        freeze.write_text("0")
    assert supervisor.spawn(["true"]).wait(timeout=30).ok


def test_a_frozen_child_is_killed(supervisor: agentd.Supervisor) -> None:
    child = supervisor.spawn(["sleep", "1000"])
    Path(child.leaf or "", "cgroup.freeze").write_text("1")
    child.stop(grace=0.1)
    report = child.wait(timeout=30)
    assert report.verdict.cause == "operator"
    assert report.teardown.complete


REMOVED = """
import os, sys, tempfile
import agentd
folder = tempfile.mkdtemp()
os.chdir(folder)
os.rmdir(folder)
with agentd.Supervisor(sys.argv[1]) as supervisor:
    report = supervisor.spawn(["true"]).wait(timeout=20)
    assert report.ok
    assert report.cwd == folder + " (deleted)", report.cwd
"""


def test_our_own_directory_may_be_gone(cgroup_root: str) -> None:
    embedding.run(REMOVED, cgroup_root)


EXHAUSTED = """
import errno, os, resource, sys, threading
import agentd

def descriptors():
    # Once the threads that served a sink have closed theirs.
    for thread in threading.enumerate():
        if thread.name == "agentd-relay":
            thread.join(20)
    found = {}
    for fd in os.listdir("/proc/self/fd"):
        try:
            found[int(fd)] = os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:  # the listing's own
            pass
    return found

root, style = sys.argv[1], sys.argv[2]
drop = lambda data: None
with agentd.Supervisor(root) as supervisor:
    supervisor._place.throttled = style == "fork"
    how = dict(stdin=agentd.DEVNULL, stdout=agentd.Capture(), stderr=agentd.Capture(sink=drop))
    assert supervisor.spawn(["true"], **how).wait(timeout=20).ok
    alive = supervisor.spawn(["sleep", "1000"])
    null = os.open("/dev/null", os.O_RDONLY)
    before = descriptors()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    stages = []
    for free in range(20):
        held = []
        try:
            while True:
                held.append(os.dup(null))
        except OSError as error:
            assert error.errno == errno.EMFILE
        for fd in [held.pop() for _ in range(free)]:
            os.close(fd)
        try:
            child = supervisor.spawn(["true"], **how)
        except agentd.StartError as error:
            assert error.errno == errno.EMFILE, error
            assert "ulimit -n" in str(error), error
            stages.append(error.stage)
            child = None
        for fd in held:
            os.close(fd)
        if child is not None:
            assert child.wait(timeout=20).ok
            break
    assert child is not None
    assert stages, "never refused"
    assert alive.poll() is None
    assert os.listdir(root).count(os.path.basename(alive.leaf)) == 1
    assert [name for name in os.listdir(root) if name.startswith("run-")] == [os.path.basename(alive.leaf)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    after = descriptors()
    spares = lambda table: [fd for fd in table if table[fd] == "/dev/null"]
    for table in (before, after):
        for fd in spares(table):  # which are lent where they are needed, and taken back with the next child
            del table[fd]
    assert after == before, (before, after)
print(*sorted(set(stages)))
"""


@pytest.mark.parametrize("style", ["vfork", "fork"])
def test_no_more_descriptors(style: str, cgroup_root: str) -> None:
    """Whichever is the one too many: one typed error that says what to raise, and nothing is left."""
    said = embedding.run(EXHAUSTED, cgroup_root, style).split()
    assert {"pipe", "open-leaf", "clone"} <= set(said)
    assert leftovers.leaves(cgroup_root) == []


FULL = """
import os, resource, sys
import agentd

with agentd.Supervisor(sys.argv[1]) as supervisor:
    script = "setsid sleep 987654 & sleep 987654 & read line; exit 4"
    read, write = os.pipe()
    left = supervisor.spawn(["sh", "-c", script], stdin=read)
    killed = supervisor.spawn(["sh", "-c", "setsid sleep 987654 & sleep 987654"])
    def members(run):
        with open(run.leaf + "/cgroup.procs") as file:
            return len(file.readlines())
    while members(killed) < 3 or members(left) < 3:
        os.sched_yield()
    held = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    try:
        while True:
            held.append(os.dup(0))
    except OSError:
        pass
    os.write(write, b"x\\n")
    killed.kill()
    reports = [left.wait(timeout=20), killed.wait(timeout=20)]
    for fd in held:
        os.close(fd)
for report in reports:
    assert report.teardown.complete, report.to_dict()
assert reports[0].verdict.code == 4, reports[0].verdict
assert reports[1].verdict.cause == "operator", reports[1].verdict
"""


def test_runs_end_without_any_descriptor_to_be_had(cgroup_root: str) -> None:
    """What is needed to kill was opened at the start."""
    embedding.run(FULL, cgroup_root)
    assert leftovers.leaves(cgroup_root) == []
