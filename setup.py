"""Builds what pyproject.toml has no words for: the shim (through cffi) and the static agentd-init."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import ClassVar

from setuptools import Command, setup
from setuptools.command.build import build
from setuptools.errors import CompileError

SOURCE = "native/init.c"
PROGRAM = "agentd/bin/agentd-init"


class BuildInit(Command):
    """Compile native/init.c, statically: it is exec'ed in roots that may hold no C library.

    A subcommand of ``build`` as setuptools describes them, so that wheels, sdists and editable installs all
    go through it: ``editable_mode`` puts the program beside its package in the checkout, else it goes
    below ``build_lib``, from where the wheel takes it with its executable bit.
    """

    description = f"compile {SOURCE} to {PROGRAM}"
    user_options: ClassVar[list[tuple[str, str, str]]] = [("build-lib=", "d", "directory to build to")]

    def initialize_options(self) -> None:
        self.build_lib: str | None = None
        self.editable_mode = False

    def finalize_options(self) -> None:
        self.set_undefined_options("build_py", ("build_lib", "build_lib"))

    def run(self) -> None:
        program = self._program()
        program.parent.mkdir(parents=True, exist_ok=True)
        # Written beside its place and renamed into it: a keeper may be running from the old one.
        fresh = program.with_name(f"{program.name}.{os.getpid()}")
        compiler = shlex.split(os.environ.get("CC") or "cc")
        options = ["-O2", "-static", "-Wall", "-Wextra", "-Werror"]
        command = [*compiler, *options, "-o", str(fresh), SOURCE]
        print(shlex.join(command), flush=True)
        try:
            subprocess.run(command, check=True)
            fresh.replace(program)
        except (OSError, subprocess.CalledProcessError) as error:
            raise CompileError(f"{SOURCE}: {error}") from error
        finally:
            fresh.unlink(missing_ok=True)

    def get_source_files(self) -> list[str]:
        return [SOURCE]

    def get_outputs(self) -> list[str]:
        return [str(self._program())]

    def get_output_mapping(self) -> dict[str, str]:
        return {}

    def _program(self) -> Path:
        if self.editable_mode or self.build_lib is None:
            return Path(PROGRAM)
        return Path(self.build_lib, PROGRAM)


class Build(build):
    sub_commands: ClassVar = [*build.sub_commands, ("build_init", None)]


setup(cffi_modules=["native/build_shim.py:ffibuilder"], cmdclass={"build": Build, "build_init": BuildInit})
