"""Reductions, scans and sorts: every input element is read and takes one step (more for norms and variances)."""

from __future__ import annotations

import math

import msgspec

from gobrrr.ledger.work.call import FORMULAS, Call, Work, formula, work
from gobrrr.ledger.work.elementwise import pointwise
from gobrrr.ledger.work.tensor import Tensor, read, result_size, written


class Rule(msgspec.Struct, frozen=True):
    """How a reduction is called: where its dims and keepdim are, what it writes, FLOPs per input element."""

    dim: int = 1
    results: tuple[str, ...] = ("same",)
    flops: float = 1.0
    full_below: int = 2
    """With fewer arguments the call is the overload that reduces everything."""


_BOTH, _INDEX = ("same", "same"), ("long",)
RULES = {
    **{"sum": Rule(results=("sum",), full_below=3), "nansum": Rule(results=("sum",), flops=2)},
    **{"mean": Rule(full_below=3), "nanmean": Rule(flops=2), "prod": Rule(results=("sum",), full_below=3)},
    **dict.fromkeys(("amax", "amin"), Rule()),
    **{"aminmax": Rule(results=_BOTH, flops=2, full_below=1), "_aminmax": Rule(results=_BOTH, flops=2)},
    **dict.fromkeys(("max", "min"), Rule(results=("same", "long"))),
    **dict.fromkeys(("argmax", "argmin", "hash_tensor"), Rule(results=_INDEX, full_below=1)),
    **dict.fromkeys(("all", "any"), Rule(results=("bool",))),
    "logsumexp": Rule(results=("float",), flops=3),
    **dict.fromkeys(("var", "std"), Rule(flops=4)),
    **dict.fromkeys(("var_mean", "std_mean"), Rule(results=_BOTH, flops=4)),
    "linalg_vector_norm": Rule(dim=2, results=("real",), flops=2),
    "norm": Rule(dim=2, results=("real",), flops=2, full_below=3),
    "count_nonzero": Rule(results=_INDEX),
}


def reduced_numel(x: Tensor, dims: list[int]) -> int:
    """Elements that remain when these dimensions are reduced; none given means all of them."""
    gone = {d % len(x.shape) for d in dims} if x.shape else set()
    return math.prod(s for i, s in enumerate(x.shape) if i not in gone) if dims else 1


def _reduce(call: Call) -> Work:
    rule, x = RULES[call.name], call.tensor(0)
    if call.name in ("max", "min") and call.maybe(1) is not None:
        if len(call.args) == 2 or call.tensor(1).shape:
            return pointwise(call, 2)
    dims = call.ints(rule.dim) if len(call.args) >= rule.full_below else []
    left = reduced_numel(x, dims)
    results = rule.results[:1] if call.name in ("max", "min") and not dims else rule.results
    size = sum(call.dtype_size(_dtype_at(call, rule), result_size([x], r)) for r in results)
    return work("reduction", rule.flops * x.numel, read(x), left * size)


def _dtype_at(call: Call, rule: Rule) -> int:
    """Where sum, mean, prod and vector norms have their dtype; beyond the arguments for the others."""
    if call.name not in ("sum", "nansum", "mean", "prod", "linalg_vector_norm"):
        return len(call.args)
    return rule.dim + 2 if len(call.args) >= rule.full_below else 1


FORMULAS.update(dict.fromkeys(RULES, _reduce))


@formula("cumsum cumprod cummax cummin _cummax_helper _cummin_helper logcumsumexp _logcumsumexp")
def scan(call: Call) -> Work:
    """A running result of the same shape; cummax and cummin also write indices."""
    x = call.tensor(0)
    if call.name.startswith("_cumm"):
        return work("reduction", x.numel, read(x), written(*call.tensors(1, 3)))
    size = result_size([x], "sum") if call.name in ("cumsum", "cumprod") else x.itemsize
    indices = 8 * x.numel if call.name in ("cummax", "cummin") else 0
    return work(
        "reduction", x.numel * (4 if call.name.endswith("logcumsumexp") else 1), read(x), x.numel * size, indices
    )


@formula("dist")
def dist(call: Call) -> Work:
    """The norm of a difference: subtract, raise, add."""
    a, b = call.tensor(0), call.tensor(1)
    return work("reduction", 3 * max(a.numel, b.numel), read(a, b), a.itemsize)


@formula("trace")
def trace(call: Call) -> Work:
    """The diagonal alone is read."""
    x = call.tensor(0)
    return work("reduction", min(x.shape), min(x.shape) * x.itemsize, x.itemsize)


@formula("_local_scalar_dense item")
def scalar(call: Call) -> Work:
    """One value to Python."""
    return work("reduction", 0, call.tensor(0).itemsize)


@formula("segment_reduce")
def segment_reduce(call: Call) -> Work:
    """segment_reduce(data, reduce, lengths, indices, offsets, axis): a result per segment of the first axis."""
    x, *pointers = call.tensors(0, 5)
    lengths = pointers[0]
    last = lengths.shape[-1] - (call.maybe(2) is None)
    segments = math.prod(lengths.shape[:-1]) * last
    out = segments * math.prod(x.shape[len(lengths.shape) :])
    return work("reduction", x.numel, read(x, *pointers), out * x.itemsize)


# Sorts and selections by order: n log2 n comparisons for a sort, n for a selection; indices are int64.


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
