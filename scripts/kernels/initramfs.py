"""The first file system of a booting kernel, in the format that it unpacks: cpio, "newc"."""

from pathlib import Path


class Archive:
    """Folders and files with their permissions; everything belongs to root."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._folders: set[str] = set()

    def add(self, name: str, content: bytes, mode: int = 0o755) -> None:
        """Add a file and the folders above it; ``name`` has no leading slash."""
        for parent in reversed(Path(name).parents[:-1]):
            self.add_folder(str(parent))
        self._append(name, 0o100000 | mode, content)

    def add_folder(self, name: str) -> None:
        """Add a folder, once."""
        if name not in self._folders:
            self._folders.add(name)
            self._append(name, 0o040755, b"")

    def finish(self) -> bytes:
        """The whole archive; nothing can be added after it."""
        self._append("TRAILER!!!", 0, b"")
        return bytes(self._bytes)

    def _append(self, name: str, mode: int, content: bytes) -> None:
        encoded = name.encode() + b"\0"
        inode = len(self._bytes) + 1  # only has to differ from the others
        # magic; inode, mode, uid, gid, links, time, size, device, special device (two each), length of name
        fields = (inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(encoded), 0)
        self._bytes += b"070701" + b"".join(b"%08X" % field for field in fields) + encoded
        self._pad()
        self._bytes += content
        self._pad()

    def _pad(self) -> None:
        self._bytes += b"\0" * (-len(self._bytes) % 4)


def modules(tree: Path, wanted: list[str]) -> list[Path]:
    """The files of kernel modules and of what they depend on, in an order that can be loaded.

    ``tree`` is the folder of the kernel's modules. Modules that are built in have no file.
    """
    needs: dict[str, list[str]] = {}
    for line in (tree / "modules.dep").read_text().splitlines():
        path, _, rest = line.partition(":")
        needs[path] = rest.split()
    by_name = {Path(path).name.split(".")[0].replace("-", "_"): path for path in needs}
    ordered: list[str] = []

    def visit(path: str) -> None:
        if path not in ordered:
            for other in needs[path]:
                visit(other)
            ordered.append(path)

    for name in wanted:
        if name in by_name:
            visit(by_name[name])
    return [tree / path for path in ordered]
