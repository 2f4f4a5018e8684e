"""A helper thread that the program does not see in `threading.enumerate()`.

The helper ends at the program's next step. A program that joins all of its threads before that step would wait for the
helper, and the helper for the step: it would hang. Nothing in it may call `threading.current_thread()`, which would
list it."""

from __future__ import annotations

import _thread
import os
import threading
from collections.abc import Callable


class Unlisted:
    """Runs `body`, which may not raise, beside the program; nobody waits for it when the interpreter ends."""

    def __init__(self, body: Callable[[], object]) -> None:
        self._body = body
        self._stop, self._runs = threading.Event(), _thread.allocate_lock()
        self._pid = 0

    def start(self) -> None:
        """Begin."""
        self._pid = os.getpid()
        self._runs.acquire()
        try:
            _thread.start_new_thread(self._run, ())
        except BaseException:
            self._runs.release()
            raise

    def _run(self) -> None:
        try:
            self._body()
        finally:
            self._runs.release()

    @property
    def alive(self) -> bool:
        """Whether it runs, in this process: a forked child has no thread but the one that forked."""
        return self._runs.locked() and self._pid == os.getpid()

    def over(self, seconds: float) -> bool:
        """Wait so long, then say whether the body is to end; at once where it is. Called by the body."""
        return self._stop.wait(seconds)

    def stop(self) -> None:
        """End; returns when the thread has ended. May be called twice, before start(), and in a forked child, where the
        thread is not and the event's lock stays as it was when the program forked: taken for good, if it was taken."""
        if self.alive:
            self._stop.set()
            if self._runs.acquire(timeout=2.0):
                self._runs.release()
