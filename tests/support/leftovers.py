"""What a run may have left: looked for in the cgroup tree and /proc, independently of agentd's own look."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    pid: int
    ppid: int
    state: str
    name: str
    cgroup: str

    def __str__(self) -> str:
        return f"pid {self.pid} ({self.name}), state {self.state}, parent {self.ppid}, cgroup {self.cgroup}"


def processes() -> list[Process]:
    """Every process that /proc shows, zombies among them."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path(f"/proc/{entry}/stat").read_text(errors="replace")
                cgroups = Path(f"/proc/{entry}/cgroup").read_text()
            except OSError:
                continue
            head, _, tail = stat.rpartition(")")
            state, ppid = tail.split()[:2]
            cgroup = next((line[3:] for line in cgroups.splitlines() if line.startswith("0::")), "")
            found.append(Process(int(entry), int(ppid), state, head.partition(" (")[2], cgroup))
    return found


def alive(pid: int) -> bool:
    """Whether the process is there and no zombie. For short looks: the number may be reused."""
    return any(process.pid == pid and process.state not in "ZX" for process in processes())


def carrying(token: str) -> list[Process]:
    """Processes whose environment names ``token``, wherever they went."""
    pids = set()
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                environment = Path(f"/proc/{entry}/environ").read_bytes()
            except OSError:
                continue
            if token.encode() in environment:
                pids.add(int(entry))
    return [process for process in processes() if process.pid in pids] if pids else []


def below(cgroup: str) -> list[Process]:
    """Processes, zombies too, that are in the cgroup or below it (a path as /proc/PID/cgroup shows it), also
    where that has been removed."""
    return [
        process
        for process in processes()
        if process.cgroup.removesuffix(" (deleted)") == cgroup or process.cgroup.startswith(cgroup + "/")
    ]


def leaves(root: str) -> list[str]:
    """The cgroups below the directory ``root``, by name."""
    try:
        with os.scandir(root) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())
    except FileNotFoundError:
        return []


def open_descriptors() -> dict[int, str]:
    """This process's descriptors and what each is."""
    found = {}
    for entry in os.listdir("/proc/self/fd"):
        try:
            found[int(entry)] = os.readlink(f"/proc/self/fd/{entry}")
        except OSError:
            continue  # the one that listed them
    return found


def own_zombies() -> bool:
    """Whether this process has a child that has ended and was not waited for."""
    try:
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False
