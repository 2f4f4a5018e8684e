"""The loss of packed rows: every real token counts the same, whatever row, micro-batch or rank it lies in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

IGNORED = -100
"""Label that cross_entropy computes no loss from."""


def token_loss(logits: Tensor, labels: Tensor, total: Tensor | float | None = None, causal: bool = True) -> Tensor:
    """The sum of the labels' cross-entropies over `total` (default: the labels of this batch).

    Under accumulation and across ranks give `global_labels(batches)`: the mean over micro-batches of their means weighs
    a token by how full its batch is. `causal`: logits at a position are for the label of the next one.
    """
    losses = _losses(logits, labels, causal)
    return losses.sum() / (_count(labels).clamp(min=1) if total is None else total)


def global_labels(batches: Iterable[Mapping[str, Tensor]], group: dist.ProcessGroup | None = None) -> Tensor:
    """Return the divisor of summed losses in one update: the labels of all its micro-batches on all ranks, over the
    number of ranks, since DistributedDataParallel averages gradients. Every rank must call it."""
    total = torch.stack([batch["num_labels"].to(torch.float64) for batch in batches]).sum()
    if dist.is_available() and dist.is_initialized():
        dist.all_reduce(total, group=group)
        total /= dist.get_world_size(group)
    return total.clamp(min=1)


def document_losses(logits: Tensor, labels: Tensor, document_ids: Tensor, causal: bool = True) -> Tensor:
    """Return for each document of a batch, in the order of ids, the sum of its tokens' losses."""
    losses = _losses(logits, labels, causal)
    # Without its labels the padding's losses are zero: it may go anywhere.
    return losses.new_zeros(int(document_ids.max()) + 1).index_add(0, document_ids.clamp(min=0).flatten(), losses)


def _losses(logits: Tensor, labels: Tensor, causal: bool) -> Tensor:
    """Per token in the order of the labels, zero where there is none."""
    if causal:  # rolled, not cut: the first label of a row is never counted
        logits = logits.roll(1, dims=1)
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="none")


def _count(labels: Tensor) -> Tensor:
    return (labels != IGNORED).sum()
