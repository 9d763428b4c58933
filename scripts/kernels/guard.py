"""A process that cleans up after this script if it is killed with SIGKILL and cannot do so itself."""

import contextlib
import os
import shutil
import signal
from pathlib import Path


class Guard:
    """Ends a process group and removes a folder when this process dies before `release`.

    Its word is a pipe that only this process holds: the kernel closes it, whatever the reason of death.
    To be made while there is only one thread.
    """

    def __init__(self, scratch: Path) -> None:
        read, self._pipe = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            # Never back into the caller's code.
            with contextlib.suppress(BaseException):
                os.setsid()
                os.dup2(read, 0)
                os.closerange(1, self._pipe + 1)
                _watch(scratch)
            os._exit(0)
        os.close(read)

    def watch(self, group: int) -> None:
        """Name the process group to end."""
        os.write(self._pipe, f"{group}\n".encode())

    def release(self) -> None:
        """Let the guard go: the group is gone."""
        os.write(self._pipe, b"released\n")
        os.close(self._pipe)
        os.waitpid(self._pid, 0)


def _watch(scratch: Path) -> None:
    words = b""
    while data := os.read(0, 4096):
        words += data
    lines = words.decode().split()
    if "released" in lines:
        return
    for group in lines:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(int(group), signal.SIGKILL)
    shutil.rmtree(scratch, ignore_errors=True)
