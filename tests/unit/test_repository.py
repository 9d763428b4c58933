"""The repository's own promises: one version, scripts that explain themselves, nothing private in a file."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

import agentd

ROOT = Path(__file__).parents[2]
FOLDERS = ("scripts", "scripts/ci", ".ci")
FILES = [path for folder in FOLDERS for path in sorted((ROOT / folder).iterdir()) if path.is_file()]
SCRIPTS = [path for path in FILES if os.access(path, os.X_OK)]
NAMES = [str(path.relative_to(ROOT)) for path in SCRIPTS]

# What only the people who build this have (in halves: this file is checked, too), and package registries:
# which one is asked is the machine's own configuration.
FORBIDDEN = [
    "../" + "shared",
    "/wo" + "rk/",
    "pypi" + ".org",
    "python" + "hosted.org",
    "debian" + ".org",
    "registry." + "npmjs",
]


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(ROOT / script), *arguments]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


def test_version_is_the_projects() -> None:
    assert agentd.__version__ == project()["project"]["version"]


@pytest.mark.parametrize("script", NAMES)
def test_script_explains_itself(script: str) -> None:
    done = run(script, "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: ")


@pytest.mark.parametrize("script", NAMES)
def test_script_refuses_an_unknown_option(script: str) -> None:
    if script == "scripts/kernel":
        # It passes on its command's status, so that its own has to be another.
        status, done = 125, run(script, "uml", "--no-such-option", "--", "true")
    else:
        status, done = 2, run(script, "--no-such-option")
    assert done.returncode == status, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "--no-such-option" in done.stderr


def test_python_scripts_are_checked() -> None:
    python = {
        name
        for name, path in zip(NAMES, SCRIPTS, strict=True)
        if path.suffix != ".py" and re.match(rb"#!.*python", path.read_bytes())
    }
    tools = project()["tool"]
    assert python <= set(tools["mypy"]["files"])
    assert python <= set(tools["ruff"]["extend-include"])


def test_nothing_private_is_mentioned() -> None:
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("no git, or no checkout of it: there is no telling which files belong to it")
    # The checkout may be another user's than the one who tests it.
    command = ["git", "-c", "safe.directory=*", "-C", str(ROOT), "ls-files", "-z"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True)
    found = [
        f"{name}: {word}"
        for name in filter(None, listed.stdout.split("\0"))
        if (ROOT / name).is_file()
        for word in FORBIDDEN
        if word.encode() in (ROOT / name).read_bytes()
    ]
    assert found == []
