"""Subtrees come and go: the keeper knows those in which there are leaves now."""

from __future__ import annotations

import os
import signal

import pytest

from agentd.cgroup import control
from agentd.cgroup.remove import remove_tree
from tests.support import doomed, leftovers
from tests.support.doomed import Doomed

COMMAND = ("sh", "-c", "echo ready; exec sleep 1000")


def test_one_that_is_removed_and_made_again(cgroup_root: str) -> None:
    subtree = f"{cgroup_root}/sub"
    with Doomed(subtree, 1, *COMMAND) as supervisor:
        keeper = supervisor.keeper
        assert supervisor.ask("(children[0].kill(), children[0].wait(20).ok)[1]") is False
        above = os.open(cgroup_root, control.DIRECTORY)
        assert remove_tree(above, "sub") == []
        os.close(above)
        assert supervisor.ask("supervisor.spawn(['sleep', '1000']).enforcement.keeper['pid']") == keeper
        assert len(leftovers.leaves(subtree)) == 1
        supervisor.signal(signal.SIGKILL)
        assert doomed.gone(keeper)
        assert leftovers.leaves(subtree) == []


def test_one_of_its_own_goes_with_the_last_leaf(cgroup_root: str) -> None:
    """As a supervisor that ends by itself removes it."""
    move = ["sh", "-c", 'echo $$ >"$0"; exec "$@"', f"{cgroup_root}/cgroup.procs"]
    with Doomed("auto", 1, *COMMAND, prefix=move) as supervisor:
        keeper, subtree = supervisor.keeper, supervisor.ask("supervisor.cgroup")
        assert subtree.startswith(cgroup_root)
        supervisor.signal(signal.SIGKILL)
        assert doomed.gone(keeper)
    assert not os.path.exists(subtree)


MANY = """
[(s := agentd.Supervisor(f'{ROOT}/sub{n}'), s.spawn(['true']).wait(20), s.close())
 for n in range(COUNT)]
and agentd.Supervisor(f'{ROOT}/last').spawn(['sleep', '1000']).enforcement.keeper['pid']
"""


@pytest.mark.host
@pytest.mark.default
def test_the_last_of_many(cgroup_root: str) -> None:
    """Those that are gone take no place from those that are there."""
    with Doomed(cgroup_root, 1, *COMMAND) as supervisor:
        keeper = supervisor.keeper
        code = " ".join(MANY.split()).replace("{ROOT}", cgroup_root).replace("COUNT", "300")
        assert supervisor.ask(code) == keeper
        supervisor.signal(signal.SIGKILL)
        assert doomed.gone(keeper)
        assert leftovers.leaves(f"{cgroup_root}/last") == []


HELD = """
(lambda libc: (lambda pid: (libc.poll(None, 0, 300), libc._exit(0)) if pid == 0 else pid)(libc.fork()))(
 __import__('ctypes').CDLL(None))
"""


def test_a_copy_of_the_locks_that_lasts_a_little(cgroup_root: str) -> None:
    """Between any fork and its exec a copy of all descriptors exists, and of the locks on the leaves with them;
    on a busy machine that takes its time."""
    with Doomed(cgroup_root, 3, *COMMAND) as supervisor:
        keeper = supervisor.keeper
        assert supervisor.ask(" ".join(HELD.split())) > 0
        supervisor.signal(signal.SIGKILL)
        assert doomed.gone(keeper)
        assert leftovers.leaves(cgroup_root) == []
