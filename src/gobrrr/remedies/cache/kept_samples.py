"""The samples of one data set by their index, for as long as it is seen to give the same ones again.

Nothing is computed that the program has not asked for just now, nothing twice before the data set is seen to stay as it
is while it is used, and no global random stream may move meanwhile. What it holds is looked at again as each epoch
begins, as it ends and between batches; and of the samples that are kept a few are computed anew now and then, at each
epoch's beginning always: of what no look reaches (files, the clock, the environment) that finds what changes them all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_leaves, tree_map

from gobrrr.capture.steps.random_numbers import NAMES, put_back, states
from gobrrr.data.sample_cache.fingerprints import digest
from gobrrr.data.sample_cache.samples import decode, encode
from gobrrr.errors import GobrrrError
from gobrrr.units import size

SHARE, MOST_SHARE = 0.01, 0.1
"""Shares of the time that looks may take: each later look; and those at the beginning of epochs, as a share of an epoch
without the remedy."""
AGAIN = 2
"""Kept samples of a batch that are computed anew where an epoch begins, or the time has come."""
MOST_CHANGES = 2
"""Most changes of a data set whose samples are kept: one that counts its rows at the first sample changes once."""
NAMED_BY = (int, str)
"""Types of indices: a tensor of one element is another key each time."""
ANOTHER = "sample {!r} was another when it was computed again"

Compute = Callable[[Sequence[Any]], Any]
"""The samples of some indices, as torch's fetcher asks for them."""
Aside = Callable[[int], object]
"""Told how many ns it took that comes once."""
Kind = tuple[str, int]
"""The name of a data set's class, and its length."""


def counts_in_full(ns: int) -> None:
    """Aside of what comes in each epoch, as far as anybody saw."""


class Room:
    """Bytes that the samples of all data sets may take."""

    def __init__(self, left: float) -> None:
        self.left = left


