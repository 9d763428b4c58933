"""The command line of `scripts/kernel`."""

import argparse
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from kernels import environment, guest, qemu, uml
from kernels.errors import EXIT_FAILED, KernelError

_CHECKOUT = Path(__file__).resolve().parents[2]

_HELP = f"""\
Runs COMMAND as root in this checkout, in the current directory, on another kernel:

  uml    User-Mode Linux 6.1: one CPU; cgroup v2 with cpu, io, memory, pids. Boots in a second or two.
  qemu   Debian's kernel, emulated: two CPUs, cgroup v2 with cpuset too, PSI. Slow, for a few tests only.

The guest sees this machine's files read-only; /tmp, /run and /dev/shm are its own and empty (but for the
checkout and its interpreter, should they lie there). What COMMAND shall leave behind goes to a folder
that --write names. Standard input is empty, standard output and error are passed on as they come, byte
for byte. Processes that COMMAND leaves behind are killed. PATH begins with the .venv of the checkout.

exit status:
  COMMAND's own; 128 + N if signal N killed it; 126 or 127 if it could not be started;
  124 if --timeout passed; 125 if the guest gave no status, with one line on standard error;
  128 + N if this script got signal N (SIGINT, SIGTERM, SIGHUP; SIGPIPE if nobody reads its output).

environment:
  COMMAND gets AGENTD_KERNEL=uml or qemu, HOME (an empty folder), PATH, VIRTUAL_ENV, a few settings for git,
  pytest and Python, and from the caller: {" ".join(environment.PASSED_ON)}.

examples:
  scripts/kernel uml -- pytest -q tests/kernel
  scripts/kernel uml --timeout 60 -- cat /sys/fs/cgroup/cgroup.controllers
  scripts/kernel uml --write report -- pytest --junitxml=report/uml.xml
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        # 2, argparse's own, could be COMMAND's.
        self.exit(EXIT_FAILED, f"kernel: {message}; see scripts/kernel --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="scripts/kernel",
        usage="%(prog)s uml|qemu [OPTIONS] -- COMMAND [ARGUMENT ...]",
        description=_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("kernel", choices=["uml", "qemu"], metavar="KERNEL", help="uml or qemu")
    parser.add_argument(
        "--timeout", type=_seconds, default=600.0, metavar="SECONDS", help="for the whole boot (default: 600)"
    )
    parser.add_argument(
        "--memory", type=_size, default="1G", metavar="SIZE", help="of the guest, like 512M (default: 1G)"
    )
    parser.add_argument(
        "--swap", type=_size, metavar="SIZE", help="give the guest that much swap space (default: none)"
    )
    parser.add_argument(
        "--env", type=_variable, action="append", default=[], metavar="K=V", help="set a variable for COMMAND"
    )
    parser.add_argument(
        "--write",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="let COMMAND change this folder",
    )
    parser.add_argument(
        "--append", action="append", default=[], metavar="KERNEL_ARG", help="add to the kernel's command line"
    )
    parser.add_argument("--console", action="store_true", help="show the kernel's messages on standard error")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the script; returns its exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    at = words.index("--") if "--" in words else len(words)
    command = words[at + 1 :]
    parser = _parser()
    options = parser.parse_args(words[:at])
    if not command:
        parser.error("no COMMAND: it comes after --")
    try:
        return _run(options, command)
    except KernelError as error:
        print(f"kernel: {options.kernel}: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"kernel: {options.kernel}: {error}", file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _run(options: argparse.Namespace, command: Sequence[str]) -> int:
    directory = Path.cwd()
    if not directory.is_relative_to(_CHECKOUT):
        raise KernelError(f"{directory} is not in the checkout {_CHECKOUT}; change there first")
    writable = [folder.resolve() for folder in options.write]
    for folder in writable:
        if not folder.is_dir():
            raise KernelError(f"--write {folder}: no such folder; make it first")
    python = environment.find_interpreter(_CHECKOUT)
    environment.compile_checkout(python, _CHECKOUT)
    job = guest.Job(
        command=command,
        directory=directory,
        environment=environment.guest_environment(options.kernel, python, os.environ, options.env),
        visible=[_CHECKOUT, python.base, *([python.venv.resolve()] if python.venv else [])],
        writable=writable,
        timeout=options.timeout,
        memory=options.memory,
        swap=guest.in_bytes(options.swap) if options.swap else 0,
        append=options.append,
        show_console=options.console,
    )
    if options.kernel == "uml":
        linux = uml.prepare()
        with guest.signals_blocked(), _scratch() as scratch:
            return uml.run(linux, job, scratch)
    debian = qemu.prepare()
    with guest.signals_blocked(), _scratch() as scratch:
        return qemu.run(debian, job, scratch)


@contextmanager
def _scratch() -> Iterator[Path]:
    """A folder of this machine for one boot, whose path can stand on a kernel command line."""
    scratch = Path(tempfile.mkdtemp(prefix="agentd-kernel-")).resolve()
    try:
        if not re.fullmatch(r"[\w./+-]+", str(scratch)):
            raise KernelError(
                f"TMPDIR {scratch.parent} has a character that the kernel cannot take; unset it"
            )
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < 1e6:
        raise ValueError(text)
    return seconds


def _size(text: str) -> str:
    if not re.fullmatch(r"[1-9]\d*[KMG]", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size like 512M or 2G")
    return text


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z_]\w*", name):
        raise argparse.ArgumentTypeError(f"{text!r} is not K=V")
    return name, value
