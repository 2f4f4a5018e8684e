"""Whether the workers of a stream give the same batches: each has all samples, unless it asks which one it is."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from types import FrameType
from typing import Any

from gobrrr.capture.facts.lengths import Key
from gobrrr.capture.facts.tensors import is_plain, some_bytes, tensors_in
from gobrrr.capture.hooks.transform_guard import is_tracing, unseen

MOST_BATCHES = 64
"""Batches of a loader that are compared, each with the one before it, at most; proposed: 20 us each."""
MOST_TENSORS, MOST_ELEMENTS = 4, 256
"""Tensors of a batch, and elements of each, that are compared; proposed: other samples differ in fewer."""


class WorkerCopies:
    """Compares batches. What goes wrong ends the comparing and nothing else."""

    def __init__(self) -> None:
        self.looks: dict[Key, list[int]] = {}
        """Per loader: batches that were compared, and how many were equal to the one before them."""
        self.error = ""
        self._last: dict[Key, bytes] = {}

    def look(self, loader: Key, facts: Mapping[str, Any], frame: FrameType) -> None:
        """The loader hands out a batch, in this frame of torch's."""
        if self.error or not facts.get("stream") or facts.get("num_workers", 0) < 2:
            return
        looks = self.looks.setdefault(loader, [0, 0])
        if looks[0] >= MOST_BATCHES:
            return
        try:
            if not is_tracing():
                with unseen():
                    found = islice(filter(is_plain, tensors_in(frame.f_locals.get("data"))), MOST_TENSORS)
                    now = b"".join(some_bytes(each, MOST_ELEMENTS) for each in found)
                if last := self._last.get(loader):
                    looks[0] += 1
                    looks[1] += now == last
                self._last[loader] = now
        except Exception as error:
            self.error = repr(error)
