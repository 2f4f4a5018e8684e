"""A terminal's other screen, drawn over in place, and given back as it was however the view ends."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import tty
from types import FrameType
from typing import Any, TextIO

from gobrrr.report.text.page import size

_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l\x1b[?7l", "\x1b[?7h\x1b[?25h\x1b[?1049l"
"""The other screen without cursor and without wrapping; and back."""
_ENDING = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP}
_KILLING = (signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)
"""Signals that end a process without a handler for them; Ctrl-\\ is the first."""
_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


def can_redraw(stream: TextIO) -> bool:
    """Say whether the stream is a terminal that one may draw over."""
    return stream.isatty() and os.environ.get("TERM") not in (None, "", "dumb")


class Screen:
    """While entered, the other screen is shown and single keys are read. Ctrl-Z stops as it does elsewhere."""

    def __init__(self, stream: TextIO, keys: TextIO | None = None) -> None:
        self._stream = stream
        keys = sys.stdin if keys is None else keys
        self._tty = self._keys = keys.fileno() if keys.isatty() else -1
        self._mode: list[Any] | None = None
        self._old: dict[int, Any] = {}
        self._woken, self._wake = os.pipe()
        self._old_fd = -1

    def __enter__(self) -> Screen:
        for end in (self._woken, self._wake):
            os.set_blocking(end, False)
        self._old_fd = signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        handlers: dict[int, Any] = {signal.SIGTSTP: self._stop, **dict.fromkeys(_KILLING, self._die)}
        handlers[signal.SIGWINCH] = lambda *_: None  # the wake-up descriptor ends the wait
        for number, handler in handlers.items():
            if signal.getsignal(number) == signal.SIG_DFL:
                self._old[number] = signal.signal(number, handler)
        try:
            self._begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)  # one that comes now waits until all is given back
        try:
            self._end()
            for number, handler in self._old.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(self._old_fd)
            os.close(self._woken)
            os.close(self._wake)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def draw(self, text: str) -> None:
        """These lines from the top, as many as there is room for, over what stood there. Raises OSError."""
        lines = text.rstrip("\n").split("\n")[: size(self._stream)[1]]
        drawn = f"{_CLEAR_LINE}\n".join(lines)
        self._stream.write(f"{_HOME}{drawn}{_CLEAR_LINE}{_CLEAR_BELOW}")
        self._stream.flush()

    def key(self, seconds: float) -> str:
        """The first key of those that are pressed within so many seconds; '' for none, or where the window changed."""
        sources = [self._woken, *([self._keys] if self._keys >= 0 else [])]
        ready = select.select(sources, [], [], seconds)[0]
        with contextlib.suppress(BlockingIOError):
            os.read(self._woken, 4096)
        if self._keys not in ready:
            return ""
        typed = os.read(self._keys, 64).decode("utf-8", "replace")
        if not typed:  # nobody types there any more
            self._keys = -1
        return typed[:1]

    def _begin(self) -> None:
        if self._tty >= 0:
            self._mode = termios.tcgetattr(self._tty)
            tty.setcbreak(self._tty, termios.TCSANOW)
        self._stream.write(_ENTER)
        self._stream.flush()

    def _end(self) -> None:
        """Put the terminal back as it was; one that is gone needs nothing."""
        if self._mode is not None:
            with contextlib.suppress(OSError, termios.error):
                termios.tcsetattr(self._tty, termios.TCSADRAIN, self._mode)
            self._mode = None
        with contextlib.suppress(OSError):
            self._stream.write(_LEAVE)
            self._stream.flush()

    def _stop(self, number: int, _: FrameType | None) -> None:
        """Give the terminal back, stop, and take it again when we are continued."""
        self._die(number, None)
        signal.signal(number, self._stop)
        self._begin()

    def _die(self, number: int, _: FrameType | None) -> None:
        """Give the terminal back, and end as without us."""
        self._end()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
