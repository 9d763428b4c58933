"""Owning a subtree, against the kernel's own rules."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from agentd.cgroup import aside, control
from agentd.cgroup.delegation import ORDER
from agentd.cgroup.hierarchy import read_hierarchy
from agentd.cgroup.limits import Limits
from agentd.cgroup.subtree import Subtree
from agentd.errors import NoCgroupError, UsageError

from .cgroup_inside import Inside, enter, inside, read, write

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="moving processes between cgroups needs root")


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process
        process.kill()


def opened(spec: str = "auto") -> dict[str, object]:
    """What a process finds that opens a subtree, makes a leaf in it, and gives all back."""
    with Subtree.open(spec) as subtree:
        name = f"run-{os.getpid()}-1"
        make_leaf(subtree, name)
        types = [read(f"{subtree.path}/cgroup.type"), read(f"{subtree.path}/{name}/cgroup.type")]
        controllers = set(read(f"{subtree.path}/{name}/cgroup.controllers").split())
        own = own_cgroup()
        os.rmdir(name, dir_fd=subtree.fd)
        return {
            "path": subtree.path,
            "controllers": controllers,
            "same": controllers == subtree.controllers,
            "types": types,
            "own": own,
            "missing": dict(subtree.missing),
            "moved_aside": subtree.moved_aside,
        }


def make_leaf(subtree: Subtree, name: str) -> None:
    """As a supervisor does: if another one's close removed the empty subtree, it is made anew."""
    for _ in range(50):
        try:
            os.mkdir(name, dir_fd=subtree.fd)
            return
        except FileNotFoundError:
            subtree.reopen()
    pytest.fail(f"{name} could not be made")


def own_cgroup() -> str:
    return read("/proc/self/cgroup").rpartition("::")[2]


def test_a_path_with_whatever_this_kernel_has(cgroup_root: str) -> None:
    with Subtree.open(f"{cgroup_root}/subtree") as subtree:
        assert subtree.created
        os.mkdir("run-1-1", dir_fd=subtree.fd)
        assert set(read(f"{subtree.path}/run-1-1/cgroup.controllers").split()) == subtree.controllers
        assert subtree.controllers | set(subtree.missing) >= set(ORDER)
        assert all(subtree.missing.values())
        os.rmdir("run-1-1", dir_fd=subtree.fd)
    assert not os.path.exists(subtree.path)


def test_a_hybrid_host_names_the_v1_mount(cgroup_root: str) -> None:
    hierarchy = read_hierarchy()
    if not hierarchy.v1_controllers.get("memory"):
        pytest.skip("the memory controller is not on cgroup v1 here")
    with Subtree.open(cgroup_root) as subtree:
        planned = subtree.plan(Limits(memory_max="64M"))
        assert planned.before == planned.after == ()
        assert hierarchy.v1_controllers["memory"] in planned.not_in_force["memory_max"]


def test_a_controller_outside_the_usual_ones_is_enabled_on_demand(cgroup_root: str) -> None:
    mount = os.path.dirname(cgroup_root)
    before = read(f"{mount}/cgroup.subtree_control").split()
    if "hugetlb" not in read(f"{mount}/cgroup.controllers").split():
        pytest.skip("the hugetlb controller is not on cgroup v2 here")
    try:
        with Subtree.open(f"{cgroup_root}/subtree") as subtree:
            write(f"{mount}/cgroup.subtree_control", "+hugetlb")
            planned = subtree.plan(Limits(files={"hugetlb.2MB.max": "4M"}))
            assert "hugetlb" in subtree.controllers
            assert [write.file for write in planned.before] == ["hugetlb.2MB.max"]
    finally:
        if "hugetlb" not in before:
            write(f"{cgroup_root}/cgroup.subtree_control", "-hugetlb")
            write(f"{mount}/cgroup.subtree_control", "-hugetlb")


def test_a_directory_that_is_no_cgroup(cgroup_root: str) -> None:
    os.mkdir(f"{cgroup_root}/a")
    for path in (f"{cgroup_root}/b/c", f"{cgroup_root}/cgroup.procs", f"{cgroup_root}/../x", "/tmp"):
        with pytest.raises(UsageError):
            Subtree.open(path)


