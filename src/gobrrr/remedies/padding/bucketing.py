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
