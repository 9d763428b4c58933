"""Captured output: exact bytes, constant memory, whatever becomes of the sink."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from pathlib import Path

import pytest

import agentd
from tests.support import embedding

# Both streams at the same time, each with bytes of its own.
WRITER = """
import hashlib, os, sys, threading
size = int(sys.argv[1])
def write(fd):
    chunk = hashlib.sha256(bytes([fd])).digest() * 512
    view = memoryview(chunk)
    for _ in range(size // len(chunk)):
        rest = view
        while rest:
            rest = rest[os.write(fd, rest):]
threads = [threading.Thread(target=write, args=(fd,)) for fd in (1, 2)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""

MEASURE = """
import hashlib, os, sys
import agentd

size, root, way, folder = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
writer = [sys.executable, "-I", "-c", sys.argv[5]]

def peak():
    status = open("/proc/self/status").read()
    return int(status.split("VmHWM:")[1].split()[0]) << 10

class Hash:
    def __init__(self):
        self.hash, self.size = hashlib.sha256(), 0
    def __call__(self, data):
        self.hash.update(data)
        self.size += len(data)

def sinks():
    if way == "callable":
        return [agentd.Capture(tail=1000, sink=Hash()) for _ in range(2)]
    files = [os.open(f"{folder}/{number}", os.O_WRONLY | os.O_CREAT) for number in (1, 2)]
    return files if way == "straight" else [agentd.Capture(tail=1000, sink=file) for file in files]

with agentd.Supervisor(root) as supervisor:
    def run(size):
        out, err = sinks()
        return supervisor.spawn([*writer, str(size)], stdout=out, stderr=err).wait(timeout=120), out, err
    run(1 << 20)
    before = peak()
    report, out, err = run(size)
    grown = peak() - before

assert report.ok, report.verdict
assert grown < 8 << 20, grown
for fd, stream, target in ((1, "stdout", out), (2, "stderr", err)):
    chunk = hashlib.sha256(bytes([fd])).digest() * 512
    expected = hashlib.sha256()
    for _ in range(size // len(chunk)):
        expected.update(chunk)
    if way == "callable":
        assert (target.sink.size, target.sink.hash.digest()) == (size, expected.digest())
    else:
        with open(f"{folder}/{fd}", "rb") as file:
            assert hashlib.file_digest(file, "sha256").digest() == expected.digest()
    if way != "straight":
        tail = report.tails[stream]
        assert (tail.total, tail.complete, tail.tail) == (size, True, (chunk * 2)[-1000:])
print("grown by", grown)
"""


@pytest.mark.parametrize("way", ["callable", "descriptor", "straight"])
@pytest.mark.parametrize("mib", [8, pytest.param(64, marks=pytest.mark.default)])
def test_exact_bytes_in_constant_memory(way: str, mib: int, cgroup_root: str, tmp_path: Path) -> None:
    embedding.run(MEASURE, str(mib << 20), cgroup_root, way, str(tmp_path), WRITER)


def test_only_the_tail(cgroup_root: str) -> None:
    with agentd.Supervisor(cgroup_root) as supervisor:
        script = "yes | head -c 3000000; printf end"
        report = supervisor.spawn(["sh", "-c", script], stdout=agentd.Capture(tail=10)).wait(timeout=60)
    tail = report.tails["stdout"]
    assert (tail.tail, tail.total, tail.complete) == (b"\ny\ny\ny\nend", 3_000_003, True)
    assert tail.to_dict()["truncated"] is True


def test_both_streams_in_one(cgroup_root: str) -> None:
    with agentd.Supervisor(cgroup_root) as supervisor:
        report = supervisor.spawn(
            ["sh", "-c", "echo out; echo err >&2"], stdout=agentd.Capture(), stderr=agentd.STDOUT
        ).wait(timeout=20)
    assert report.tails["stdout"].tail == b"out\nerr\n"
    assert set(report.tails) == {"stdout"}


def test_a_terminal(cgroup_root: str) -> None:
    with agentd.Supervisor(cgroup_root) as supervisor:
        script = "test -t 0 && test -t 1 && test -t 2 && ps -o pgid=,tpgid= -p $$"
        report = supervisor.spawn(["sh", "-c", script], tty=True, stdout=agentd.Capture()).wait(timeout=20)
    assert report.ok
    group, foreground = report.tails["terminal"].tail.split()
    assert group == foreground


@pytest.mark.parametrize("error", [OSError("full"), SystemExit(1)])
def test_a_sink_that_fails_holds_up_nothing(error: BaseException, cgroup_root: str) -> None:
    calls = []

    def fail(data: bytes) -> None:
        calls.append(data)
        raise error

    with agentd.Supervisor(cgroup_root) as supervisor:
        script = "yes | head -c 1000000; printf end"
        report = supervisor.spawn(["sh", "-c", script], stdout=agentd.Capture(tail=3, sink=fail)).wait(60)
    tail = report.tails["stdout"]
    assert report.ok
    assert len(calls) == 1
    assert (tail.tail, tail.total, tail.complete) == (b"end", 1_000_003, False)


def test_a_sink_whose_reader_is_gone_holds_up_nothing(cgroup_root: str) -> None:
    read, write = os.pipe()
    os.close(read)
    with agentd.Supervisor(cgroup_root) as supervisor:
        report = supervisor.spawn(["sh", "-c", "echo hi"], stdout=agentd.Capture(sink=write)).wait(timeout=20)
    os.close(write)
    assert report.ok
    assert not report.tails["stdout"].complete


def test_a_sink_in_nonblocking_mode_loses_nothing(cgroup_root: str) -> None:
    """Whoever shares its open file may have set that; a full pipe is no failure."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    got = hashlib.sha256()
    size = 0
    with agentd.Supervisor(cgroup_root) as supervisor:
        script = "yes | head -c 2000000"
        child = supervisor.spawn(["sh", "-c", script], stdout=agentd.Capture(sink=write))
        while size < 2_000_000:
            piece = os.read(read, 4096)
            got.update(piece)
            size += len(piece)
        report = child.wait(timeout=20)
    os.close(read)
    os.close(write)
    assert got.digest() == hashlib.sha256(b"y\n" * 1_000_000).digest()
    assert report.tails["stdout"].complete


def test_a_sink_that_is_stuck_delays_only_its_own_run(cgroup_root: str) -> None:
    """B88: no longer than the bound of the drain; its thread ends, and its pipe is closed, when it lets go."""
    go = threading.Event()
    stuck = threading.Event()

    def block(_data: bytes) -> None:
        stuck.set()
        assert go.wait(60)

    before = sorted(os.listdir("/proc/self/fd"))
    with agentd.Supervisor(cgroup_root) as supervisor:
        child = supervisor.spawn(["sh", "-c", "echo hi; exec sleep 1000"], stdout=agentd.Capture(sink=block))
        assert stuck.wait(20)
        relay = next(thread for thread in threading.enumerate() if thread.name == "agentd-relay")
        other = supervisor.spawn(["true"], stdout=agentd.Capture(sink=lambda _: None))
        assert other.wait(timeout=20).ok
        began = time.monotonic()
        child.kill()
        report = child.wait(timeout=20)
        took = time.monotonic() - began
        go.set()
        relay.join(timeout=20)
        assert not relay.is_alive()
    assert took < 5
    assert report.tails["stdout"].tail == b"hi\n"
    assert not report.tails["stdout"].complete
    assert len(os.listdir("/proc/self/fd")) <= len(before) + 3  # the loop's own, if this was the first
