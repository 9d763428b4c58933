"""Writing planned limits to a cgroup and reading each back."""

from __future__ import annotations

from collections.abc import Iterable

from agentd.cgroup import control
from agentd.cgroup.plan import LimitWrite, explain_mismatch, in_force


def apply(dirfd: int, writes: Iterable[LimitWrite]) -> dict[str, str]:
    """Write each limit in order; returns one line of why for each that is not in force afterwards.

    An implicit write for whose file the kernel has no use is passed over. Raises nothing of the kernel's.
    """
    failed: dict[str, str] = {}
    for write in writes:
        try:
            control.write(dirfd, write.file, write.value)
            read_back = read_effect(dirfd, write)
        except FileNotFoundError as error:
            if not write.implicit:
                failed[write.limit] = explain_mismatch(write, error.errno or 0, "")
        except OSError as error:
            failed[write.limit] = explain_mismatch(write, error.errno or 0, "")
        else:
            if not in_force(write, read_back):
                failed[write.limit] = explain_mismatch(write, 0, read_back)
    return failed


def read_effect(dirfd: int, write: LimitWrite) -> str:
    """The text by which ``plan.in_force`` judges ``write``; "" for a file of which nothing is expected.
    Raises OSError."""
    if write.file == "cpuset.cpus":
        return control.read(dirfd, "cpuset.cpus.effective")
    if write.expect is None and write.file != "io.max":
        return ""
    return control.read(dirfd, write.file)
