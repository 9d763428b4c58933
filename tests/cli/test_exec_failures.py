"""A command that cannot be started: one line, the shell's codes, nothing left."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import agentd as library
from tests.support import leftovers
from tests.support.runs import Agentd, CompletedRun


def _is_a_failed_start(run: CompletedRun, code: int, *words: str) -> None:
    assert run.code == code
    assert run.stdout == ""
    assert run.line.startswith("agentd: ")
    for word in words:
        assert word in run.line
    report = run.report
    assert report["verdict"]["cause"] == "start"
    assert report["exit_code"] == code
    assert report["pid"] is None
    assert report["teardown"]["complete"]


def _script(path: Path, text: str, mode: int = 0o755) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_missing(agentd: Agentd) -> None:
    _is_a_failed_start(agentd("--", "/nowhere/command"), 127, "/nowhere/command", "not found")


def test_missing_in_path(agentd: Agentd) -> None:
    _is_a_failed_start(agentd("--", "no-such-command-here"), 127, "no-such-command-here", "PATH")


def test_not_executable(agentd: Agentd, tmp_path: Path) -> None:
    script = _script(tmp_path / "only-here-closed", "#!/bin/sh\n", 0o644)
    _is_a_failed_start(agentd("--", script), 126, script, "not executable")


def test_not_executable_in_path(agentd: Agentd, tmp_path: Path) -> None:
    _script(tmp_path / "only-here-closed", "#!/bin/sh\n", 0o644)
    run = agentd("--env", f"PATH={tmp_path}:/usr/bin", "--", "only-here-closed")
    _is_a_failed_start(run, 126, "only-here-closed", "not executable")


def test_a_directory(agentd: Agentd, tmp_path: Path) -> None:
    _is_a_failed_start(agentd("--", str(tmp_path)), 126, str(tmp_path), "directory")


def test_bad_interpreter(agentd: Agentd, tmp_path: Path) -> None:
    script = _script(tmp_path / "only-here-closed", "#!/nowhere/interpreter -x\n")
    _is_a_failed_start(agentd("--", script), 126, script, "/nowhere/interpreter")


def test_interpreter_is_a_directory(agentd: Agentd, tmp_path: Path) -> None:
    script = _script(tmp_path / "only-here-closed", f"#!{tmp_path}\n")
    _is_a_failed_start(agentd("--", script), 126, script)


def test_no_format_that_can_be_executed(agentd: Agentd, tmp_path: Path) -> None:
    script = _script(tmp_path / "only-here-closed", "echo a script without its first line\n")
    _is_a_failed_start(agentd("--", script), 126, script, "format")


def test_empty_file(agentd: Agentd, tmp_path: Path) -> None:
    _is_a_failed_start(agentd("--", _script(tmp_path / "empty", "")), 126, "format")


def test_argument_list_too_long(cgroup_root: str) -> None:
    # By the API: what the command line takes, the kernel has taken once already.
    with library.Supervisor(cgroup_root) as supervisor:
        with pytest.raises(library.StartError, match="true: argument list too long") as caught:
            supervisor.spawn(["true", "x" * (os.sysconf("SC_PAGE_SIZE") * 32)])
        assert caught.value.exit_code == 126
        assert (caught.value.stage, caught.value.errno) == ("exec", errno.E2BIG)
        assert leftovers.leaves(cgroup_root) == []
        assert not leftovers.own_zombies()


def test_too_many_symbolic_links(agentd: Agentd, tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    _is_a_failed_start(agentd("--", str(loop)), 126, str(loop))


def test_busy_text(agentd: Agentd, tmp_path: Path, program: Callable[[str], str]) -> None:
    copy = tmp_path / "copy"
    copy.write_bytes(Path(program("leave_many")).read_bytes())
    copy.chmod(0o755)
    with copy.open("ab"):
        _is_a_failed_start(agentd("--", str(copy)), 126, str(copy))


def test_missing_working_directory(agentd: Agentd) -> None:
    _is_a_failed_start(agentd("--cwd", "/nowhere", "--", "true"), 125, "/nowhere", "--cwd")


def test_working_directory_is_a_file(agentd: Agentd, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    _is_a_failed_start(agentd("--cwd", str(file), "--", "true"), 125, str(file), "--cwd")


def test_quiet_does_not_hide_it(agentd: Agentd) -> None:
    _is_a_failed_start(agentd("--quiet", "--", "/nowhere/command"), 127, "not found")


def test_path_of_the_command_is_its_own(agentd: Agentd, tmp_path: Path) -> None:
    _script(tmp_path / "only-here", "#!/bin/sh\necho found\n")
    run = agentd("--env", f"PATH={tmp_path}:/usr/bin:/bin", "--", "only-here")
    assert (run.code, run.stdout) == (0, "found\n")


def test_relative_command_is_looked_for_in_the_working_directory(agentd: Agentd, tmp_path: Path) -> None:
    _script(tmp_path / "here", "#!/bin/sh\necho found\n")
    run = agentd("--cwd", str(tmp_path), "--", "./here")
    assert (run.code, run.stdout) == (0, "found\n")
    _is_a_failed_start(agentd("--cwd", str(tmp_path), "--", "./not-here"), 127, "not-here")


def test_no_cgroup_where_leaves_could_be_made(agentd: Agentd) -> None:
    run = agentd("--name", "refused", "--pids-max", "3", "--", "true", cgroup=agentd.root + "/missing/below")
    assert run.code == 2
    assert agentd.root + "/missing" in run.line
    assert run.report["name"] == "refused"
    assert run.report["exit_code"] == 2
    assert run.report["limits"]["asked"] == {"pids_max": "3"}
