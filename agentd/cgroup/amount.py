"""Sizes and counts as people write them: ``512M``, ``1.5G``, ``25%``, ``max``, ``4096``.

Only text in and numbers out. What the kernel itself takes is narrower (``1.5G`` and ``25%`` are EINVAL,
G14), so a value is converted here, exactly, in integers.
"""

from __future__ import annotations

from typing import NamedTuple

from agentd.errors import UsageError

LARGEST_SIZE = 2**63 - 1
"""Bytes. The kernel's own parser wraps silently past 64 bits, and counts pages in a signed long."""

LARGEST_PIDS = 4_194_304
"""PID_MAX_LIMIT of a 64-bit kernel: ``pids.max`` refuses more with EINVAL."""

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}

SIZE_REMEDY = "give bytes, a number with K, M, G or T (powers of 1024), a percentage such as 25%, or max"
COUNT_REMEDY = "give a whole number from 1, a percentage such as 25%, or max"


class Amount(NamedTuple):
    """What was asked for: a number, a share of what there is, or (neither being set) no bound.

    ``number`` is in bytes for sizes. ``share`` is an exact fraction (numerator, denominator) of the whole.
    """

    number: int | None = None
    share: tuple[int, int] | None = None

    def of(self, whole: int) -> int | None:
        """The number that this is of ``whole``, rounded down; None for no bound."""
        if self.share is not None:
            return whole * self.share[0] // self.share[1]
        return self.number


MAX = Amount()


def shown(value: object) -> str:
    """``value`` as an error message can carry it: on one line, and never long."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:56]}...{text[-1]}"


def decimal(text: str) -> tuple[int, int] | None:
    """``text`` as an exact non-negative fraction (numerator, power of ten); None if it is no plain decimal.

    Signs, exponents, underscores and digits outside ASCII are refused; so are more than 40 characters.
    """
    whole, point, part = text.partition(".")
    digits = whole + part
    if not digits.isdecimal() or not text.isascii() or len(text) > 40 or (point and not part):
        return None
    return int(digits), 10 ** len(part)


def whole_number(value: object) -> int | None:
    """``value`` as an int if it is one, or is text of ASCII digits only; else None. A bool is none."""
    if isinstance(value, str):
        text = value.strip()
        return int(text) if text.isdecimal() and text.isascii() and len(text) <= 40 else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def parse_size(value: str | int) -> Amount:
    """Bytes from an int, or from text: a decimal, perhaps with a unit, or with ``%``; or ``max``.

    Units are K, M, G and T in either case, powers of 1024 as the kernel has them; a ``B`` or ``iB`` after
    one changes nothing (``1K``, ``1kB`` and ``1KiB`` are all 1024). A fraction is exact, then rounded down to
    a whole byte; rounding to pages is the plan's. Raises UsageError with one problem.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 0:
            raise UsageError(f"{value} is negative; {SIZE_REMEDY}")
        return _bounded(value, value)
    if not isinstance(value, str):
        raise UsageError(f"{shown(value)} is not a size; {SIZE_REMEDY}")
    text = value.strip().lower()
    if text == "max":
        return MAX
    if text.endswith("%"):
        return _share(text, value, SIZE_REMEDY)
    stem = text[:-2] if text.endswith("ib") and len(text) > 2 else text.removesuffix("b")
    unit = stem[-1:] if stem[-1:] in "kmgt" else ""
    if text.endswith("ib") and not unit:
        raise UsageError(f"{shown(value)} is not a size; {SIZE_REMEDY}")
    number = decimal(stem[: len(stem) - len(unit)].rstrip())
    if number is None:
        raise UsageError(f"{shown(value)} is not a size; {SIZE_REMEDY}")
    return _bounded(number[0] * _UNITS[unit] // number[1], value)


def parse_count(value: str | int) -> Amount:
    """A number of processes and threads (``pids.max``): 1 to 4194304, ``N%`` or ``max``.

    Raises UsageError with one problem.
    """
    if isinstance(value, str):
        text = value.strip().lower()
        if text == "max":
            return MAX
        if text.endswith("%"):
            return _share(text, value, COUNT_REMEDY)
    number = whole_number(value)
    if number is None or number < 1:
        raise UsageError(f"{shown(value)} is not a number of processes; {COUNT_REMEDY}")
    if number > LARGEST_PIDS:
        raise UsageError(
            f"{number} is more processes than the kernel can count; give at most 4194304, or max"
        )
    return Amount(number)


def _share(text: str, value: object, remedy: str) -> Amount:
    number = decimal(text[:-1].rstrip())
    if number is None:
        raise UsageError(f"{shown(value)} is not a percentage; {remedy}")
    numerator, denominator = number[0], number[1] * 100
    if not 0 < numerator <= denominator:
        raise UsageError(f"{shown(value)} is not more than 0% and at most 100%; {remedy}")
    return Amount(share=(numerator, denominator))


def _bounded(count: int, value: object) -> Amount:
    if count > LARGEST_SIZE:
        raise UsageError(f"{shown(value)} is more than the kernel can count; use max for no bound")
    return Amount(count)
