"""The one line at the end of ``agentd run``."""

from __future__ import annotations

from collections import Counter
from typing import Any

from agentd.process.report import Report
from agentd.process.verdict import signal_name

_NAMED = 4


def line(report: Report) -> str:
    """Verdict, wall and processor time, memory peak, hits of limits, and who was left behind."""
    parts = [_verdict(report), f"{_seconds(report.duration)} wall"]
    cpu: Any = report.usage.get("cpu", {})
    if "usage_us" in cpu:
        parts.append(f"{_seconds(cpu['usage_us'] / 1e6)} cpu")
    memory: Any = report.usage.get("memory", {})
    if "peak" in memory:
        parts.append(f"{size(memory['peak'])} peak")
    parts += _facts(report)
    if report.left_behind_count:
        parts.append(_left_behind(report))
    if not report.teardown.complete:
        parts.append(f"teardown incomplete: {', '.join(report.teardown.stuck)}")
    return ", ".join(parts)


def _verdict(report: Report) -> str:
    verdict = report.verdict
    words = f"{verdict.exit} ({verdict.cause}{f', {verdict.scope}' if verdict.scope else ''})"
    if verdict.cause == "error":
        return f"{words} with code {verdict.code}"
    if verdict.cause == "signal" and verdict.signal is not None:
        return f"{words} by {signal_name(verdict.signal)}"
    if verdict.cause == "start":
        return f"{words}: the memory limit is too low to start it"
    return words


def _facts(report: Report) -> list[str]:
    facts = []
    pids: Any = report.usage.get("pids", {})
    if pids.get("max_hits"):
        facts.append(f"pids limit hit {pids['max_hits']} times")
    if report.oom is not None and report.verdict.cause not in ("memory", "start"):
        whose = f" of {report.oom.path}" if report.oom.path else f" ({report.oom.scope})"
        facts.append(f"part of it was killed at the memory limit{whose}")
    if report.oom is not None and report.oom.shmem:
        facts.append(f"{size(report.oom.shmem)} in tmpfs files and shared memory")
    return facts


def _left_behind(report: Report) -> str:
    count = report.left_behind_count
    names = Counter(process.name for process in report.left_behind)
    listed = [f"{name} ×{number}" if number > 1 else name for name, number in names.most_common(_NAMED)]
    if len(names) > _NAMED:
        listed.append("…")
    return (
        f"left behind and killed {count}: {', '.join(listed)}"
        if listed
        else f"left behind and killed {count}"
    )


def _seconds(value: float) -> str:
    return f"{value:.0f} s" if value >= 100 else f"{value:.1f} s" if value >= 10 else f"{value:.2f} s"


def size(count: int) -> str:
    """Bytes in binary units, for people."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
