"""Commands that take a known amount of something, and nothing else."""

from __future__ import annotations


def memory(size: str) -> list[str]:
    """Touches one block of ``size`` (``32M``), then ends with 0."""
    return ["dd", "if=/dev/zero", "of=/dev/null", f"bs={size}", "count=1", "status=none"]


def shell_memory(size: str) -> str:
    return " ".join(memory(size))


SPIN = ["sh", "-c", "while :; do :; done"]
"""All the processor that it gets, for ever."""
