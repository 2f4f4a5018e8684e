"""Faults in the loss and in what its backward leaves."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from benchmarks.guard_sabotages.switch import fault, instead


def _cross_entropy(change: Any) -> None:
    """Replace F.cross_entropy by change(plain, logits, labels, keywords)."""
    instead(F, "cross_entropy", lambda plain: lambda x, y, **kwargs: change(plain, x, y, kwargs))


@fault(known=True)
def smoothing_lost(seams: Any) -> None:
    """no label smoothing"""
    _cross_entropy(lambda plain, x, y, keys: plain(x, y, **{**keys, "label_smoothing": 0.0}))


@fault(known=True)
def loss_half_batch(seams: Any) -> None:
    """the loss of half the batch"""
    _cross_entropy(lambda plain, x, y, keys: plain(x[: len(x) // 2], y[: len(y) // 2], **keys))


@fault(known=True)
def sum_reduction(seams: Any) -> None:
    """a sum over a constant for the mean"""
    _cross_entropy(lambda plain, x, y, keys: plain(x, y, **keys, reduction="sum") / 128)


@fault(known=True)
def scaled_loss(seams: Any) -> None:
    """the loss is doubled"""
    _cross_entropy(lambda plain, x, y, keys: plain(x, y, **keys) * 2)


@fault(known=True)
def skip_backward_micro(seams: Any) -> None:
    """every other micro-batch gives no gradient"""
    seen = {"calls": 0}

    def skipped(plain: Any, x: Any, y: Any, keys: Any) -> Any:
        found = plain(x, y, **keys)
        seen["calls"] += x.requires_grad
        return found * 0 + found.detach() if seen["calls"] % 2 and x.requires_grad else found

    _cross_entropy(skipped)


@fault()
def ignore_lost(seams: Any) -> None:
    """padding counts as a class"""
    _cross_entropy(lambda plain, x, y, keys: plain(x, y.clamp_min(0), label_smoothing=keys["label_smoothing"]))


@fault()
def temperature(seams: Any) -> None:
    """logits are divided by 1.02 in the loss"""
    _cross_entropy(lambda plain, x, y, keys: plain(x / 1.02, y, **keys))


@fault()
def micro_twice(seams: Any) -> None:
    """the gradient of every other micro-batch counts twice, the loss is right"""
    seen = {"calls": 0}

    def twice(plain: Any, x: Any, y: Any, keys: Any) -> Any:
        found = plain(x, y, **keys)
        seen["calls"] += x.requires_grad
        return 2 * found - found.detach() if seen["calls"] % 2 and x.requires_grad else found

    _cross_entropy(twice)


@fault()
def loss_bf16(seams: Any) -> None:
    """logits are rounded to bfloat16 before the loss"""
    _cross_entropy(lambda plain, x, y, keys: plain(x.bfloat16().to(torch.float32), y, **keys))
