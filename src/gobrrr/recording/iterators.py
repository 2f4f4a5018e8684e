"""Loaders as they were used: the iterators of one loader joined, with how every epoch began."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gobrrr.recording import marks

Key = tuple[Any, ...]


def loaders(events: npt.NDArray[np.int64], raw: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One entry per loader, in the shape of recording.facts.LoaderFacts. Iterators of one loader share a `key`."""
    merged: dict[Key, dict[str, Any]] = {}
    for entry in raw:
        merged.setdefault(_key(entry), {name: value for name, value in entry.items() if name != "key"})
    starts, firsts, batches = _used(events, {n: _key(entry) for entry in raw if isinstance(n := entry.get("id"), int)})
    return [
        {**entry, "iter_ns": starts[key], "first_wait_ns": firsts[key], "num_batches": batches[key]}
        for key, entry in merged.items()
    ]


def _key(entry: dict[str, Any]) -> Key:
    key = entry.get("key")
    return tuple(str(part) for part in key) if isinstance(key, list) else ()


def _used(
    events: npt.NDArray[np.int64], key_of: dict[Any, Key]
) -> tuple[dict[Key, list[int]], dict[Key, list[int]], dict[Key, int]]:
    """From iter() to the first request, the first wait, and the number of batches, by loader."""
    starts: dict[Key, list[int]] = defaultdict(list)
    firsts: dict[Key, list[int]] = defaultdict(list)
    batches: dict[Key, int] = defaultdict(int)
    made = begun = 0
    wanted = np.isin(events[:, 1], (marks.ITER, marks.DATA_BEGIN, marks.DATA_END))
    for t, kind, number, value in events[wanted].tolist():
        key = key_of.get(number, ())
        if kind == marks.ITER:
            made = t
        elif kind == marks.DATA_BEGIN:
            begun = t
            if made:
                starts[key].append(t - made)
        else:
            batches[key] += value == 0
            if made and value == 0:
                firsts[key].append(t - begun)
            made = 0
    return starts, firsts, batches
