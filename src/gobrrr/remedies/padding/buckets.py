"""Batches drawn in buckets of like length; and tokens of each sample of a data set, known without asking the program's
own code, or asked in a copy of the process."""

from __future__ import annotations

import time
import weakref
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from itertools import takewhile
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import BatchSampler, Subset
from torch.utils.data._utils.fetch import _MapDatasetFetcher as Fetcher

from gobrrr.capture.facts.tensors import tensors_in
from gobrrr.capture.steps.random_numbers import states
from gobrrr.data import BucketBatchSampler, simulate
from gobrrr.data.sample_cache.fingerprints import digest
from gobrrr.errors import GobrrrError
from gobrrr.remedies.loader.whole_batches import attributes, indexed
from gobrrr.remedies.mechanism.forked_copy import TriedApart, apart
from gobrrr.remedies.padding.trim_padding import IDS, MASK, is_mask_of, padded
from gobrrr.rules.model.finding import NOTE
from gobrrr.units import share

RANDOM = ("torch.utils.data.sampler.RandomSampler", "accelerate.data_loader.SeedableRandomSampler")
"""Samplers whose order is a random permutation and nothing else."""
TRIED = 2
"""Samples of a batch by which a collate function is tried."""
Sizes = NDArray[np.int64]
LENGTH = "length"
"""The column that Hugging Face's group_by_length reads."""
SECONDS = 5.0
"""Seconds for computing all samples once, in each arm of a trial: its start is told with the gain."""
MOST_ROWS, MOST_TOKENS = 500_000, 1 << 28
"""Samples of a list that are asked one by one (a second), and tokens of a column: what is more is not cheap."""


class Buckets:
    """Batch samplers drawn from in buckets, each looked at once. `cut`: batches are cut to their longest row."""

    def __init__(self, told: Callable[[str], None], declined: Callable[[str], None], cut: bool) -> None:
        self._told, self._declined, self._cut = told, declined, cut
        self._sizes: weakref.WeakKeyDictionary[Any, Sizes | None] = weakref.WeakKeyDictionary()

    def sizes(self, sampler: Any) -> Sizes | None:
        """Return the lengths of a sampler's samples; None for samplers that keep their order."""
        return self._sizes.get(sampler) if draws_as_torch(sampler) else None

    def meets(self, loader: Any) -> None:
        """A loader is iterated over."""
        sampler = skipped(getattr(loader, "batch_sampler", None))
        if not draws_as_torch(sampler):
            self._declined("its batches are not drawn by torch's BatchSampler")
        elif sampler not in self._sizes:
            self._sizes[sampler] = None
            try:
                found = self._looked_at(loader, sampler)
            except Exception as error:  # the program's own objects, asked in a way that they did not foresee
                found = f"its data set could not be looked at ({type(error).__name__}: {error})"
            if isinstance(found, str):
                self._declined(found)
            else:
                self._sizes[sampler] = found

    def _looked_at(self, loader: Any, sampler: Any) -> Sizes | str:
        """Return the lengths, or why the order is to stay."""
        if why_not := order_is_not_ours(loader, sampler):
            return why_not
        known = sample_lengths(loader.dataset)
        sizes = computed_lengths(loader.dataset) if known is None else known
        why = f": {sizes}" if isinstance(sizes, str) else ""
        if isinstance(sizes, str) or len(sizes) != len(loader.dataset) or (sizes < 0).any():
            return f"the lengths of its data set's samples (a {type(loader.dataset).__name__}) are not known{why}"
        kept = Counter(np.sort(sizes[sizes > 0]).tolist())
        advice = simulate(kept, batch_size=sampler.batch_size) if kept else None
        if advice is None or advice.bucketing < (1 + NOTE) * advice.pad_in_collate:
            return "batches of like length would hold hardly less padding than random ones"
        if not pads_per_batch(loader, sizes, self._cut):
            return "its collate function makes all batches equally wide; trim_padding can cut them"
        self._told(
            f"{len(sizes):,} sequences: {share(advice.bucketing)} of what is computed on is no padding, "
            f"{share(advice.pad_in_collate)} in random batches padded to their longest"
        )
        return sizes


def skipped(sampler: Any) -> Any:
    """Return the sampler whose first batches are left out in an epoch that is resumed, as accelerate.skip_first_batches
    does: the batches already served were of the order that is drawn in buckets."""
    while isinstance(sampler, BatchSampler) and hasattr(sampler, "skip_batches") and hasattr(sampler, "batch_sampler"):
        sampler = sampler.batch_sampler
    return sampler


