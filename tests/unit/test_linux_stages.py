"""The stages of a birth: one list in C, one in Python, a sentence for each."""

from __future__ import annotations

import re
from pathlib import Path

from agentd.linux.stages import STAGES, WHAT, remedy

HEADER = Path(__file__).parents[2] / "native" / "shim.h"
# Where the C name is cut short.
SHORT = {"deathsig": "death-signal"}


def in_c() -> list[str]:
    body = re.search(r"enum agentd_stage \{(.*?)\};", HEADER.read_text(), re.DOTALL)
    assert body is not None
    text = re.sub(r"/\*.*?\*/", "", body[1], flags=re.DOTALL)
    found = [name.split("=")[0].strip() for name in text.split(",")]
    stages = [name.removeprefix("AGENTD_").lower().replace("_", "-") for name in found if name]
    assert stages.pop() == "stages"
    return [SHORT.get(stage, stage) for stage in stages]


def test_both_lists_are_one() -> None:
    assert in_c() == list(STAGES)


def test_every_stage_has_words() -> None:
    assert set(WHAT) == set(STAGES) - {"ok"}


def test_a_remedy_is_for_a_stage_that_exists() -> None:
    assert remedy("clone", 11)
    assert remedy("exec", 0) == ""
    from agentd.linux import stages

    assert {stage for stage, _ in stages._REMEDIES} <= set(STAGES)
