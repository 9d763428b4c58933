"""scripts/kernel: COMMAND's output and status come through, and nothing outlives it."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
SCRIPT = CHECKOUT / "scripts" / "kernel"


pytestmark = pytest.mark.default  # each boots a kernel

needs_uml = pytest.mark.skipif(
    shutil.which("linux.uml") is None and os.geteuid() != 0,
    reason="needs the Debian packages user-mode-linux and busybox-static, or root to install them",
)


@pytest.fixture
def scratch_parent(tmp_path: Path) -> Iterator[Path]:
    """Where the script makes its scratch folder; every test ends with it empty."""
    parent = tmp_path / "scratch"
    parent.mkdir()
    yield parent
    assert list(parent.iterdir()) == []


def kernel(
    scratch_parent: Path, *arguments: str, cwd: Path = CHECKOUT, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [SCRIPT, *arguments],
        cwd=cwd,
        env={**os.environ, **(env or {}), "TMPDIR": str(scratch_parent)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )


def uml(
    scratch_parent: Path, *command: str, options: Sequence[str] = ()
) -> subprocess.CompletedProcess[bytes]:
    return kernel(scratch_parent, "uml", "--timeout", "45", *options, "--", *command)


def one_line(stderr: bytes) -> str:
    lines = stderr.decode().splitlines()
    assert len(lines) == 1, lines
    return lines[0]


def processes_of(scratch_parent: Path) -> dict[int, str]:
    """Every process, guest or guard, that was started with this scratch folder; no zombies."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
        except OSError:
            continue
        if str(scratch_parent).encode() in words:
            found[int(entry.name)] = words[:60].decode(errors="replace")
    return found


class TestArguments:
    """Refused before anything boots, with a status that is not taken for COMMAND's."""

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["uml"], "no COMMAND"),
            (["uml", "--"], "no COMMAND"),
            (["vax", "--", "true"], "invalid choice"),
            (["uml", "--memory", "lots", "--", "true"], "not a size"),
            (["uml", "--timeout", "0", "--", "true"], "--timeout"),
            (["uml", "--env", "1=2", "--", "true"], "not K=V"),
            (["uml", "--write", "/nonexistent", "--", "true"], "no such folder"),
        ],
    )
    def test_refused(self, scratch_parent: Path, arguments: list[str], said: str) -> None:
        result = kernel(scratch_parent, *arguments)
        assert result.returncode == 125
        assert said in one_line(result.stderr)

    def test_only_in_the_checkout(self, scratch_parent: Path, tmp_path: Path) -> None:
        result = kernel(scratch_parent, "uml", "--", "true", cwd=tmp_path)
        assert result.returncode == 125
        assert "not in the checkout" in one_line(result.stderr)

    def test_missing_packages_are_named(self, scratch_parent: Path, tmp_path: Path) -> None:
        """Without the packages and without apt-get there is one line with what to type."""
        code = (
            "import sys; sys.path.insert(0, sys.argv[1])\n"
            "from kernels import packages\n"
            "from kernels.errors import KernelError\n"
            "try: packages.install(['user-mode-linux'])\n"
            "except KernelError as error: sys.exit(str(error))\n"
        )
        result = subprocess.run(
            [sys.executable, "-c", code, str(SCRIPT.parent)],
            env={"PATH": str(tmp_path)},
            capture_output=True,
            check=False,
        )
        assert result.returncode == 1
        assert one_line(result.stderr).endswith("install them with: apt-get install user-mode-linux")


@needs_uml
class TestStatus:
    @pytest.mark.parametrize(
        ("command", "status"),
        [
            (["sh", "-c", "exit 3"], 3),
            (["sh", "-c", "kill -KILL $$"], 128 + signal.SIGKILL),
            pytest.param(["no-such-program"], 127, marks=pytest.mark.slow),
        ],
    )
    def test_passed_through(self, scratch_parent: Path, command: list[str], status: int) -> None:
        result = uml(scratch_parent, *command)
        assert result.returncode == status, result.stderr
        assert result.stdout == b""

    def test_missing(self, scratch_parent: Path) -> None:
        """A guest that dies before it wrote a status is a failure, with the kernel's own reason."""
        result = uml(scratch_parent, "true", options=["--append", "init=/bin/true"])
        assert result.returncode == 125
        assert re.search(r"without a status.*Kernel panic.*kill init", one_line(result.stderr))


