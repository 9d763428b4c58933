"""From what was asked to run to what execve takes, and from its errno to words."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.errors import UsageError
from agentd.process import command

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@given(st.lists(texts, min_size=1).filter(lambda argv: bool(argv[0])))
def test_text_comes_through(argv: list[str]) -> None:
    assert command.encode_argv(argv) == [os.fsencode(argument) for argument in argv]


def test_bytes_and_paths_come_through() -> None:
    assert command.encode_argv([Path("/bin/x"), b"\xff", "\udcff"]) == [b"/bin/x", b"\xff", b"\xff"]


@pytest.mark.parametrize(
    ("argv", "problems"),
    [([], 1), ([""], 1), ("ls", 1), (b"ls", 1), (7, 1), (["ls", "a\0", 3, None, "\ud800"], 4)],
)
def test_what_no_command_can_be_given(argv: Any, problems: int) -> None:
    with pytest.raises(UsageError) as caught:
        command.encode_argv(argv)
    assert len(caught.value.problems) == problems


def test_what_no_environment_can_hold_is_named_each() -> None:
    wrong: dict[Any, Any] = {"": "a", "A=B": "a", "C": "\0", "D\0": "a", "E": 1, 2: "a", "F": "\ud800"}
    with pytest.raises(UsageError) as caught:
        command.encode_environment({**wrong, "FINE": "\udcff"})
    assert len(caught.value.problems) == len(wrong)


def test_an_environment_comes_through() -> None:
    given = {"A": "", "B": "x=y", "É": "\udcff"}
    assert command.encode_environment(given) == {b"A": b"", b"B": b"x=y", "É".encode(): b"\xff"}


def test_our_own_environment_is_a_copy() -> None:
    """Another thread may change it while the child's is being made."""
    ours = command.current_environment()
    assert dict(ours) == dict(os.environb)
    os.environ["AGENTD_TEST"] = "1"
    try:
        assert b"AGENTD_TEST" not in ours
    finally:
        del os.environ["AGENTD_TEST"]


@pytest.mark.parametrize(
    ("program", "path", "tried"),
    [
        (b"ls", b"/a:/b", [b"/a/ls", b"/b/ls"]),
        (b"ls", b"/a::/b:", [b"/a/ls", b"./ls", b"/b/ls", b"./ls"]),
        (b"ls", b"", [b"./ls"]),
        (b"ls", b"rel", [b"rel/ls"]),
        (b"/bin/ls", b"/a", [b"/bin/ls"]),
        (b"./ls", b"/a", [b"./ls"]),
        (b"a/ls", b"/a", [b"a/ls"]),
    ],
)
def test_candidates_are_those_of_execvpe(program: bytes, path: bytes, tried: list[bytes]) -> None:
    assert command.candidates(program, {b"PATH": path}) == tried


def test_candidates_without_a_path() -> None:
    assert all(one.endswith(b"/bin/ls") for one in command.candidates(b"ls", {}))


def words(number: int, *tried: Path | str, stage: str = "exec", cwd: str | None = None) -> tuple[int, str]:
    paths = [os.fsencode(path) for path in tried] or [b"/nowhere/x"]
    error = command.start_error(stage, number, [b"x"], paths, cwd)
    assert error.errno == number
    assert error.stage == stage
    assert "\n" not in str(error)
    return error.exit_code, str(error)


def test_words_for_what_is_not_there(tmp_path: Path) -> None:
    assert words(errno.ENOENT)[0] == 127
    assert "not found in PATH" in words(errno.ENOENT)[1]
    script = tmp_path / "script"
    script.write_text("#! /no/such/interpreter -x\n")
    code, message = words(errno.ENOENT, script)
    assert code == 126
    assert "/no/such/interpreter" in message
    script.write_bytes(b"\x7fELF")
    assert words(errno.ENOENT, script)[0] == 126
    assert "loader" in words(errno.ENOENT, script)[1]


def test_words_for_what_cannot_be_executed(tmp_path: Path) -> None:
    assert words(errno.EACCES, tmp_path) == (126, f"{tmp_path}: is a directory; name a program")
    plain = tmp_path / "plain"
    plain.touch()
    assert words(errno.EACCES, plain)[0] == 126
    assert "chmod +x" in words(errno.EACCES, plain)[1]
    assert words(errno.ENOEXEC, plain)[0] == 126
    assert words(errno.E2BIG)[0] == 126
    assert words(errno.ETXTBSY, plain) == (126, "x: Text file busy (ETXTBSY)")


def test_words_for_a_limit_that_is_too_low() -> None:
    assert words(errno.ENOMEM)[0] == 125
    starved = command.start_error("exec", errno.E2BIG, [b"x"], [b"/x"], None, starved=True)
    assert starved.exit_code == 125
    assert "memory" in str(starved)


def test_words_for_the_steps_before_the_exec() -> None:
    assert words(errno.ENOENT, stage="chdir", cwd="/no/where") == (
        125,
        "working directory /no/where: No such file or directory; create it, or give another with --cwd",
    )
    code, message = words(errno.EAGAIN, stage="clone")
    assert code == 125
    assert "pids.max" in message
