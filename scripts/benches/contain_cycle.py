"""In a process of its own: times of contained and of plain runs of /bin/true, as JSON on stdout."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time

import agentd
from benches import figures

# Two limits that every cgroup has: where memory and pids are bound to cgroup v1, these stand in for them.
STAND_INS = {"cgroup.max.depth": 10, "cgroup.max.descendants": 20}
PROGRAM = ["/bin/true"]


def main(parent: str, rounds: int, cgroup: str) -> None:
    ballast = bytearray(500 << 20) if parent == "large" else b""
    for page in range(0, len(ballast), 4096):
        ballast[page] = 1  # type: ignore[index]
    stop = threading.Event()
    if parent == "busy":
        threading.Thread(target=_spin, args=(stop,)).start()
    try:
        with agentd.Supervisor(cgroup) as supervisor:
            limits = agentd.Limits(files=STAND_INS)
            times = figures.in_turn(lambda: _contained(supervisor, limits), _plain, rounds)
    finally:
        stop.set()
    print(json.dumps(times))


def _contained(supervisor: agentd.Supervisor, limits: agentd.Limits) -> float:
    start = time.perf_counter()
    report = supervisor.spawn(PROGRAM, limits=limits).wait()
    took = time.perf_counter() - start
    if not (report.ok and report.teardown.complete and len(report.limits.in_force) == len(STAND_INS)):
        raise RuntimeError(f"not what is to be measured: {report.to_dict()}")
    return took


def _plain() -> float:
    start = time.perf_counter()
    subprocess.Popen(PROGRAM).wait()
    return time.perf_counter() - start


def _spin(stop: threading.Event) -> None:
    count = 0
    while not stop.is_set():
        count += 1


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
