"""agentd: runs AI agents, and any other program, so that every limit is enforced from outside.

    with agentd.Supervisor() as supervisor:
        child = supervisor.spawn(["python3", "agent.py"], limits=agentd.Limits(memory_max="512M", wall=600))
        report = child.wait()
"""

from __future__ import annotations

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
