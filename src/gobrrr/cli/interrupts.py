"""SIGTERM and SIGHUP as Ctrl-C: what was begun ends in good order, and the exit code says which of them it was."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from gobrrr.cli import streams


class Interrupts:
    """While entered, the first of them raises KeyboardInterrupt with the exit code, and the next ones are not heard:
    the first is being obeyed. One that is ignored, as under nohup, or that has a handler of its own stays as it is."""

    def __init__(self) -> None:
        self._number = 0
        self._old: dict[int, Any] = {}
        self._first: Callable[[], None] | None = None

    def __enter__(self) -> Interrupts:
        wanted = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
        free = [n for n in wanted if signal.getsignal(n) in (signal.SIG_DFL, signal.default_int_handler)]
        self._old = {number: signal.signal(number, self._received) for number in free}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def at_first(self, call: Callable[[], None]) -> None:
        """Call it with the first of them, in a thread: it ends what the main thread may be waiting for."""
        self._first = call

    @property
    def exit_code(self) -> int:
        """Exit code as a shell gives it for a program that a signal has ended: 128 + its number."""
        return 128 + (self._number or signal.SIGINT)

    def _received(self, number: int, _: FrameType | None) -> None:
        if self._number:
            return
        self._number = number
        if number == getattr(signal, "SIGHUP", None) and os.isatty(2):
            streams.to_nowhere(2)  # that terminal is gone: what is still written there must not keep us from ending
        if self._first is not None:
            threading.Thread(target=self._first, daemon=True).start()
        raise KeyboardInterrupt(self.exit_code)
