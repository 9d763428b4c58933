"""User-Mode Linux: Debian's kernel as a program of this machine, on this machine's own files."""

import os
from collections.abc import Sequence
from pathlib import Path

from kernels import guest, packages
from kernels.errors import KernelError

# What the kernel measures at boot and nothing here needs: it takes a second. The delay loop is for hardware.
_FASTER = ("lpj=28000000", "initcall_blacklist=raid6_select_algo,init_btrfs_fs")

_SHARED_MEMORY = Path("/dev/shm")


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
    guest.write_job(job, scratch)

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
            *([f"ubd0={scratch}/swap"] if job.swap else []),
            f"uml_dir={scratch}/",
            "quiet",
            *_FASTER,
            *job.append,
            *guest.init_variables("uml", scratch),
        ]

    return guest.run(argv, job, scratch, {"TMPDIR": str(_memory_folder(job.memory, scratch))})


def _memory_folder(memory: str, scratch: Path) -> Path:
    """Where the guest's memory is, as a file without a name: fastest on a tmpfs, if that is large enough."""
    try:
        room = os.statvfs(_SHARED_MEMORY)
    except OSError:
        return scratch
    # A guest that meets the end of the tmpfs dies of SIGBUS. In a container it often is 64 MiB.
    return _SHARED_MEMORY if room.f_bavail * room.f_frsize > guest.in_bytes(memory) else scratch
