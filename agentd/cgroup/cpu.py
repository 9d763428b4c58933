"""Processor limits: how much (``cpu.max``), how it is shared (``cpu.weight``), where (``cpuset.cpus``)."""

from __future__ import annotations

from typing import NamedTuple

from agentd.cgroup.amount import decimal, shown, whole_number
from agentd.errors import UsageError

DEFAULT_PERIOD = 100_000
SHORTEST_QUOTA = 1_000
PERIODS = (1_000, 1_000_000)
MOST_CPUS = 8192
"""The largest CONFIG_NR_CPUS of a distribution's kernel. A larger "number of processors" is a quota whose
period was forgotten."""

_LARGEST_QUOTA = 2**44 - 1
_REMEDY = "give processors (1.5), a percentage of one (150%), QUOTA PERIOD in microseconds, or max"


class CpuMax(NamedTuple):
    """A bandwidth limit: ``quota`` microseconds of processor in each ``period``; quota None is no limit."""

    quota: int | None
    period: int = DEFAULT_PERIOD

    @property
    def text(self) -> str:
        """As the kernel takes it, and reads it back."""
        return f"{'max' if self.quota is None else self.quota} {self.period}"


def parse_cpu_max(value: str | float) -> CpuMax:
    """``1.5`` (processors), ``150%``, ``QUOTA PERIOD`` (microseconds), ``max``, or a number of processors.

    A quota is at least 1000 microseconds, a period 1000 to 1000000 (kernel: cgroup-v2.rst, EINVAL otherwise).
    Raises UsageError with one problem.
    """
    if isinstance(value, str):
        words = value.lower().split()
        if len(words) == 2:
            return _quota_period(words[0], words[1], value)
        text = words[0] if len(words) == 1 else ""
        if text == "max":
            return CpuMax(None)
        number = decimal(text[:-1] if text.endswith("%") else text)
        if number is None:
            raise UsageError(f"{shown(value)} is not an amount of processor; {_REMEDY}")
        hundredth = 100 if text.endswith("%") else 1
        quota = number[0] * DEFAULT_PERIOD // (number[1] * hundredth)
    elif isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= MOST_CPUS:
        quota = round(value * DEFAULT_PERIOD)
    else:
        raise UsageError(f"{shown(value)} is not an amount of processor; {_REMEDY}")
    if quota < SHORTEST_QUOTA:
        raise UsageError(
            f"{shown(value)} is less than 1% of a processor; "
            "give 1% or more, or QUOTA PERIOD with a longer period"
        )
    if quota > MOST_CPUS * DEFAULT_PERIOD:
        raise UsageError(f"{shown(value)} is more than {MOST_CPUS} processors; {_REMEDY}")
    return CpuMax(quota)


def _quota_period(quota_text: str, period_text: str, value: str) -> CpuMax:
    period = whole_number(period_text)
    quota = None if quota_text == "max" else whole_number(quota_text)
    if period is None or (quota is None and quota_text != "max"):
        raise UsageError(f"{shown(value)} is not an amount of processor; {_REMEDY}")
    if not PERIODS[0] <= period <= PERIODS[1]:
        raise UsageError(f"{shown(value)} has a period outside 1000 to 1000000 microseconds; {_REMEDY}")
    if quota is not None and not SHORTEST_QUOTA <= quota <= _LARGEST_QUOTA:
        raise UsageError(f"{shown(value)} has a quota under 1000 microseconds, or a huge one; {_REMEDY}")
    return CpuMax(quota, period)


def parse_cpu_weight(value: str | int) -> int:
    """A share relative to the siblings', 1 to 10000 (100 is the kernel's default; ERANGE outside).

    Raises UsageError with one problem.
    """
    number = whole_number(value)
    if number is None or not 1 <= number <= 10_000:
        raise UsageError(f"{shown(value)} is not a weight; give a whole number from 1 to 10000")
    return number


def parse_cpus(value: str | int) -> str:
    """A list of processors such as ``0-3,8`` in the kernel's format, checked, without blanks.

    Whether these processors exist is for the kernel to say. Raises UsageError with one problem.
    """
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    parts = text.replace(" ", "").split(",") if isinstance(text, str) else [""]
    for part in parts:
        first, dash, last = part.partition("-")
        low, high = whole_number(first), whole_number(last if dash else first)
        if low is None or high is None or not low <= high <= 65_535:
            raise UsageError(f"{shown(value)} is not a list of processors; give one such as 0-3,8")
    return ",".join(parts)
