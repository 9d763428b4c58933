"""Builds ``agentd._shim`` from the C files beside this one: cffi, API mode, GIL released around each call.

``AGENTD_SANITIZE=1`` in the environment builds it with the address and undefined-behaviour sanitizers.
"""

from __future__ import annotations

import os
import re

import cffi

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCES = ("birth.c", "child.c", "end.c", "facilities.c", "spawn.c", "wait.c")
WARNINGS = ["-Wall", "-Wextra", "-Wshadow", "-Werror"]
# The glue that cffi writes is not ours to warn about.
GLUE = ["-Wno-unused-parameter", "-Wno-missing-field-initializers", "-Wno-sign-compare", "-Wno-shadow"]


def declarations() -> str:
    """The declarations of shim.h, without what only the preprocessor understands."""
    with open(os.path.join(HERE, "shim.h"), encoding="ascii") as header:
        text = re.sub(r"/\*.*?\*/", "", header.read(), flags=re.DOTALL)
    return "\n".join(line for line in text.splitlines() if not line.startswith("#"))


def sanitizers() -> list[str]:
    if os.environ.get("AGENTD_SANITIZE") != "1":
        return []
    return ["-fsanitize=address,undefined", "-fno-omit-frame-pointer", "-g"]


ffibuilder = cffi.FFI()
ffibuilder.cdef(declarations())
ffibuilder.set_source(
    "agentd._shim",
    '#include "shim.h"',
    # Relative to the project, as setuptools wants its sources.
    sources=[f"native/{name}" for name in SOURCES],
    include_dirs=[HERE],
    depends=[f"native/{name}" for name in ("child.h", "shim.h", "syscall.h")],
    extra_compile_args=["-std=gnu17", "-O2", *WARNINGS, *GLUE, *sanitizers()],
    extra_link_args=["-pthread", *sanitizers()],
)

if __name__ == "__main__":
    ffibuilder.compile(verbose=True)
