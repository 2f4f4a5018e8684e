"""The samples of one data set by their index, for as long as it is seen to give the same ones again.

Three looks say so. While samples are computed no global random stream may move. Between batches what the data set holds
is compared, for at most a hundredth of the time. And for another hundredth a sample that is kept is computed anew and
held against what is kept, which finds what lies where no look reaches: files, C, the clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from gobrrr.data.sameness import check_same, states
from gobrrr.data.samples import decode, encode
from gobrrr.errors import GobrrrError
from gobrrr.remedies.copied_state import CopiedState, TooMuch
from gobrrr.units import size

SHARE = 0.01
"""Of the time, what each of the two later looks may take."""
MOST_CHANGES = 2
"""Of a data set that changes by being used: one that opens its file at the first sample changes once."""
NAMED_BY = (int, str)
"""Types of indices: a tensor of one element is another key each time."""

Compute = Callable[[Sequence[Any]], Any]
"""The samples of some indices, as torch's fetcher asks for them."""
Aside = Callable[[int], None]
"""Told how many ns computing what was not kept yet has taken."""


class Whole(NamedTuple):
    """What a data set gave for several indices that is no list of samples."""

    batch: Any


class KeptSamples:
    """Of one data set, which has a length and is asked by index. `room`: bytes that they may take."""

    def __init__(self, dataset: Any, room: float, aside: Aside) -> None:
        self.why_not = ""
        """Why none is kept any more."""
        self.wrong = False
        """Whether a sample that may have been given is not the one that is computed."""
        self._given = False
        self._dataset, self._room, self._aside, self._length = dataset, room, aside, len(dataset)
        self._payloads: dict[Any, bytes] = {}
        self._bytes = self._changes = self._turn = 0
        self._state: CopiedState | None = None
        self._look_again = self._compare_again = 0.0

    def prove(self) -> None:
        """Compute four samples twice, before any is kept."""
        try:
            check_same(lambda index: encode(self._dataset[index]), lambda index: None, self._length)
        except GobrrrError as error:
            self.why_not = error.message

    def epoch_begins(self) -> None:
        """Look at the next batch whether the program has changed the data set."""
        self._look_again = 0.0

    def give(self, indices: Sequence[Any], compute: Compute) -> Any:
        """The samples, in this order; those that are computed now are the data set's own objects, so that what the
        program writes into them reaches it. None where somebody else must give them: `why_not` says why."""
        self._look(indices)
        if self.why_not:
            return None
        missing = [index for index in dict.fromkeys(indices) if index not in self._payloads]
        given = self._computed(missing if self._payloads else indices, compute) if missing else {}
        if isinstance(given, Whole):
            return given.batch
        kept = self._payloads
        self._given = self._given or len(given) < len(indices)
        return [given[index] if index in given else decode(bytearray(kept[index])) for index in indices]

    def _look(self, indices: Sequence[Any]) -> None:
        """What can be told before anything is computed."""
        if strange := sorted({type(index).__name__ for index in indices if type(index) not in NAMED_BY}):
            self.why_not = f"its sampler names samples by {' and '.join(strange)}, not by whole numbers"
            return
        if (began := time.perf_counter()) >= self._look_again:
            self._compare_state()
            self._look_again = _after(began)
        kept = [index for index in indices if index in self._payloads]
        if kept and (began := time.perf_counter()) >= self._compare_again:
            self._compare_sample(kept[self._turn % len(kept)])
            self._compare_again = _after(began)

    def _compare_state(self) -> None:
        try:
            found = CopiedState((self._dataset,))
        except TooMuch:
            self.why_not = "its data set is more than can be looked at between two batches"
            return
        if self._state is not None and not self._state.is_still(found):
            self._changes, self._bytes = self._changes + 1, 0
            self._payloads.clear()
            if self._changes > MOST_CHANGES:
                self.why_not = "its data set changes while it is used"
        self._state = found

    def _compare_sample(self, index: Any) -> None:
        self._turn += 1
        before = states()
        try:
            is_same = encode(self._dataset[index]) == self._payloads[index]
        except Exception:  # the program's own, which would meet it in its place
            is_same = False
        if not is_same or states() != before:
            self.wrong, self.why_not = self._given, f"sample {index!r} was another when it was computed again"

    def _computed(self, wanted: Sequence[Any], compute: Compute) -> dict[Any, Any] | Whole:
        """What was wanted, by index; kept, or `why_not` says why not."""
        began, before = time.perf_counter_ns(), states()
        given = compute(wanted)
        self._aside(time.perf_counter_ns() - began)  # not the encoding: as long as decoding, which each later epoch has
        drawn = [name for name, state in states().items() if state != before[name]]
        if type(given) is not list or len(given) != len(wanted):
            self.why_not = "its data set gives its batches in one piece"
            return Whole(given)
        if drawn:
            self.why_not = f"its samples draw random numbers ({' and '.join(drawn)})"
        found = dict(zip(wanted, given, strict=True))
        if not self.why_not:
            self._keep(found)
        return found

    def _keep(self, found: dict[Any, Any]) -> None:
        try:
            payloads = {index: bytes(encode(sample)) for index, sample in found.items()}
        except GobrrrError as error:
            self.why_not = error.message
            return
        num = len(self._payloads) + len(payloads)
        self._bytes += sum(map(len, payloads.values()))
        needs = self._bytes * max(1.0, self._length / num)
        if needs > self._room:
            self.why_not = (
                f"its {self._length:,} samples take some {size(needs)}, where {size(self._room)} may be taken"
            )
        else:
            self._payloads.update(payloads)


def _after(began: float) -> float:
    """When the same may be done again, so that it takes no more than its share."""
    now = time.perf_counter()
    return now + (now - began) / SHARE
