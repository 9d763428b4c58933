"""The keeper of this process: a tiny program that ends what is left running, should this process be killed.

It is shared by all Supervisors, started with the first child, and gone with the process. See native/keeper.c
for what it does; here it is started, told of subtrees, and looked after.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from functools import partial

from agentd.linux import messages, signals
from agentd.linux.birth import Birth, Image, Session, Style

PROGRAM = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bin", "leafkeeper")

# Neither its name nor its arguments say agentd: `pkill -f agentd` is to miss it.
_NAME = b"leafkeeper"

Notice = Callable[[int, Callable[[], None]], None]
"""Have the callable called when the descriptor becomes readable."""


class Keeper:
    """One for the process. ``problem`` says why there is none; ``pid`` is its number while it lives."""

    def __init__(self, notice: Notice) -> None:
        self._notice = notice
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._told: dict[str, bool] = {}
        self._pidfd = -1
        self._control = -1
        self.pid: int | None = None
        self.problem = ""

    def watch(self, subtree: str, *, remove: bool) -> None:
        """Have the leaves of this process in ``subtree`` ended at its death; ``remove``: and the empty subtree
        removed. Starts the keeper if there is none, or none any more. Raises nothing: see ``problem``."""
        if self._told.get(subtree) == remove and self.pid is not None:
            return
        with self._lock:
            self._told[subtree] = remove
            try:
                if self.pid is not None:
                    self._tell(subtree)
                if self.pid is None:  # also where only the telling showed that it is dead
                    self._start()
                    for path in self._told:
                        self._tell(path)
            except OSError as error:
                self.problem = f"{error.filename or PROGRAM}: {error.strerror}"

    def renew(self, subtree: str) -> None:
        """The subtree was made anew: what the keeper had open is gone."""
        if subtree in self._told and self.pid is not None:
            with self._lock, contextlib.suppress(OSError):
                self._tell(subtree)

    def died(self, pidfd: int) -> None:
        """Its pidfd became readable: the next child brings another.

        The pidfd is closed here and nowhere else: until then the loop may be called for its number, which must not
        be another's by that time.
        """
        with self._lock:
            if pidfd == self._pidfd:
                self._drop("it was killed")
            # A subreaper is handed it, and nobody there waits for it.
            with contextlib.suppress(OSError):
                os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
            os.close(pidfd)

    def to_dict(self) -> dict[str, object]:
        """For the report: ``pid`` while it lives, else None and the ``problem``."""
        return {"pid": self.pid, "problem": self.problem or None}

    def close_in_fork(self) -> None:
        for fd in (self._pidfd, self._control):
            if fd >= 0:
                with contextlib.suppress(OSError):
                    os.close(fd)

    def _start(self) -> None:
        ours, theirs = messages.pair()
        own_pidfd = signals.open_pidfd(self._owner)
        null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        try:
            birth = Birth(
                Image(
                    [os.fsencode(PROGRAM)],
                    [_NAME, b"%d" % own_pidfd, b"%d" % theirs, b"%d" % self._owner],
                    {},
                    # Not ours: whoever reads our output would wait for its end.
                    stdio=(null, null, null),
                    pass_fds=(own_pidfd, theirs),
                    session=Session.NEW_SESSION,
                    death_signal=0,
                ),
                style=Style.DETACHED,
            )
            if not birth.run():
                os.close(ours)
                raise OSError(birth.errno, f"{birth.stage}: {os.strerror(birth.errno)}", PROGRAM)
        finally:
            os.close(theirs)
            os.close(own_pidfd)
            os.close(null)
        self._control, self._pidfd, self.pid, self.problem = ours, birth.pidfd, birth.pid, ""
        self._notice(birth.pidfd, partial(self.died, birth.pidfd))

    def _tell(self, subtree: str) -> None:
        if self._control < 0:
            return  # it has just died
        mark = b"*" if self._told[subtree] else b"+"
        try:
            messages.send(self._control, mark + os.fsencode(subtree))
        except ConnectionError:
            self._drop("it was killed")

    def _drop(self, problem: str) -> None:
        if self._control >= 0:
            os.close(self._control)
        self._control, self._pidfd, self.pid, self.problem = -1, -1, None, problem
