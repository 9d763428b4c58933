"""agentd: runs AI agents, and any other program, so that every limit is enforced from outside.

    with agentd.Supervisor() as supervisor:
        child = supervisor.spawn(["python3", "agent.py"], limits=agentd.Limits(memory_max="512M", wall=600))
        report = child.wait()

The names are loaded when they are first used: the command line has to be ready for a signal before it has
imported anything else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentd.cgroup.limits import Limits
    from agentd.errors import (
        AgentdError,
        CgroupError,
        KernelError,
        LimitNotInForceError,
        NoCgroupError,
        StartError,
        UsageError,
    )
    from agentd.process.child import Child
    from agentd.process.report import Report
    from agentd.process.streams import DEVNULL, STDOUT, Capture
    from agentd.process.supervisor import Supervisor
    from agentd.process.verdict import Verdict

__version__ = "0.1.0"

__all__ = [
    "DEVNULL",
    "STDOUT",
    "AgentdError",
    "Capture",
    "CgroupError",
    "Child",
    "KernelError",
    "LimitNotInForceError",
    "Limits",
    "NoCgroupError",
    "Report",
    "StartError",
    "Supervisor",
    "UsageError",
    "Verdict",
    "__version__",
]

_HOMES = {
    "DEVNULL": "process.streams",
    "STDOUT": "process.streams",
    "AgentdError": "errors",
    "Capture": "process.streams",
    "CgroupError": "errors",
    "Child": "process.child",
    "KernelError": "errors",
    "LimitNotInForceError": "errors",
    "Limits": "cgroup.limits",
    "NoCgroupError": "errors",
    "Report": "process.report",
    "StartError": "errors",
    "Supervisor": "process.supervisor",
    "UsageError": "errors",
    "Verdict": "process.verdict",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'agentd' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"agentd.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
