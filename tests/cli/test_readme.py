"""Every command of the README does what it says there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [
    line
    for block in re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)
    for line in block.splitlines()
    # That is what runs this very test.
    if line and line != "scripts/test"
]
SESSION = re.search(r"```console\n(.*?)```", TEXT, re.DOTALL)
PROGRAM = re.search(r"```python\n(.*?)```", TEXT, re.DOTALL)


def run(command: list[str], cgroup: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """From inside a cgroup of the test's own, so that the leaves are made below that."""
    entering = ["sh", "-c", f'echo $$ > {cgroup}/cgroup.procs && exec "$@"', "sh", *command]
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    return subprocess.run(
        entering,
        cwd=cwd,
        env={**os.environ, "PATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_command(command: str, cgroup_root: str, tmp_path: Path) -> None:
    where = ROOT if command.startswith("scripts/") else tmp_path
    done = run(["sh", "-c", command], cgroup_root, where)
    assert done.returncode == 0, done.stderr


def test_session(cgroup_root: str, tmp_path: Path) -> None:
    """The recorded session, but for its times."""
    assert SESSION
    script = "\n".join(
        f"status=$?\nprintf '%s\\n' {_quoted(line)}\n(exit $status)\n{line[2:]}"
        for line in SESSION[1].splitlines()
        if line.startswith("$ ")
    )
    done = run(["sh", "-c", f"exec 2>&1\n{script}"], cgroup_root, tmp_path)
    assert _without_times(done.stdout) == _without_times(SESSION[1])


def test_program(cgroup_root: str, tmp_path: Path) -> None:
    assert PROGRAM
    done = run([sys.executable, "-c", PROGRAM[1]], cgroup_root, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("working\nok {")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _without_times(text: str) -> str:
    return re.sub(r"\d+\.\d+ s", "N s", text).strip()
