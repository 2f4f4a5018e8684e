"""Normalisations and losses. Normalisation forward: 7 FLOPs per element (sum; subtract, square, sum; scale and shift by
the statistics, then by weight and bias: 4 where the statistics are given). Backward: 12 (recomputed normalised value,
two sums for the weight and the bias, two for the input, and the combination). Softmax: 5 FLOPs per element (maximum,
subtract, exp, sum, divide)."""

from __future__ import annotations

import math

from gobrrr.ledger.work.call import Call, Work, formula, work
from gobrrr.ledger.work.elementwise import pointwise
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


ALWAYS = {"_batch_norm_with_update": True, "_native_batch_norm_legit_functional": True,
          "_batch_norm_no_update": False, "_native_batch_norm_legit_no_training": False}  # fmt: skip
"""Whether these are in training, whatever they are called with."""


@formula(
    ["native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm", "_native_batch_norm_legit", "batch_norm", *ALWAYS]
)
def batch_norm(call: Call) -> Work:
    """(x, weight, bias, running_mean, running_var, training, ...): in training the running statistics are rewritten
    and the batch's are saved; in evaluation two FLOPs per element would do, counted as the fixed figure."""
    x, vectors = call.tensor(0), call.tensors(1, 5)
    said = call.flags(5) or call.flags(3)  # without running statistics it is the fourth
    training = ALWAYS.get(call.name, said == [True])
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
    return work("norm", 4 * x.numel, read(x), 8 * (x.shape[1] if len(x.shape) > 1 else 1))


MEAN_OR_SUM = ("1", "2")


@formula("_softmax _log_softmax _safe_softmax _masked_softmax")
def softmax(call: Call) -> Work:
    """_softmax(self, dim, half_to_float), _safe_softmax(self, dim, dtype), _masked_softmax(self, mask, ...)."""
    x = call.tensor(0)
    size = 4 if call.text(2) == "True" else x.itemsize
    return work("softmax", 5 * x.numel, read(x, call.maybe(1)), x.numel * size)


@formula("_softmax_backward_data _log_softmax_backward_data")
def softmax_backward(call: Call) -> Work:
    """(grad, output, dim, input_dtype): product, sum, subtract, product (one exp for the logarithm's)."""
    grad, out = call.tensor(0), call.tensor(1)
    return work("softmax", 4 * out.numel, read(grad, out), out.numel * call.dtype_size(3, out.itemsize))


@formula("nll_loss_forward nll_loss2d_forward")
def nll_loss(call: Call) -> Work:
    """(self (n, c, ...), target (n, ...), weight, reduction, ignore): one element of c is read per target."""
    x, target = call.tensor(0), call.tensor(1)
    out = 1 if call.text(3) in MEAN_OR_SUM else target.numel
    return work("loss", target.numel, target.numel * x.itemsize, read(target, call.maybe(2)), (out + 1) * x.itemsize)


# name: (inputs, position of the reduction, FLOPs per element)
LOSSES = {
    "mse_loss": (2, 2, 3),
    **dict.fromkeys(("smooth_l1_loss", "huber_loss"), (2, 2, 4)),
    "soft_margin_loss": (2, 2, 5),
    **{"binary_cross_entropy": (3, 3, 6), "binary_cross_entropy_with_logits": (4, 4, 7)},
}


@formula(LOSSES)
def loss(call: Call) -> Work:
    """A pass over the inputs, and one number where it is reduced."""
    inputs, at, flops = LOSSES[call.name]
    each = pointwise(call, inputs, flops=flops, kind="loss")
    if call.text(at) not in MEAN_OR_SUM:
        return each
    operands = read(*call.tensors(0, inputs))
    return work("loss", each.flops, operands, call.tensor(0).itemsize)


@formula("multi_margin_loss multilabel_margin_loss_forward")
def margin_loss(call: Call) -> Work:
    """Each class against the target's margin: 3 FLOPs per element; result per sample or one."""
    x, target = call.tensor(0), call.tensor(1)
    at = 5 if call.name == "multi_margin_loss" else 2
    samples = x.shape[0] if len(x.shape) > 1 else 1
    out = 1 if call.text(at) in MEAN_OR_SUM else samples
    marks = written(x) if at == 2 else 0
    return work("loss", 3 * x.numel, read(x, target, call.maybe(4)), out * x.itemsize, marks)


@formula("_ctc_loss _cudnn_ctc_loss")
def ctc_loss(call: Call) -> Work:
    """(log_probs (T, N, C), targets (N, S)): the table of T by 2S+1 states per sample, 7 FLOPs a state; the log
    probabilities of the states and the table are the traffic."""
    x, targets = call.tensor(0), call.tensor(1)
    steps, samples = x.shape[0], x.shape[1] if len(x.shape) > 2 else 1
    longest = targets.shape[1] if len(targets.shape) > 1 else targets.numel // max(samples, 1)
    states = steps * samples * (2 * longest + 1)
    return work("loss", 7 * states, min(states, x.numel) * x.itemsize, read(targets), states * x.itemsize)


@formula("_ctc_loss_backward")
def ctc_loss_backward(call: Call) -> Work:
    """(grad, log_probs, targets, input_lengths, target_lengths, nll, log_alpha, ...): a gradient of log_probs."""
    x, targets = call.tensor(1), call.tensor(2)
    tables = [t for t in call.tensors(3) if len(t.shape) == 3]
    states = tables[-1].numel if tables else 0
    return work("loss", 7 * states + 3 * x.numel, read(x, targets, *tables[-1:]), written(x))
