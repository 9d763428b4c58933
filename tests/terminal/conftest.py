"""Fixtures of the terminal tests: agentd on a line of its own, or below a shell with job control."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.terminal.line import PROMPT, Line

AGENTD = str(Path(__file__).parents[2] / ".venv" / "bin" / "agentd")
PROGRAMS = Path(__file__).parents[1] / "programs"


class Start(Protocol):
    def __call__(self, *command: str, options: str = "", **given: Any) -> Line: ...


@pytest.fixture
def agentd_run(cgroup_root: str, tmp_path: Path) -> str:
    """The start of a shell's command line: `agentd run` with leaves of this test's own, and a report."""
    return shlex.join([AGENTD, "run", "--cgroup", cgroup_root, "--report", str(tmp_path / "report.json")])


@pytest.fixture
def report(tmp_path: Path) -> Any:
    """Reads the report of the last run that ended."""
    return lambda: json.loads((tmp_path / "report.json").read_text())


@pytest.fixture
def lines(cgroup_root: str) -> Iterator[list[Line]]:
    """Those that are ended at the test's end, before its cgroup is looked at."""
    opened: list[Line] = []
    yield opened
    for line in opened:
        line.close()


@pytest.fixture
def start(agentd_run: str, lines: list[Line]) -> Start:
    """`agentd run OPTIONS -- COMMAND` as the leader of a session on a terminal."""

    def start(*command: str, options: str = "", **given: Any) -> Line:
        line = Line([*shlex.split(agentd_run), *shlex.split(options), "--", *command], **given)
        lines.append(line)
        return line

    return start


@pytest.fixture
def shell(lines: list[Line]) -> Line:
    """An interactive bash."""
    if shutil.which("bash") is None:
        pytest.skip("there is no bash here, whose job control is tested with")
    line = Line.shell()
    lines.append(line)
    return line


@pytest.fixture
def editing_shell(lines: list[Line]) -> Line:
    """An interactive bash that edits its lines, and so sets the terminal's modes itself."""
    if shutil.which("bash") is None:
        pytest.skip("there is no bash here, whose job control is tested with")
    line = Line.shell(editing=True)
    lines.append(line)
    return line


def program(name: str, *arguments: str) -> list[str]:
    """The command line of a program of tests/programs."""
    return [sys.executable, "-I", "-S", str(PROGRAMS / f"{name}.py"), *arguments]


def prompt(line: Line) -> int:
    """Wait for the shell's prompt; the status that it shows."""
    return int(line.expect(PROMPT)[1])
