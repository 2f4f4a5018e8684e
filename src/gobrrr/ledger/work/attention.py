"""Scaled dot-product attention. Full count: two products forward (scores, values), five backward (the scores again,
the gradients of probabilities, values, queries and keys). The softmax is not counted, as everywhere in the field.

Causal attention is counted in full; `Work.least_flops` is what remains when the masked half is skipped, which floors
are of. With is_causal torch aligns the mask at the top left: query i sees keys 0 to i.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from gobrrr.ledger.work.call import FORMULAS, Call, Work
from gobrrr.ledger.work.tensor import NotCounted, Tensor, broadcast, read, written


class Layout(NamedTuple):
    """Where an op keeps its arguments, behind queries, keys and values; in a backward behind the gradient and those."""

    causal: int
    """A boolean, or a mask type of which 1 and 2 are causal."""
    reads: tuple[int, ...] = ()
    """Tensors that are read too: a mask or bias; in a backward the output and its log-sums."""
    heads_last: bool = False
    packed: int = -1
    """Where the lengths of packed sequences are: with them an op is not counted. -1: its tensors show it."""


FORWARD = {
    # (q, k, v, dropout, causal, mask, scale)
    "_scaled_dot_product_flash_attention_for_cpu": Layout(4, (5,)),
    # (q, k, v, dropout, causal, debug, scale); the quantized overload has three scales after v
    "_scaled_dot_product_flash_attention": Layout(4),
    # (q, k, v, bias, compute_log_sumexp, dropout, causal, ...)
    "_scaled_dot_product_efficient_attention": Layout(6, (3,)),
    "_scaled_dot_product_cudnn_attention": Layout(6, (3,)),
    # (q, k, v, bias, dropout, causal, ...): what XPU and private backends use
    "_scaled_dot_product_fused_attention_overrideable": Layout(5, (3,)),
    # (q, k, v, mask, dropout, causal, ...): made of other ops; priced only where those were not recorded
    "_scaled_dot_product_attention_math": Layout(5, (3,)),
    "scaled_dot_product_attention": Layout(5, (3,)),
    # (q, k, v, cum_q, cum_k, max_q, max_k, dropout, causal, ...)
    "_flash_attention_forward": Layout(8, heads_last=True),
    # (q, k, v, bias, cu_q, cu_k, max_q, max_k, dropout, mask type, ...)
    "_efficient_attention_forward": Layout(9, (3,), heads_last=True, packed=4),
}
BACKWARD = {
    # (grad, q, k, v, out, logsumexp, dropout, causal, mask, scale)
    "_scaled_dot_product_flash_attention_for_cpu_backward": Layout(7, (4, 5, 8)),
    # (grad, q, k, v, out, logsumexp, cum_q, cum_k, max_q, max_k, dropout, causal, ...)
    "_scaled_dot_product_flash_attention_backward": Layout(11, (4, 5)),
    # (grad, q, k, v, bias, out, logsumexp, seed, offset, dropout, mask, causal, scale)
    "_scaled_dot_product_efficient_attention_backward": Layout(11, (4, 5, 6)),
    # (grad, q, k, v, out, logsumexp, seed, offset, bias, cum_q, cum_k, max_q, max_k, dropout, causal, scale)
    "_scaled_dot_product_cudnn_attention_backward": Layout(14, (4, 5, 8)),
    # (grad, q, k, v, bias, mask, out, logsumexp, cum_q, cum_k, max_q, max_k, dropout, causal, ...)
    "_scaled_dot_product_fused_attention_overrideable_backward": Layout(13, (4, 5, 6, 7)),
    # (grad, q, k, v, out, logsumexp, cum_q, cum_k, max_q, max_k, dropout, causal, ...)
    "_flash_attention_backward": Layout(11, (4, 5), heads_last=True),
    # (grad, q, k, v, bias, out, cu_q, cu_k, max_q, max_k, logsumexp, dropout, seed, offset, mask type, ...)
    "_efficient_attention_backward": Layout(14, (4, 5, 10), heads_last=True, packed=6),
}
_QUANTIZED = 10
"""Arguments of _scaled_dot_product_flash_attention from which it is the quantized overload (torch 2.13's schemas)."""
_IS_CAUSAL = ("True", "true", "1", "2")


def unmasked_share(num_queries: int, num_keys: int) -> float:
    """Share of the score matrix on or below the diagonal: (n + 1) / 2n for a square one."""
    if not num_queries or not num_keys:
        return 1.0
    full_rows = max(num_queries - num_keys, 0)
    stairs = num_queries - full_rows
    return (stairs * (stairs + 1) / 2 + full_rows * num_keys) / (num_queries * num_keys)


def _sizes(q: Tensor, k: Tensor, v: Tensor, heads_last: bool) -> tuple[int, int, int]:
    """(batch times query heads, queries, keys), from (..., heads, length, dim), or (batch, length, heads, dim) where
    heads come last. Fewer key heads than query heads (grouped queries) cost like as many."""
    if min(len(t.shape) for t in (q, k, v)) < (4 if heads_last else 3):
        raise NotCounted("lengths of packed sequences are not recorded")
    axis = -3 if heads_last else -2
    if q.shape[-1] != k.shape[-1] or k.shape[axis] != v.shape[axis]:
        raise NotCounted("queries, keys and values do not fit")
    batch = broadcast([q.shape[:-3], k.shape[:-3]]) if len(q.shape) > 3 else ()
    return math.prod(batch) * q.shape[-2 if heads_last else -3], q.shape[axis], k.shape[axis]


def _attention(call: Call) -> Work:
    """A forward writes the output and the log-sums (float32), a backward the gradients of q, k and v."""
    backward = call.name in BACKWARD
    at = BACKWARD[call.name] if backward else FORWARD[call.name]
    if at.packed >= 0 and call.maybe(at.packed) is not None:
        raise NotCounted("lengths of packed sequences are not recorded")
    first = [call.tensor(i) for i in range(4 if backward else 3)]
    q, k, v = first[-3:]
    heads, queries, keys = _sizes(q, k, v, at.heads_last)
    # products that contract with the dimension of keys, and with that of values
    over_keys, over_values = (3, 2) if backward else (1, 1)
    rows, causal = heads * queries, at.causal
    flops = 2.0 * rows * keys * (over_keys * q.shape[-1] + over_values * v.shape[-1])
    if call.name == "_scaled_dot_product_flash_attention" and len(call.args) >= _QUANTIZED:
        causal += 3
    out = written(q, k, v) if backward else rows * v.shape[-1] * q.itemsize + 4 * rows
    least = flops * unmasked_share(queries, keys) if call.text(causal) in _IS_CAUSAL else None
    return Work(flops, float(read(*first, *map(call.maybe, at.reads)) + out), "attention", least)


FORMULAS.update(dict.fromkeys((*FORWARD, *BACKWARD), _attention))
