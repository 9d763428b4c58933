"""One boot of a guest kernel: a process group with three pipes and a deadline."""

import contextlib
import ctypes
import os
import re
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kernels.errors import Interrupted, KernelError, TimedOut
from kernels.guard import Guard

_STOPPING = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
# SIGUSR1 is what a pump sends when nobody reads COMMAND's output any more.
_WAITED_FOR = {*_STOPPING, signal.SIGCHLD, signal.SIGUSR1}

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h

_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Job:
    """What to run in the guest."""

    command: Sequence[str]
    directory: Path
    environment: dict[str, str]
    visible: Sequence[Path]
    """Folders of this machine that the guest has to see, also below its own /tmp and /run."""
    writable: Sequence[Path]
    """Folders of this machine that the guest may change."""
    timeout: float
    """Seconds for everything from the start of the guest to the end of its output."""
    memory: str
    """Of the guest, like 1G."""
    swap: int = 0
    """Bytes of swap space."""
    append: Sequence[str] = ()
    show_console: bool = False


@dataclass
class Channels:
    """The write ends of the pipes that a guest answers through."""

    stdout: int
    stderr: int
    console: int
    """The kernel's own messages."""


@dataclass
class _Pump:
    """A thread that copies from a pipe until its end, byte for byte."""

    source: int
    sink: Callable[[bytes], None]
    broken: bool = False
    thread: threading.Thread = field(init=False)

    def start(self) -> None:
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while data := os.read(self.source, 1 << 16):
            if self.broken:
                continue  # keep reading: a full pipe would stall the guest until it is killed
            try:
                self.sink(data)
            except OSError:
                self.broken = True
                os.kill(os.getpid(), signal.SIGUSR1)


class _Console:
    """The last lines of the kernel's messages, and all of them on stderr where asked for."""

    def __init__(self, show: bool) -> None:
        self._show = show
        self._tail: deque[bytes] = deque(maxlen=1024)

    def __call__(self, data: bytes) -> None:
        self._tail.append(data)
        if self._show:
            _write_all(2, data)

    def last_words(self) -> str:
        """The line that most likely says why the kernel stopped, or nothing."""
        lines = [line.strip() for line in b"".join(self._tail).decode(errors="replace").splitlines()]
        panics = [line for line in lines if "Kernel panic" in line]
        return next(iter(panics), "") or next((line for line in reversed(lines) if line), "")


def in_bytes(size: str) -> int:
    """Bytes of a size like 64M."""
    return int(size[:-1]) << {"K": 10, "M": 20, "G": 30}[size[-1]]


# The guest has file systems of its own there.
_SHADOWED = tuple(Path(path) for path in ("/dev", "/proc", "/run", "/sys", "/tmp"))


def write_job(job: Job, scratch: Path) -> None:
    """Write the guest's init, and what it reads: the folders to show, and a script that becomes COMMAND."""
    shutil.copy(Path(__file__).with_name("guest-init"), scratch / "init")
    hidden = [path for path in job.visible if any(path.is_relative_to(above) for above in _SHADOWED)]
    lines = [f"ro - {path}" for path in hidden]
    lines += [f"rw write{number} {path}" for number, path in enumerate(job.writable)]
    (scratch / "mounts").write_text("".join(f"{line}\n" for line in lines))
    variables = [f"{name}={value}" for name, value in job.environment.items()]
    script = f"""\
echo 0 >/proc/self/oom_score_adj
rm /run/stdout /run/stderr
cd {shlex.quote(str(job.directory))} || exit 125
# By path: busybox would run its own applets instead of the programs of the same name.
exec /usr/bin/env -i {shlex.join(variables)} {shlex.join(job.command)}
"""
    (scratch / "command").write_text(script, errors="surrogateescape")
    if job.swap:
        with (scratch / "swap").open("wb") as file:
            file.truncate(job.swap)


def init_variables(tier: str, scratch: Path) -> list[str]:
    """What the guest's init is told on the kernel's command line."""
    return [f"KERNEL_TIER={tier}", f"KERNEL_SCRATCH={scratch}"]


