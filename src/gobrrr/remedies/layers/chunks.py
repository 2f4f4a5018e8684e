"""The cross-entropy of a linear layer's outputs, chunk by chunk: all of its logits are never there at once."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn import functional as F

CHUNK_ELEMENTS = 1 << 23
"""Logits of one chunk, 32 MiB in float32. Chunks of 256 of 50257 took 1479 ms and 248 MB, all at once 1633 and
589, chunks of 128 1690 ms (1024 tokens x 768, two cores)."""
FEWEST_ROWS = 64
"""Rows a chunk has at least. proposed: products of fewer rows leave the device idle; a run over larger vocabularies
would settle it."""


def rows_of(elements: int, num_classes: int) -> int:
    """Rows of a chunk of so many logits."""
    return max(FEWEST_ROWS, elements // num_classes)


def cross_entropy(
    hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, target: torch.Tensor, ignored: int,
    mean: bool, dtype: torch.dtype, elements: int,
) -> torch.Tensor:  # fmt: skip
    """Return a scalar, float32 at least, for hidden (N, D), weight (V, D), bias (V) or None and int64 target (N).
    `ignored` is the target that does not count, `mean` averages the others instead of adding, `dtype` is the
    products', `elements` the logits of a chunk."""
    found: torch.Tensor = _Chunked.apply(  # type: ignore[no-untyped-call]
        hidden, weight, bias, target, ignored, mean, dtype, elements
    )
    return found


class _Chunked(torch.autograd.Function):
    """Cross-entropy of a linear layer's outputs; gradients are made in forward, while a chunk's logits are there."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Any, weight: Any, bias: Any, target: Any, ignored: int, mean: bool, dtype: torch.dtype,
        elements: int,
    ) -> torch.Tensor:  # fmt: skip
        valid = target != ignored
        num = float(valid.sum())
        if bool((wrong := valid & ((target < 0) | (target >= weight.shape[0]))).any()):
            raise IndexError(f"Target {int(target[wrong][0])} is out of bounds.")  # in torch's own words
        scale = 1.0 / (num or 1.0) if mean else 1.0
        total = torch.zeros((), dtype=torch.float64, device=hidden.device)
        wide, offset = weight.to(dtype), None if bias is None else bias.to(dtype)
        rows = rows_of(elements, weight.shape[0])
        d_hidden = torch.empty_like(hidden)
        d_wide = torch.zeros(wide.shape, dtype=weight.dtype, device=weight.device)
        d_bias = None if bias is None else torch.zeros_like(bias)
        for begin in range(0, len(target), rows):
            part = slice(begin, begin + rows)
            chunk, right = hidden[part].to(dtype), valid[part]
            logits = F.linear(chunk, wide, offset).to(_sum_dtype(hidden))
            index = torch.where(right, target[part], 0).unsqueeze(1)
            norm = torch.logsumexp(logits, 1, keepdim=True)
            total += ((norm - logits.gather(1, index)).squeeze(1) * right).sum(dtype=torch.float64)
            slope = logits.sub_(norm).exp_()
            slope.scatter_add_(1, index, torch.full_like(index, -1, dtype=slope.dtype))
            slope = slope.mul_((right.to(slope.dtype) * scale).unsqueeze(1)).to(dtype)
            d_hidden[part] = (slope @ wide).to(hidden.dtype)
            d_wide.addmm_(slope.T.to(weight.dtype), chunk.to(weight.dtype))
            if d_bias is not None:
                d_bias += slope.sum(0).to(d_bias.dtype)
        ctx.ignored, ctx.mean, ctx.dtype = ignored, mean, dtype
        ctx.save_for_backward(d_hidden, d_wide, d_bias, hidden, weight, bias, target)
        none = mean and not num  # torch's loss of nothing is NaN, its gradients are zeros
        return (total * (math.nan if none else scale)).to(_sum_dtype(hidden))

    @staticmethod
    def backward(ctx: Any, *outer: Any) -> Any:
        d_hidden, d_weight, d_bias, *given, target = ctx.saved_tensors
        grad = outer[0]
        if torch.is_grad_enabled():  # create_graph: gradients that were made in forward know nothing of their own
            found = _once_more(ctx, target, *given)
            wanted = [each for each in given if each is not None and each.requires_grad]
            made = iter(torch.autograd.grad(found, wanted, grad, create_graph=True))
            return *(next(made) if each is not None and each.requires_grad else None for each in given), *[None] * 5
        bias = d_bias * grad if d_bias is not None else None
        return d_hidden * grad, d_weight * grad, bias, None, None, None, None, None


def _once_more(ctx: Any, target: Any, hidden: Any, weight: Any, bias: Any) -> torch.Tensor:
    """The loss, whole, with a graph."""
    logits = F.linear(hidden.to(ctx.dtype), weight.to(ctx.dtype), None if bias is None else bias.to(ctx.dtype))
    return F.cross_entropy(
        logits.to(_sum_dtype(hidden)), target, ignore_index=ctx.ignored, reduction="mean" if ctx.mean else "sum"
    )


def _sum_dtype(hidden: torch.Tensor) -> torch.dtype:
    """Float32 at least: sums over a vocabulary are no business of half precision."""
    return torch.float64 if hidden.dtype == torch.float64 else torch.float32
