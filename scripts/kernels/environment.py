"""What COMMAND finds in its environment: the checkout's interpreter first, and a few variables passed on."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernels.errors import KernelError

PASSED_ON = (
    "CI",
    "FORCE_COLOR",
    "HYPOTHESIS_PROFILE",
    "LANG",
    "LC_ALL",
    "NO_COLOR",
    "PYTEST_ADDOPTS",
    "TERM",
    "TZ",
)

_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Interpreter:
    """The Python that COMMAND finds first in its PATH."""

    bin: Path
    """The folder that goes first in PATH."""
    venv: Path | None
    base: Path
    """The real installation: a folder that the guest has to see."""
    executable: Path


def find_interpreter(checkout: Path) -> Interpreter:
    """The checkout's `.venv`, else the python3 of PATH; never a shim, which costs seconds in UML."""
    venv = checkout / ".venv"
    executable = venv / "bin" / "python3"
    # Another user's interpreter may be out of reach.
    if os.access(executable, os.X_OK):
        _, base = _ask(executable)
        return Interpreter(bin=executable.parent, venv=venv, base=base, executable=executable)
    found = shutil.which("python3")
    if found is None:
        raise KernelError("no python3 in PATH and no .venv in the checkout; run scripts/setup")
    real, base = _ask(Path(found))
    return Interpreter(bin=real.parent, venv=None, base=base, executable=real)


def _ask(executable: Path) -> tuple[Path, Path]:
    code = "import os, sys; print(os.path.realpath(sys.executable)); print(sys.base_prefix)"
    answer = subprocess.run(
        [executable, "-I", "-S", "-c", code],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = answer.stdout.splitlines()
    if answer.returncode != 0 or len(lines) != 2:
        raise KernelError(f"{executable} does not run; make .venv anew with scripts/setup")
    return Path(lines[0]), Path(lines[1])


def guest_environment(
    kernel: str, python: Interpreter, passed: Mapping[str, str], added: Sequence[tuple[str, str]]
) -> dict[str, str]:
    """The whole environment of COMMAND; ``added`` wins over everything else."""
    environment = {
        "AGENTD_KERNEL": kernel,
        "HOME": "/tmp/home",
        "LOGNAME": "root",
        "PATH": f"{python.bin}:{_SYSTEM_PATH}",
        "SHELL": "/bin/sh",
        "TMPDIR": "/tmp",
        "USER": "root",
        # The checkout may belong to another user than the guest's root.
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
        # The checkout cannot be written to.
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    if python.venv is not None:
        environment["VIRTUAL_ENV"] = str(python.venv)
    environment.update({name: passed[name] for name in PASSED_ON if name in passed})
    environment["PYTEST_ADDOPTS"] = " ".join(
        part for part in ("-o cache_dir=/tmp/pytest-cache", environment.get("PYTEST_ADDOPTS")) if part
    )
    environment.update(added)
    return environment


def compile_checkout(python: Interpreter, checkout: Path) -> None:
    """Compile the package to bytecode on this kernel: the guest could not keep what it compiles."""
    folders = [str(folder) for folder in (checkout / "agentd",) if folder.is_dir()]
    if folders:
        subprocess.run(
            [python.executable, "-m", "compileall", "-q", *folders],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""},
            check=False,
        )
