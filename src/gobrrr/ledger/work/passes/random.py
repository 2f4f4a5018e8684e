"""Random numbers: one FLOP per draw by convention (a generator does tens of integer operations); written once."""

from __future__ import annotations

import math

from gobrrr.ledger.work.call import Call, work
from gobrrr.ledger.work.model import Work
from gobrrr.ledger.work.registry import formula
from gobrrr.ledger.work.tensor import read, written


@formula("normal uniform random exponential cauchy log_normal geometric bernoulli poisson _standard_gamma binomial")
def draw(call: Call) -> Work:
    """normal_(self, ...) fills self; normal(mean, std) and bernoulli(p) read their parameters."""
    tensors = call.tensors()
    if call.in_place:
        return work("random", tensors[0].numel, read(*tensors[1:]), written(tensors[0]))
    if not tensors:
        numel = math.prod(call.sizes(2))
        return work("random", numel, 4 * numel)
    largest = max(tensors, key=lambda t: t.numel)
    return work("random", largest.numel, read(*tensors), written(largest))


@formula("rand_like randn_like randint_like")
def draw_like(call: Call) -> Work:
    """The shape and dtype of self, which is not read."""
    x = call.tensor(0)
    return work("random", x.numel, x.numel * call.dtype_size(len(call.args) - 5, x.itemsize))


@formula("rand randn")
def draw_new(call: Call) -> Work:
    """rand(size, ..., dtype, layout, device, pin_memory): float32 unless said otherwise."""
    numel = math.prod(call.sizes(0))
    return work("random", numel, numel * call.dtype_size(len(call.args) - 4, 4))


@formula("randint")
def draw_integers(call: Call) -> Work:
    """randint(high, size, dtype, ...) or (low, high, size, dtype, ...): int64 unless said otherwise."""
    at = next((i for i in range(1, 3) if call.text(i).startswith("[")), 1)
    numel = math.prod(call.sizes(at))
    return work("random", numel, numel * call.dtype_size(len(call.args) - 4, 8))


@formula("randperm")
def permutation(call: Call) -> Work:
    """randperm(n): a draw and a swap per element."""
    n = int(call.number(0))
    return work("random", n, 8 * n)


@formula("native_dropout _fused_dropout")
def dropout(call: Call) -> Work:
    """Draw, compare, scale: writes the result and a mask of booleans."""
    x = call.tensor(0)
    return work("random", 3 * x.numel, read(x), written(x), x.numel)


@formula("multinomial")
def multinomial(call: Call) -> Work:
    """multinomial(p (..., n), num_samples): a running sum over the weights, then a search per sample."""
    x, samples = call.tensor(0), int(call.number(1, 1))
    rows = x.numel // max(x.shape[-1], 1)
    steps = math.log2(max(x.shape[-1], 2))
    return work("random", x.numel + rows * samples * steps, read(x), 8 * rows * samples)