@needs_uml
def test_output_is_exact_and_separate(scratch_parent: Path, tmp_path: Path) -> None:
    """A MiB of random bytes on each stream at once; a process left behind cannot hold the end back."""
    out, err = os.urandom(1 << 20), os.urandom(1 << 20)
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "out").write_bytes(out)
    (folder / "err").write_bytes(err)
    script = f"setsid sleep 600 & cat {folder}/err >&2 & cat {folder}/out; wait $!"
    result = uml(scratch_parent, "sh", "-c", script, options=["--write", str(folder)])
    assert result.returncode == 0
    assert result.stdout == out
    assert result.stderr == err


@needs_uml
def test_guest(scratch_parent: Path, tmp_path: Path) -> None:
    """What COMMAND finds: root, cgroup v2 with its controllers, terminals, loopback, a protected checkout."""
    folder = tmp_path / "kept"
    folder.mkdir()
    (tmp_path / "hidden").touch()
    code = f"""
import fcntl, json, os, pty, socket, sys
def refused(path):
    try:
        open(path, "w")
    except OSError as error:
        return error.errno
master, slave = pty.openpty()
server = socket.create_server(("127.0.0.1", 0))
socket.create_connection(server.getsockname())
with open("/tmp/lock", "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
with open({str(folder / "kept")!r}, "w") as file:
    file.write("here")
print(json.dumps({{
    "uid": os.getuid(),
    "cwd": os.getcwd(),
    "controllers": open("/sys/fs/cgroup/cgroup.controllers").read().split(),
    "enabled": open("/sys/fs/cgroup/cgroup.subtree_control").read().split(),
    "terminal": os.ttyname(slave),
    "stdin": os.readlink("/proc/self/fd/0"),
    "terminals": [os.isatty(fd) for fd in (0, 1, 2)],
    "oom_score_adj": int(open("/proc/self/oom_score_adj").read()),
    "checkout": refused("agentd/new"),
    "hidden": os.path.exists({str(tmp_path / "hidden")!r}),
    "prefix": sys.prefix,
    "base": sys.base_prefix,
    "environment": dict(os.environ),
}}))
"""
    result = kernel(
        scratch_parent,
        *(
            "uml",
            "--timeout",
            "45",
            "--env",
            "ADDED=a 'b' $c",
            "--write",
            str(folder),
            "--",
            "python3",
            "-c",
            code,
        ),
        env={"SECRET": "not passed on", "NO_COLOR": "1"},
    )
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    environment = found.pop("environment")
    venv = CHECKOUT / ".venv"
    assert found == {
        "uid": 0,
        "cwd": str(CHECKOUT),
        "controllers": ["cpu", "io", "memory", "pids"],
        "enabled": [],
        "terminal": "/dev/pts/0",
        "stdin": "/dev/null",
        "terminals": [False, False, False],
        "oom_score_adj": 0,
        "checkout": 30,  # EROFS
        "hidden": False,
        "prefix": str(venv) if venv.exists() else sys.base_prefix,
        "base": sys.base_prefix,
    }
    assert environment["AGENTD_KERNEL"] == "uml"
    assert environment["ADDED"] == "a 'b' $c"
    assert environment["NO_COLOR"] == "1"
    assert environment.get("VIRTUAL_ENV") == (str(venv) if venv.exists() else None)
    assert "SECRET" not in environment
    assert (folder / "kept").read_text() == "here"


