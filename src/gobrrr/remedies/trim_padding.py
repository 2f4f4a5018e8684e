"""Batches of a training without the columns in which every row is padding."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from gobrrr.remedies.model import Remedy
from gobrrr.remedies.trains import Trains
from gobrrr.rules.model import Saving

if TYPE_CHECKING:
    from gobrrr.remedies.seams import Seams
    from gobrrr.rules.verdict.model import Report

MASK, IDS, LABELS, IGNORED = "attention_mask", "input_ids", "labels", -100
"""What tokenizers call the mask, 1 where a token is; what the loss is not computed from (cross_entropy's default)."""
PER_TOKEN = (MASK, LABELS, IDS, "token_type_ids", "position_ids", "special_tokens_mask")
MULTIPLE = 8
"""Columns that are kept: few lengths for torch.compile, and those that matrix units like (pad_to_multiple_of)."""


class TrimPadding(Remedy):
    """Batches that a training draws of a DataLoader, mappings with an `attention_mask` (rows x tokens, 0 or 1): the
    columns at the end in which every row has 0 are cut off, up to a multiple of 8. A batch with anything else per
    token, or with labels or different ids there, is left alone; so is what is evaluated, whose outputs a program may
    put together. The same tokens and labels; dropout draws other masks, for it has fewer elements."""

    name = "trim_padding"
    title = "cuts each batch to its longest row instead of padding all to one length"
    safety = "order"
    judged_without_dropout = True
    place = "loader"
    serves = "training"
    late = True
    saves_memory = True
    unseen = (
        "batches are narrower: what the program counts of their elements is less, and a training that ends after so "
        "many tokens, padding counted, takes more steps"
    )
    codes = ("BRR409",)
    by_hand = "tokenizer(...) without padding, and DataLoader(..., collate_fn=DataCollatorWithPadding(tokenizer))"

    def predicts(self, report: Report) -> Saving:
        """Nothing where batches are as long as their longest row already, and only other batches would help."""
        found = super().predicts(report)
        for finding in report.findings:
            if finding.code in self.codes and (longest := finding.evidence.get("saved_by_longest")):
                expected = min(float(longest.value), found.ceiling_ns)
                found = Saving(min(found.low_ns, expected), expected, found.ceiling_ns)
        return found if found.expected_ns > 0 else Saving()

    def apply(self, seams: Seams) -> None:
        cut = Cutting(lambda detail: seams.applied(self.name, detail))
        seams.at_model(cut.trains.meets)
        seams.at_step(cut.trains.steps)
        seams.at_batch(cut)


class Cutting:
    """Cuts the batches that loaders of a training give; says the first time what it did."""

    def __init__(self, told: Callable[[str], None]) -> None:
        self.trains = Trains()
        self._told: Callable[[str], None] | None = told

    def __call__(self, iterator: Any, batch: Any) -> Any:
        if not self.trains.draws(iterator._index_sampler):
            return batch
        width = real_width(batch)
        if width is None:
            return batch
        told, self._told = self._told, None
        if told is not None:
            told(f"{width} of {batch[MASK].shape[1]} columns in the first batch that it cuts")
        return trimmed(batch, width)


def trimmed(batch: Any, width: int) -> Any:
    """A batch of the same kind with so many columns, each tensor pinned where it was."""
    found = copy.copy(batch)
    for name in per_token(batch):
        whole = batch[name]
        part = whole[:, :width].contiguous()
        found[name] = part.pin_memory() if whole.is_pinned() else part
    return found


def real_width(batch: Any) -> int | None:
    """Columns to keep; None where there is nothing to cut, or nobody knows whether it may be."""
    import torch

    mask = batch.get(MASK) if isinstance(batch, Mapping) else None
    if not isinstance(mask, torch.Tensor) or mask.dim() != 2 or mask.is_floating_point() or not mask.numel():
        return None
    used = (mask != 0).any(0).nonzero()
    length = mask.shape[1]
    width = -(-(int(used[-1]) + 1) // MULTIPLE) * MULTIPLE if len(used) else length
    names = per_token(batch)
    if width >= length or int(mask.max()) > 1 or not set(names) <= set(PER_TOKEN):
        return None
    ids = batch.get(IDS)
    if IDS not in names or bool((ids[:, width:] != ids[0, -1]).any()):
        return None
    if LABELS in names and bool((batch[LABELS][:, width:] != IGNORED).any()):
        return None
    return width


def per_token(batch: Mapping[str, Any]) -> list[str]:
    """Names of the tensors that have an element, or a vector, for each token."""
    shape = batch[MASK].shape
    return [name for name, value in batch.items() if getattr(value, "shape", ())[:2] == shape]


REMEDY = TrimPadding()
