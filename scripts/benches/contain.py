"""A contained run beside an uncontained one, and the command's start beside the import of its parser."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

from benches import figures

GOAL = 1.5
PARENTS = {
    "small": "run through the library",
    "large": "the same, 500 MiB resident",
    "busy": "the same, beside a busy thread",
}


def measure(rounds: int, cgroup: str) -> list[dict[str, Any]]:
    """All rows. Each kind of parent is a process of its own, so that none inherits another's memory."""
    rows = []
    for parent in PARENTS:
        command = [sys.executable, "-m", "benches.contain_cycle", parent, str(rounds), cgroup]
        path = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        result = subprocess.run(
            command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, check=True
        )
        ours, peers = json.loads(result.stdout)
        rows.append(figures.row(PARENTS[parent], "subprocess.Popen", GOAL, ours, peers))
    rows.append(_start(rounds, cgroup))
    return rows


def _start(rounds: int, cgroup: str) -> dict[str, Any]:
    where = os.path.dirname(sys.executable)
    ours = [os.path.join(where, "agentd"), "run", "--cgroup", cgroup, "--", "true"]
    peer = [sys.executable, "-I", "-c", "import click"]
    return figures.row(
        "agentd run -- true",
        "import click",
        GOAL,
        *figures.in_turn(lambda: _whole_process(ours), lambda: _whole_process(peer), rounds),
    )


def _whole_process(command: list[str]) -> float:
    quiet = [(os.POSIX_SPAWN_OPEN, 2, "/dev/null", os.O_WRONLY, 0)]
    start = time.perf_counter()
    pid = os.posix_spawn(command[0], command, os.environ, file_actions=quiet)
    _, status = os.waitpid(pid, 0)
    took = time.perf_counter() - start
    if status:
        raise RuntimeError(f"{command} ended with status {status}")
    return took
