"""Recurrent layers and cells. A layer is its matrix products (2 tokens x gates x hidden x (inputs + hidden)); what the
gates do elementwise is small beside them and counted only where the cell is an op of its own."""

from __future__ import annotations

import math

from gobrrr.ledger.work.call import Call, work
from gobrrr.ledger.work.model import NotCounted, Work
from gobrrr.ledger.work.registry import formula
from gobrrr.ledger.work.tensor import Tensor, read, written

# cuDNN's mode number: plain tanh or relu has one gate, LSTM four, GRU three.
GATES = {0: 1, 1: 1, 2: 4, 3: 3}


def _tokens(x: Tensor) -> int:
    return x.numel // max(x.shape[-1], 1)


@formula("mkldnn_rnn_layer")
def mkldnn_layer(call: Call) -> Work:
    """(x, w_input (gates h, i), w_hidden (gates h, h), biases, hx, cx, ...): one layer in one direction per call."""
    x, w_input, w_hidden = call.tensors(0, 3)
    tokens, hidden = _tokens(x), w_hidden.shape[1]
    flops = 2 * tokens * (w_input.numel + w_hidden.numel)
    return work("rnn", flops, read(*call.tensors(0, 7)), tokens * hidden * x.itemsize, written(*call.tensors(5, 7)))


@formula("mkldnn_rnn_layer_backward")
def mkldnn_layer_backward(call: Call) -> Work:
    """(x, weights and biases, hx, cx, output, hy, cy, grads...): two products for each of the forward's."""
    x, w_input, w_hidden = call.tensors(0, 3)
    flops = 4 * _tokens(x) * (w_input.numel + w_hidden.numel)
    return work("rnn", flops, read(*call.tensors(0, 13)), written(*call.tensors(0, 7)))


def _stack(call: Call, mode_at: int, projection: bool) -> tuple[float, float]:
    """(forward FLOPs, parameter bytes) of a whole stack from its numbers, starting at the mode argument."""
    x, mode, hidden = call.tensor(0), int(call.number(mode_at)), int(call.number(mode_at + 1))
    projected = int(call.number(mode_at + 2, 0)) if projection else 0
    at = mode_at + 2 + projection
    layers, directions = int(call.number(at)), 2 if call.flag(at + 4) else 1
    if mode not in GATES or hidden <= 0 or not 0 < layers < 10_000:
        raise NotCounted("the kind of recurrent layer was not recorded")
    output = projected or hidden
    parameters = 0
    for layer in range(layers):
        inputs = x.shape[-1] if layer == 0 else output * directions
        parameters += directions * (GATES[mode] * hidden * (inputs + output) + projected * hidden)
    return 2.0 * _tokens(x) * parameters, float(parameters * x.itemsize)


@formula("_cudnn_rnn")
def cudnn_rnn(call: Call) -> Work:
    """(x, weights, stride, buffer, hx, cx, mode, hidden, projection, layers, batch_first, dropout, train, both...)."""
    return _rnn(call, 6, True)


@formula("miopen_rnn")
def miopen_rnn(call: Call) -> Work:
    """(x, weights, stride, hx, cx, mode, hidden, layers, batch_first, dropout, train, both ways, ...)."""
    return _rnn(call, 5, False)


def _rnn(call: Call, mode_at: int, projection: bool) -> Work:
    x = call.tensor(0)
    flops, parameters = _stack(call, mode_at, projection)
    width = int(call.number(mode_at + 2, 0)) * projection or int(call.number(mode_at + 1, 0))
    directions = 2 if call.flag(mode_at + 6 + projection) else 1
    return work("rnn", flops, read(x), parameters, _tokens(x) * width * directions * x.itemsize)


@formula("_cudnn_rnn_backward")
def cudnn_rnn_backward(call: Call) -> Work:
    """(x, weights, stride, buffer, hx, cx, output, grads..., mode at 10, ...): twice the forward."""
    return _rnn_backward(call, 10, True)


@formula("miopen_rnn_backward")
def miopen_rnn_backward(call: Call) -> Work:
    """(x, weights, stride, buffer, hx, cx, output, grads..., mode at 10, ...) without a projection."""
    return _rnn_backward(call, 10, False)


def _rnn_backward(call: Call, mode_at: int, projection: bool) -> Work:
    x, output = call.tensor(0), call.tensor(6)
    flops, parameters = _stack(call, mode_at, projection)
    return work("rnn", 2 * flops, read(x, output, output), written(x), 2 * parameters)


@formula("_thnn_fused_lstm_cell")
def lstm_cell(call: Call) -> Work:
    """(input gates (b, 4h), hidden gates, cx, biases): adds, 4 activations, 2 products and a sum, tanh, product;
    writes h, c and the activated gates for backward."""
    gates, _, cell = call.tensors(0, 3)
    flops = gates.numel * (1 + len(call.tensors(3, 5)) + 4) + cell.numel * 5
    return work("rnn", flops, read(*call.tensors(0, 5)), 2 * written(cell), written(gates))


@formula("_thnn_fused_lstm_cell_backward_impl _thnn_fused_lstm_cell_backward")
def lstm_cell_backward(call: Call) -> Work:
    """(grad_h, grad_c, cx, cy, workspace, ...): about 6 FLOPs per gate element; writes the gradients of gates, c."""
    cell, workspace = call.tensor(2), call.tensor(4)
    return work("rnn", 6 * workspace.numel, read(*call.tensors(0, 5)), written(workspace), written(cell))


@formula("_thnn_fused_gru_cell")
def gru_cell(call: Call) -> Work:
    """(input gates (b, 3h), hidden gates, hx, biases): the workspace holds five vectors of h."""
    gates, _, hidden = call.tensors(0, 3)
    flops = gates.numel * (1 + len(call.tensors(3, 5)) + 4) + hidden.numel * 4
    return work("rnn", flops, read(*call.tensors(0, 5)), written(hidden), 5 * written(hidden))


@formula("_thnn_fused_gru_cell_backward")
def gru_cell_backward(call: Call) -> Work:
    """(grad_h, workspace (b, 5h), has_bias): gradients of both gate inputs and of the state."""
    grad, workspace = call.tensor(0), call.tensor(1)
    batch_hidden = math.prod(grad.shape)
    return work("rnn", 18 * batch_hidden, read(grad, workspace), 7 * written(grad))