class KeptSamples:
    """Kept samples of one data set."""

    def __init__(self, kind: Kind, room: Room, aside: Aside) -> None:
        self.kind = kind
        self.why_not = ""
        """Why none is kept any more."""
        self.wrong = False
        """Whether a sample may have been given that the data set would not have."""
        (_, self._length), self._room, self._aside = kind, room, aside
        self._payloads: dict[Any, bytearray] = {}
        self._bytes = self._changes = self._turn = 0
        self._state: Any = None
        self._proven = self._given = self._giving = False
        self._begins, self._compares = False, True
        self._unlooked = False
        """Whether kept samples were given since the last look."""
        self._spent = 0.0
        """Seconds that computing what is kept took: an epoch is so much shorter for it."""
        self._asked = 0
        """Samples that this epoch has asked for."""
        self._look_again = self._compare_again = self._looked = 0.0
        self._took = float("inf")
        """The shortest look: another process may have had the core in a longer one."""

    def epoch_begins(self) -> None:
        """Look at the next batch whether the program has changed the data set."""
        self._begins = self._compares = True
        self._asked = 0

    def epoch_ends(self, dataset: Any) -> None:
        """Nobody asks for more of it: what the program changes from now on was not changed amid it. Not where it comes
        amid a batch of another loader, as a collector may."""
        if self._unlooked and not self.why_not and not self._giving:
            self._compare_state(dataset)

    @property
    def keeps(self) -> bool:
        """Whether it has any."""
        return bool(self._payloads)

    @property
    def is_fruitless(self) -> bool:
        """Whether it has most of them, and none ever came again."""
        return len(self._payloads) > self._length / 2 and not self._given

    def give(self, dataset: Any, indices: Any, compute: Compute) -> Any:
        """The samples, in this order; those that are computed now are the data set's own objects, so that what the
        program writes into them reaches it. None where somebody else must give them: `why_not` says why."""
        self._giving = True
        try:
            return self._give(dataset, indices, compute)
        finally:
            self._giving = False

    def _give(self, dataset: Any, indices: Any, compute: Compute) -> Any:
        self._check(indices)
        if not self.why_not:
            self._look(dataset)
        if not self.why_not:
            self._compare(dataset, indices)
        if self.why_not:
            return None
        missing = [place for place, index in enumerate(indices) if index not in self._payloads]
        if not self._payloads:
            missing = [*range(len(indices))]
        given = self._computed(dataset, [indices[place] for place in missing], compute) if missing else []
        if len(missing) < len(indices):
            self._given = self._unlooked = True
        self._asked += len(indices)
        if not self._stayed(dataset, len(indices)):
            return None
        fresh = dict(zip(missing, given, strict=True))
        kept = self._payloads
        return [fresh[n] if n in fresh else tree_map(_owned, decode(kept[i])) for n, i in enumerate(indices)]

    def forget(self) -> None:
        """Give back what they take."""
        self._room.left += self._bytes
        self._bytes, self._spent = 0, 0.0
        self._payloads.clear()

    def _check(self, indices: Any) -> None:
        if type(indices) not in (list, tuple):
            self.why_not = f"its sampler gives a {type(indices).__name__}, not a list, for each batch"
        elif strange := sorted({type(index).__name__ for index in indices if type(index) not in NAMED_BY}):
            self.why_not = f"its sampler names samples by {' and '.join(strange)}, not by whole numbers"

    # what the data set holds

    def _look(self, dataset: Any) -> None:
        now = time.perf_counter()
        begins, self._begins = self._begins, False
        if begins and self._looked and now - self._looked + self._spent < self._took / MOST_SHARE:
            self.why_not = "looking at what its data set holds takes too long for its epochs"
        elif begins or now >= self._look_again:
            self._compare_state(dataset)
            self._looked, took, self._look_again = _after(now)
            self._took = min(self._took, took)

    def _stayed(self, dataset: Any, num: int) -> bool:
        """Whether the data set is what it was, looked at as the last `num` samples of a whole epoch are given: who
        holds on to an iterator that is through may change it, and nobody could tell when that was."""
        if self.why_not or not self._unlooked or self._asked <= self._length - num:
            return True
        self._compare_state(dataset)
        return not self.wrong

    def _compare_state(self, dataset: Any) -> None:
        found = self._state_of(dataset)
        unlooked, self._unlooked = self._unlooked, False
        if self.why_not or self._state in (None, found):
            self._state = self._state or found
            return
        if unlooked:
            self.wrong = True
            self.why_not = "its data set was changed during an epoch, or before its iterator was released"
        self._changed(found)

    def _changed(self, found: Any) -> None:
        """Begin anew with what it holds now."""
        if self.is_fruitless:  # what this cost came to nothing, and may each time
            self._aside = counts_in_full
        self._state, self._changes = found, self._changes + 1
        self._proven = self._given = False
        self.forget()
        if self._changes > MOST_CHANGES:
            self.why_not = self.why_not or "its data set changes while it is used"

    def _state_of(self, dataset: Any) -> Any:
        try:
            return digest(dataset, strict=True), torch.get_default_dtype()
        except GobrrrError as error:
            self.why_not = error.message
        except Exception as error:  # the program's own objects, asked in a way that they did not foresee
            self.why_not = f"its data set cannot be looked at: {type(error).__name__}"
        return None

    # what it gives

    def _compare(self, dataset: Any, indices: Sequence[Any]) -> None:
        began = time.perf_counter()
        kept = [index for index in indices if index in self._payloads]
        if not kept or not (self._compares or began >= self._compare_again):
            return
        for index in kept[self._turn % len(kept) :][:AGAIN]:
            if not self.why_not and self._again(dataset, index, self._payloads[index]) is None:
                self.wrong, self.why_not = self._given, ANOTHER.format(index)
        self._turn, self._compares = self._turn + AGAIN, False
        *_, self._compare_again = _after(began)

    def _again(self, dataset: Any, index: Any, payload: bytes | bytearray) -> tuple[Any] | None:
        """The sample computed anew, where that gives the same and draws nothing; the random streams are left as they
        are."""
        with put_back():
            before = states()
            try:
                sample = dataset[index]
                same = _payload(sample) == payload and states() == before
            except Exception:  # the program's own, which would meet it in its place
                return None
            return (sample,) if same else None

    def _computed(self, dataset: Any, wanted: Sequence[Any], compute: Compute) -> list[Any]:
        """Return the wanted samples, computed; keep them, or say in `why_not` why not."""
        began, before = time.perf_counter_ns(), states()
        given: list[Any] = compute(wanted)
        drawn = [name for name, was, now in zip(NAMES, before, states(), strict=True) if was != now]
        self.why_not = f"its samples draw random numbers ({' and '.join(drawn)})" if drawn else why_shared(given)
        spent = time.perf_counter_ns() - began
        self._spent += spent / 1e9
        self._aside(spent)
        payloads: dict[Any, bytes] = {}
        try:
            if not self.why_not:
                payloads = {index: _payload(sample) for index, sample in zip(wanted, given, strict=True)}
        except GobrrrError as error:
            self.why_not = error.message
        if not self.why_not:
            self._keep(dataset, wanted, given, payloads)
        return given

    def _keep(self, dataset: Any, wanted: Sequence[Any], given: list[Any], payloads: dict[Any, bytes]) -> None:
        if not self._proven and not self._proves(dataset, dict(zip(wanted, given, strict=True)), payloads):
            return
        new = {index: payload for index, payload in payloads.items() if index not in self._payloads}
        num, taken = len(self._payloads) + len(new), sum(map(len, new.values()))
        needs = (self._bytes + taken) * max(1.0, self._length / num)
        if needs > self._room.left + self._bytes:
            there = size(self._room.left + self._bytes)
            self.why_not = f"its {self._length:,} samples take some {size(needs)}, where {there} may be taken"
        else:
            self._payloads.update((index, bytearray(payload)) for index, payload in new.items())
            self._bytes += taken
            self._room.left -= taken

    def _proves(self, dataset: Any, samples: dict[Any, Any], payloads: dict[Any, bytes]) -> bool:
        """Whether the data set stayed as it was while these were computed, and gives the first and the last again, in
        memory of their own."""
        found = self._state_of(dataset)
        if self.why_not:
            return False
        if found != self._state:
            self._changed(found)
            return False
        began = time.perf_counter_ns()
        for index in dict.fromkeys((next(iter(payloads)), next(reversed(payloads)))):
            again, another = self._again(dataset, index, payloads[index]), ANOTHER.format(index)
            self.why_not = another if again is None else why_held(samples[index], again[0])
            if self.why_not:
                return False
        self._aside(time.perf_counter_ns() - began)
        self._proven = True
        return True