def test_no_further_cgroup_allowed(cgroup_root: str) -> None:
    write(f"{cgroup_root}/cgroup.max.descendants", "0")
    with pytest.raises(NoCgroupError, match=r"\(EAGAIN\)"):
        Subtree.open(f"{cgroup_root}/a")


@needs_root
def test_auto_in_a_cgroup_of_our_own(cgroup_root: str, offered: set[str]) -> None:
    found = inside(cgroup_root, opened)
    assert found["path"] == f"{cgroup_root}/agentd"
    assert found["moved_aside"]
    assert str(found["own"]).endswith(f"{os.path.basename(cgroup_root)}/supervisor")
    assert found["controllers"] == offered
    assert found["same"]
    assert found["types"] == ["domain", "domain"]
    # Given back: no agentd, no supervisor, nothing enabled.
    assert [entry.name for entry in os.scandir(cgroup_root) if entry.is_dir()] == []
    assert read(f"{cgroup_root}/cgroup.subtree_control") == ""


@needs_root
def test_memory_comes_first(cgroup_root: str, offered: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    real = control.write

    def write(dirfd: int, name: str, text: str) -> None:
        written.append(text)
        real(dirfd, name, text)

    monkeypatch.setattr(control, "write", write)
    with Subtree.open(f"{cgroup_root}/subtree"):
        pass
    expected = [f"+{name}" for name in ORDER if name in offered]
    assert written == expected * 2
    written.clear()
    with Subtree.open(f"{cgroup_root}/subtree"):
        assert written == [f"+{name}" for name in ORDER if name in offered]


@needs_root
def test_a_foreign_process_keeps_its_cgroup(
    cgroup_root: str, offered: set[str], stranger: subprocess.Popen[bytes]
) -> None:
    enter(cgroup_root, stranger.pid)
    found = inside(cgroup_root, opened)
    assert found["controllers"] == set()
    assert found["types"] == ["domain", "domain"]
    missing = found["missing"]
    assert isinstance(missing, dict)
    assert f"sleep ({stranger.pid})" in missing["memory"]
    assert "Delegate=yes" in missing["pids"]
    assert read(f"{cgroup_root}/cgroup.procs") == str(stranger.pid)
    assert read(f"{cgroup_root}/cgroup.type") == "domain"
    assert read(f"{cgroup_root}/cgroup.subtree_control") == ""
    stranger.kill()
    stranger.wait()


@needs_root
@pytest.mark.parametrize("attribute", aside.DELEGATED)
def test_a_foreign_process_in_a_delegated_cgroup_is_moved(
    cgroup_root: str, offered: set[str], stranger: subprocess.Popen[bytes], attribute: str
) -> None:
    enter(cgroup_root, stranger.pid)
    try:
        os.setxattr(cgroup_root, attribute, b"1")
    except OSError as error:
        pytest.skip(f"{attribute} cannot be set here: {error.strerror}")
    found = inside(cgroup_root, opened)
    assert found["controllers"] == offered
    assert read(f"{cgroup_root}/supervisor/cgroup.procs") == str(stranger.pid)
    # Not undone while somebody is there; the next run finds everything done and does not nest.
    again = inside(f"{cgroup_root}/supervisor", opened)
    assert again["path"] == f"{cgroup_root}/agentd"
    assert again["controllers"] == offered
    assert not again["moved_aside"]
    stranger.kill()
    stranger.wait()


@needs_root
def test_without_memory_nobody_is_made_threaded(
    cgroup_root: str, offered: set[str], stranger: subprocess.Popen[bytes]
) -> None:
    os.mkdir(f"{cgroup_root}/own")
    write(f"{cgroup_root}/cgroup.subtree_control", "+pids")
    enter(f"{cgroup_root}/own", stranger.pid)
    found = inside(f"{cgroup_root}/own", opened)
    assert found["controllers"] == set()
    assert read(f"{cgroup_root}/own/cgroup.type") == "domain"
    stranger.kill()
    stranger.wait()


@needs_root
def test_below_a_threaded_cgroup(
    cgroup_root: str, offered: set[str], stranger: subprocess.Popen[bytes]
) -> None:
    os.mkdir(f"{cgroup_root}/own")
    write(f"{cgroup_root}/cgroup.subtree_control", "+pids")
    enter(f"{cgroup_root}/own", stranger.pid)
    write(f"{cgroup_root}/own/cgroup.subtree_control", "+pids")
    assert read(f"{cgroup_root}/own/cgroup.type") == "domain threaded"
    with pytest.raises(NoCgroupError) as caught:
        Subtree.open(f"{cgroup_root}/own/agentd")
    assert "domain invalid" in caught.value.message
    assert f"sleep ({stranger.pid})" in caught.value.message
    assert not os.path.exists(f"{cgroup_root}/own/agentd")
    stranger.kill()
    stranger.wait()


def nested() -> list[object]:
    """A supervisor and, in a leaf of it, another one in the same way, and a third in that one's leaf."""
    with Subtree.open() as subtree:
        os.mkdir("run-1-1", dir_fd=subtree.fd)
        inner = inside(f"{subtree.path}/run-1-1", opened)
        os.rmdir("run-1-1", dir_fd=subtree.fd)
        return [subtree.path, inner, own_cgroup()]


@needs_root
def test_a_supervisor_in_a_leaf_nests(cgroup_root: str, offered: set[str]) -> None:
    outer, inner, own = inside(cgroup_root, nested)
    assert isinstance(inner, dict)
    assert inner["path"] == f"{outer}/run-1-1/agentd"
    assert inner["controllers"] == offered
    assert str(own).endswith("/supervisor")


@needs_root
def test_two_processes_at_the_same_time(cgroup_root: str, offered: set[str]) -> None:
    """B56: also at first start. Each would move the other, which it may since the cgroup is delegated."""
    os.setxattr(cgroup_root, "user.delegate", b"1")
    for _ in range(10):
        together = [Inside(cgroup_root, opened) for _ in range(3)]
        for process in together:
            process.start()
        for process in together:
            found = process.result()
            assert found["path"] == f"{cgroup_root}/agentd"
            assert found["controllers"] == offered, found["missing"]
        for name in ("agentd", "supervisor"):
            if os.path.isdir(f"{cgroup_root}/{name}"):
                os.rmdir(f"{cgroup_root}/{name}")
        write(f"{cgroup_root}/cgroup.subtree_control", " ".join(f"-{name}" for name in sorted(offered)))


@needs_root
def test_opening_and_closing_beside_others(cgroup_root: str) -> None:
    together = [Inside(cgroup_root, _open_often, f"{cgroup_root}/subtree") for _ in range(3)]
    for process in together:
        process.start()
    assert [process.result() for process in together] == [[], [], []]


def _open_often(path: str) -> list[object]:
    wrong: list[object] = []
    for number in range(30):
        with Subtree.open(path) as subtree:
            name = f"run-{os.getpid()}-{number}"
            make_leaf(subtree, name)
            leaf_controllers = set(read(f"{path}/{name}/cgroup.controllers").split())
            if leaf_controllers != subtree.controllers:
                wrong.append((leaf_controllers, subtree.missing))
            os.rmdir(name, dir_fd=subtree.fd)
    return wrong


@needs_root
def test_reopen(cgroup_root: str) -> None:
    with Subtree.open(f"{cgroup_root}/subtree") as subtree:
        os.rmdir(subtree.path)
        with pytest.raises(FileNotFoundError):
            os.mkdir("run-1-1", dir_fd=subtree.fd)
        subtree.reopen()
        os.mkdir("run-1-1", dir_fd=subtree.fd)
        os.rmdir("run-1-1", dir_fd=subtree.fd)


def opened_as_user(spec: str) -> str:
    try:
        with Subtree.open(spec) as subtree:
            os.mkdir("run-1-1", dir_fd=subtree.fd)
            enter(f"{subtree.path}/run-1-1", 0)
            enter(os.path.dirname(subtree.path), 0)
            os.rmdir("run-1-1", dir_fd=subtree.fd)
    except NoCgroupError as error:
        return str(error)
    return "good"


@needs_root
def test_an_ordinary_user_without_delegation(cgroup_root: str) -> None:
    answer = inside(cgroup_root, opened_as_user, "auto", uid=65534)
    assert "no permission" in answer
    assert "systemd-run --user --scope -p Delegate=yes" in answer


@needs_root
def test_an_ordinary_user_from_outside_of_what_was_delegated(cgroup_root: str) -> None:
    """G23: the cgroup above both us and the leaf must be writable too."""
    os.mkdir(f"{cgroup_root}/mine")
    os.mkdir(f"{cgroup_root}/elsewhere")
    for name in ("", "/cgroup.procs", "/cgroup.subtree_control", "/cgroup.threads"):
        os.chown(f"{cgroup_root}/mine{name}", 65534, 65534)
    answer = inside(f"{cgroup_root}/elsewhere", opened_as_user, f"{cgroup_root}/mine/x", uid=65534)
    assert f"{cgroup_root}/cgroup.procs, of the cgroup above both, is not writable" in answer


@needs_root
def test_an_ordinary_user_in_a_delegated_cgroup(cgroup_root: str) -> None:
    os.mkdir(f"{cgroup_root}/mine")
    for name in ("", "/cgroup.procs", "/cgroup.subtree_control", "/cgroup.threads"):
        os.chown(f"{cgroup_root}/mine{name}", 65534, 65534)
    os.mkdir(f"{cgroup_root}/mine/own")
    os.chown(f"{cgroup_root}/mine/own", 65534, 65534)
    os.chown(f"{cgroup_root}/mine/own/cgroup.procs", 65534, 65534)
    assert inside(f"{cgroup_root}/mine/own", opened_as_user, f"{cgroup_root}/mine/x", uid=65534) == "good"


IN_NAMESPACE = """
import sys
sys.path[:0] = {path!r}
from tests.kernel.test_cgroup_delegation import opened
import json
found = opened()
found["controllers"] = sorted(found["controllers"])
print(json.dumps(found))
"""


def run_in_namespace(cgroup_root: str, *, read_only: bool) -> subprocess.CompletedProcess[str]:
    """``opened`` in a cgroup namespace of which ``cgroup_root`` is the root, with a mount of its own."""
    mount = read_hierarchy().mount
    script = IN_NAMESPACE.format(path=[os.getcwd()])
    shell = f"umount {mount} && mount -t cgroup2 cgroup2 {mount} && "
    if read_only:
        shell += f"mount -o remount,bind,ro {mount} && "
    return subprocess.run(
        ["unshare", "-C", "-m", "sh", "-c", f'{shell} exec {sys.executable} -c "$0"', script],
        preexec_fn=lambda: enter(cgroup_root, 0),
        capture_output=True,
        text=True,
    )


@needs_root
def test_the_root_of_a_cgroup_namespace(
    cgroup_root: str, offered: set[str], stranger: subprocess.Popen[bytes]
) -> None:
    """B53: a privileged container, with everything in the namespace's root (moby#43093)."""
    enter(cgroup_root, stranger.pid)
    done = run_in_namespace(cgroup_root, read_only=False)
    assert done.returncode == 0, done.stderr
    assert f'"path": "{os.path.dirname(cgroup_root)}/agentd"' in done.stdout
    assert '"own": "/supervisor"' in done.stdout
    assert f'"controllers": {sorted(offered)}'.replace("'", '"') in done.stdout
    assert read(f"{cgroup_root}/supervisor/cgroup.procs") == str(stranger.pid)
    stranger.kill()
    stranger.wait()


@needs_root
def test_a_read_only_mount(cgroup_root: str) -> None:
    """B55: an ordinary container."""
    done = run_in_namespace(cgroup_root, read_only=True)
    assert "NoCgroupError" in done.stderr
    assert f"({errno.errorcode[errno.EROFS]})" in done.stderr
    assert "--cgroupns=private" in done.stderr
