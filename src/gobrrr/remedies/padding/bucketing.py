"""Sequences of like length in one batch, so that hardly any of it is padding."""

from __future__ import annotations

import functools
from typing import Any

from gobrrr.remedies.mechanism.seams import Seams
from gobrrr.remedies.model import Remedy
from gobrrr.remedies.padding.trim_padding import TrimPadding
from gobrrr.rules.model.finding import NOTE, Saving
from gobrrr.rules.verdict.report import Report


class Bucketing(Remedy):
    """Sorts the order that a random sampler draws for an epoch by length, within fifty batches at a time, and shuffles
    the batches: the same samples, each as often, in equally many batches; the program's random streams are asked for
    what they always are. Applies where the collate function pads to the longest of a batch, or trim_padding cuts to it.
    Loaders that draw in order, as evaluations do, keep theirs."""

    name = "bucketing"
    title = "puts sequences of like length into one batch"
    safety = "order"
    regroups = True
    place = "loader"
    serves = "training"
    saves_memory = True
    unseen = (
        "batches are alike in length, so their gradients are noisier; an epoch that is resumed in its middle without "
        "it, or the other way round, repeats samples"
    )
    by_hand = (
        'lengths = [len(ids) for ids in dataset["input_ids"]]\n'
        "DataLoader(dataset, batch_sampler=gobrrr.data.BucketBatchSampler(lengths, batch_size), collate_fn=...)\n"
        "# transformers: TrainingArguments(train_sampling_strategy='group_by_length')"
    )

    def predicts(self, report: Report) -> Saving:
        """Return the saving that the simulation promises, where that is more than padding to the longest of a batch
        brings."""
        for finding in report.findings:
            said = finding.evidence
            if finding.code in self.codes and {"saved_by_longest", "saved_by_bucketing", "bucketing"} <= said.keys():
                longest, together = (float(said[name].value) for name in ("saved_by_longest", "saved_by_bucketing"))
                if together - longest >= NOTE * report.step.plain_wall_ns:
                    return Saving(0.8 * together, together, max(together, finding.saving.ceiling_ns))
        return Saving()

    def apply(self, seams: Seams) -> None:
        from torch.utils.data import BatchSampler, DataLoader

        from gobrrr.remedies.padding.buckets import Buckets, bucketed

        told, declined = (functools.partial(each, self.name) for each in (seams.applied, seams.declined))
        buckets = Buckets(told, declined, cut=TrimPadding.name in seams.names)
        iterated: Any = DataLoader.__iter__
        drawn: Any = BatchSampler.__iter__

        @functools.wraps(iterated)
        def of_loader(loader: Any) -> Any:
            buckets.meets(loader)
            return iterated(loader)

        @functools.wraps(drawn)
        def of_sampler(sampler: Any) -> Any:
            sizes = buckets.sizes(sampler)
            return drawn(sampler) if sizes is None else bucketed(sampler, sizes)

        seams.replace(DataLoader, "__iter__", of_loader)
        seams.replace(BatchSampler, "__iter__", of_sampler)
<<<<<<< HEAD


class Buckets:
    """Batch samplers that are drawn from in buckets, with the lengths of their samples; each is looked at once. `cut`:
    batches are cut to their longest row."""

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
        from gobrrr.data import simulate

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
    from torch.utils.data import BatchSampler

    while isinstance(sampler, BatchSampler) and hasattr(sampler, "skip_batches") and hasattr(sampler, "batch_sampler"):
        sampler = sampler.batch_sampler
    return sampler


def draws_as_torch(sampler: Any) -> bool:
    """Whether its batches are drawn by torch's BatchSampler: sentence-transformers' own class only knows more."""
    from torch.utils.data import BatchSampler

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
    from gobrrr.data import BucketBatchSampler

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
    from torch.utils.data._utils.fetch import _MapDatasetFetcher as Fetcher

    order = np.argsort(sizes)

    def widths() -> list[int | None]:
        fetcher: Any = Fetcher(loader.dataset, True, loader.collate_fn, False)
        return [_width(fetcher.fetch(each.tolist()), cut) for each in (order[:TRIED], order[-TRIED:])]

    narrow, wide = apart(widths)
    return narrow is not None and wide is not None and bool(narrow < wide)


def _width(batch: Any, cut: bool) -> int | None:
    """Tokens per sequence in a batch of TRIED, those that are cut left out; sequences may stand in columns."""
    from gobrrr.capture.facts.tensors import tensors_in

    if cut and (found := padded(batch)) is not None:
        return found.width
    tables = [each for each in tensors_in(batch) if each.dim() == 2 and not each.is_floating_point()]
    return max((int(each.shape[0 if each.shape[1] == TRIED else 1]) for each in tables), default=None)
=======
>>>>>>> b229830e (Bucketing's machinery in one file, loaded where torch is)
