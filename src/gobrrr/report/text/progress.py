"""Says on a terminal, in whole lines, what a task that takes longer than two seconds is doing."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from typing import TextIO, TypeVar

from gobrrr.system.escape import plain

T = TypeVar("T")
FIRST_S, EVERY_S = 2.0, 15.0
"""Until it is said, and between two times that it is said again."""


class Patience:
    """While entered: 'gobrrr: reading trace.json ...' once two seconds are over, and how long it has been every fifteen
    from then on; nothing where stderr is no terminal. Whole lines, for others may write there meanwhile."""

    def __init__(
        self, doing: str, stream: TextIO | None = None, first_s: float = FIRST_S, every_s: float = EVERY_S
    ) -> None:
        self.so_far = ""
        """Say how far the task is: '3 of 8'."""
        self._doing, self._first, self._every = doing, first_s, every_s
        self._stream = sys.stderr if stream is None else stream
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Patience:
        if self._stream.isatty():
            self._thread = threading.Thread(target=self._tell, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _tell(self) -> None:
        began, said = time.monotonic(), 0
        while not self._over.wait(self._every if said else self._first):
            took = [f"{time.monotonic() - began:.0f} s"] if said else []
            so_far = ", ".join([*([self.so_far] if self.so_far else []), *took])
            said += 1
            with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
                line = f"gobrrr: {self._doing} ..." + (f" ({so_far})" if so_far else "")
                print(plain(line), file=self._stream, flush=True)


def counted(results: Iterable[T], num: int, doing: str) -> Iterator[T]:
    """The results as they come, `num` in all; who waits for them is told how many there are."""
    with Patience(doing) as patience:
        for done, result in enumerate(results, 1):
            patience.so_far = f"{done} of {num}"
            yield result