@needs_uml
class TestEnd:
    """However the script ends, it takes the guest along."""

    def test_timeout(self, scratch_parent: Path) -> None:
        result = kernel(scratch_parent, "uml", "--timeout", "3", "--", "sh", "-c", "echo begun; sleep 600")
        assert result.returncode == 124
        assert result.stdout == b"begun\n"
        assert "timeout after 3 s" in one_line(result.stderr)
        assert processes_of(scratch_parent) == {}

    @pytest.mark.parametrize(
        "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGKILL]
    )
    def test_signal(self, scratch_parent: Path, number: signal.Signals) -> None:
        script = subprocess.Popen(
            [SCRIPT, "uml", "--timeout", "45", "--", "sh", "-c", "echo begun; sleep 600"],
            cwd=CHECKOUT,
            env={**os.environ, "TMPDIR": str(scratch_parent)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,
        )
        assert script.stdout is not None
        assert script.stdout.readline() == b"begun\n"
        group = os.getpgid(
            next(pid for pid, words in processes_of(scratch_parent).items() if "linux" in words)
        )
        assert group != script.pid
        script.send_signal(number)
        _, stderr = script.communicate(timeout=10)
        if number == signal.SIGKILL:
            # Now it is for the guard, which nobody can wait for.
            deadline = time.monotonic() + 10
            while processes_of(scratch_parent) and time.monotonic() < deadline:
                time.sleep(0.02)
        else:
            assert script.returncode == 128 + number
            assert signal.Signals(number).name in one_line(stderr)
            with pytest.raises(ProcessLookupError):
                os.killpg(group, 0)
        assert processes_of(scratch_parent) == {}

    @pytest.mark.slow
    def test_nobody_reads(self, scratch_parent: Path) -> None:
        with subprocess.Popen(
            [SCRIPT, "uml", "--timeout", "45", "--", "yes"],
            cwd=CHECKOUT,
            env={**os.environ, "TMPDIR": str(scratch_parent)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as script:
            assert script.stdout is not None
            assert script.stderr is not None
            assert script.stdout.readline() == b"y\n"
            script.stdout.close()
            assert "nobody reads" in one_line(script.stderr.read())
        assert script.returncode == 128 + signal.SIGPIPE
        assert processes_of(scratch_parent) == {}


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, or the packages that scripts/kernel qemu names")
class TestQemu:
    """The same contract, on the kernel with two processors, cpuset and pressure."""

    def test_guest(self, scratch_parent: Path, tmp_path: Path) -> None:
        out, err = os.urandom(1 << 20), os.urandom(1 << 20)
        folder = tmp_path / "data"
        folder.mkdir()
        (folder / "out").write_bytes(out)
        (folder / "err").write_bytes(err)
        look = "nproc; cat /sys/fs/cgroup/cgroup.controllers; ls /proc/pressure; pwd; which python3"
        protected = "touch agentd/new 2>/dev/null && exit 1"
        streams = f"cat {folder}/err >&2 & cat {folder}/out; wait $!"
        script = f"({look}) >{folder}/seen; {protected}; {streams}; exit 3"
        result = kernel(
            scratch_parent,
            *("qemu", "--timeout", "55", "--write", str(folder), "--", "sh", "-c", script),
        )
        assert result.returncode == 3, result.stderr[:500]
        assert result.stdout == out
        assert result.stderr == err
        seen = (folder / "seen").read_text().split("\n")
        assert seen[0] == "2"
        assert {"cpu", "cpuset", "io", "memory", "pids"} <= set(seen[1].split())
        assert {"cpu", "io", "memory"} <= set(seen[2:5])
        assert seen[5] == str(CHECKOUT)
        venv = CHECKOUT / ".venv"
        assert not venv.exists() or seen[6] == str(venv / "bin" / "python3")

    def test_no_status(self, scratch_parent: Path) -> None:
        result = kernel(scratch_parent, "qemu", "--timeout", "55", "--append", "rdinit=/none", "--", "true")
        assert result.returncode == 125
        assert "without a status" in one_line(result.stderr)
        assert processes_of(scratch_parent) == {}
