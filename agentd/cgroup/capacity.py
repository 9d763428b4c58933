"""What a subtree has of memory, swap and processes: the whole that a percentage is of."""

from __future__ import annotations

from collections.abc import Iterable

from agentd.cgroup.amount import whole_number

_MEMINFO = {"MemTotal:": "memory", "SwapTotal:": "swap"}


def smallest(limits: Iterable[str], machine: int) -> int:
    """The smallest of the texts that is a number, and of ``machine``, which bounds them all."""
    numbers = (whole_number(text) for text in limits)
    return min([machine, *(number for number in numbers if number is not None)])


def parse_meminfo(text: str) -> dict[str, int]:
    """``memory`` and ``swap`` of the machine in bytes, from /proc/meminfo (proc(5)); 0 where not told."""
    found = {"memory": 0, "swap": 0}
    for line in text.split("\n"):
        words = line.split()
        if len(words) == 3 and words[0] in _MEMINFO:
            found[_MEMINFO[words[0]]] = (whole_number(words[1]) or 0) * 1024
    return found
