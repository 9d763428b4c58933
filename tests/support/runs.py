"""Running the command ``agentd run`` from outside, as a shell does."""

from __future__ import annotations

import itertools
import json
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
AGENTD = str(CHECKOUT / ".venv" / "bin" / "agentd")
INIT = str(CHECKOUT / "agentd" / "bin" / "agentd-init")
PATIENCE = 30.0
"""Seconds after which whatever is waited for counts as hanging."""

Report = dict[str, Any]


@dataclass(frozen=True)
class CompletedRun:
    """``elapsed`` is in seconds from before the start to the end that the kernel tells; ``ended_at`` is that
    end on the monotonic clock."""

    code: int
    stdout: str
    stderr: str
    given_report: Report | None
    elapsed: float
    ended_at: float

    @property
    def report(self) -> Report:
        assert self.given_report is not None, f"no report; exit {self.code}: {self.stderr}"
        return self.given_report

    @property
    def line(self) -> str:
        """The one line on stderr."""
        lines = self.stderr.splitlines()
        assert len(lines) == 1, self.stderr
        return lines[0]


class Run:
    """One ``agentd run`` that was started."""

    def __init__(
        self,
        command: Sequence[str],
        report: Path,
        env: Mapping[str, str],
        *,
        stdin: int | None = subprocess.DEVNULL,
        stdout: int | None = subprocess.PIPE,
        cwd: str | Path | None = None,
    ) -> None:
        self._report = report
        self._started = time.monotonic()
        # A session of its own: the tests' terminal, if there is one, is not this run's.
        self.process = subprocess.Popen(
            command,
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            env=env,
            cwd=cwd,
            start_new_session=True,
        )
        self._pidfd = os.pidfd_open(self.process.pid)
        self._out = b""
        self._err = b""
        self._completed: CompletedRun | None = None

    def signal(self, number: int) -> None:
        """To agentd itself, while it has not been waited for."""
        signal.pidfd_send_signal(self._pidfd, number)

    def peak_memory(self) -> int | None:
        """The most that agentd itself has ever had in memory, in bytes; None once it has ended. (What wait4 tells
        begins with the memory of whoever started it.)"""
        ended = select.poll()
        ended.register(self._pidfd, select.POLLIN)
        if ended.poll(20):
            return None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        return int(found[1]) * 1024 if found else None

    def read_line(self) -> str:
        """The next line of the command's output, as it comes."""
        assert self.process.stdout is not None
        until = time.monotonic() + PATIENCE
        while b"\n" not in self._out:
            left = until - time.monotonic()
            assert left > 0, f"no line came; so far: {self._out!r}"
            readable = select.poll()
            readable.register(self.process.stdout, select.POLLIN)
            if readable.poll(left * 1000):
                data = os.read(self.process.stdout.fileno(), 65536)
                assert data, f"the output ended: {self._out!r}, {self.finish().stderr}"
                self._out += data
        line, _, self._out = self._out.partition(b"\n")
        return line.decode()

    def finish(self, *, patience: float = PATIENCE, read_output: bool = True) -> CompletedRun:
        """Wait for the end of agentd and of its output (``read_output``: false leaves that unread)."""
        if self._completed is None:
            self._completed = self._finish(time.monotonic() + patience, read_output)
        return self._completed

    def _finish(self, until: float, read_output: bool) -> CompletedRun:
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        streams = [(self.process.stderr, "_err")]
        if read_output and self.process.stdout is not None:
            streams.append((self.process.stdout, "_out"))
        by_fd = {}
        for stream, name in streams:
            assert stream is not None
            poll.register(stream, select.POLLIN)
            by_fd[stream.fileno()] = name
        waiting = {self._pidfd, *by_fd}
        ended_at = 0.0
        while waiting:
            left = until - time.monotonic()
            if left <= 0:
                self.abort()
                raise AssertionError(f"agentd or its output has not ended: {self._out!r} {self._err!r}")
            for fd, _ in poll.poll(left * 1000):
                if fd == self._pidfd:
                    ended_at = time.monotonic()
                elif data := os.read(fd, 65536):
                    setattr(self, by_fd[fd], getattr(self, by_fd[fd]) + data)
                    continue
                poll.unregister(fd)
                waiting.discard(fd)
        _, status = os.waitpid(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self.close()
        text = self._report.read_text() if self._report.exists() else ""
        return CompletedRun(
            self.process.returncode,
            self._out.decode(errors="replace"),
            self._err.decode(errors="replace"),
            json.loads(text) if text else None,
            ended_at - self._started,
            ended_at,
        )

    def abort(self) -> bool:
        """End what still runs, for the sake of the next test. Whether it did run."""
        running = self.process.poll() is None
        if running:
            self.process.kill()
            self.process.wait()
        self.close()
        return running

    def close(self) -> None:
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1


class Agentd:
    """Runs commands contained, with leaves below the test's own cgroup. Call it, or `start` and then look.

    ``token`` is in the environment of every process of these runs. ``orphans_are_for_pid_1``: agentd is killed
    in this test, so that it cannot reap them itself.
    """

    def __init__(self, root: str, folder: Path) -> None:
        self.root = root
        self.folder = folder
        self.token = f"AGENTD_TEST={os.path.basename(root)}"
        self.runs: list[Run] = []
        self.orphans_are_for_pid_1 = False
        self._numbers = itertools.count(1)

    def __call__(self, *arguments: str, **options: Any) -> CompletedRun:
        """``agentd run ARGUMENTS``, to its end."""
        return self.start(*arguments, **options).finish()

    def start(
        self,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        cgroup: str | None = None,
        **options: Any,
    ) -> Run:
        """``prefix`` is a program before agentd that becomes it; ``cgroup`` other than the test's own."""
        report = self.folder / f"report-{next(self._numbers)}.json"
        run = Run(
            [*prefix, AGENTD, "run", "--cgroup", cgroup or self.root, "--report", str(report), *arguments],
            report,
            {**(os.environ if env is None else env), **dict([self.token.split("=")])},
            **options,
        )
        self.runs.append(run)
        return run
