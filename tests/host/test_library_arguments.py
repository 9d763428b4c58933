"""Bad arguments: one UsageError that names every problem, before anything exists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import agentd
from tests.support import leftovers


def test_every_problem_is_named_in_one_error(cgroup_root: str) -> None:
    with agentd.Supervisor(cgroup_root) as supervisor:
        supervisor.prepare()  # the loop's and the keeper's descriptors are there for good
        before = leftovers.open_descriptors()
        with pytest.raises(agentd.UsageError) as caught:
            supervisor.spawn(
                ["true", "a\0b", 3],  # type: ignore[list-item]
                name="../../x",
                cwd="a\0b",
                env={"A=B": "c", "": "d", "E": "\ud800"},
                limits="512M",  # type: ignore[arg-type]
                stdin="in",  # type: ignore[arg-type]
                stdout=-7,
                stderr=True,
                pass_fds=["3", -1],  # type: ignore[list-item]
                grace=-1,
                background="keep",
                sigmask=1 << 64,
                on_exit=5,  # type: ignore[arg-type]
            )
        assert len(caught.value.problems) == 17, caught.value.problems
        assert leftovers.leaves(cgroup_root) == []
        assert supervisor.children == []
        assert leftovers.open_descriptors() == before


ONE_PROBLEM: list[tuple[dict[str, Any], str]] = [
    ({"argv": []}, "argv is empty"),
    ({"argv": [""]}, "argv is empty"),
    ({"argv": "true"}, "is one text"),
    ({"argv": b"true"}, "is one text"),
    ({"argv": 5}, "is no list"),
    ({"env": 5}, "env 5"),
    ({"env": {"A": 1}}, "is not text"),
    ({"env": {"A": "b\0c"}}, "'A'"),
    ({"cwd": 5}, "cwd 5"),
    ({"cwd": "a\0b"}, "NUL"),
    ({"name": ""}, "name ''"),
    ({"name": "a/b"}, "name 'a/b'"),
    ({"name": "-a"}, "name '-a'"),
    ({"name": "a" * 65}, "64"),
    ({"grace": float("nan")}, "grace nan"),
    ({"grace": True}, "grace True"),
    ({"grace": "5"}, "grace '5'"),
    ({"pass_fds": 3}, "pass_fds 3"),
    ({"pass_fds": [True]}, "pass_fds: True"),
    ({"stdout": agentd.STDOUT}, "stdout"),
    ({"stdin": agentd.STDOUT}, "stdin"),
    ({"tty": True, "stdin": 0}, "tty"),
    ({"limits": agentd.Limits(idle=5)}, "idle"),
    ({"sigmask": -1}, "sigmask"),
]


@pytest.mark.parametrize(("wrong", "named"), ONE_PROBLEM)
def test_one_problem_is_one_error(wrong: dict[str, Any], named: str, cgroup_root: str) -> None:
    arguments: dict[str, Any] = {"argv": ["true"], **wrong}
    with agentd.Supervisor(cgroup_root) as supervisor:
        with pytest.raises(agentd.UsageError) as caught:
            supervisor.spawn(arguments.pop("argv"), **arguments)
        assert len(caught.value.problems) == 1
        assert named in str(caught.value)
        assert leftovers.leaves(cgroup_root) == []


@pytest.mark.parametrize("cgroup", ["", "relative/path", "AUTO", 5, None])
def test_a_supervisor_refuses_what_is_no_cgroup(cgroup: Any) -> None:
    with pytest.raises(agentd.UsageError):
        agentd.Supervisor(cgroup)


def test_stop_refuses_causes_and_graces_that_are_none(cgroup_root: str) -> None:
    with agentd.Supervisor(cgroup_root) as supervisor:
        child = supervisor.spawn(["sleep", "1000"])
        with pytest.raises(agentd.UsageError) as caught:
            child.stop("memory", grace=-1)
        assert len(caught.value.problems) == 2
        assert child.poll() is None
        child.kill()
        assert child.wait(timeout=10).verdict.cause == "operator"


def test_a_path_and_bytes_are_arguments_too(cgroup_root: str) -> None:
    with agentd.Supervisor(cgroup_root) as supervisor:
        report = supervisor.spawn([Path("/bin/echo"), b"\xff", "é"], stdout=agentd.Capture()).wait(timeout=10)
    assert report.tails["stdout"].tail == b"\xff \xc3\xa9\n"
    assert report.argv == ("/bin/echo", "\\xff", "é")
