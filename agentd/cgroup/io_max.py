"""``io.max`` entries: a block device and what may be read from it and written to it each second."""

from __future__ import annotations

from typing import NamedTuple

from agentd.cgroup.amount import parse_size, shown, whole_number
from agentd.errors import UsageError

KEYS = ("rbps", "wbps", "riops", "wiops")
_REMEDY = "give DEVICE and one or more of rbps= wbps= riops= wiops=, as in '/dev/sda wbps=10M riops=500'"


class IoMax(NamedTuple):
    """One entry. ``device`` is ``MAJ:MIN`` or a path below /dev; a rate is per second, None is no limit."""

    device: str
    rates: tuple[tuple[str, int | None], ...]

    def text(self, device: str) -> str:
        """As the kernel takes it, with ``device`` (``MAJ:MIN``) in place of a path."""
        return " ".join([device, *(f"{key}={'max' if rate is None else rate}" for key, rate in self.rates)])


def parse_io_max(entry: str) -> IoMax:
    """One entry, ``DEVICE key=rate ...``: bytes a second take units (10M), operations are whole numbers.

    ``max`` lifts a limit; 0 is refused, as it is by the kernel. Raises UsageError with one problem.
    """
    words = entry.split() if isinstance(entry, str) else []
    if len(words) < 2 or not (is_number(words[0]) or words[0].startswith("/")):
        raise UsageError(f"{shown(entry)} is not an io.max entry; {_REMEDY}")
    rates: list[tuple[str, int | None]] = []
    for word in words[1:]:
        key, equals, text = word.partition("=")
        if not equals or key not in KEYS or any(key == known for known, _ in rates):
            raise UsageError(f"{shown(word)} in {shown(entry)} is not a rate; {_REMEDY}")
        rate = _rate(key, text)
        if rate == 0 or rate == -1:
            raise UsageError(f"{shown(word)} in {shown(entry)} is not a rate above 0; {_REMEDY}")
        rates.append((key, rate))
    device = ":".join(str(int(number)) for number in words[0].split(":")) if is_number(words[0]) else words[0]
    return IoMax(device, tuple(rates))


def _rate(key: str, text: str) -> int | None:
    """None for max, -1 for what is no rate."""
    if text == "max":
        return None
    if key.endswith("iops"):
        number = whole_number(text)
        return number if number is not None and number < 2**32 else -1
    try:
        amount = parse_size(text)
    except UsageError:
        return -1
    return -1 if amount.number is None else amount.number


def is_number(device: str) -> bool:
    """Whether ``device`` is written ``MAJ:MIN``."""
    major, _, minor = device.partition(":")
    return whole_number(major) is not None and whole_number(minor) is not None and device.split() == [device]


def in_force(asked: str, read_back: str) -> bool:
    """Whether the entry ``asked`` (as written) shows in ``read_back``, the whole text of ``io.max``.

    The kernel shows a line only for a device that has some limit, and all four keys in it.
    """
    device, *rates = asked.split()
    found = dict.fromkeys(KEYS, "max")
    for line in read_back.splitlines():
        words = line.split()
        if words and words[0] == device:
            found.update(_pair(word) for word in words[1:])
    return all(found.get(key) == rate for key, rate in map(_pair, rates))


def _pair(word: str) -> tuple[str, str]:
    key, _, value = word.partition("=")
    return key, value
