"""Scaled dot-product attention. Full count: two products forward (scores, values), five backward (the scores again,
the gradients of probabilities, values, queries and keys). The softmax is not counted, as everywhere in the field.

Causal attention is counted in full; `Work.causal_halved_flops` is what remains when the masked half is skipped. With
is_causal torch aligns the mask at the top left: query i sees keys 0 to i.
"""

from __future__ import annotations

import math

import msgspec

from gobrrr.ledger.work.call import Call
from gobrrr.ledger.work.model import NotCounted, Work
from gobrrr.ledger.work.registry import formula
from gobrrr.ledger.work.tensor import Tensor, broadcast, read, written


def unmasked_share(num_queries: int, num_keys: int) -> float:
    """Share of the score matrix on or below the diagonal: (n + 1) / 2n for a square one."""
    if not num_queries or not num_keys:
        return 1.0
    full_rows = max(num_queries - num_keys, 0)
    stairs = num_queries - full_rows
    return (stairs * (stairs + 1) / 2 + full_rows * num_keys) / (num_queries * num_keys)


class Problem(msgspec.Struct, frozen=True):
    """The sizes of one attention: batch times query heads, queries, keys, head dimensions of keys and of values."""

    heads: int
    num_queries: int
    num_keys: int
    key_dim: int
    value_dim: int

    def flops(self, over_keys: int, over_values: int) -> float:
        """So many products that contract with the key dimension, and so many with the value dimension."""
        scores = self.heads * self.num_queries * self.num_keys
        return 2.0 * scores * (over_keys * self.key_dim + over_values * self.value_dim)


def problem(q: Tensor, k: Tensor, v: Tensor, heads_last: bool = False) -> Problem:
    """From (..., heads, length, dim), or (batch, length, heads, dim) where heads come last. Fewer key heads than query
    heads (grouped queries) cost like as many."""
    if min(len(t.shape) for t in (q, k, v)) < (4 if heads_last else 3):
        raise NotCounted("lengths of packed sequences are not recorded")
    axis = -3 if heads_last else -2
    lengths = [t.shape[axis] for t in (q, k, v)]
    if q.shape[-1] != k.shape[-1] or lengths[1] != lengths[2]:
        raise NotCounted("queries, keys and values do not fit")
    batch = broadcast([q.shape[:-3], k.shape[:-3]]) if len(q.shape) > 3 else ()
    heads = q.shape[-2] if heads_last else q.shape[-3]
    return Problem(math.prod(batch) * heads, lengths[0], lengths[1], q.shape[-1], v.shape[-1])


def _forward(call: Call, mask: Tensor | None, causal: bool, heads_last: bool = False) -> Work:
    """q, k, v first in every forward; writes the output and the log-sums (float32)."""
    q, k, v = (call.tensor(i) for i in range(3))
    p = problem(q, k, v, heads_last)
    flops = p.flops(1, 1)
    out = p.heads * p.num_queries * p.value_dim * q.itemsize
    log_sum = p.heads * p.num_queries * 4
    return _work(p, flops, read(q, k, v, mask) + out + log_sum, causal)


def _work(p: Problem, flops: float, num_bytes: float, causal: bool) -> Work:
    halved = flops * unmasked_share(p.num_queries, p.num_keys) if causal else None
    return Work(flops, float(num_bytes), "attention", halved)


def _backward(call: Call, others: list[Tensor], causal: bool, heads_last: bool = False) -> Work:
    """grad, q, k, v first in every backward; reads the output and log-sums too, writes gradients of q, k and v."""
    grad, q, k, v = (call.tensor(i) for i in range(4))
    p = problem(q, k, v, heads_last)
    return _work(p, p.flops(3, 2), read(grad, q, k, v, *others) + written(q, k, v), causal)


@formula("_scaled_dot_product_flash_attention_for_cpu")
def cpu_forward(call: Call) -> Work:
    """(q, k, v, dropout, causal, mask, scale)."""
    return _forward(call, call.maybe(5), call.flag(4))


