"""Closes a window whose loop has made no step for long. The program's own thread does it, between two of its lines:
there the profiler and the tracer can be taken off."""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from gobrrr.capture.process.unlisted_thread import Unlisted

if TYPE_CHECKING:
    from gobrrr.capture.windows.window import Window

LOOK = 0.1  # s between looks; proposed: short beside late_ns; measured cost of looking would settle it
_HERE = str(Path(__file__).parents[1])


class _Bell:
    """The interpreter asks whether this is true where it would call a signal's handler: in the main thread, between two
    instructions. What is raised there reaches the program."""

    close: Callable[[], object] | None = None

    def __bool__(self) -> bool:
        close = self.close
        if close is not None and not _is_ours(sys._getframe(1)):
            close()
        return False

    def ring(self) -> None:
        """Have it asked."""
        api = ctypes.pythonapi
        api.Py_AddPendingCall(ctypes.cast(api.PyObject_IsTrue, ctypes.c_void_p), ctypes.py_object(self))


_bell = _Bell()  # for good: a call that is pending holds no reference


def _is_ours(frame: FrameType | None) -> bool:
    """Whether the program is inside a hook of ours, which must not find another world where it goes on."""
    while frame is not None:
        if frame.f_code.co_filename.startswith(_HERE):
            return True
        frame = frame.f_back
    return False


class Overdue:
    """Looks at a window now and then while it is open; `close` is called in the main thread, until it is stopped."""

    def __init__(self, window: Window, close: Callable[[], object]) -> None:
        self._window, self._close = window, close
        self._thread = Unlisted(self._look)
        self.error = ""

    def start(self) -> None:
        """Begin."""
        _bell.close = self._close
        self._thread.start()

    def stop(self) -> None:
        """End; may be called twice, and in a forked child."""
        _bell.close = None
        self._thread.stop()

    def _look(self) -> None:
        try:
            while not self._thread.over(LOOK):
                if self._window.is_late(time.perf_counter_ns()):
                    _bell.ring()
        except BaseException as error:  # the interpreter would print it among the program's own words
            self.error = repr(error)
