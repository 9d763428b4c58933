"""Every bad option: exit 2, one line that names it, and nothing was started or opened."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agentd.cli import early
from agentd.cli.main import run_cli
from agentd.process import supervisor

LIMITS = [
    ("--memory-max", "lots"),
    ("--memory-max", "-1"),
    ("--memory-max", "101%"),
    ("--memory-max", "1"),
    ("--memory-high", "1.5.5G"),
    ("--swap-max", "much"),
    ("--pids-max", "many"),
    ("--pids-max", "-3"),
    ("--cpu-max", "0"),
    ("--cpu-max", "fast"),
    ("--cpu-max", "1 2 3"),
    ("--cpu-weight", "0"),
    ("--cpu-weight", "10001"),
    ("--cpuset-cpus", "3-1"),
    ("--io-max", "sda"),
    ("--set", "memory.low"),
    ("--set", "=1"),
    ("--set", "../x=1"),
    ("--set", "cgroup.procs=1"),
    ("--set", "memory.low="),
    ("--timeout", "soon"),
    ("--timeout", "-1s"),
    ("--timeout", "0"),
    ("--cpu-time", "1 fortnight"),
    ("--idle-timeout", "nan"),
]
OTHERS = [
    ("--grace", "a while"),
    ("--grace", "-1s"),
    ("--grace", "inf"),
    ("--cgroup", "somewhere"),
    ("--cgroup", ""),
    ("--cgroup", "relative/path"),
    ("--name", "../../x"),
    ("--name", ""),
    ("--name", "x" * 65),
    ("--background", "leave"),
    ("--env", "=value"),
    ("--env", "NOT_IN_THE_ENVIRONMENT_OF_THE_TESTS"),
    ("--report", "/nowhere/report.json"),
    ("--report", "/"),
    ("--no-such-option", "1"),
]


@pytest.fixture(autouse=True)
def _nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early, "original_mask", set())  # this process's own signals stay as they are

    def start(*_: object, **__: object) -> None:
        pytest.fail("a Supervisor was made")

    monkeypatch.setattr(supervisor.Supervisor, "__init__", start)


def _complaint(capfd: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run_cli(["run", *arguments]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert len(lines) == 1, err
    assert lines[0].startswith("agentd: ")
    return lines[0]


@pytest.mark.parametrize(("option", "value"), [*LIMITS, *OTHERS])
def test_bad_value(capfd: pytest.CaptureFixture[str], option: str, value: str) -> None:
    named = value.partition("=")[0] if option == "--set" and value[0] != "=" else option
    assert named in _complaint(capfd, f"{option}={value}", "--", "true")


@pytest.mark.parametrize("option", ["--memory-max", "--timeout", "--report", "--name"])
def test_option_without_its_value(capfd: pytest.CaptureFixture[str], option: str) -> None:
    assert option in _complaint(capfd, option)


def test_flag_with_a_value(capfd: pytest.CaptureFixture[str]) -> None:
    assert "--tty" in _complaint(capfd, "--tty=yes", "--", "true")


def test_no_command(capfd: pytest.CaptureFixture[str]) -> None:
    assert "COMMAND" in _complaint(capfd)
    assert "COMMAND" in _complaint(capfd, "--pids-max", "3", "--")


def test_line_breaks_do_not_break_the_line(capfd: pytest.CaptureFixture[str]) -> None:
    assert "--memory-max" in _complaint(capfd, "--memory-max", "1\n2\nagentd: all is well", "--", "true")
    assert "--no" in _complaint(capfd, "--no\nsuch", "--", "true")


def test_twenty_bad_limits_are_one_error_naming_all(capfd: pytest.CaptureFixture[str]) -> None:
    bad = {
        "--memory-max": "a",
        "--memory-high": "b",
        "--swap-max": "c",
        "--pids-max": "d",
        "--cpu-max": "e",
        "--cpu-weight": "f",
        "--cpuset-cpus": "g",
        "--timeout": "h",
        "--cpu-time": "i",
        "--idle-timeout": "j",
        "--grace": "k",
        "--name": "/",
        "--background": "l",
        "--cgroup": "m",
    }
    arguments = [f"{option}={value}" for option, value in bad.items()]
    repeated = ["--io-max=n", "--io-max=o", "--set=p", "--set=cgroup.kill=1", "--set=memory.min=q", "--env=="]
    line = _complaint(capfd, *arguments, *repeated)
    for option, value in bad.items():
        assert re.search(rf"{option}\b[^;]*'{value}'", line), (option, line)
    for value in ("'n'", "'o'", "'p'", "cgroup.kill", "memory.min", "'='", "COMMAND"):
        assert value in line
    assert len(line.split(";")) >= 20


def test_report_is_not_touched(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    report.write_text("of an earlier run")
    _complaint(capfd, "--report", str(report), "--pids-max", "many", "--", "true")
    assert report.read_text() == "of an earlier run"
