"""What was asked of a spawn, checked whole before anything exists: one error names every problem."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from agentd.cgroup.limits import Limits
from agentd.errors import UsageError
from agentd.process import command, stdio
from agentd.process.streams import Capture
from agentd.process.terminal import PseudoTerminal

NAME_RULE = "give at most 64 letters, digits, '.', '_' and '-', beginning with a letter or digit"


class Asked(NamedTuple):
    """As execve(2) and the child want it. ``name`` labels the run; ``cwd`` None stays where we are."""

    argv: list[bytes]
    env: Mapping[bytes, bytes]
    name: str
    cwd: str | None
    pass_fds: tuple[int, ...]


def check(
    argv: Any,
    *,
    env: Any,
    name: Any,
    cwd: Any,
    limits: Any,
    stdin: Any,
    stdout: Any,
    stderr: Any,
    tty: bool | PseudoTerminal,
    pass_fds: Any,
    grace: Any,
    background: Any,
    sigmask: Any,
    on_exit: Any,
) -> Asked:
    """Raises UsageError with every problem; see `Supervisor.spawn` for what each argument means."""
    problems: list[str] = []

    def attempt(convert: Callable[[Any], Any], value: Any) -> Any:
        try:
            return convert(value)
        except UsageError as error:
            problems.extend(error.problems)
            return None

    arguments = attempt(command.encode_argv, argv)
    variables = command.current_environment() if env is None else attempt(command.encode_environment, env)
    where = None if cwd is None else attempt(_directory, cwd)
    passed = attempt(_descriptors, pass_fds) if pass_fds else ()
    if name is not None and not valid_name(name):
        problems.append(f"name {name!r}: {NAME_RULE}")
    if not valid_grace(grace):
        problems.append(f"grace {grace!r} is not a number of seconds from 0")
    if background not in ("kill", "wait"):
        problems.append(f"background {background!r} is neither kill nor wait")
    if sigmask is not None and not (_whole(sigmask) and 0 <= sigmask < 1 << 64):
        problems.append(f"sigmask {sigmask!r} is not a set of signals: bit N-1 stands for signal N")
    if on_exit is not None and not callable(on_exit):
        problems.append(f"on_exit {on_exit!r} cannot be called")
    problems += stdio.problems(stdin, stdout, stderr, tty)
    if not isinstance(limits, Limits):
        problems.append(f"limits {limits!r} are no Limits")
    elif limits.idle is not None and not (tty or isinstance(stdout, Capture) or isinstance(stderr, Capture)):
        problems.append("idle: without a Capture, output does not pass here, and silence cannot be told")
    if problems:
        raise UsageError(problems)
    label = os.path.basename(arguments[0]).decode(errors="replace") if name is None else name
    return Asked(arguments, variables, label, where, passed)


def valid_name(name: object) -> bool:
    """Whether ``name`` can name a run: it appears in reports and on the command line, never in a path."""
    return (
        isinstance(name, str)
        and 0 < len(name) <= 64
        and name.isascii()
        and name[0].isalnum()
        and name.replace("_", "a").replace("-", "a").replace(".", "a").isalnum()
    )


def valid_grace(grace: object) -> bool:
    return isinstance(grace, (int, float)) and not isinstance(grace, bool) and 0 <= grace < 1e9


def _directory(cwd: Any) -> str:
    try:
        path = os.fsdecode(cwd)
        os.fsencode(path)
    except (TypeError, UnicodeEncodeError):
        raise UsageError(f"cwd {cwd!r} is neither text nor a path") from None
    if "\0" in path:
        raise UsageError(f"cwd {path!r} holds a NUL byte, which no path can")
    return path


def _descriptors(values: Sequence[Any]) -> tuple[int, ...]:
    try:
        numbers = tuple(values)
    except TypeError:
        raise UsageError(f"pass_fds {values!r} are no descriptors") from None
    wrong = [value for value in numbers if not (_whole(value) and 0 <= value < 1 << 31)]
    if wrong:
        raise UsageError([f"pass_fds: {value!r} is no descriptor" for value in wrong])
    return numbers


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
