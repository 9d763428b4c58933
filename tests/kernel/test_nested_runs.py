"""agentd inside a leaf of agentd: below it, and bound by it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import select
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentd.cgroup import subtree
from tests.support import leftovers
from tests.support.runs import AGENTD, Agentd, CompletedRun

from .cgroup_inside import enter, read, write

Needs = Callable[..., None]


@pytest.fixture
def inner_reports(tmp_path: Path) -> Callable[[], list[dict[str, Any]]]:
    return lambda: [json.loads(found.read_text()) for found in sorted(tmp_path.glob("inner-*.json"))]


@pytest.fixture(autouse=True)
def _until_the_keepers_have_gone(cgroup_root: str) -> Iterator[None]:
    """A supervisor's keeper outlives it for the moment in which it sees that there is nothing to do."""
    yield
    for process in leftovers.below(f"/{os.path.basename(cgroup_root)}"):
        if process.name == "leafkeeper":
            with contextlib.suppress(ProcessLookupError):
                keeper = os.pidfd_open(process.pid)
                assert select.select([keeper], [], [], 20)[0]
                os.close(keeper)


def inner(folder: Path, *arguments: str, number: int = 1) -> list[str]:
    return [AGENTD, "run", "--report", f"{folder}/inner-{number}.json", *arguments]


def script(*commands: list[str], between: str = " && ") -> list[str]:
    return ["sh", "-c", between.join(map(shlex.join, commands))]


def assert_below(done: CompletedRun, reports: list[dict[str, Any]]) -> None:
    outer = done.report["enforcement"]
    for report in reports:
        assert report["enforcement"]["cgroup"] == f"{outer['cgroup']}/{outer['leaf']}/agentd"
        assert report["enforcement"]["placement"] == "born"
    assert done.report["teardown"]["complete"]
    assert done.report["teardown"]["leaf_removed"]


def test_it_stays_below_the_outer_limit(
    needs: Needs, agentd: Agentd, tmp_path: Path, inner_reports: Callable[[], list[dict[str, Any]]]
) -> None:
    """benchexec#1074: the inner run made a scope of its own, and left the outer limit."""
    needs("pids")
    command = inner(tmp_path, "--pids-max", "20", "--", "cat", "/proc/self/cgroup")
    done = agentd("--pids-max", "50", "--", *command)
    assert done.code == 0, done.stderr
    leaf = done.report["enforcement"]["leaf"]
    assert f"/{leaf}/agentd/run-" in done.stdout
    assert_below(done, inner_reports())
    assert inner_reports()[0]["limits"]["in_force"] == {"pids_max": "20"}
    # What the inner run used is the outer one's too.
    assert done.report["usage"]["pids"]["peak"] > inner_reports()[0]["usage"]["pids"]["peak"]


def test_without_a_right_to_the_cgroup_there_is_containment_without_limits(
    needs: Needs, agentd: Agentd, tmp_path: Path
) -> None:
    """The shell beside it is not the inner agentd's to move; so no controller can be handed down (G01)."""
    needs("memory", "pids")
    done = agentd("--", *script(inner(tmp_path, "--", "true"), ["true"]))
    assert done.code == 0, done.stderr
    limited = agentd("--", *script(inner(tmp_path, "--pids-max", "9", "--", "echo", "ran"), ["true"]))
    assert limited.code == 125
    assert limited.stdout == ""
    assert "holds processes" in limited.stderr
    assert limited.report["teardown"]["complete"]


@pytest.mark.parametrize("between", [" && ", " & "], ids=["one after the other", "at once"])
def test_a_delegated_leaf(
    needs: Needs,
    agentd: Agentd,
    tmp_path: Path,
    inner_reports: Callable[[], list[dict[str, Any]]],
    between: str,
) -> None:
    """benchexec#1046: the first run worked, the second failed."""
    needs("memory", "pids")
    arguments = ["--pids-max", "9", "--memory-max", "64M", "--", "true"]
    runs = [inner(tmp_path, *arguments, number=number) for number in (1, 2)]
    command = script(*runs, between=between)
    command[-1] += "; wait" if between == " & " else ""
    done = agentd("--delegate", "--", *command)
    assert done.code == 0, done.stderr
    assert len(inner_reports()) == 2
    assert_below(done, inner_reports())
    for report in inner_reports():
        assert report["verdict"]["cause"] == "ok"
        assert report["limits"]["in_force"]["pids_max"] == "9"
        assert report["limits"]["in_force"]["memory_max"] == str(64 << 20)


def test_the_inner_limit_that_is_hit_is_the_inner_runs_verdict(
    needs: Needs, agentd: Agentd, tmp_path: Path, inner_reports: Callable[[], list[dict[str, Any]]]
) -> None:
    needs("memory")
    eat = ["dd", "if=/dev/zero", "of=/dev/null", "bs=64M", "count=1"]
    done = agentd("--delegate", "--", *inner(tmp_path, "--memory-max", "16M", "--", *eat))
    verdict = inner_reports()[0]["verdict"]
    assert (verdict["cause"], verdict["scope"]) == ("memory", "leaf")
    # For the outer one its command ended by itself, with that code.
    assert done.code == 137
    assert (done.report["verdict"]["cause"], done.report["verdict"]["code"]) == ("error", 137)


