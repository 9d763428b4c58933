"""From what was asked to run to what execve(2) takes, and from its errno to words."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping, Sequence

from agentd.errors import StartError, UsageError

_DEFAULT_PATH = b"/usr/local/bin:/usr/bin:/bin"


def encode_argv(argv: Sequence[str | bytes | os.PathLike[str]]) -> list[bytes]:
    """The arguments as bytes. Raises UsageError for an empty list, a text alone, or a NUL inside."""
    if isinstance(argv, (str, bytes)):
        raise UsageError(f"argv {argv!r} is one text: give a list of arguments")
    if not isinstance(argv, Iterable):
        raise UsageError(f"argv {argv!r} is no list of arguments")
    problems = []
    encoded = []
    for argument in argv:
        try:
            encoded.append(os.fsencode(argument))
        except (TypeError, UnicodeEncodeError):
            problems.append(f"argument {argument!r} is neither text nor a path")
            continue
        if b"\0" in encoded[-1]:
            problems.append(f"argument {argument!r} holds a NUL byte, which no command can be given")
    if not problems and (not encoded or not encoded[0]):
        problems.append("argv is empty: name a command")
    if problems:
        raise UsageError(problems)
    return encoded


def current_environment() -> Mapping[bytes, bytes]:
    """os.environ as bytes. Its own dictionary is that already; os.environb converts on every access."""
    data = getattr(os.environ, "_data", None)
    # A copy, made in one step: another thread may be changing it.
    return data.copy() if isinstance(data, dict) else dict(os.environb)


def own_directory() -> str:
    """This process's working directory; one that was removed has " (deleted)" after it, as in proc(5)."""
    try:
        return os.getcwd()
    except OSError:
        pass
    try:
        return os.readlink("/proc/self/cwd")
    except OSError:
        return ""


def encode_environment(env: Mapping[str, str]) -> dict[bytes, bytes]:
    """Raises UsageError naming every entry that no environment can hold."""
    if not isinstance(env, Mapping):
        raise UsageError(f"env {env!r} does not map names to values")
    problems = []
    encoded = {}
    for name, value in env.items():
        if not isinstance(name, str) or not isinstance(value, str):
            problems.append(f"environment entry {name!r}={value!r} is not text")
        elif not _encodable(name) or not _encodable(value):
            problems.append(f"environment entry {name!r}={value!r} holds half of a surrogate pair")
        elif not name or "=" in name or "\0" in name or "\0" in value:
            problems.append(f"environment entry {name!r} cannot be: no '=' in a name, no NUL byte")
        else:
            encoded[os.fsencode(name)] = os.fsencode(value)
    if problems:
        raise UsageError(problems)
    return encoded


def _encodable(text: str) -> bool:
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True


def candidates(program: bytes, env: Mapping[bytes, bytes]) -> list[bytes]:
    """The paths to try, as execvpe(3): a name with a slash is itself, else each directory of the PATH that
    the command will see."""
    if b"/" in program:
        return [program]
    path = env.get(b"PATH", _DEFAULT_PATH)
    return [os.path.join(directory or b".", program) for directory in path.split(b":")]


def start_error(
    stage: str,
    number: int,
    argv: Sequence[bytes],
    tried: Sequence[bytes],
    cwd: str | None,
    *,
    starved: bool = False,
) -> StartError:
    """Why a command did not start, with the exit code: 126 cannot be executed, 127 not found, else 125.

    ``starved``: its leaf's memory limit was hit. The kernel then says E2BIG as often as ENOMEM, since it cannot
    copy even the shortest argument list (G34).
    """
    name = os.fsdecode(argv[0])
    words = os.strerror(number)
    if starved and number in (errno.ENOMEM, errno.E2BIG):
        return too_low(name, stage, number)
    if stage == "chdir":
        return StartError(
            f"working directory {cwd}: {words}",
            stage=stage,
            errno=number,
            remedy="create it, or give another with --cwd",
        )
    if stage != "exec":
        from agentd.linux.stages import WHAT, remedy

        return StartError(
            f"cannot {WHAT.get(stage, stage)}: {words} ({errno.errorcode.get(number, number)})",
            stage=stage,
            errno=number,
            remedy=remedy(stage, number),
        )
    code, message, todo = _exec_words(name, number, tried, cwd)
    return StartError(message, stage=stage, errno=number, exit_code=code, remedy=todo)


def too_low(name: str, stage: str, number: int) -> StartError:
    """The memory limit did not let it get through its exec."""
    return StartError(
        f"{name}: no memory to execute it",
        stage=stage,
        errno=number,
        remedy="the memory limit is too low to start it: raise memory.max",
    )


def _exec_words(name: str, number: int, tried: Sequence[bytes], cwd: str | None) -> tuple[int, str, str]:
    found = _first_existing(tried, cwd)
    if number in (errno.ENOENT, errno.ENOTDIR):
        if found is None:
            where = "" if "/" in name else " in PATH"
            return 127, f"{name}: not found{where}", "check the spelling, or give its path"
        interpreter = _interpreter(found)
        if interpreter:
            return (
                126,
                f"{found}: its interpreter {interpreter} is not there",
                "install it, or mend the #! line",
            )
        return (
            126,
            f"{found}: its loader is not there",
            "it was built for another system: install its C library",
        )
    if number == errno.EACCES:
        if found is not None and os.path.isdir(found):
            return 126, f"{found}: is a directory", "name a program"
        return 126, f"{found or name}: not executable", "chmod +x it, or run it with its interpreter"
    if number == errno.ENOEXEC:
        return (
            126,
            f"{found or name}: not in a format that can be executed",
            "give it a #! line, or run it with sh",
        )
    if number == errno.E2BIG:
        return 126, f"{name}: argument list too long", "pass the data through a file or standard input"
    if number == errno.ENOMEM:
        return (
            125,
            f"{name}: no memory to execute it",
            "raise the memory limit above the leaf, or end processes",
        )
    return 126, f"{name}: {os.strerror(number)} ({errno.errorcode.get(number, number)})", ""


def _first_existing(tried: Sequence[bytes], cwd: str | None) -> str | None:
    for path in tried:
        full = os.path.join(os.fsencode(cwd or ""), path)
        if os.path.lexists(full):
            return os.fsdecode(full)
    return None


def _interpreter(path: str) -> str | None:
    try:
        with open(path, "rb") as script:
            line = script.readline(256)
    except OSError:
        return None
    if not line.startswith(b"#!"):
        return None
    words = line[2:].split()
    return os.fsdecode(words[0]) if words else "(none)"
