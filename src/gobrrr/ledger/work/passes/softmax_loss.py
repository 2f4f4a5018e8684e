"""Softmax (5 FLOPs per element: maximum, subtract, exp, sum, divide) and loss functions."""

from __future__ import annotations

from gobrrr.ledger.work.call import Call, work
from gobrrr.ledger.work.model import Work
from gobrrr.ledger.work.passes.elementwise import pointwise
from gobrrr.ledger.work.registry import FORMULAS, formula
from gobrrr.ledger.work.tensor import read, written

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


@formula("nll_loss_backward nll_loss2d_backward")
def nll_loss_backward(call: Call) -> Work:
    """(grad, self, target, weight, ...): the whole (n, c, ...) is written, nearly all of it zeros."""
    grad, x, target = call.tensors(0, 3)
    return work("loss", target.numel, read(grad, target, call.maybe(3)), written(x))


# name: (inputs, position of the reduction, FLOPs per element)
LOSSES = {
    "mse_loss": (2, 2, 3),
    "smooth_l1_loss": (2, 2, 4),
    "huber_loss": (2, 2, 4),
    "soft_margin_loss": (2, 2, 5),
    "binary_cross_entropy": (3, 3, 6),
    "binary_cross_entropy_with_logits": (4, 4, 7),
}
# name: (inputs, FLOPs per element); the result has the shape of the second argument
LOSS_GRADIENTS = {
    "mse_loss_backward": (3, 3),
    "smooth_l1_loss_backward": (3, 4),
    "huber_loss_backward": (3, 4),
    "soft_margin_loss_backward": (3, 5),
    "binary_cross_entropy_backward": (4, 6),
    "multi_margin_loss_backward": (6, 3),
    "multilabel_margin_loss_backward": (5, 3),
}


def _loss(call: Call) -> Work:
    inputs, at, flops = LOSSES[call.name]
    each = pointwise(call, inputs, flops=flops, kind="loss")
    if call.text(at) not in MEAN_OR_SUM:
        return each
    operands = read(*call.tensors(0, inputs))
    return work("loss", each.flops, operands, call.tensor(0).itemsize)


def _loss_backward(call: Call) -> Work:
    inputs, flops = LOSS_GRADIENTS[call.name]
    x = call.tensor(1)
    return work("loss", flops * x.numel, read(*call.tensors(0, inputs)), written(x))


FORMULAS.update(dict.fromkeys(LOSSES, _loss))
FORMULAS.update(dict.fromkeys(LOSS_GRADIENTS, _loss_backward))


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
