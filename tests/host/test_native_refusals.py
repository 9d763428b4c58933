"""Every refusal of a birth is a stage and an errno, and leaves nothing."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from agentd.linux.birth import Birth, Session, Style, Writes
from tests.support import leftovers
from tests.support.births import STYLES, image, open_directory, refused, started


@pytest.fixture
def root_fd(cgroup_root: str) -> Iterator[int]:
    fd = open_directory(cgroup_root)
    before = leftovers.open_descriptors()
    yield fd
    assert leftovers.open_descriptors() == before
    os.close(fd)
    assert [name for name in leftovers.leaves(cgroup_root) if name.startswith("run")] == []


styles = pytest.mark.parametrize("style", STYLES)


@styles
def test_exec(style: Style, root_fd: int, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("no format")
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    for program, number in (
        ("/no/such/program", errno.ENOENT),
        (str(plain), errno.EACCES),
        (str(tmp_path), errno.EACCES),
        (str(script), errno.ENOENT),
        (f"{plain}/x", errno.ENOENT),  # ENOTDIR is remembered as not found, as execvpe does
    ):
        assert refused(image(program), style=style, parent_fd=root_fd) == ("exec", number)
    plain.chmod(0o755)
    assert refused(image(str(plain)), style=style, parent_fd=root_fd) == ("exec", errno.ENOEXEC)


@styles
def test_an_argument_list_that_is_too_long(style: Style, root_fd: int) -> None:
    what = image("/bin/true", "x" * (1 << 18))
    assert refused(what, style=style, parent_fd=root_fd) == ("exec", errno.E2BIG)


@styles
def test_candidates_are_tried_as_execvpe_does(style: Style, root_fd: int, tmp_path: Path) -> None:
    closed = tmp_path / "true"
    closed.write_text("")
    paths = [b"/no/such", os.fsencode(closed), os.fsencode(closed) + b"/x"]
    assert refused(image("true", candidates=paths), style=style) == ("exec", errno.EACCES)
    with started(image("true", candidates=[*paths, b"/bin/true"]), style=style) as child:
        assert child.end().code == 0


@styles
def test_working_directory(style: Style, root_fd: int, tmp_path: Path) -> None:
    for cwd, number in ((b"/no/such", errno.ENOENT), (b"/bin/true", errno.ENOTDIR), (b"", errno.ENOENT)):
        assert refused(image("/bin/true", cwd=cwd), style=style, parent_fd=root_fd) == ("chdir", number)


@styles
def test_descriptors(style: Style, root_fd: int) -> None:
    for options in ({"stdio": (-1, 999, -1)}, {"pass_fds": (999,)}):
        what = image("/bin/true", **options)
        assert refused(what, style=style, parent_fd=root_fd) == ("descriptors", errno.EBADF)


@styles
def test_terminal(style: Style, root_fd: int) -> None:
    null = os.open("/dev/null", os.O_RDWR)
    what = image("/bin/true", stdio=(null, -1, -1), terminal=True, session=Session.NEW_SESSION)
    try:
        assert refused(what, style=style, parent_fd=root_fd) == ("terminal", errno.ENOTTY)
    finally:
        os.close(null)


@styles
def test_a_leaf_that_is_there_already(style: Style, root_fd: int, cgroup_root: str) -> None:
    os.mkdir(f"{cgroup_root}/taken")
    found = refused(image("/bin/true"), style=style, parent_fd=root_fd, name="taken")
    assert found == ("mkdir", errno.EEXIST)
    assert os.path.isdir(f"{cgroup_root}/taken")
    os.rmdir(f"{cgroup_root}/taken")


@styles
def test_a_subtree_that_was_removed(style: Style, root_fd: int, cgroup_root: str) -> None:
    os.mkdir(f"{cgroup_root}/gone")
    fd = open_directory(f"{cgroup_root}/gone")
    os.rmdir(f"{cgroup_root}/gone")
    stage, number = refused(image("/bin/true"), style=style, parent_fd=fd)
    os.close(fd)
    assert stage == "mkdir"
    assert number in (errno.ENOENT, errno.ENODEV)


@styles
def test_the_limit_of_descendants(style: Style, root_fd: int, cgroup_root: str) -> None:
    Path(cgroup_root, "cgroup.max.descendants").write_text("0")
    assert refused(image("/bin/true"), style=style, parent_fd=root_fd) == ("mkdir", errno.EAGAIN)


@styles
def test_a_leaf_that_was_removed_before_the_clone(style: Style, root_fd: int, cgroup_root: str) -> None:
    birth = Birth(image("/bin/true"), parent_fd=root_fd, name="run", style=style)
    assert birth.make_leaf()
    os.rmdir(f"{cgroup_root}/run")
    assert not birth.run()
    found = (birth.stage, birth.errno)
    assert birth.pidfd < 0
    birth.undo()
    assert found[0] in ("clone", "join")
    assert found[1] in (errno.ENOENT, errno.ENODEV)


@styles
def test_a_leaf_that_is_frozen(style: Style, root_fd: int, cgroup_root: str) -> None:
    """G33: a vfork-style clone would hang until the thaw, and of the others we would wait for the exec."""
    Path(cgroup_root, "cgroup.freeze").write_text("1")
    try:
        assert refused(image("/bin/true"), style=style, parent_fd=root_fd) == ("frozen", errno.EBUSY)
    finally:
        Path(cgroup_root, "cgroup.freeze").write_text("0")


class One(NamedTuple):
    file: str
    value: str
    expect: str | None


@styles
@pytest.mark.parametrize(
    ("write", "number", "read_back"),
    [
        (One("cgroup.no.such", "1", None), errno.ENOENT, ""),
        (One("cgroup.max.depth", "-5", "-5"), errno.ERANGE, ""),
        (One("cgroup.max.depth", "x", "x"), errno.EINVAL, ""),
        (One("cgroup.max.depth", "7", "8"), 0, "7"),
        (One("cgroup.events", "1", None), errno.EACCES, ""),
    ],
)
def test_limits(style: Style, root_fd: int, write: One, number: int, read_back: str) -> None:
    writes = Writes([write])
    birth = Birth(image("/bin/true"), parent_fd=root_fd, name="run", before=writes, style=style)
    assert not birth.run()
    assert birth.stage == "limit"
    (told,) = birth.refused_before()
    birth.undo()
    if write.file == "cgroup.events":
        assert told.errno in (errno.EACCES, errno.EINVAL, errno.EPERM)  # root may open it, not write it
    else:
        assert (told.errno, told.read_back) == (number, read_back)


@contextmanager
def few_descriptors(free: int) -> Iterator[None]:
    """Leave room for ``free`` more descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    fillers = []
    limit = max(leftovers.open_descriptors()) + 1 + free
    for fd in range(limit):
        try:
            os.fstat(fd)
        except OSError:
            fillers.append(fd)
    null = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    held = [null]
    while len(held) + free <= len(fillers):
        held.append(os.dup(null))
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in held:
            os.close(fd)


@styles
def test_no_more_descriptors_at_any_step(style: Style, root_fd: int) -> None:
    """Whichever descriptor is the one too many: a stage, EMFILE, and nothing is left."""
    seen = set()
    for free in range(12):
        with few_descriptors(free):
            stage, number = refused(image("/bin/true"), style=style, parent_fd=root_fd)
        if stage == "ok":
            break
        assert number == errno.EMFILE, (free, stage)
        seen.add(stage)
    assert stage == "ok"
    assert {"open-leaf", "clone"} <= seen
    assert ("pipe" in seen) == (style is Style.FORK)