def test_the_outer_limit_that_is_hit_is_not_the_inner_leafs(
    needs: Needs, agentd: Agentd, tmp_path: Path, inner_reports: Callable[[], list[dict[str, Any]]]
) -> None:
    needs("memory")
    eat = ["dd", "if=/dev/zero", "of=/dev/null", "bs=200M", "count=1"]
    done = agentd("--memory-max", "100M", "--delegate", "--", *inner(tmp_path, "--", *eat))
    assert done.code == 137
    verdict = inner_reports()[0]["verdict"]
    assert (verdict["cause"], verdict["scope"]) == ("memory", "ancestor")


@pytest.mark.parametrize("processes", range(1, 7))
def test_too_few_processes_for_an_inner_agentd(needs: Needs, agentd: Agentd, processes: int) -> None:
    """It needs threads of its own; whatever it lacks is said in one line, at once, and nothing hangs."""
    needs("pids")
    done = agentd("--pids-max", str(processes), "--", AGENTD, "run", "--quiet", "--", "true")
    assert "Traceback" not in done.stderr
    assert done.code in (0, 125)
    if done.code:
        assert len(done.stderr.splitlines()) == 2, done.stderr
    assert done.report["teardown"]["complete"]


@pytest.fixture
def delegated(needs: Needs, cgroup_root: str) -> str:
    """A cgroup with memory and pids that is marked as handed over, as systemd's Delegate=yes does."""
    needs("memory", "pids")
    for path in (os.path.dirname(cgroup_root), cgroup_root):
        write(f"{path}/cgroup.subtree_control", "+memory +pids")
    path = f"{cgroup_root}/delegated"
    os.mkdir(path)
    os.setxattr(path, "user.delegate", b"1")
    return path


@pytest.fixture
def stranger(delegated: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process in the delegated cgroup that no agentd started."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        enter(delegated, process.pid)
        yield process
        process.kill()


def entered(path: str, *command: str) -> subprocess.CompletedProcess[str]:
    """``command`` in the cgroup from its start."""
    into = f'echo 0 >"{path}/cgroup.procs" && exec "$@"'
    return subprocess.run(
        ["sh", "-c", into, "sh", *command], capture_output=True, text=True, timeout=60, check=False
    )


def test_a_cgroup_with_processes_of_its_own(delegated: str, stranger: subprocess.Popen[bytes]) -> None:
    """moby#43093, nix#9675: the daemon, and others, sat in the inner cgroup itself."""
    # The first one leaves the stranger aside, and with it the cgroup that agentd is to be found in from then on.
    for place in (delegated, f"{delegated}/supervisor"):
        run = entered(place, AGENTD, "run", "--memory-max", "64M", "--", "cat", "/proc/self/cgroup")
        assert run.returncode == 0, run.stderr
        assert "/delegated/agentd/run-" in run.stdout
    assert read(f"/proc/{stranger.pid}/cgroup").endswith("/delegated/supervisor")


def test_a_process_that_comes_in_later(delegated: str) -> None:
    """runc#2416: `docker exec` put one into what had become an inner cgroup."""
    first = entered(delegated, AGENTD, "run", "--memory-max", "64M", "--", "true")
    assert first.returncode == 0, first.stderr
    with subprocess.Popen(["sleep", "1000"]) as late:
        try:
            enter(delegated, late.pid)
            again = entered(delegated, AGENTD, "run", "--memory-max", "64M", "--", "true")
            assert again.returncode == 0, again.stderr
        finally:
            late.kill()


def test_a_process_that_comes_in_meanwhile(delegated: str) -> None:
    """The kernel keeps it out: what is put in there then is somebody's own affair."""
    into = f'echo 0 >"{delegated}/cgroup.procs" && exec "$@"'
    command = ["sh", "-c", into, "sh", AGENTD, "run", "--memory-max", "64M", "--", "sh", "-c", "echo up; cat"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"up\n"
        with pytest.raises(OSError, match="busy") as refusal:
            write(f"{delegated}/cgroup.procs", str(os.getpid()))
        assert refusal.value.errno == errno.EBUSY
        second = entered(f"{delegated}/supervisor", AGENTD, "run", "--memory-max", "64M", "--", "true")
        assert second.returncode == 0, second.stderr
        run.communicate(b"")
        assert run.returncode == 0


NAMESPACE = 'umount /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup && "$@" && "$@"'


def test_the_root_of_a_cgroup_namespace(needs: Needs, cgroup_root: str) -> None:
    """A privileged container whose processes, agentd among them, sit in the root that it sees (moby#43093)."""
    needs("memory", "pids")
    write(f"{os.path.dirname(cgroup_root)}/cgroup.subtree_control", "+memory +pids")
    command = [AGENTD, "run", "--memory-max", "64M", "--", "cat", "/proc/self/cgroup"]
    run = entered(cgroup_root, "unshare", "--cgroup", "--mount", "sh", "-c", NAMESPACE, "sh", *command)
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("0::/agentd/run-") == 2


def test_the_lock_on_a_leaf_holds_up_nobody_inside(cgroup_root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The outer supervisor holds it for as long as its run lasts: a nested one must not wait for it."""
    monkeypatch.setattr(subtree, "_LOCK_SECONDS", 1000)
    leaf = os.open(cgroup_root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(leaf, fcntl.LOCK_EX | fcntl.LOCK_NB)
        subtree.Subtree.open(f"{cgroup_root}/agentd").close()
    finally:
        os.close(leaf)
    assert not os.path.exists(f"{cgroup_root}/agentd")
