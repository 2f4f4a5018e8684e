"""A watch that a trainer's callbacks begin and end, and that never raises into the training."""

from __future__ import annotations

import atexit
import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gobrrr.errors import GobrrrError
from gobrrr.integrations.watch import watch

if TYPE_CHECKING:
    from gobrrr.integrations.watch import Watched
    from gobrrr.rules.verdict.report import Report


class Observer:
    """Watches from `begin()` to `end()`; both may be called twice, or not at all.

    What never ends because an exception passed by ends with the next begin, or with the process.
    """

    def __init__(self, folder: str | Path | None = None, show: bool = True) -> None:
        self.watched: Watched | None = None
        self._folder, self._show = folder, show
        self._block: contextlib.AbstractContextManager[Watched] | None = None

    def begin(self) -> None:
        """Watch from here on; where it cannot, say why in a line on stderr."""
        self.end()
        self.watched = None
        self._block = watch(self._folder, show=self._show)
        try:
            self.watched = self._block.__enter__()
        except GobrrrError as error:
            self._block = None
            sys.stderr.write(f"gobrrr: {error}\n")
            return
        atexit.register(self.end)

    def end(self) -> None:
        """Until here; with show the report is told on stderr."""
        block, self._block = self._block, None
        if block is not None:
            atexit.unregister(self.end)
            block.__exit__(None, None, None)

    @property
    def report(self) -> Report | None:
        """Report on the last watched block; None where there was none, or nothing in it can be judged."""
        if self.watched is None or self._block is not None:
            return None
        try:
            return self.watched.result
        except GobrrrError:
            return None
