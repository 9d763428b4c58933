"""Signals leave through agentd/linux/signals.py and nowhere else: it knows how not to hit a stranger."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
SENDING = {"kill", "killpg", "pidfd_send_signal", "pthread_kill", "raise_signal", "sigqueue", "tgkill"}
MODULES = {"os", "signal", "posix", "_signal"}


def _senders(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text())
    to_itself = {
        node.func
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and node.args and ast.unparse(node.args[0]) == "os.getpid()"
    }
    for node in ast.walk(tree):
        if node in to_itself:
            continue
        match node:
            case ast.Attribute(value=ast.Name(id=module), attr=name) if module in MODULES and name in SENDING:
                yield f"{module}.{name}"
            case ast.ImportFrom(module=module, names=names) if module in MODULES:
                yield from (f"{module}.{alias.name}" for alias in names if alias.name in SENDING)
            case ast.Attribute(attr="agentd_pidfd_send_signal"):
                yield "the shim"


def test_python() -> None:
    found = {
        str(path.relative_to(CHECKOUT)): set(_senders(path))
        for path in (CHECKOUT / "agentd").rglob("*.py")
        if set(_senders(path))
    }
    assert found == {"agentd/linux/signals.py": {"os.killpg", "the shim"}}


def test_c() -> None:
    sending = re.compile(r"\b(?:tg|t)?kill(?:pg)?\s*\(|SYS_(?:tg|t)?kill\b|rt_sigqueueinfo|\braise\s*\(")
    found = [
        f"{path.name}: {line.strip()}"
        for path in sorted((CHECKOUT / "native").glob("*.c"))
        for line in path.read_text().splitlines()
        if sending.search(line)
    ]
    # Below a check that the leader's zombie still pins the number.
    assert found == ["end.c: (void)kill(-end->pid, SIGKILL);"]