def run(
    argv: Callable[[Channels], Sequence[str | Path]],
    job: Job,
    scratch: Path,
    variables: Mapping[str, str] | None = None,
) -> int:
    """Boot, copy output as it comes, and return COMMAND's exit status.

    ``variables`` are added to the environment of the program that boots, which is not COMMAND's.
    Raises KernelError where there is none: the deadline passed, a signal came, the guest died. In each
    case, and after success, no process of the guest is left when this returns.
    """
    deadline = time.monotonic() + job.timeout
    console = _Console(job.show_console)
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with contextlib.ExitStack() as stack:
        ends = [os.pipe() for _ in range(3)]
        writers = [stack.enter_context(os.fdopen(write, "wb", 0)) for _, write in ends]
        # The read ends stay open until this process ends: a pump may still sit in one.
        channels = Channels(*(writer.fileno() for writer in writers))
        pumps = [
            _Pump(ends[0][0], lambda data: _write_all(1, data)),
            _Pump(ends[1][0], lambda data: _write_all(2, data)),
            _Pump(ends[2][0], console),
        ]
        # All pipes are open already, for the guard to close its copies.
        guard = Guard(scratch)
        # No thread runs yet, so preexec_fn is safe.
        guest = subprocess.Popen(
            [os.fspath(word) for word in argv(channels)],
            env={**os.environ, **(variables or {})},
            stdin=subprocess.DEVNULL,
            stdout=channels.console,
            stderr=channels.console,
            pass_fds=(channels.stdout, channels.stderr),
            start_new_session=True,
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, _WAITED_FOR),
        )
        guard.watch(guest.pid)
    for pump in pumps:
        pump.start()
    failure: KernelError | None = None
    try:
        _wait(guest.pid, pumps, deadline, job.timeout)
    except KernelError as error:
        failure = error
        # Whatever was written until now is worth reading, if it is read quickly.
        deadline = time.monotonic() + 1
    finally:
        _end(guest)
        guard.release()
    drained = _drain(pumps, deadline)
    if failure is None and not drained:
        failure = TimedOut(f"timeout after {job.timeout:g} s: nobody read all of the output")
    if failure is not None:
        raise failure
    return _read_status(scratch / "status", console)


def _wait(pid: int, pumps: Sequence[_Pump], deadline: float, timeout: float) -> None:
    """Wait for the guest's end without reaping it."""
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimedOut(f"timeout after {timeout:g} s: the guest was killed; --timeout gives it more")
        _stop_for(signal.sigtimedwait(_WAITED_FOR, left), pumps)


def _stop_for(came: signal.struct_siginfo | None, pumps: Sequence[_Pump]) -> None:
    if came is not None and came.si_signo in _STOPPING:
        raise Interrupted(came.si_signo, signal.Signals(came.si_signo).name)
    if any(pump.broken for pump in pumps):
        raise Interrupted(signal.SIGPIPE, "nobody reads the output")


def _end(guest: subprocess.Popen[bytes]) -> None:
    """Kill the guest's process group and reap all of it."""
    # The leader is not reaped yet, so the number still is this group's.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(guest.pid, signal.SIGKILL)
    guest.wait()
    # The others came to this process, which is their subreaper. They are dead or dying.
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-guest.pid, 0)


def _drain(pumps: Sequence[_Pump], deadline: float) -> bool:
    """Wait for the end of each pipe, which comes when the last process of the guest is gone."""
    for pump in pumps:
        while pump.thread.is_alive() and not pump.broken:
            if time.monotonic() > deadline:
                return False
            pump.thread.join(0.05)
            _stop_for(signal.sigtimedwait(_STOPPING, 0), pumps)
    return True


def _read_status(status_file: Path, console: _Console) -> int:
    try:
        text = status_file.read_text()
    except FileNotFoundError:
        text = ""
    found = re.fullmatch(r"status (\d{1,3})\n", text)
    if found is None:
        words = console.last_words()
        raise KernelError(f"the guest ended without a status; its last words: {words or '(none)'}")
    return int(found.group(1))


@contextlib.contextmanager
def signals_blocked() -> Iterator[None]:
    """Keep the signals that would stop this script for `run`, which looks for them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED_FOR)
    try:
        yield
    finally:
        for number in _WAITED_FOR:
            # One that comes now has nothing left to stop.
            signal.sigtimedwait([number], 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            # Whoever shares this descriptor made it non-blocking.
            time.sleep(0.01)
