"""Durations as people write them: ``250ms``, ``10s``, ``5m``, ``1.5h``, or seconds as a number."""

from __future__ import annotations

from agentd.cgroup.amount import decimal, shown
from agentd.errors import UsageError

_REMEDY = "give seconds, or a number with ms, s, m or h, more than 0"
_MILLISECONDS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}


def parse_duration(value: str | float) -> float:
    """Seconds, finite and more than 0, from a number of seconds or from text with a unit.

    Raises UsageError with one problem. One unit only: ``90m``, not ``1h30m``.
    """
    if isinstance(value, str):
        text = value.strip().lower()
        unit = "ms" if text.endswith("ms") else text[-1:] if text[-1:] in ("s", "m", "h") else ""
        number = decimal(text[: len(text) - len(unit)].rstrip())
        if number is None:
            raise UsageError(f"{shown(value)} is not a duration; {_REMEDY}")
        seconds = number[0] * _MILLISECONDS[unit or "s"] / (number[1] * 1000)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            seconds = float(value)
        except OverflowError:
            raise UsageError(f"{shown(value)} is not a duration; {_REMEDY}") from None
    else:
        raise UsageError(f"{shown(value)} is not a duration; {_REMEDY}")
    # Written so that NaN, for which every comparison is false, is refused too.
    if not 0 < seconds < float("inf"):
        raise UsageError(f"{shown(value)} is not a duration; {_REMEDY}")
    return seconds
