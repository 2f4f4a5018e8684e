"""Split a watched step into parts, as its hooks mark them: on the host's clock, from one mark to the next."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gobrrr.recording.model import event_kinds
from gobrrr.recording.model.steps import Step
from gobrrr.spans import Ints, overlap, total

WAIT, FORWARD, BACKWARD, OPTIMIZER, OTHER = "data wait", "forward", "backward", "optimizer", "other"
BEGINS = {
    event_kinds.DATA_BEGIN: WAIT, event_kinds.DATA_END: OTHER, event_kinds.FORWARD: FORWARD,
    event_kinds.BACKWARD: BACKWARD,
    event_kinds.UPDATE_BEGIN: OPTIMIZER, event_kinds.UPDATE_END: OTHER,
}  # fmt: skip
"""Phase that each mark begins."""
NAMES = (WAIT, FORWARD, BACKWARD, OPTIMIZER, OTHER)
"""Forward reaches to the call of the backward pass, the loss with it; backward to the next mark, what clips or unscales
gradients with it; other is what stands behind a batch or an update."""
WORDS = {WAIT: "the loader", OTHER: "the program's own code", "gc": "garbage collection"}
"""Names of phases in a sentence, where they are others."""
KEPT = 1 << 14
"""Marks that are remembered: those of 32 steps, where one has fewer than 500."""


class PhaseMarks:
    """The marks of late."""

    def __init__(self) -> None:
        self._pieces: deque[Ints] = deque()
        self._num = 0

    def feed(self, events: Ints) -> None:
        """The next events, in their order."""
        piece = events[np.isin(events[:, 1], list(BEGINS))][-KEPT:, :2]
        if len(piece):
            self._pieces.append(piece)
            self._num += len(piece)
        while self._num - len(self._pieces[0] if self._pieces else ()) >= KEPT:
            self._num -= len(self._pieces.popleft())

    def split(self, steps: Sequence[Step]) -> tuple[dict[str, int | None], int]:
        """ns of these steps by name, which add up to their length, and of how many: those whose marks are remembered.
        None for what no mark tells."""
        told, edges = self._told(steps)
        if not len(edges):
            return dict.fromkeys(NAMES), 0
        first = max(0, int(np.searchsorted(told[:, 0], edges[0, 0])) - 1)  # what was begun before goes on
        told = told[first : int(np.searchsorted(told[:, 0], edges[-1, 1], "right"))]
        names = np.array([BEGINS[kind] for kind in told[:, 1].tolist()])
        seen = set(names[told[:, 0] >= edges[0, 0]].tolist())
        spent = {name: _of(told[:, 0], names == name, edges) for name in NAMES}
        spent[OTHER] = total(edges) - sum(spent[name] for name in NAMES if name != OTHER)
        return {name: spent[name] if spent[name] or name in seen or name == OTHER else None for name in NAMES}, len(
            edges
        )

    def batches(self, steps: Sequence[Step]) -> int | None:
        """Batches that the usual one of these steps gets; None where none is known."""
        told, edges = self._told(steps)
        got = np.sort(told[told[:, 1] == event_kinds.DATA_END, 0])
        if not len(edges) or not len(got):
            return None
        return round(float(np.median(np.searchsorted(got, edges[:, 1]) - np.searchsorted(got, edges[:, 0]))))

    def _told(self, steps: Sequence[Step]) -> tuple[Ints, Ints]:
        """(n, 2) times and kinds of the marks, and (m, 2) begin and end of the steps since the first of them."""
        told = np.concatenate(list(self._pieces)) if self._pieces else np.empty((0, 2), np.int64)
        edges = [(step.start, step.end) for step in steps if len(told) and step.start >= told[0, 0]]
        return told, np.array(edges, np.int64).reshape(-1, 2)


def _of(times: npt.NDArray[np.int64], begins: npt.NDArray[np.bool_], edges: Ints) -> int:
    """ns between `edges` that lie behind a mark that begins it and before the next one."""
    ends = np.append(times[1:], np.int64(max(times[-1], edges[-1, 1])))
    return int(overlap(np.stack((times, ends), axis=1)[begins], edges).sum())
