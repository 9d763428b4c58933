"""Every way in which a start can fail leaves no leaf, no process and no descriptor (B69)."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from typing import Any

import pytest

import agentd
from agentd.linux.birth import Birth, Style
from agentd.process import attempt
from agentd.process.streams import Capture
from tests.support import leftovers


@pytest.fixture
def supervisor(cgroup_root: str) -> Iterator[agentd.Supervisor]:
    """Fails a test after which a leaf, a zombie or a descriptor is left."""
    with agentd.Supervisor(cgroup_root) as supervisor:
        supervisor.spawn(["/bin/true"]).wait()
        before = leftovers.open_descriptors()
        yield supervisor
        assert leftovers.leaves(cgroup_root) == []
        assert not leftovers.own_zombies()
        assert leftovers.open_descriptors() == before
        assert supervisor.spawn(["/bin/true"]).wait().ok


FAILING: dict[str, tuple[list[str], dict[str, Any]]] = {
    "missing": (["/nowhere/command"], {}),
    "not executable": (["/etc/hostname"], {}),
    "a directory": (["/"], {}),
    "bad directory": (["true"], {"cwd": "/nowhere"}),
    "captured": (["/nowhere/command"], {"stdout": Capture(), "stderr": Capture()}),
    "terminal": (["/nowhere/command"], {"tty": True}),
    "delegated": (["/nowhere/command"], {"delegate": True}),
    "bad descriptor": (["true"], {"pass_fds": (987,)}),
    "bad stream": (["true"], {"stdout": 987}),
    "bad limit": (["true"], {"limits": agentd.Limits(files={"cgroup.max.depth": "many"})}),
    "unknown limit": (["true"], {"limits": agentd.Limits(files={"nothing.max": "1"})}),
    "bad name": (["true"], {"name": "../x"}),
    "bad argument": (["true", "a\0b"], {}),
}


@pytest.mark.parametrize("style", list(Style))
@pytest.mark.parametrize("how", FAILING)
def test_b69_refused(
    supervisor: agentd.Supervisor, how: str, style: Style, monkeypatch: pytest.MonkeyPatch
) -> None:
    _use(style, monkeypatch)
    argv, options = FAILING[how]
    with pytest.raises(agentd.AgentdError):
        supervisor.spawn(argv, **options)


def _use(style: Style, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Birth.__init__

    def init(self: Birth, *arguments: Any, **options: Any) -> None:
        real(self, *arguments, **{**options, "style": style})

    monkeypatch.setattr(Birth, "__init__", init)
    monkeypatch.setattr(attempt, "_refused_styles", set())


@pytest.mark.parametrize("style", list(Style))
def test_b69_out_of_descriptors(
    supervisor: agentd.Supervisor, style: Style, monkeypatch: pytest.MonkeyPatch
) -> None:
    _use(style, monkeypatch)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    failures = 0
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(leftovers.open_descriptors()) + 20, hard))
        taken = _take_all_descriptors()
        for _ in range(14):
            os.close(taken.pop())
            try:
                child = supervisor.spawn(["/bin/true"], stdout=Capture())
            except (agentd.AgentdError, OSError):
                failures += 1
            else:
                assert child.wait(timeout=20).ok
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in taken:
            os.close(fd)
    assert failures >= 3


def _take_all_descriptors() -> list[int]:
    taken = []
    try:
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        return taken


def test_b69_no_more_leaves_allowed(supervisor: agentd.Supervisor, cgroup_root: str) -> None:
    with open(f"{cgroup_root}/cgroup.max.descendants", "w") as file:
        file.write("0")
    with pytest.raises(agentd.StartError) as caught:
        supervisor.spawn(["/bin/true"])
    assert caught.value.stage == "mkdir"
    assert "cgroup.max.descendants" in str(caught.value)
    with open(f"{cgroup_root}/cgroup.max.descendants", "w") as file:
        file.write("max")


def test_b69_a_frozen_subtree(supervisor: agentd.Supervisor, cgroup_root: str) -> None:
    with open(f"{cgroup_root}/cgroup.freeze", "w") as file:
        file.write("1")
    with pytest.raises(agentd.StartError) as caught:
        supervisor.spawn(["/bin/true"])
    assert caught.value.stage == "frozen"
    with open(f"{cgroup_root}/cgroup.freeze", "w") as file:
        file.write("0")


def test_b69_a_subtree_that_was_removed_is_made_again(
    supervisor: agentd.Supervisor, cgroup_root: str
) -> None:
    os.rmdir(cgroup_root)
    assert supervisor.spawn(["/bin/true"]).wait().ok
