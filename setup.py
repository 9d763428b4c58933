"""Builds what pyproject.toml has no words for: the shim (through cffi) and the static programs."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import ClassVar

from setuptools import Command, setup
from setuptools.command.build import build
from setuptools.errors import CompileError

PROGRAMS = {"native/init.c": "agentd/bin/agentd-init", "native/keeper.c": "agentd/bin/leafkeeper"}


class BuildPrograms(Command):
    """Compile the programs, statically: they are exec'ed in roots that may hold no C library.

    A subcommand of ``build`` as setuptools describes them, so that wheels, sdists and editable installs all
    go through it: ``editable_mode`` puts them beside their package in the checkout, else they go
    below ``build_lib``, from where the wheel takes them with their executable bits.
    """

    description = "compile the static programs"
    user_options: ClassVar[list[tuple[str, str, str]]] = [("build-lib=", "d", "directory to build to")]

    def initialize_options(self) -> None:
        self.build_lib: str | None = None
        self.editable_mode = False

    def finalize_options(self) -> None:
        self.set_undefined_options("build_py", ("build_lib", "build_lib"))

    def run(self) -> None:
        for source, program in PROGRAMS.items():
            self._compile(source, self._place(program))

    def _compile(self, source: str, program: Path) -> None:
        program.parent.mkdir(parents=True, exist_ok=True)
        # Written beside its place and renamed into it: a keeper may be running from the old one.
        fresh = program.with_name(f"{program.name}.{os.getpid()}")
        compiler = shlex.split(os.environ.get("CC") or "cc")
        options = ["-O2", "-static", "-Wall", "-Wextra", "-Werror"]
        command = [*compiler, *options, "-o", str(fresh), source]
        print(shlex.join(command), flush=True)
        try:
            subprocess.run(command, check=True)
            fresh.replace(program)
        except (OSError, subprocess.CalledProcessError) as error:
            raise CompileError(f"{source}: {error}") from error
        finally:
            fresh.unlink(missing_ok=True)

    def get_source_files(self) -> list[str]:
        return list(PROGRAMS)

    def get_outputs(self) -> list[str]:
        return [str(self._place(program)) for program in PROGRAMS.values()]

    def get_output_mapping(self) -> dict[str, str]:
        return {}

    def _place(self, program: str) -> Path:
        if self.editable_mode or self.build_lib is None:
            return Path(program)
        return Path(self.build_lib, program)


class Build(build):
    sub_commands: ClassVar = [*build.sub_commands, ("build_programs", None)]


setup(
    cffi_modules=["native/build_shim.py:ffibuilder"],
    cmdclass={"build": Build, "build_programs": BuildPrograms},
)
