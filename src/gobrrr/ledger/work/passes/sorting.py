"""Sorts and selections by order: n log2 n comparisons for a sort, n for a selection; indices are int64."""

from __future__ import annotations

import math

from gobrrr.ledger.work.call import Call, work
from gobrrr.ledger.work.model import Work
from gobrrr.ledger.work.passes.reduction import reduced_numel
from gobrrr.ledger.work.registry import formula
from gobrrr.ledger.work.tensor import Tensor, read, written


def _length(x: Tensor, dims: list[int]) -> int:
    """Length of the sorted dimension: the given one, else the last."""
    return x.shape[(dims[0] if dims else -1) % len(x.shape)] if x.shape else 1


def _comparisons(numel: int, length: int) -> float:
    return numel * math.log2(max(length, 2))


@formula("sort argsort msort")
def sort(call: Call) -> Work:
    """sort(self, dim, descending), or with `stable` before dim; writes values and indices."""
    x = call.tensor(0)
    dims = call.ints(2 if call.flags(1) or len(call.args) == 4 else 1)
    return work("sort", _comparisons(x.numel, _length(x, dims)), read(x), written(x), 8 * x.numel)


@formula("topk")
def topk(call: Call) -> Work:
    """topk(self, k, dim): selects, then sorts k."""
    x, k = call.tensor(0), int(call.number(1))
    left = reduced_numel(x, call.ints(2) or [-1]) * k
    return work("sort", x.numel + _comparisons(left, k), read(x), left * (x.itemsize + 8))


@formula("kthvalue")
def kthvalue(call: Call) -> Work:
    """kthvalue(self, k, dim, keepdim)."""
    x = call.tensor(0)
    return work("sort", 2 * x.numel, read(x), reduced_numel(x, call.ints(2) or [-1]) * (x.itemsize + 8))


@formula("median nanmedian mode")
def median(call: Call) -> Work:
    """median(self), or (self, dim, keepdim) with an index beside each value; mode sorts."""
    x = call.tensor(0)
    if len(call.args) < 2:
        return work("sort", 2 * x.numel, read(x), x.itemsize)
    dims = call.ints(1) or [-1]
    flops = _comparisons(x.numel, _length(x, dims)) if call.name == "mode" else 2 * x.numel
    return work("sort", flops, read(x), reduced_numel(x, dims) * (x.itemsize + 8))


@formula("_unique _unique2 unique_dim unique_consecutive")
def unique(call: Call) -> Work:
    """How many remain is not known from shapes: only the reading and the sort are counted, a lower bound."""
    x = call.tensor(0)
    flops = x.numel if call.name == "unique_consecutive" else _comparisons(x.numel, x.numel)
    inverse = call.flag({"unique_consecutive": 1, "unique_dim": 3}.get(call.name, 2))
    dims = call.ints({"unique_consecutive": 3, "unique_dim": 1}.get(call.name, 99))
    rows = _length(x, dims) if dims else x.numel
    return work("sort", flops, read(x), 8 * rows * inverse)
