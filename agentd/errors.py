"""Every error that agentd raises, as one small tree.

Each carries one line for people (``str(error)``): what failed, the path or value at fault, and what to
do about it. Nothing here imports anything of agentd, so that every layer can raise it.
"""

from __future__ import annotations

import errno as _errno
import os


class AgentdError(Exception):
    """Base of the tree.

    ``message`` is what failed and the value at fault; ``remedy`` is what to do about it ("" when there is
    nothing to be done). ``str()`` joins both in one line.
    """

    def __init__(self, message: str, *, remedy: str = "") -> None:
        self.message = message
        self.remedy = remedy
        super().__init__(f"{message}; {remedy}" if remedy else message)


class UsageError(AgentdError, ValueError):
    """Bad arguments or configuration: nothing was started. ``agentd run`` exits with 2.

    ``problems`` lists every problem found, one line each: validation never stops at the first.
    """

    def __init__(self, problems: list[str] | tuple[str, ...] | str) -> None:
        self.problems: tuple[str, ...] = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__("; ".join(self.problems))


class KernelError(AgentdError):
    """A system call refused. ``stage`` names the step, ``errno`` is the kernel's number for it."""

    def __init__(self, stage: str, errno: int, *, subject: str = "", remedy: str = "") -> None:
        self.stage = stage
        self.errno = errno
        self.subject = subject
        name = _errno.errorcode.get(errno, str(errno))
        about = f" {subject}" if subject else ""
        super().__init__(f"{stage}{about}: {os.strerror(errno)} ({name})", remedy=remedy)


class CgroupError(AgentdError):
    """The cgroup hierarchy, a subtree or a leaf cannot be used as asked. ``path`` is the cgroup at fault."""

    def __init__(self, message: str, *, path: str = "", remedy: str = "") -> None:
        self.path = path
        super().__init__(message, remedy=remedy)


class NoCgroupError(CgroupError):
    """There is no cgroup v2 here in which a leaf could be made."""


class LimitNotInForceError(CgroupError):
    """Limits that were asked for cannot be in force. ``reasons`` maps each limit to why, all of them."""

    def __init__(self, reasons: dict[str, str], *, path: str = "") -> None:
        self.reasons = dict(reasons)
        listed = "; ".join(f"{limit}: {why}" for limit, why in self.reasons.items())
        super().__init__(
            f"not in force: {listed}", path=path, remedy="drop the limit, or accept it with --best-effort"
        )


class StartError(AgentdError):
    """The command could not be started; nothing of it runs. ``exit_code`` is what ``agentd run`` ends with.

    125: the start itself failed; 126: the command is there but cannot be executed; 127: it was not found.
    """

    def __init__(
        self, message: str, *, stage: str, errno: int, exit_code: int = 125, remedy: str = ""
    ) -> None:
        self.stage = stage
        self.errno = errno
        self.exit_code = exit_code
        super().__init__(message, remedy=remedy)
