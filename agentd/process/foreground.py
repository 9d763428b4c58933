"""Running one command in the foreground, as ``agentd run`` does: signals and the terminal, until its report.

The process is agentd's alone: it becomes a child subreaper, and every zombie that it is handed is reaped.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from agentd.linux import prctl, signalfd
from agentd.process import terminal
from agentd.process.child import Child
from agentd.process.forwarding import Act, Situation, act_on, is_request
from agentd.process.reaper import shared
from agentd.process.report import Report
from agentd.process.streams import Capture
from agentd.process.supervisor import Supervisor

Announce = Callable[[tuple[str, ...]], object]

_FOREGROUND_LOOK = 0.2
"""Seconds between looks for the terminal, while we are in the background and it is not ours to read: a shell
that gives it to a job which was running all the while tells nobody."""


def own_this_process(supervisor: Supervisor) -> None:
    """Become a subreaper, and undumpable: a same-user child cannot read our memory or environment."""
    supervisor.prepare()  # its keeper would be handed to a subreaper, as one more child to tell from orphans
    prctl.set_subreaper(True)
    prctl.set_dumpable(False)
    shared().owns_process = True


class Foreground:
    """One command. The signals of ``held`` are blocked in this thread by the caller, since its start."""

    def __init__(self, held: Sequence[int], grace: float) -> None:
        self._signal_fd = signalfd.open_signalfd(held)
        self._done_fd = os.eventfd(0, os.EFD_CLOEXEC)
        self._grace = grace
        self._last_request: float | None = None
        self._terminal: int | None = None
        self._modes: terminal.Modes | None = None
        self._own: terminal.PseudoTerminal | None = None
        self._taking = threading.Lock()
        self._over = False

    def run(
        self,
        supervisor: Supervisor,
        argv: Sequence[str],
        *,
        tty: bool,
        capture: bool,
        announce: Announce,
        **options: Any,
    ) -> Report:
        """Spawn ``argv`` and stay with it until its run is over. ``tty``: a pseudo-terminal of its own;
        ``capture``: its output goes through us; ``announce`` is told what this host could not give it.
        Raises what `Supervisor.spawn` raises."""
        self._terminal = terminal.shared_terminal()
        if self._terminal is not None:
            self._modes = terminal.Modes(self._terminal)
        if tty:
            self._own = terminal.PseudoTerminal(like=self._terminal)
            self._take_terminal(self._own)  # before any output, which is not to be translated twice
            options["stdout"] = Capture(tail=0, sink=1)
        elif capture:
            options["stdout"] = Capture(tail=0, sink=1)
            options["stderr"] = Capture(tail=0, sink=2)
        unseen = signalfd.read(self._signal_fd)
        shared().before_verdict = self._pending
        try:
            child = supervisor.spawn(
                argv,
                tty=self._own or False,
                same_group=self._terminal is not None,
                grace=self._grace,
                **options,
            )
        except BaseException:
            self._give_back_terminal()
            raise
        finally:
            if self._own is not None:
                self._own.close_slave()
        gc.freeze()  # what was loaded stays: looking through it now would cost as much as the whole spawn
        gc.enable()  # off since the start of the command
        child._when_done = self._ended
        if child.enforcement.notes:
            self._give_back_terminal()
            announce(child.enforcement.notes)
        if self._own is not None:
            self._feed(self._own)
        for arrived in unseen:
            if arrived.signal == signal.SIGINT:
                child.note_interrupt()
            self._handle(child, arrived, born=False)
        try:
            self._serve(child)
        finally:
            self._put_back(child)
        return child.wait()

    def _ended(self) -> None:
        os.eventfd_write(self._done_fd, 1)

    def _serve(self, child: Child) -> None:
        poller = select.poll()
        poller.register(self._signal_fd, select.POLLIN)
        poller.register(self._done_fd, select.POLLIN)
        while not child.poll():
            for fd, _ in poller.poll():
                if fd == self._signal_fd:
                    for arrived in self._pending(child):
                        self._handle(child, arrived)

    def _pending(self, child: Child) -> list[signalfd.Arrived]:
        """The signals that have come, SIGCHLD last: on it we may stop, and what came with it is old then.

        Also called, from the loop's thread, before the verdict: a Ctrl-C that the command died of was pending
        here before it died, and may not have been read yet. Any other is too late by then.
        """
        with self._taking:
            found = signalfd.read(self._signal_fd)
            if any(arrived.signal == signal.SIGINT for arrived in found):
                child.note_interrupt()
        return sorted(found, key=lambda arrived: arrived.signal == signal.SIGCHLD)

    def _handle(self, child: Child, arrived: signalfd.Arrived, *, born: bool = True) -> None:
        """``born``: it came when there was a child, which a terminal's own signals reach without us."""
        number = arrived.signal
        if number == signal.SIGCHLD:
            shared().adopt_orphans()
            self._stop_with(child)
            return
        now = time.monotonic()
        situation = Situation(
            self._terminal is not None and self._own is None and born,
            self._own is not None,
            self._last_request,
            self._grace,
        )
        # With the terminal gone, a shell's HUP to its jobs may come in the place of the kernel's.
        hung_up = number == signal.SIGHUP and self._terminal is not None and terminal.is_gone(self._terminal)
        act = act_on(number, arrived.from_kernel or hung_up, situation, now)
        if is_request(number):
            self._last_request = now
        if act is Act.CHILD:
            child.send_signal(number)
        elif act is Act.GROUP:
            child.send_signal_to_group(number)
        elif act is Act.STOP:
            child.stop("operator", asked_by=number)
        elif act is Act.KILL:
            child.stop("operator", grace=0, asked_by=number)
        elif act is Act.SUSPEND:
            child.send_signal_to_group(signal.SIGSTOP)
            _stop_ourselves()
            child.send_signal_to_group(signal.SIGCONT)
        elif act is Act.RESIZE and self._own is not None:
            self._take_terminal(self._own)

    def _stop_with(self, child: Child) -> None:
        """If COMMAND has stopped in the foreground of the terminal that we share, stop too: the shell waits for
        us alone, and is to have the terminal back when COMMAND has let go of it, no sooner. Who continues our
        group continues both. Where nobody could, the group is orphaned, and the kernel lets us go on."""
        if self._terminal is None or self._own is not None or not terminal.in_foreground(self._terminal):
            return
        with child._lock:
            if child._pidfd < 0:
                return
            try:
                found = os.waitid(os.P_PIDFD, child._pidfd, os.WSTOPPED | os.WNOHANG)
            except OSError:
                return
        if found is not None:
            _stop_ourselves()

    def _take_terminal(self, own: terminal.PseudoTerminal) -> None:
        """If ours is in our hands, its keys are the pseudo-terminal's, and so is its size."""
        with self._taking:
            if self._terminal is not None and self._modes is not None and not self._over:
                terminal.copy_size(self._terminal, own.master)
                self._modes.raw()

    def _give_back_terminal(self) -> None:
        """The modes that `_take_terminal` changed."""
        if self._modes is not None and self._modes.changed:
            self._modes.restore()

    def _feed(self, own: terminal.PseudoTerminal) -> None:
        """Our input becomes the pseudo-terminal's."""
        self._take_terminal(own)
        threading.Thread(target=self._copy_input, args=(own,), name="agentd-input", daemon=True).start()

    def _copy_input(self, own: terminal.PseudoTerminal) -> None:
        # With SIGTTIN blocked, a read from the background is an error that can be handled. Else it would
        # stop us, and leave COMMAND, which has a group of its own, without its limits of time.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        whole_line = True
        ours = False
        try:
            while True:
                if not ours and self._terminal is not None:
                    while terminal.in_background(self._terminal):
                        time.sleep(_FOREGROUND_LOOK)
                    self._take_terminal(own)
                try:
                    data = os.read(0, 65536)
                    ours = True
                except OSError:
                    if self._terminal is None or terminal.is_gone(self._terminal):
                        return
                    ours = False
                    time.sleep(_FOREGROUND_LOOK)
                    continue
                if not data:
                    break
                whole_line = data.endswith(b"\n")
                _write(own.master, data)
            _write(own.master, terminal.end_of_input(own.master, whole_line))
        except OSError:
            return

    def _put_back(self, child: Child) -> None:
        """A command that was killed cannot put the terminal back itself; one that exited may have meant to
        change it (stty)."""
        if self._terminal is None or self._modes is None:
            return
        report = child.report
        if self._own is not None:
            with self._taking:
                self._over = True  # for the thread that reads our input, which may just be about to begin
            self._give_back_terminal()
            return
        terminal.take_back_foreground(self._terminal)
        if report is None or report.verdict.code is None:
            self._modes.restore()


def _stop_ourselves() -> None:
    """As Ctrl-Z does. Return when we are continued; at once where a stop means nothing."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTSTP})
    os.kill(os.getpid(), signal.SIGTSTP)  # blocked, it is one with the terminal's own that may be pending
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTSTP})
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
