"""prctl(2), as far as agentd uses it. Each raises OSError with the kernel's errno."""

from __future__ import annotations

import os

from agentd._shim import lib

_SET_PDEATHSIG, _GET_PDEATHSIG = 1, 2
_GET_DUMPABLE, _SET_DUMPABLE = 3, 4
_SET_CHILD_SUBREAPER, _GET_CHILD_SUBREAPER = 36, 37
_SET_NO_NEW_PRIVS, _GET_NO_NEW_PRIVS = 38, 39


def _checked(result: int, what: str) -> int:
    if result < 0:
        raise OSError(-result, os.strerror(-result), what)
    return result


def set_parent_death_signal(signal: int) -> None:
    """Be sent ``signal`` when the *thread* that forked us ends; 0 switches it off. Cleared by a setuid exec."""
    _checked(lib.agentd_prctl(_SET_PDEATHSIG, signal), "PR_SET_PDEATHSIG")


def parent_death_signal() -> int:
    return _checked(lib.agentd_prctl_get(_GET_PDEATHSIG), "PR_GET_PDEATHSIG")


def set_subreaper(on: bool) -> None:
    """Adopt descendants whose parent died. Inherited by nobody; works inside our pid namespace only."""
    _checked(lib.agentd_prctl(_SET_CHILD_SUBREAPER, int(on)), "PR_SET_CHILD_SUBREAPER")


def is_subreaper() -> bool:
    return bool(_checked(lib.agentd_prctl_get(_GET_CHILD_SUBREAPER), "PR_GET_CHILD_SUBREAPER"))


def set_dumpable(on: bool) -> None:
    """Off: no ptrace, no core, and /proc/self is root's: others of our user cannot read our memory."""
    _checked(lib.agentd_prctl(_SET_DUMPABLE, int(on)), "PR_SET_DUMPABLE")


def is_dumpable() -> bool:
    return _checked(lib.agentd_prctl(_GET_DUMPABLE, 0), "PR_GET_DUMPABLE") == 1


def set_no_new_privs() -> None:
    """No exec below gains privileges any more. Cannot be undone."""
    _checked(lib.agentd_prctl(_SET_NO_NEW_PRIVS, 1), "PR_SET_NO_NEW_PRIVS")


def has_no_new_privs() -> bool:
    return _checked(lib.agentd_prctl(_GET_NO_NEW_PRIVS, 0), "PR_GET_NO_NEW_PRIVS") == 1


def set_name(name: str) -> None:
    """The calling thread's name, cut to 15 bytes by the kernel."""
    _checked(lib.agentd_set_name(os.fsencode(name)), "PR_SET_NAME")