def draws_as_torch(sampler: Any) -> bool:
    """Whether its batches are drawn by torch's BatchSampler: sentence-transformers' own class only knows more."""
    kind = type(sampler)
    return isinstance(sampler, BatchSampler) and kind.__iter__ is BatchSampler.__iter__ and kind.__hash__ is not None


def order_is_not_ours(loader: Any, sampler: Any) -> str:
    """Say why a loader's batches are to stay as drawn; empty where their order is a random permutation."""
    inner = sampler.sampler
    kind = type(inner)
    if f"{kind.__module__}.{kind.__qualname__}" not in RANDOM:
        return f"its order (a {kind.__name__}'s) is not a random one"
    if inner.replacement or inner.num_samples > len(loader.dataset):
        return "it draws samples several times in an epoch"
    if inner.data_source is not loader.dataset:
        return "its sampler draws for another data set"
    if sampler.batch_size < 2 or len(sampler) < 2:
        return "it has one sequence per batch" if sampler.batch_size < 2 else "it has a single batch"
    return ""


def bucketed(sampler: Any, sizes: Sizes) -> Iterator[list[int]]:
    """An epoch's batches: what the sampler draws, at the moments at which it is asked for it anyway."""
    drawn = iter(sampler.sampler)
    order = np.fromiter((next(drawn) for _ in range(len(sampler.sampler))), np.int64, len(sampler.sampler))
    batch_size = sampler.batch_size
    if sampler.drop_last:
        order = order[: len(order) // batch_size * batch_size]
    if not len(order) or order.max() >= len(sizes):  # the data set has grown
        batches = [order[at : at + batch_size].tolist() for at in range(0, len(order), batch_size)]
    else:
        seed = zlib.crc32(order.tobytes())  # of the program's own draws: it is not asked for another
        found = BucketBatchSampler(sizes[order], batch_size, seed=seed).batches(0)
        batches = [order[each].tolist() for each in found]
        batches.sort(key=lambda batch: len(batch) < batch_size)  # the one that is not full stays the last one
    for number, batch in enumerate(batches, 1):
        if number == len(batches) and len(batch) < batch_size:
            deque(drawn, 0)  # a random sampler with a generator of its own draws once more at its end
        yield batch
    deque(drawn, 0)


def pads_per_batch(loader: Any, sizes: Sizes, cut: bool) -> bool:
    """Whether a batch of short sequences is narrower than one of long ones: tried on a few samples in a copy of the
    process, for a data set or a collate function may hold a generator, or open a file, when it is first asked."""
    order = np.argsort(sizes)

    def widths() -> list[int | None]:
        fetcher: Any = Fetcher(loader.dataset, True, loader.collate_fn, False)
        return [_width(fetcher.fetch(each.tolist()), cut) for each in (order[:TRIED], order[-TRIED:])]

    narrow, wide = apart(widths)
    return narrow is not None and wide is not None and bool(narrow < wide)


def _width(batch: Any, cut: bool) -> int | None:
    """Tokens per sequence in a batch of TRIED, those that are cut left out; sequences may stand in columns."""
    if cut and (found := padded(batch)) is not None:
        return found.width
    tables = [each for each in tensors_in(batch) if each.dim() == 2 and not each.is_floating_point()]
    return max((int(each.shape[0 if each.shape[1] == TRIED else 1]) for each in tables), default=None)


# tokens of each sample


def sample_lengths(data: Any) -> Sizes | None:
    """Tokens of each sample, padding not counted where an attention mask says so; None where nobody can tell. Of a
    Hugging Face data set, a list, a class that only indexes lists (`return self.tokens[i]`), or a Subset of these."""
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
    """Return a sample's length: a mapping's by mask or ids, (tokens, label)'s by the first, any other's by its own."""
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
    tensors = isinstance(ids, torch.Tensor) and isinstance(mask, torch.Tensor)
    return int(mask.sum()) if tensors and is_mask_of(ids, mask) else 0


def _size(tokens: Any) -> int | None:
    """Return the length of one row on the host."""
    if isinstance(tokens, torch.Tensor) and tokens.device.type != "cpu":
        return None
    row = tokens.ndim == 1 if isinstance(tokens, torch.Tensor | np.ndarray) else type(tokens) is list
    return len(tokens) if row else None


def _of_table(data: Any) -> Sizes | None:
    """Return the lengths by a Hugging Face data set's columns; None where a transform computes samples."""
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
