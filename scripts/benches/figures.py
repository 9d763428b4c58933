"""From times to figures: medians, p99, and the ratio of the medians of two that were measured in turn."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any


def in_turn(
    ours: Callable[[], float], peers: Callable[[], float], rounds: int
) -> tuple[list[float], list[float]]:
    """``rounds`` times of each in seconds, one after the other, after a warm-up that does not count."""
    ours(), peers()
    a, b = [], []
    for _ in range(rounds):
        a.append(ours())
        b.append(peers())
    return a, b


def row(name: str, peer: str, goal: float, ours: Sequence[float], peers: Sequence[float]) -> dict[str, Any]:
    """One comparison: times in milliseconds, ``ratio`` of the medians, and whether it is within ``goal``."""
    ratio = statistics.median(ours) / statistics.median(peers)
    return {
        "name": name,
        "peer": peer,
        "median_ms": _ms(statistics.median(ours)),
        "p99_ms": _ms(_p99(ours)),
        "peer_median_ms": _ms(statistics.median(peers)),
        "peer_p99_ms": _ms(_p99(peers)),
        "ratio": round(ratio, 2),
        "goal": goal,
        "within_goal": ratio <= goal,
    }


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as an aligned text table."""
    head = ("what", "median", "p99", "peer", "median", "p99", "ratio", "goal")
    lines = [
        head,
        *(
            (
                row["name"],
                f"{row['median_ms']:.2f}",
                f"{row['p99_ms']:.2f}",
                row["peer"],
                f"{row['peer_median_ms']:.2f}",
                f"{row['peer_p99_ms']:.2f}",
                f"{row['ratio']:.2f}",
                f"<= {row['goal']}{'' if row['within_goal'] else ' MISSED'}",
            )
            for row in rows
        ),
    ]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _p99(times: Sequence[float]) -> float:
    return sorted(times)[max(0, -(-len(times) * 99 // 100) - 1)]


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
