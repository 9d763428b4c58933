"""Who was still there when the command had ended: named before they are killed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from agentd.linux import proc

NAMED = 100
"""At most this many are named; a fork bomb's thousands are counted. Naming must not delay the kill."""

_ARGV_LENGTH = 1000


class LeftBehind(NamedTuple):
    """A process that outlived its command. ``age`` is in seconds; ``state`` is proc(5)'s letter; ``argv``
    is cut to 1,000 characters. ``escaped``: it had left the leaf, and was found among our descendants."""

    pid: int
    name: str
    argv: tuple[str, ...]
    age: float
    state: str
    session: int
    escaped: bool = False

    def to_dict(self) -> dict[str, object]:
        return {
            "pid": self.pid,
            "name": self.name,
            "argv": list(self.argv),
            "age": self.age,
            "state": self.state,
            "session": self.session,
            "escaped": self.escaped,
        }


def name_them(pids: Iterable[int], *, escaped: bool = False) -> list[LeftBehind]:
    """Those of ``pids`` that can still be read, the first `NAMED` of them."""
    named: list[LeftBehind] = []
    uptime = proc.uptime()
    for pid in pids:
        if len(named) >= NAMED:
            break
        stat = proc.stat(pid)
        if stat is None or stat.state in "ZX":
            continue
        age = max(0.0, uptime - stat.start_ticks / proc.CLOCK_TICKS)
        named.append(
            LeftBehind(pid, stat.name, _cut(proc.argv(pid)), round(age, 2), stat.state, stat.session, escaped)
        )
    return named


def _cut(argv: list[str]) -> tuple[str, ...]:
    room = _ARGV_LENGTH
    kept = []
    for argument in argv:
        if room <= 0:
            kept.append("…")
            break
        kept.append(argument[:room])
        room -= len(argument)
    return tuple(kept)
