"""Whether loaders draw random numbers while they make a batch: samples for which none is drawn may be the same ones in
each epoch.

The global streams are compared when a fetcher is asked for a batch, its sampler having drawn, and when the batch is
handed out; in the program's process alone. A look is followed by a pause, as in lengths.py.
"""

from __future__ import annotations

import contextlib
import pickle
import random
import sys
import threading
from collections.abc import Iterator
from time import perf_counter_ns
from typing import Any

from gobrrr.capture.facts.lengths import PAUSE, Key
from gobrrr.capture.hooks.transform_guard import is_tracing, unseen

NAMES = ("torch", "NumPy", "random")


def states() -> tuple[Any, ...]:
    """Return the state of each stream in the order of NAMES, to be compared; some 20 us. NumPy's is null where nobody
    has imported it."""
    import torch

    with unseen():
        tensor = torch.default_generator.get_state().numpy().tobytes()
    numpy = sys.modules.get("numpy")
    array = None if numpy is None else pickle.dumps(numpy.random.get_state(legacy=False))
    return tensor, array, random.getstate()


@contextlib.contextmanager
def put_back() -> Iterator[None]:
    """Undo all draws made inside: the states before are put back."""
    import torch

    with unseen():
        tensor = torch.default_generator.get_state()
    numpy, python = sys.modules.get("numpy"), random.getstate()
    array = None if numpy is None else numpy.random.get_state(legacy=False)
    try:
        yield
    finally:
        with unseen():
            torch.default_generator.set_state(tensor)
        random.setstate(python)
        if numpy is not None:
            numpy.random.set_state(array)


class Draws:
    """Looks at batches by the clock. What goes wrong ends the looking and nothing else."""

    def __init__(self) -> None:
        self.looks: dict[Key, list[int]] = {}
        """Per loader: batches that were looked at, and for how many of them something was drawn."""
        self.error = ""
        self._due = self._spent = self._thread = 0
        self._before: Any = None

    def begin(self) -> None:
        """A fetcher is asked for a batch."""
        now = perf_counter_ns()
        if self.error or now < self._due or is_tracing():
            return
        self._before, self._thread = self._states(), threading.get_ident()
        self._spent = perf_counter_ns() - now

    def end(self, loader: Key) -> None:
        """A loader hands a batch out."""
        if self._before is None:
            return
        before, self._before = self._before, None
        if threading.get_ident() != self._thread or not loader:
            return
        now = perf_counter_ns()
        drew = before != self._states()
        if self.error:
            return
        look = self.looks.setdefault(loader, [0, 0])
        look[0] += 1
        look[1] += drew
        ended = perf_counter_ns()
        self._due = ended + PAUSE * (self._spent + ended - now)

    def _states(self) -> Any:
        try:
            return states()
        except Exception as error:
            self.error = repr(error)
            return None
