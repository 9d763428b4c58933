"""User-Mode Linux: Debian's kernel as a program of this machine, on this machine's own files."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from kernels import guest, packages
from kernels.errors import KernelError

_INIT = Path(__file__).with_name("uml-init")

# What the kernel measures at boot and nothing here needs: it takes a second. The delay loop is for hardware.
_FASTER = ("lpj=28000000", "initcall_blacklist=raid6_select_algo,init_btrfs_fs")


def prepare() -> Path:
    """Install what is missing and return the path of the kernel."""
    needed = {"linux.uml": "user-mode-linux", "busybox": "busybox-static"}
    missing = [package for name, package in needed.items() if packages.program(name) is None]
    if missing:
        packages.install(missing)
    kernel = packages.program("linux.uml")
    if kernel is None or packages.program("busybox") is None:
        raise KernelError("linux.uml or busybox is not in PATH although its package is installed")
    return kernel


def run(kernel: Path, job: guest.Job, scratch: Path) -> int:
    """Run the job; ``scratch`` is an empty folder of this machine, which the caller removes."""
    shutil.copy(_INIT, scratch / "init")
    guest.write_job(job, scratch)
    swap = scratch / "swap"
    if job.swap:
        with swap.open("wb") as file:
            file.truncate(job.swap)

    def argv(channels: guest.Channels) -> Sequence[str | Path]:
        return [
            kernel,
            f"mem={job.memory}",
            "rootfstype=hostfs",
            "rootflags=/",
            "ro",
            f"init={scratch}/init",
            "con=null",
            "con0=null,fd:1",
            "ssl=null",
            f"ssl0=null,fd:{channels.stdout}",
            f"ssl1=null,fd:{channels.stderr}",
            *([f"ubd0={swap}"] if job.swap else []),
            f"uml_dir={scratch}/",
            "quiet",
            *_FASTER,
            *job.append,
            f"KERNEL_SCRATCH={scratch}",
        ]

    return guest.run(argv, job, scratch)
