"""A child's descriptors: its three streams however they were asked for, those it was passed, and no other."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path

import pytest

from agentd.linux.birth import Style
from tests.support import embedding
from tests.support.births import STYLES, image, output_of, python, started

LISTING = """
import os
for fd in sorted(map(int, os.listdir("/proc/self/fd"))):
    try:
        print(fd, os.readlink(f"/proc/self/fd/{fd}"))
    except FileNotFoundError:  # the listing's own
        pass
"""


@pytest.fixture
def marked() -> Iterator[Callable[[str], int]]:
    """Makes a file whose content says which it is; its descriptor."""
    opened = []

    def make(text: str) -> int:
        file = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the test is over
        file.write(text.encode())
        file.flush()
        opened.append(file)
        return file.fileno()

    yield make
    for file in opened:
        file.close()


def contents(fd: int) -> str:
    return os.pread(fd, 1000, 0).decode()


@pytest.mark.parametrize("style", STYLES)
def test_nothing_leaks_into_a_child(style: Style) -> None:
    leaky = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(leaky, True)
    read, write = os.pipe()
    os.set_inheritable(write, True)
    try:
        said = output_of(partial(python, LISTING), style=style)
    finally:
        for fd in (leaky, read, write):
            os.close(fd)
    assert [line.split()[0] for line in said.splitlines()] == ["0", "1", "2"], said


@pytest.mark.parametrize("style", STYLES)
def test_what_is_passed_stays_open(style: Style, marked: Callable[[str], int]) -> None:
    passed = [marked("a"), marked("b")]
    code = f"import os\nprint(*(os.pread(fd, 9, 0).decode() for fd in {passed}))\n{LISTING}"
    said = output_of(partial(python, code), style=style, pass_fds=passed).splitlines()
    assert said[0] == "a b"
    assert [int(line.split()[0]) for line in said[1:]] == [0, 1, 2, *sorted(passed)]
    assert not any(os.get_inheritable(fd) for fd in passed)


@pytest.mark.parametrize("style", STYLES)
def test_streams_are_those_that_were_asked_for(style: Style, marked: Callable[[str], int]) -> None:
    files = (marked("in"), marked("out"), marked("err"))
    os.lseek(files[0], 0, os.SEEK_SET)
    script = "read line; echo $line >&1; echo $line >&2"
    with started(image("/bin/sh", "-c", script, stdio=files), style=style) as child:
        child.end()
    # The offset is shared: it is written after what was there.
    assert [contents(fd) for fd in files] == ["in", "outin\n", "errin\n"]


PERMUTE = """
import os, sys
from agentd.linux.birth import Style
from tests.support.births import image, started

order = [int(word) for word in sys.argv[1].split(",")]
style = Style(int(sys.argv[2]))
script = "echo one >&1; echo two >&2; exec 3>&0; echo zero >&3"
for fd in range(3):
    os.dup2(os.open(f"{sys.argv[3]}/{fd}", os.O_RDWR | os.O_CREAT | os.O_APPEND), fd)
for fd in map(int, filter(None, sys.argv[4].split(","))):
    os.close(fd)
with started(image("/bin/sh", "-c", script, stdio=tuple(order)), style=style) as child:
    code = child.end().code
os._exit(code)
"""


ORDERS = list(product((0, 1, 2), repeat=3))
# The styles share the code: a few orders are enough to see that.
CASES = [(Style.VFORK, order) for order in ORDERS] + [
    (style, order) for style in (Style.FORK, Style.LEGACY) for order in ((0, 2, 1), (2, 0, 1), (1, 1, 0))
]


@pytest.mark.parametrize(("style", "order"), CASES)
def test_streams_among_themselves(style: Style, order: tuple[int, ...], tmp_path: Path) -> None:
    """Swapped, doubled, turned round: a source below 3 may be the target of another one."""
    words = ",".join(map(str, order))
    embedding.run(PERMUTE, words, str(int(style)), str(tmp_path), "")
    expected: dict[int, set[str]] = {0: set(), 1: set(), 2: set()}
    for word, source in zip(("zero", "one", "two"), order, strict=True):
        expected[source].add(word)
    for fd in range(3):
        assert set((tmp_path / str(fd)).read_text().split()) == expected[fd]


CLOSED = """
import os, sys
from agentd.linux.birth import Style
from tests.support.births import image, started

style = Style(int(sys.argv[1]))
out = os.dup(1)
keep = os.dup(2)
for fd in (0, 1, 2):
    os.close(fd)
script = "ls -1 /proc/$$/fd; exit 5"
with started(image("/bin/sh", "-c", script, stdio=(-1, out, -1)), style=style) as child:
    code = child.end().code
os.dup2(out, 1)
os.dup2(keep, 2)
assert code == 5, code
"""


@pytest.mark.parametrize("style", STYLES)
def test_closed_streams_stay_closed(style: Style) -> None:
    """And the shim's own descriptors, which may be 0 to 2 then, are no child's."""
    said = embedding.run(CLOSED, str(int(style))).split()
    assert "1" in said
    assert "0" not in said
    assert "2" not in said
