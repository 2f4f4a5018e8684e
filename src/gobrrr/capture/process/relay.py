"""Stands between the senders of signals and the program: what gobrrr is sent the program gets, and they stop as one."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any

from gobrrr.system.processes import die_with_the_parent

_OURS = {"SIGKILL", "SIGSTOP", "SIGCHLD", "SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL"}
"""Not passed on: two that nobody catches, news of our own child, and faults, whose handler would return into them.
A gobrrr that ends by one of these takes the program with it all the same."""
_KEYS = {signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGWINCH}
"""A terminal sends these to all that it runs in its foreground; kill sends them to one."""
_STOPS = {signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
_LATE_S = 0.05
"""How much later than the program gobrrr may hear of a stop that was sent to both; proposed: signals arrive within
milliseconds; busy machines would settle it."""


class Relay:
    """Passes signals on to the child from its first moment to its last; what is ignored here stays ignored there.

    While the child is made they wait: it gets them when it is there, as a plain run would.
    """

    def __init__(self, own: int = 0) -> None:
        """`own`: the signal that gobrrr handles itself, 0 for none."""
        named = {int(number) for number in signal.Signals if number.name in _OURS}
        ignored = {number for number in signal.valid_signals() if signal.getsignal(number) is signal.SIG_IGN}
        self._numbers = [number for number in signal.valid_signals() if number not in named | ignored | {own}]
        self._old: dict[int, Any] = {}
        self._stop = 0

    def __enter__(self) -> Relay:
        return self

    def start(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        """Start it with every descriptor that we were given. Raises OSError where it cannot be started."""
        parent, mask = os.getpid(), signal.pthread_sigmask(signal.SIG_BLOCK, self._numbers)

        def become() -> None:
            for number in self._numbers:  # as they will be after exec: until then ours would swallow what comes
                signal.signal(number, signal.SIG_DFL)
            die_with_the_parent(parent)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

        try:
            self._child = subprocess.Popen(list(command), env=dict(env), close_fds=False, preexec_fn=become)
            self._old = {number: signal.signal(number, self._received) for number in self._numbers}
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def wait(self) -> int:
        """Until the child ends, stopping when it stops; returns what subprocess returns."""
        while self._has_stopped():
            if not self._stop:
                time.sleep(_LATE_S)
            if self._stop:
                self._stop_too()
        return self._child.wait()

    def _has_stopped(self) -> bool:
        """Wait until it stops (True) or ends."""
        try:
            news = os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WSTOPPED | os.WNOWAIT)
        except ChildProcessError:  # it has ended, and that was noted while a signal was passed on
            return False
        if news is None or news.si_code != os.CLD_STOPPED:
            return False
        os.waitid(os.P_PID, self._child.pid, os.WSTOPPED | os.WNOHANG)
        return True

    def _stop_too(self) -> None:
        """Stop with the program: for whoever runs jobs, a shell say, the program is us. Goes on after SIGCONT."""
        number, self._stop = self._stop, 0
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        signal.signal(number, self._received)

    def _received(self, number: int, _frame: object) -> None:
        if number in _STOPS:
            self._stop = number
        if number in _KEYS and _at_a_terminal():
            return
        if number == signal.SIGCONT:
            self._stop = 0
            try:  # it may have been continued by the same signal: shells send it to the whole job
                if os.waitid(os.P_PID, self._child.pid, os.WCONTINUED | os.WNOHANG) is not None:
                    return
            except ChildProcessError:
                return
        self._child.send_signal(number)


def _at_a_terminal() -> bool:
    """Whether we are what a terminal runs in its foreground: then its keys reach the program without us."""
    try:
        terminal = os.open(os.ctermid(), os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
