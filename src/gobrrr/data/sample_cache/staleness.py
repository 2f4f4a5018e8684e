"""Whether a data set is still what its folder holds samples of, asked now and then while it is in use."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from gobrrr.errors import GobrrrError

_SHARE = 0.01
"""Largest share of the time that fingerprints take, beside one where a process begins."""


class Watch:
    """Fingerprints that are `known` to give the samples that are kept; None where the caller has named a version.

    A data set may change by being used: it opens a file, it counts. So the fingerprint is taken before and after a
    sample is computed: what differs then is known too, and where it differs a second time nothing can be told.
    """

    def __init__(self, known: set[str] | None) -> None:
        self.known = known
        self.changed = False
        self._process = 0
        self._again = 0.0  # when to look again
        self._last = ""  # what a look at this very sample has shown
        self._unsure = False  # the last computed sample has changed it

    def now(self) -> None:
        """Look at the next sample: somebody may have changed it."""
        self._again = 0.0

    def is_same(self, look: Callable[[], str]) -> bool:
        """To be asked before each sample."""
        if self.known is None or self.changed:
            return not self.changed
        self._last = ""  # of an earlier sample: somebody may have changed it since
        if os.getpid() != self._process:
            self._process, self._again = os.getpid(), 0.0
        if time.perf_counter() >= self._again:
            self._look(look)
        return not self.changed

    def before(self, look: Callable[[], str]) -> None:
        """To be told before a sample is computed."""
        if self._unsure and self.known is not None and not self._last:
            self._look(look)

    def after(self, look: Callable[[], str]) -> None:
        """To be told when it has been computed."""
        if not self._last or self.known is None or self.changed:
            return
        now = _told(look)
        by_use = now != self._last
        self._last = ""
        if by_use and self._unsure:
            self.known = None
        elif by_use:
            self.known.add(now)
        self._unsure = by_use

    def _look(self, look: Callable[[], str]) -> None:
        began = time.perf_counter()
        self._last = _told(look)
        self.changed = self.known is not None and self._last not in self.known
        now = time.perf_counter()
        self._again = now + (now - began) / _SHARE


def _told(look: Callable[[], str]) -> str:
    try:
        return look()
    except GobrrrError as error:
        return error.message