def _payload(sample: Any) -> bytes:
    """Return a copy of the sample as bytes: a tensor whose memory NumPy has looked at can no longer be resized."""
    return bytes(encode(tree_map(_owned, sample)))


def _owned(leaf: Any) -> Any:
    """Return a copy with memory of its own, which the program may resize as it may the data set's."""
    if isinstance(leaf, torch.Tensor):
        return leaf.clone()
    return leaf.copy(order="K") if isinstance(leaf, np.ndarray) else leaf


def _after(began: float) -> tuple[float, float, float]:
    """Now, how long it took, and when the same may be done again so that it takes no more than its share."""
    now = time.perf_counter()
    return now, now - began, now + (now - began) / SHARE


# whether copies of samples could be told from the samples by what the program writes, or by what hangs on them

Span = tuple[int, int]
SAME = "parts of its samples lie in the same memory"
HELD = "its samples are parts of what its data set holds, which a write into one would reach"


def why_shared(samples: Iterable[Any]) -> str:
    """Say why samples cannot be kept; empty where they can: parts in the same memory, where writing one changes
    the other, tensors with attributes, arrays that may not be written, and memory with gaps."""
    given = list(samples)
    spans = []
    for leaf in tree_leaves(given):
        if isinstance(leaf, torch.Tensor) and vars(leaf):
            return "its samples have tensors with attributes of their own"
        if isinstance(leaf, np.ndarray) and not leaf.flags.writeable:
            return "its samples have arrays that may not be written"
        leaf_spans = _spans(leaf)
        if any(end - start != leaf.nbytes for start, end in leaf_spans):
            return "its samples are views with gaps in their memory"
        spans += leaf_spans
    containers = [id(each) for each in _containers(given)]
    return SAME if _overlap(spans) or len(set(containers)) < len(containers) else ""


def why_held(sample: Any, again: Any) -> str:
    """Say why not, by two results for one index, both alive: what both share is the data set's own."""
    both = [set(map(id, _containers([each]))) for each in (sample, again)]
    spans = [[span for leaf in tree_leaves(each) for span in _spans(leaf)] for each in (sample, again)]
    shared = _overlap([*spans[0], *spans[1]]) and not (_overlap(spans[0]) or _overlap(spans[1]))
    return HELD if shared or both[0] & both[1] else ""


def _spans(leaf: Any) -> list[Span]:
    """Where a tensor or an array lies; nowhere where it is not here: what is kept of such is another's to refuse."""
    if isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided and leaf.device.type == "cpu" and leaf.numel():
        size, start = leaf.element_size(), leaf.data_ptr()
        strides = tuple(size * stride for stride in leaf.stride())
    elif isinstance(leaf, np.ndarray) and leaf.size:
        size, start, strides = leaf.itemsize, leaf.__array_interface__["data"][0], leaf.strides
    else:
        return []
    reaches = [(length - 1) * stride for length, stride in zip(leaf.shape, strides, strict=True)]
    return [(start + sum(r for r in reaches if r < 0), start + sum(r for r in reaches if r > 0) + size)]


def _overlap(spans: Iterable[Span]) -> bool:
    return any(end > start for (_, end), (start, _) in pairwise(sorted(spans)))


def _containers(samples: Iterable[Any]) -> Iterator[Any]:
    """Lists, dicts and sets within samples: the program may write into them."""
    for each in samples:
        if isinstance(each, list | dict | set | bytearray):
            yield each
        if isinstance(each, Mapping):
            yield from _containers(each.values())
        elif isinstance(each, Sequence) and not isinstance(each, str | bytes | bytearray):
            yield from _containers(each)
