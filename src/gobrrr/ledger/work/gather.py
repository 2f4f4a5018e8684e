"""Reads and writes through indices: embeddings, gathers, scatters, masks. What an index skips is not traffic."""

from __future__ import annotations

import math

from gobrrr.ledger.work.call import Call, Work, formula, work
from gobrrr.ledger.work.tensor import NotCounted, Tensor, read, written


@formula("embedding")
def embedding(call: Call) -> Work:
    """(weight (v, d), indices): n rows written; at most v different rows are read."""
    weight, indices = call.tensor(0), call.tensor(1)
    row = weight.nbytes // max(weight.shape[0], 1)
    return work("gather", 0, min(indices.numel, weight.shape[0]) * row, read(indices), indices.numel * row)


@formula("embedding_dense_backward")
def embedding_backward(call: Call) -> Work:
    """(grad (n, d), indices, v, ...): the whole v by d is written, however few rows were used."""
    grad, indices = call.tensor(0), call.tensor(1)
    rows, dim = int(call.number(2)), grad.shape[-1]
    return work("gather", grad.numel, read(grad, indices), rows * dim * grad.itemsize)


@formula("_embedding_bag _embedding_bag_forward_only")
def embedding_bag(call: Call) -> Work:
    """(weight, indices, offsets, scale, mode, sparse, weights, include_last): a row per bag, summed."""
    weight, indices, offsets = call.tensors(0, 3)
    dim = weight.shape[1]
    bags = offsets.numel - call.flag(7)
    rows = min(indices.numel, weight.shape[0]) * dim * weight.itemsize
    return work("gather", indices.numel * dim, rows, read(indices, offsets), bags * dim * weight.itemsize)


@formula("_embedding_bag_backward _embedding_bag_dense_backward")
def embedding_bag_backward(call: Call) -> Work:
    """(grad, indices, offsets, offset2bag, bag_size, maximum_indices, num_weights, ...)."""
    grad, indices = call.tensor(0), call.tensor(1)
    at = 6 if call.name == "_embedding_bag_backward" else 5
    dim = grad.shape[-1]
    flops = indices.numel * dim
    return work("gather", flops, read(grad, indices), call.number(at) * dim * grad.itemsize)


@formula("_embedding_bag_per_sample_weights_backward")
def bag_weights_backward(call: Call) -> Work:
    """(grad, weight, indices, ...): a dot product of a row and a gradient per index."""
    grad, weight, indices = call.tensors(0, 3)
    flops = 2 * indices.numel * weight.shape[1]
    rows = min(flops / 2 * weight.itemsize, weight.nbytes)
    return work("gather", flops, read(grad, indices), rows, indices.numel * grad.itemsize)


@formula("index_select")
def index_select(call: Call) -> Work:
    """(self, dim, index): whole slices, as many as indices."""
    x, index = call.tensor(0), call.tensor(2)
    out = _slices(x, call, index) * x.itemsize
    return work("gather", 0, min(out, x.nbytes), read(index), out)


def _slices(x: Tensor, call: Call, index: Tensor) -> int:
    """Elements of the slices along the dimension at argument 1 that the index names."""
    if len(x.shape) <= 1:
        return index.numel
    dim = call.sizes(1)[0] % len(x.shape)
    return index.numel * math.prod(s for i, s in enumerate(x.shape) if i != dim)


@formula("gather take")
def gather(call: Call) -> Work:
    """gather(self, dim, index), take(self, index): one element per index."""
    x, index = call.tensor(0), call.tensor(2 if call.name == "gather" else 1)
    out = index.numel * x.itemsize
    return work("gather", 0, min(out, x.nbytes), read(index), out)


@formula("index")
def index(call: Call) -> Work:
    """index(self, indices): torch does not record the shapes of a list with gaps. The op views itself in the shape of
    the result before it gathers, and that view is recorded inside it; without it this is not counted."""
    x = call.tensor(0)
    if not call.inner:
        raise NotCounted("the indices were not recorded")
    out = math.prod(call.inner[0])
    return work("gather", 0, min(out * x.itemsize, x.nbytes), out * x.itemsize)


def _written_through(call: Call, num_written: int, accumulates: bool, *reads: Tensor | None) -> Work:
    """Elements of self that are written (read before, where they accumulate); out of place, the rest is copied."""
    x = call.tensor(0)
    touched = min(num_written, x.numel) * x.itemsize
    rest = written(x) - touched
    copied = 0 if call.in_place else min(rest, x.nbytes) + rest
    flops = num_written if accumulates else 0
    return work("gather", flops, read(*reads), touched * (2 if accumulates else 1), copied)


@formula("index_put _index_put_impl _unsafe_index_put")
def index_put(call: Call) -> Work:
    """(self, indices, values, accumulate): as many as the values. One value for a mask of unknown size: not counted."""
    values = call.tensor(2)
    if call.inner:
        return _written_through(call, math.prod(call.inner[0]), call.flag(3), values)
    if values.numel <= 1 and call.tensor(0).numel > 1:
        raise NotCounted("one value is spread over indices that were not recorded")
    return _written_through(call, values.numel, call.flag(3), values)


@formula("_unsafe_masked_index _unsafe_masked_index_put_accumulate")
def masked_index(call: Call) -> Work:
    """(self, mask, indices, fill or values): the mask gives the shape."""
    x, mask = call.tensor(0), call.tensor(1)
    out = mask.numel * x.itemsize
    if call.name == "_unsafe_masked_index":
        return work("gather", 0, min(out, x.nbytes), read(mask), out)
    return _written_through(call, mask.numel, True, mask, call.tensor(3))


@formula("scatter scatter_add scatter_reduce")
def scatter(call: Call) -> Work:
    """(self, dim, index, src or value, reduce): one element per index."""
    index, source = call.tensor(2), call.maybe(3)
    values = min(index.numel * source.itemsize, source.nbytes) if source is not None else 0
    base = _written_through(call, index.numel, call.name != "scatter", index)
    return work("gather", base.flops, base.bytes, values)


@formula("index_add index_copy index_reduce index_fill")
def index_add(call: Call) -> Work:
    """(self, dim, index, source or value): whole slices."""
    x, index = call.tensor(0), call.tensor(2)
    source = None if call.name == "index_fill" else call.tensor(3)
    return _written_through(call, _slices(x, call, index), call.name in ("index_add", "index_reduce"), index, source)


@formula("put")
def put(call: Call) -> Work:
    """put(self, index, source, accumulate)."""
    index, source = call.tensor(1), call.tensor(2)
    return _written_through(call, index.numel, call.flag(3), index, source)


@formula("masked_select nonzero nonzero_static")
def select_true(call: Call) -> Work:
    """Count only the reading, a lower bound: the part that a mask selects is not known from shapes."""
    x, mask = call.tensor(0), call.maybe(1)
    if call.name == "masked_select" and mask is not None:
        return work("gather", mask.numel, read(mask))
    return work("gather", x.numel, read(x))


@formula("masked_scatter_backward")
def masked_scatter_backward(call: Call) -> Work:
    """(grad, mask, sizes)."""
    grad, mask = call.tensor(0), call.tensor(1)
    return work("gather", 0, read(mask), math.prod(call.sizes(2)) * grad.itemsize)