@formula("_scaled_dot_product_flash_attention_for_cpu_backward")
def cpu_backward(call: Call) -> Work:
    """(grad, q, k, v, out, logsumexp, dropout, causal, mask, scale)."""
    return _backward(call, call.tensors(4, 6) + call.tensors(8, 9), call.flag(7))


@formula("_scaled_dot_product_flash_attention")
def flash_forward(call: Call) -> Work:
    """(q, k, v, dropout, causal, debug, scale); the quantized overload has three scales after v."""
    at = 7 if len(call.args) >= 10 else 4
    return _forward(call, None, call.flag(at))


@formula("_scaled_dot_product_flash_attention_backward")
def flash_backward(call: Call) -> Work:
    """(grad, q, k, v, out, logsumexp, cum_q, cum_k, max_q, max_k, dropout, causal, ...)."""
    return _backward(call, call.tensors(4, 6), call.flag(11))


@formula("_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention")
def efficient_forward(call: Call) -> Work:
    """(q, k, v, bias, compute_log_sumexp, dropout, causal, ...)."""
    return _forward(call, call.maybe(3), call.flag(6))


@formula("_scaled_dot_product_efficient_attention_backward")
def efficient_backward(call: Call) -> Work:
    """(grad, q, k, v, bias, out, logsumexp, seed, offset, dropout, mask, causal, scale)."""
    return _backward(call, call.tensors(4, 7), call.flag(11))


@formula("_scaled_dot_product_cudnn_attention_backward")
def cudnn_backward(call: Call) -> Work:
    """(grad, q, k, v, out, logsumexp, seed, offset, bias, cum_q, cum_k, max_q, max_k, dropout, causal, scale)."""
    return _backward(call, call.tensors(4, 6) + call.tensors(8, 9), call.flag(14))


@formula("_scaled_dot_product_fused_attention_overrideable")
def overrideable_forward(call: Call) -> Work:
    """(q, k, v, bias, dropout, causal, ...): what XPU and private backends use."""
    return _forward(call, call.maybe(3), call.flag(5))


@formula("_scaled_dot_product_fused_attention_overrideable_backward")
def overrideable_backward(call: Call) -> Work:
    """(grad, q, k, v, bias, mask, out, logsumexp, cum_q, cum_k, max_q, max_k, dropout, causal, ...)."""
    return _backward(call, call.tensors(4, 8), call.flag(13))


@formula("_scaled_dot_product_attention_math scaled_dot_product_attention")
def composite(call: Call) -> Work:
    """(q, k, v, mask, dropout, causal, ...): made of other ops; priced only where those were not recorded."""
    return _forward(call, call.maybe(3), call.flag(5))


@formula("_flash_attention_forward")
def raw_flash_forward(call: Call) -> Work:
    """(q, k, v, cum_q, cum_k, max_q, max_k, dropout, causal, ...), heads last; packed sequences are not counted."""
    return _forward(call, None, call.flag(8), heads_last=True)


@formula("_flash_attention_backward")
def raw_flash_backward(call: Call) -> Work:
    """(grad, q, k, v, out, logsumexp, cum_q, cum_k, max_q, max_k, dropout, causal, ...), heads last."""
    return _backward(call, call.tensors(4, 6), call.flag(11), heads_last=True)


@formula("_efficient_attention_forward")
def raw_efficient_forward(call: Call) -> Work:
    """(q, k, v, bias, cu_q, cu_k, max_q, max_k, dropout, mask type, ...); mask types 1 and 2 are causal."""
    if call.maybe(4) is not None:
        raise NotCounted("lengths of packed sequences are not recorded")
    return _forward(call, call.maybe(3), call.number(9, 0) > 0, heads_last=True)


@formula("_efficient_attention_backward")
def raw_efficient_backward(call: Call) -> Work:
    """(grad, q, k, v, bias, out, cu_q, cu_k, max_q, max_k, logsumexp, dropout, seed, offset, mask type, ...)."""
    if call.maybe(6) is not None:
        raise NotCounted("lengths of packed sequences are not recorded")
    return _backward(call, call.tensors(4, 6) + call.tensors(10, 11), call.number(14, 0) > 0, heads_last=True)
