"""From the options of ``agentd run`` to what `Supervisor.spawn` takes: every problem in one error."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from agentd.cgroup.duration import parse_duration
from agentd.cgroup.limits import Limits
from agentd.errors import UsageError

_FIELDS = {
    "memory_max": "memory_max",
    "memory_high": "memory_high",
    "swap_max": "memory_swap_max",
    "pids_max": "pids_max",
    "cpu_max": "cpu_max",
    "cpu_weight": "cpu_weight",
    "cpuset_cpus": "cpuset_cpus",
    "timeout": "wall",
    "cpu_time": "cpu_time",
    "idle_timeout": "idle",
}
"""Options that are one field of `Limits` each."""

_OPTIONS = {
    **{limit: "--" + option.replace("_", "-") for option, limit in _FIELDS.items()},
    "memory_oom_group": "--oom-group",
    "io_max": "--io-max",
    "files": "--set",
}


class Request:
    """What one call of ``agentd run`` asks for, checked. ``spawn`` are keywords of `Supervisor.spawn`;
    ``report_fd`` is -1 where no report is wanted."""

    def __init__(
        self,
        command: tuple[str, ...],
        *,
        cgroup: str,
        grace: float,
        tty: bool,
        capture: bool,
        quiet: bool,
        spawn: dict[str, Any],
        report_fd: int,
    ) -> None:
        self.command = command
        self.cgroup = cgroup
        self.grace = grace
        self.tty = tty
        self.capture = capture
        self.quiet = quiet
        self.spawn = spawn
        self.report_fd = report_fd

    def complain(self, text: str) -> None:
        """One line on stderr; one that nobody can read any more is lost, and nothing else."""
        try:
            os.write(2, f"agentd: {' '.join(text.split())}\n".encode(errors="replace"))
        except OSError:
            return

    def announce(self, notes: tuple[str, ...]) -> None:
        """What this host cannot give, said when the command starts."""
        if not self.quiet:
            for note in notes:
                self.complain(f"warning: {note}")

    def write_report(self, report: Any) -> None:
        if self.report_fd < 0:
            return
        import json

        data = json.dumps(report.to_dict(), ensure_ascii=False).encode(errors="backslashreplace") + b"\n"
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(self.report_fd, view) :]
        except OSError as error:
            self.complain(f"the report could not be written: {error.strerror}")


def gather(command: tuple[str, ...], given: Mapping[str, Any]) -> Request:
    """Check everything; raises UsageError with every problem, before anything is started."""
    problems: list[str] = []
    if not command:
        problems.append("no COMMAND: give one after --, as in `agentd run -- true`")
    spawn: dict[str, Any] = {
        "limits": _limits(given, problems),
        "best_effort": given["best_effort"],
        "delegate": given["delegate"],
        "name": _name(given["name"], problems),
        "cwd": given["cwd"],
        "env": _environment(given["env"], given["clear_env"], problems),
        "background": given["background"],
    }
    if given["background"] not in ("kill", "wait"):
        problems.append(f"--background {given['background']!r} is neither kill nor wait")
    grace = _grace(given["grace"], problems)
    cgroup = given["cgroup"]
    if cgroup not in ("auto", "required", "off") and not cgroup.startswith("/"):
        problems.append(f"--cgroup {cgroup!r} is none of auto, required, off, or an absolute path")
    report_fd = -1 if problems else _open_report(given["report"], problems)
    if problems:
        raise UsageError(problems)
    idle = given["idle_timeout"] is not None
    tty = given["tty"] or (idle and _on_a_terminal())
    return Request(
        command,
        cgroup=cgroup,
        grace=grace,
        tty=tty,
        capture=idle and not tty,
        quiet=given["quiet"],
        spawn=spawn,
        report_fd=report_fd,
    )


def _on_a_terminal() -> bool:
    """Whether a command here may find a terminal where it looks for one. Not in the background: its output can
    pass through pipes, and the terminal is not ours to read for it."""
    from agentd.process.terminal import in_background

    return os.isatty(0) and os.isatty(1) and not in_background(0)


def _limits(given: Mapping[str, Any], problems: list[str]) -> Limits | None:
    fields: dict[str, Any] = {limit: given[option] for option, limit in _FIELDS.items()}
    fields["memory_oom_group"] = True if given["oom_group"] else None
    fields["io_max"] = given["io_max"] or None
    files: dict[str, str] = {}
    for pair in given["set_"]:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            problems.append(f"--set {pair!r} is not FILE=VALUE")
        elif name in files:
            problems.append(f"--set {name} is given twice")
        else:
            files[name] = value
    fields["files"] = files or None
    try:
        return Limits(**fields)
    except UsageError as error:
        problems += [_as_option(problem) for problem in error.problems]
        return None


def _as_option(problem: str) -> str:
    name, colon, rest = problem.partition(": ")
    return f"{_OPTIONS[name]} {rest}" if colon and name in _OPTIONS else problem


def _name(name: str | None, problems: list[str]) -> str | None:
    from agentd.process.asked import NAME_RULE, valid_name

    if name is not None and not valid_name(name):
        problems.append(f"--name {name!r}: {NAME_RULE}")
    return name


def _grace(text: str, problems: list[str]) -> float:
    if text in ("0", "0s"):
        return 0.0
    try:
        return parse_duration(text)
    except UsageError as error:
        problems += [f"--grace {problem}" for problem in error.problems]
        return 0.0


def _environment(pairs: tuple[str, ...], clear: bool, problems: list[str]) -> dict[str, str] | None:
    if not pairs and not clear:
        return None
    env = {} if clear else dict(os.environ)
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or "\0" in pair:
            problems.append(f"--env {pair!r} is neither NAME=VALUE nor NAME")
        elif equals:
            env[name] = value
        elif name in os.environ:
            env[name] = os.environ[name]
        else:
            problems.append(f"--env {name} is not in the environment: give it as {name}=VALUE")
    return env


def _open_report(path: str | None, problems: list[str]) -> int:
    """Opened before anything runs: a report that could not be written is a usage error, not a surprise."""
    if path is None:
        return -1
    try:
        if path == "-":
            sys.stdout.flush()
            return os.dup(1)
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOCTTY, 0o644)
    except OSError as error:
        problems.append(f"--report {path}: {error.strerror}")
        return -1
