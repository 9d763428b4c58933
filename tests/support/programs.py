"""The small programs of tests/programs, as paths that can be executed."""

from __future__ import annotations

import subprocess
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[1] / "programs"

OPTIONS = ("-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-static")


def build(name: str, folder: Path) -> str:
    """Compile tests/programs/NAME.c, statically: it then starts fast, and anywhere."""
    program = folder / name
    if not program.exists():
        subprocess.run(
            [
                "cc",
                "-std=gnu11",
                "-O1",
                "-Wall",
                "-Wextra",
                "-Werror",
                "-static",
                "-o",
                program,
                SOURCES / f"{name}.c",
            ],
            check=True,
            stdin=subprocess.DEVNULL,
        )
    return str(program)
