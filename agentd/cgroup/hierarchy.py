"""What cgroup hierarchies there are here, and where in them this process is."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Literal, NamedTuple

# Words among a v1 mount's super options that name no controller (kernel: cgroup-v1.c, cgroup1_param_specs).
_V1_OPTIONS = frozenset(
    {
        "rw",
        "ro",
        "all",
        "none",
        "noprefix",
        "clone_children",
        "cpuset_noprefix",
        "cpuset_v2_mode",
        "xattr",
        "favordynmods",
        "nofavordynmods",
    }
)


class Hierarchy(NamedTuple):
    """The cgroup mounts of this mount namespace, as far as they concern agentd.

    ``kind``: "unified" (v2 alone), "hybrid" (v2 beside v1 controllers), "v1" (no v2 mounted) or "none".
    ``mount``: where v2 is mounted, "" if nowhere; with several mounts, the one that shows our own cgroup.
    ``mount_root``: the cgroup that is shown at the mount, "/" unless it is a part that was bound there.
    ``read_only``: whether that mount is. ``own``: this process's cgroup as a directory path below the mount,
    "/" for the mount itself, "" where the mount does not show it. ``options``: the mount's super options,
    such as ``nsdelegate``. ``v1_controllers``: each controller that is bound to a v1 hierarchy, with that
    hierarchy's mount ("" where it is not mounted here).
    """

    kind: Literal["unified", "hybrid", "v1", "none"]
    mount: str
    mount_root: str
    read_only: bool
    own: str
    options: frozenset[str]
    v1_controllers: dict[str, str]

    @property
    def own_path(self) -> str:
        """The directory of our own cgroup, "" where it is not to be seen."""
        return (self.mount if self.own == "/" else self.mount + self.own) if self.own else ""


class _Mount(NamedTuple):
    device: str
    root: str
    point: str
    read_only: bool
    fstype: str
    options: frozenset[str]


def detect(
    mountinfo: str, self_cgroup: str, *, is_cgroup2: Callable[[str], bool], prefer: str = ""
) -> Hierarchy:
    """The hierarchy that the texts of /proc/self/mountinfo and /proc/self/cgroup describe.

    ``is_cgroup2(mount point)`` says whether a cgroup v2 file system is to be found there now: another mount
    can hide one that the text still lists. Of several v2 mounts, first choice is one above ``prefer``, then
    one that shows our own cgroup, then a writable one, then the one that shows most, then the shortest path.
    Text that is not understood is passed over. Source: proc(5), cgroups(7), kernel: cgroup-v2.rst.
    """
    mounts = _cgroup_mounts(mountinfo)
    own, bound = _own_and_bound(self_cgroup)
    v1 = dict.fromkeys(bound, "")
    for mount in mounts:
        if mount.fstype == "cgroup":
            for option in sorted(mount.options):
                if option not in _V1_OPTIONS and "=" not in option and not v1.get(option):
                    v1[option] = mount.point

    candidates = [m for m in mounts if m.fstype == "cgroup2" and is_cgroup2(m.point)]
    if not candidates:
        return Hierarchy("v1" if v1 else "none", "", "", False, "", frozenset(), v1)

    def rank(mount: _Mount) -> tuple[bool, bool, bool, int, int, str]:
        above = prefer == mount.point or prefer.startswith(mount.point.rstrip("/") + "/")
        return (
            not (prefer and above),
            not below(own, mount.root),
            mount.read_only,
            len(mount.root),
            len(mount.point),
            mount.point,
        )

    mount = min(candidates, key=rank)
    return Hierarchy(
        "hybrid" if v1 else "unified",
        mount.point,
        mount.root,
        mount.read_only,
        below(own, mount.root),
        mount.options - {"rw", "ro"},
        v1,
    )


def below(path: str, root: str) -> str:
    """``path`` seen from ``root``, both being cgroup paths: "/" for the same, "" if it is not below.

    A path with ``..`` lies outside our cgroup namespace, and one that ends in " (deleted)" was removed (of a
    bound mount, "//deleted"): where they are cannot be known from text.
    """
    for text in (path, root):
        outside = not text.startswith("/") or ".." in text.split("/")
        if outside or text.endswith((" (deleted)", "//deleted")):
            return ""
    if root == "/":
        return path
    if path == root:
        return "/"
    return path[len(root) :] if path.startswith(root + "/") else ""


def read_hierarchy(*, prefer: str = "") -> Hierarchy:
    """``detect`` for this process, now. ``prefer`` as there.

    A mount counts as cgroup v2 if the device number of what is at its mount point is the one that mountinfo
    gives for the cgroup2 file system: of two mounts at one point only the visible one has it.
    Without /proc the answer is "none". Raises nothing.
    """
    try:
        mountinfo, own = _text("/proc/self/mountinfo"), _text("/proc/self/cgroup")
    except OSError:
        return Hierarchy("none", "", "", False, "", frozenset(), {})
    devices = {mount.device for mount in _cgroup_mounts(mountinfo) if mount.fstype == "cgroup2"}

    def is_cgroup2(point: str) -> bool:
        try:
            device = os.stat(point).st_dev
        except OSError:
            return False
        return f"{os.major(device)}:{os.minor(device)}" in devices

    return detect(mountinfo, own, is_cgroup2=is_cgroup2, prefer=prefer)


def _text(path: str) -> str:
    with open(path, "rb", buffering=0) as file:
        return os.fsdecode(file.read())


def _cgroup_mounts(mountinfo: str) -> list[_Mount]:
    """The cgroup mounts in the order of the text; of those at one point the last, which hides the others."""
    found: dict[str, _Mount] = {}
    for line in mountinfo.split("\n"):
        if " - cgroup" not in line:
            continue
        words, _, rest = line.partition(" - ")
        fields, source = words.split(" "), rest.split(" ")
        if len(fields) < 6 or len(source) < 3 or source[0] not in ("cgroup", "cgroup2"):
            continue
        options = frozenset(source[2].split(","))
        read_only = "ro" in fields[5].split(",") or "ro" in options
        point = unescape(fields[4])
        found.pop(point, None)
        found[point] = _Mount(fields[2], unescape(fields[3]), point, read_only, source[0], options)
    return list(found.values())


def _own_and_bound(self_cgroup: str) -> tuple[str, list[str]]:
    """Our v2 cgroup's path ("" if the text has none), and the controllers that are bound to v1."""
    own, bound = "", []
    for line in self_cgroup.split("\n"):
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            own = path
        else:
            bound += [name for name in controllers.split(",") if name and "=" not in name]
    return own, bound


def unescape(text: str) -> str:
    r"""A field of mountinfo as it was: ``\040`` and the like stand for blanks, newlines and backslashes."""
    if "\\" not in text:
        return text
    head, *parts = text.split("\\")
    for part in parts:
        code = part[:3]
        octal = len(code) == 3 and all(digit in "01234567" for digit in code) and code[0] < "4"
        head += chr(int(code, 8)) + part[3:] if octal else "\\" + part
    return head
