"""Tokens of each sample of a data set: where that is known without asking the program's own code, and where
a copy of the process may ask it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gobrrr.capture.steps.random_numbers import states
from gobrrr.data.sample_cache.fingerprints import digest
from gobrrr.errors import GobrrrError
from gobrrr.remedies.loader.batched_fetch import attributes, indexed
from gobrrr.remedies.mechanism.forked_copy import TriedApart, apart
from gobrrr.remedies.padding.trim_padding import IDS, MASK, is_mask_of

Sizes = NDArray[np.int64]
LENGTH = "length"
"""The column that Hugging Face's group_by_length reads."""
SECONDS = 5.0
"""Seconds for computing all samples of a data set once; each arm of a trial does so, and its start is told with the
gain."""
MOST_ROWS, MOST_TOKENS = 500_000, 1 << 28
"""Samples of a list that are asked one by one (a second), and tokens of a column: what is more is not cheap."""


def sample_lengths(data: Any) -> Sizes | None:
    """Tokens of each sample, padding not counted where an attention mask says so; None where nobody can tell. Of a
    Hugging Face data set, a list, a class that only indexes lists (`return self.tokens[i]`), or a Subset of these."""
    from torch.utils.data import Subset

    if type(data) is Subset:
        sizes = sample_lengths(data.dataset)
        return None if sizes is None else sizes[np.asarray(data.indices, dtype=np.int64)]
    if type(data) in (list, tuple):
        return _of_rows(data)
    kind = type(data)
    if kind.__module__.startswith("datasets.") and kind.__name__ == "Dataset":
        return _of_table(data)
    if kind.__module__.startswith("torch."):
        return None
    columns = attributes(data, indexed(getattr(kind, "__getitem__", None)))
    rows = (each for each in columns if type(each) in (list, tuple) and len(each) == len(data))
    return next((sizes for each in rows if (sizes := _of_rows(each)) is not None), None)


def computed_lengths(data: Any) -> Sizes | str:
    """Return the same of samples that are computed when asked for: each once, in a copy of the process, where the
    data set holds nothing that a copy would share with the program (an open file); or why not."""
    try:
        digest(data, strict=True)
        found = apart(lambda: _asked(data))
    except GobrrrError as error:
        return error.message
    except TriedApart as error:
        return f"computing them failed ({error})"
    return found if isinstance(found, str) else np.asarray(found, dtype=np.int64)


def _asked(data: Any) -> list[int] | str:
    until, before, sizes = time.monotonic() + SECONDS, states(), []
    for index in range(len(data)):
        size = _of_sample(data[index])
        if size is None:
            return "they have no tokens"
        if time.monotonic() > until:
            return f"computing {index + 1:,} of {len(data):,} took {SECONDS:.0f} s"
        sizes.append(size)
    return sizes if states() == before else "they draw random numbers"


def _of_rows(rows: Any) -> Sizes | None:
    if not 0 < len(rows) <= MOST_ROWS:
        return None
    sizes = [*takewhile(lambda size: size is not None, map(_of_sample, rows))]
    return np.asarray(sizes, np.int64) if len(sizes) == len(rows) else None


def _of_sample(sample: Any) -> int | None:
    """Return a sample's length: a mapping's by its mask or ids, (tokens, label)'s by the first, any other's by its
    own."""
    if isinstance(sample, Mapping):
        mask: Any = sample.get(MASK)
        if _size(mask) is None:
            return _size(sample.get(IDS))
        return int(mask.sum()) if hasattr(mask, "sum") else sum(mask)
    if type(sample) in (list, tuple) and sample and not isinstance(sample[0], int):
        size = _size(sample[0])
        masked = (_unpadded(sample[0], each) for each in sample[1:]) if size else ()
        return next(filter(None, masked), size)
    return _size(sample)


def _unpadded(ids: Any, mask: Any) -> int:
    """Tokens of ids by their mask: 1 where a token is, 0 where they have what they end with; 0 of what is none."""
    import torch

    tensors = isinstance(ids, torch.Tensor) and isinstance(mask, torch.Tensor)
    return int(mask.sum()) if tensors and is_mask_of(ids, mask) else 0


def _size(tokens: Any) -> int | None:
    """Return the length of one row on the host."""
    import torch

    if isinstance(tokens, torch.Tensor) and tokens.device.type != "cpu":
        return None
    row = tokens.ndim == 1 if isinstance(tokens, torch.Tensor | np.ndarray) else type(tokens) is list
    return len(tokens) if row else None


def _of_table(data: Any) -> Sizes | None:
    """Return the lengths from the columns of a Hugging Face data set; None where a transform computes samples when they
    are asked for."""
    if data.format.get("type") == "custom":
        return None
    names = set(data.column_names)
    if MASK in names:
        sizes = _of_column(data.data.column(MASK), summed=True)
    elif LENGTH in names:
        sizes = np.asarray(data.data.column(LENGTH).to_numpy(), dtype=np.int64)
    else:
        sizes = _of_column(data.data.column(IDS), summed=False) if IDS in names else None
    if sizes is None or data._indices is None:
        return sizes
    found: Sizes = sizes[data._indices.column(0).to_numpy()]  # what select() and shuffle() leave
    return found


def _of_column(column: Any, *, summed: bool) -> Sizes | None:
    """Lengths of the lists of a column, or their sums."""
    from pyarrow import compute  # type: ignore[import-not-found, unused-ignore]  # it comes with Hugging Face's datasets

    sizes: Sizes = compute.list_value_length(column).to_numpy().astype(np.int64)
    if not summed:
        return sizes
    if sizes.sum() > MOST_TOKENS:
        return None
    ends = np.cumsum(sizes)
    total = np.concatenate([[0], np.cumsum(compute.list_flatten(column).to_numpy(), dtype=np.int64)])
    found: Sizes = total[ends] - total[ends - sizes]
    return found
