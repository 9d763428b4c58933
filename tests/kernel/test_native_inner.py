"""A birth into a cgroup that may hold no process."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from agentd.linux.birth import Birth, Style
from agentd.process.supervisor import Supervisor
from tests.support.births import STYLES, Started, image, open_directory


@pytest.mark.parametrize("style", STYLES)
def test_a_leaf_that_is_an_inner_cgroup(style: Style, supervisor: Supervisor, cgroup_root: str) -> None:
    """No process may sit in a cgroup that has controllers enabled for children (G07). The supervisor is for
    having them enabled down to the leaf."""
    offered = Path(cgroup_root, "cgroup.subtree_control").read_text().split()
    domain = [name for name in offered if name not in ("cpu", "pids", "cpuset")]
    if not domain:
        pytest.skip("no domain controller is offered here")
    root_fd = open_directory(cgroup_root)
    birth = Birth(image("/bin/true"), parent_fd=root_fd, name="run", style=style)
    assert birth.make_leaf()
    Path(cgroup_root, "run", "cgroup.subtree_control").write_text(f"+{domain[0]}")
    assert not birth.run()
    found = (birth.stage, birth.errno)
    assert found == ("join" if style is Style.LEGACY else "clone", errno.EBUSY)
    if birth.pidfd >= 0:
        Started(birth, root_fd, "run").end()
    else:
        birth.undo()
    os.close(root_fd)
