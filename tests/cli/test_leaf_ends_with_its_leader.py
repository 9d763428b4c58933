"""The end of COMMAND, or of its time, is the end of everything it started: cases from the field."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable

import pytest

from agentd.cgroup.hierarchy import read_hierarchy
from tests.support.runs import Agentd, Report


def _names(report: Report) -> list[str]:
    return sorted(process["name"] for process in report["left_behind"])


def _is_empty(report: Report) -> bool:
    return bool(report["teardown"]["complete"] and report["teardown"]["leaf_removed"])


def test_b01_a_timeout_ends_the_whole_leaf(agentd: Agentd) -> None:
    run = agentd("--timeout", "300ms", "--", "sh", "-c", "sleep 987654 & sleep 987654")
    assert run.code == 124
    assert run.report["verdict"]["cause"] == "deadline"
    assert run.report["teardown"]["killed"] >= 2
    assert 0.3 <= run.report["duration"] < 5.3
    assert _is_empty(run.report)


def test_b03_a_member_of_a_pipeline(agentd: Agentd) -> None:
    run = agentd("--", "sh", "-c", "yes > /dev/null & exit 0")
    assert run.code == 0
    assert run.report["left_behind_count"] == 1
    assert run.report["teardown"]["killed"] == 1
    assert _is_empty(run.report)


def test_b04_thirty_nine_of_them(agentd: Agentd) -> None:
    script = "i=0; while [ $i -lt 39 ]; do yes > /dev/null & i=$((i + 1)); done"
    run = agentd("--", "sh", "-c", script)
    assert run.code == 0
    assert run.report["left_behind_count"] == 39
    assert run.report["teardown"]["killed"] == 39
    assert run.report["teardown"]["waited"] < 1.0  # 0.1 on a machine that is not busy otherwise
    assert _is_empty(run.report)


def test_b06_a_session_of_its_own(agentd: Agentd) -> None:
    run = agentd("--", "sh", "-c", "setsid sleep 987654 & echo done")
    assert (run.code, run.stdout) == (0, "done\n")
    assert run.report["left_behind_count"] == 1
    assert _is_empty(run.report)


def test_b07_a_double_fork(agentd: Agentd, program: Callable[[str], str]) -> None:
    run = agentd("--", program("double_fork"))
    assert run.code == 0
    assert _names(run.report) == ["double_fork"]
    assert run.report["left_behind"][0]["session"] != run.report["pid"]
    assert _is_empty(run.report)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can leave its leaf")
def test_b12_a_command_that_moves_itself_out(agentd: Agentd) -> None:
    script = f"echo $$ > {read_hierarchy().mount}/cgroup.procs; sleep 987654"
    run = agentd("--", "sh", "-c", script)
    assert run.code == 125
    assert run.report["verdict"]["cause"] == "escaped"
    assert run.report["teardown"]["complete"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can leave its leaf")
def test_b12_a_daemon_that_moves_itself_out(agentd: Agentd) -> None:
    script = (
        f"setsid sh -c 'echo $$ > {read_hierarchy().mount}/cgroup.procs; echo out; sleep 987654' & read x"
    )
    read, write = os.pipe()
    with os.fdopen(write, "w") as gate:
        run = agentd.start("--", "sh", "-c", script, stdin=read)
        os.close(read)
        assert run.read_line() == "out"
        gate.write("\n")
    done = run.finish()
    assert [process for process in done.report["left_behind"] if process["escaped"]]
    assert done.report["teardown"]["complete"]


@pytest.mark.parametrize("mode", ["000", "111", "444"])
def test_b16_a_cgroup_that_was_closed_to_all(agentd: Agentd, mode: str) -> None:
    script = (
        f"cd {agentd.root}/run-*/ && mkdir -p mine/deep && sh -c 'echo $$ > mine/deep/cgroup.procs; "
        f"exec sleep 987654' & "
        f"until grep -q . {agentd.root}/run-*/mine/deep/cgroup.procs; do :; done; "
        f"chmod {mode} {agentd.root}/run-*/mine"
    )
    run = agentd("--delegate", "--", "sh", "-c", script)
    assert run.code == 0
    assert run.report["left_behind_count"] >= 1
    assert _is_empty(run.report)


def test_b17_a_server_under_nohup(agentd: Agentd) -> None:
    server = (
        "import socket, os, sys; s = socket.create_server(('127.0.0.1', 0)); "
        "print(s.getsockname()[1], flush=True); os.dup2(os.open('/dev/null', 1), 1); "
        "[s.accept() for _ in iter(int, 1)]"
    )
    run = agentd("--", "sh", "-c", f'(nohup python3 -c "{server}" 2>/dev/null & ) | head -n 1')
    port = int(re.findall(r"\d+", run.stdout)[0])
    assert run.code == 0
    assert run.report["left_behind_count"] == 1
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def test_b27_workers_of_a_master_that_was_killed(agentd: Agentd) -> None:
    script = "sh -c 'sleep 987654 & sleep 987654 & sleep 987654 & kill -9 $$'; echo master gone"
    run = agentd("--", "sh", "-c", script)
    assert "master gone" in run.stdout
    assert set(_names(run.report)) <= {"sh", "sleep"}
    assert run.report["left_behind_count"] == 3
    assert _is_empty(run.report)


def test_b37_a_parent_that_is_stopped(agentd: Agentd) -> None:
    script = "sleep 987654 & sleep 987654 & echo ready; kill -STOP $$; sleep 987654"
    run = agentd.start("--timeout", "300ms", "--grace", "200ms", "--", "sh", "-c", script)
    assert run.read_line() == "ready"
    done = run.finish()
    assert done.code == 124
    assert done.report["teardown"]["killed"] >= 3
    assert _is_empty(done.report)


@pytest.mark.parametrize("times", [3, pytest.param(100, marks=pytest.mark.slow)])
def test_b73_three_hundred_processes(agentd: Agentd, program: Callable[[str], str], times: int) -> None:
    for _ in range(times):
        run = agentd("--", program("leave_many"), "300")
        assert run.code == 0
        assert run.report["left_behind_count"] == 300
        assert _is_empty(run.report)
