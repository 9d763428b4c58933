"""QEMU without KVM: Debian's own kernel with two processors, on this machine's own files."""

import lzma
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernels import guest, initramfs, packages
from kernels.errors import KernelError

_PACKAGES = {"qemu-system-x86_64": "qemu-system-x86", "busybox": "busybox-static"}
_MODULES = ["virtio_pci", "9pnet_virtio", "9p", "virtio_console", "virtio_blk"]

_COMMAND_LINE = (
    "console=ttyS0",
    "quiet",
    "panic=-1",
    "psi=1",
    # What costs seconds under emulation and protects nothing here.
    "mitigations=off",
    "nokaslr",
    "tsc=reliable",
    "no_timer_check",
    "cryptomgr.notests",
    "audit=0",
)


@dataclass(frozen=True)
class Kernel:
    """What is needed of this machine to boot."""

    image: Path
    modules: Path
    qemu: Path
    busybox: Path


def prepare() -> Kernel:
    """Install what is missing and find the newest of Debian's kernels."""
    missing = [package for name, package in _PACKAGES.items() if packages.program(name) is None]
    if not _images():
        missing.append("linux-image-amd64")
    if missing:
        packages.install(missing)
    qemu, busybox, images = packages.program("qemu-system-x86_64"), packages.program("busybox"), _images()
    if qemu is None or busybox is None or not images:
        raise KernelError("qemu-system-x86_64, busybox or /boot/vmlinuz-* is missing although installed")
    image = max(images, key=lambda path: [int(number) for number in re.findall(r"\d+", path.name)])
    return Kernel(image, _modules_of(image), qemu, busybox)


def _images() -> list[Path]:
    return [path for path in Path("/boot").glob("vmlinuz-*-amd64") if _modules_of(path).is_dir()]


def _modules_of(image: Path) -> Path:
    return Path("/lib/modules") / image.name.removeprefix("vmlinuz-")


def run(kernel: Kernel, job: guest.Job, scratch: Path) -> int:
    """Run the job; ``scratch`` is an empty folder of this machine, which the caller removes."""
    guest.write_job(job, scratch)
    (scratch / "initramfs").write_bytes(_initramfs(kernel))
    image = _uncompressed(kernel.image, scratch)

    def argv(channels: guest.Channels) -> Sequence[str | Path]:
        return [
            kernel.qemu,
            *("-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"),
            # Nested KVM hangs on some machines, and is not there on most.
            *("-accel", "tcg,thread=multi", "-cpu", "max,la57=off", "-smp", "2", "-m", job.memory),
            *("-kernel", image, "-initrd", scratch / "initramfs"),
            *("-append", " ".join([*_COMMAND_LINE, *job.append, *guest.init_variables("qemu", scratch)])),
            *("-chardev", _to(1, "console"), "-serial", "chardev:console"),
            *("-device", "virtio-serial-pci"),
            *("-chardev", _to(channels.stdout, "stdout"), "-device", "virtserialport,chardev=stdout,nr=1"),
            *("-chardev", _to(channels.stderr, "stderr"), "-device", "virtserialport,chardev=stderr,nr=2"),
            *(_disk(scratch / "swap") if job.swap else []),
            *_folder("root", Path("/"), ",readonly=on"),
            *_folder("scratch", scratch),
            *(word for number, path in enumerate(job.writable) for word in _folder(f"write{number}", path)),
        ]

    return guest.run(argv, job, scratch)


def _uncompressed(image: Path, scratch: Path) -> Path:
    """The kernel without its wrapping, which QEMU boots too: unpacking takes the guest seconds.

    The layout is that of the kernel's Documentation/arch/x86/boot.rst. An image that is packed in another
    way than Debian's is returned as it is.
    """
    data = image.read_bytes()
    protected = (data[0x1F1] + 1) * 512
    offset, length = struct.unpack_from("<II", data, 0x248)
    payload = data[protected + offset : protected + offset + length]
    if not payload.startswith(b"\xfd7zXZ\0"):
        return image
    unpacked = lzma.LZMADecompressor(lzma.FORMAT_XZ).decompress(payload)
    plain = scratch / "vmlinux"
    plain.write_bytes(unpacked)
    return plain


def _to(descriptor: int, name: str) -> str:
    return f"file,id={name},path=/proc/self/fd/{descriptor}"


def _disk(file: Path) -> list[str]:
    return ["-drive", f"file={file},format=raw,if=none,id=swap", "-device", "virtio-blk-pci,drive=swap"]


def _folder(tag: str, path: Path, more: str = "") -> list[str]:
    escaped = str(path).replace(",", ",,")
    return [
        "-fsdev",
        f"local,id={tag},path={escaped},security_model=none,multidevs=remap{more}",
        "-device",
        f"virtio-9p-pci,fsdev={tag},mount_tag={tag}",
    ]


def _initramfs(kernel: Kernel) -> bytes:
    archive = initramfs.Archive()
    for name in ("root", "proc", "dev"):
        archive.add_folder(name)
    archive.add("init", Path(__file__).with_name("qemu-initramfs").read_bytes())
    archive.add("bin/busybox", kernel.busybox.read_bytes())
    files = initramfs.modules(kernel.modules, _MODULES)
    for file in files:
        archive.add(f"modules/{file.name}", file.read_bytes(), 0o644)
    archive.add("modules/order", "".join(f"{file.name}\n" for file in files).encode(), 0o644)
    return archive.finish()
