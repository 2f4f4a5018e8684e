"""Normalisation layers. Forward: 7 FLOPs per element (sum; subtract, square, sum; scale and shift by the statistics,
then by weight and bias: 4 where the statistics are given). Backward: 12 (recomputed normalised value, two sums for the
weight and the bias, two for the input, and the combination)."""

from __future__ import annotations

import math

from gobrrr.ledger.work.call import Call, work
from gobrrr.ledger.work.model import Work
from gobrrr.ledger.work.registry import formula
from gobrrr.ledger.work.tensor import Tensor, read, written

FORWARD, FIXED_STATISTICS, BACKWARD = 7.0, 4.0, 12.0


@formula("native_layer_norm _fused_rms_norm rms_norm")
def layer_norm(call: Call) -> Work:
    """(x, normalized_shape, weight, bias, eps): writes the result, and mean and inverse deviation (float32) per row."""
    x = call.tensor(0)
    weight = call.maybe(2)
    row = call.sizes(1) if weight is None else weight.shape
    rows = x.numel // max(math.prod(row), 1)
    statistics = 4 * rows * (2 if call.name == "native_layer_norm" else 1)
    return work("norm", FORWARD * x.numel, read(x, *call.tensors(2, 4)), written(x), statistics)


@formula("native_layer_norm_backward _fused_rms_norm_backward")
def layer_norm_backward(call: Call) -> Work:
    """(grad, x, normalized_shape, mean, rstd, weight, bias, mask); RMS norm has neither mean nor bias."""
    grad, x = call.tensor(0), call.tensor(1)
    is_rms = call.name.startswith("_fused")
    weight, mask = call.maybe(4 if is_rms else 5), call.flags(5 if is_rms else 7)
    bias = None if is_rms else call.maybe(6)
    wanted = _wanted(mask, x, weight, bias)
    return work("norm", BACKWARD * x.numel, read(grad, x, *call.tensors(3, 4 if is_rms else 5), weight), wanted)


def _wanted(mask: list[bool], *gradients: Tensor | None) -> int:
    """Bytes of the gradients that the mask asks for; all of them without a mask."""
    asked = mask or [True] * len(gradients)
    return sum(written(t) for t, wants in zip(gradients, asked, strict=False) if wants)


@formula("native_batch_norm cudnn_batch_norm miopen_batch_norm _native_batch_norm_legit batch_norm")
def batch_norm(call: Call) -> Work:
    """(x, weight, bias, running_mean, running_var, training, ...): in training the running statistics are rewritten
    and the batch's are saved; in evaluation two FLOPs per element would do, counted as the fixed figure."""
    training = call.flags(5) or call.flags(3)  # without running statistics it is the fourth
    return _batch_norm(call.tensor(0), call.tensors(1, 5), training == [True])


@formula("_batch_norm_with_update _native_batch_norm_legit_functional")
def batch_norm_update(call: Call) -> Work:
    """The same, always in training."""
    return _batch_norm(call.tensor(0), call.tensors(1, 5), True)


@formula("_batch_norm_no_update _native_batch_norm_legit_no_training")
def batch_norm_evaluation(call: Call) -> Work:
    """The same, never in training."""
    return _batch_norm(call.tensor(0), call.tensors(1, 5), False)


def _batch_norm(x: Tensor, vectors: list[Tensor], training: bool) -> Work:
    channels = x.shape[1] if len(x.shape) > 1 else 1
    statistics = training * 4 * channels * (4 if len(vectors) >= 4 else 2)
    flops = FORWARD if training else FIXED_STATISTICS
    return work("norm", flops * x.numel, read(x, *vectors), written(x), statistics)


@formula("native_batch_norm_backward batch_norm_backward")
def batch_norm_backward(call: Call) -> Work:
    """(grad, x, weight, running_mean, running_var, save_mean, save_invstd, train, eps, mask)."""
    grad, x, weight = call.tensor(0), call.tensor(1), call.maybe(2)
    wanted = _wanted(call.flags(9), x, weight, weight)
    return work("norm", BACKWARD * x.numel, read(grad, x, weight, *call.tensors(5, 7)), wanted)


@formula("cudnn_batch_norm_backward miopen_batch_norm_backward")
def library_batch_norm_backward(call: Call) -> Work:
    """(x, grad, weight, running_mean, running_var, save_mean, save_var, eps, reserve)."""
    x, grad, weight = call.tensors(0, 3)
    return work("norm", BACKWARD * x.numel, read(grad, x, weight, *call.tensors(5, 7)), written(x, weight, weight))


@formula("native_group_norm")
def group_norm(call: Call) -> Work:
    """(x, weight, bias, N, C, HxW, group, eps): statistics per sample and group."""
    x = call.tensor(0)
    rows = int(call.number(3) * call.number(6))
    return work("norm", FORWARD * x.numel, read(x, *call.tensors(1, 3)), written(x), 2 * rows * x.itemsize)


@formula("native_group_norm_backward")
def group_norm_backward(call: Call) -> Work:
    """(grad, x, mean, rstd, weight, N, C, HxW, group, mask)."""
    grad, x, weight = call.tensor(0), call.tensor(1), call.maybe(4)
    wanted = _wanted(call.flags(9), x, weight, weight)
    return work("norm", BACKWARD * x.numel, read(grad, x, *call.tensors(2, 5)), wanted)


@formula("batch_norm_stats batch_norm_gather_stats_with_counts")
def statistics(call: Call) -> Work:
    """The first half of a synchronised batch norm: mean and inverse deviation per channel."""
    x = call.tensor(0)
    channels = x.shape[1] if len(x.shape) > 1 else 1
    return work("norm", 4 * x.numel, read(x), 8 * channels)


@formula("batch_norm_elemt")
def apply_statistics(call: Call) -> Work:
    """The second half: (x, weight, bias, mean, invstd, eps)."""
    x = call.tensor(0)
    return work("norm", FIXED_STATISTICS * x.numel, read(x, *call.tensors(1, 5)), written(x))
