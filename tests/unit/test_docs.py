"""What is written from the code is written anew when the code changes."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from agentd.process.verdict import CANCELLED, OURS

ROOT = Path(__file__).resolve().parents[2]


def test_the_report_page_is_of_the_schema() -> None:
    done = subprocess.run([ROOT / "scripts" / "docs", "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_cause_is_explained() -> None:
    page = (ROOT / "docs" / "verdicts.md").read_text(encoding="utf-8")
    explained = set(re.findall(r"^### ((?:`\w+`(?:, )?)+)", page, re.MULTILINE))
    named = {word for line in explained for word in re.findall(r"\w+", line)}
    assert named >= OURS | CANCELLED | {"ok", "error", "signal", "memory", "escaped", "start", "unknown"}
