"""Matrix products, plain, quantised and inside recurrent layers: 2 m n k FLOPs; adding a bias or scaling by alpha is
not counted, as everywhere in the field."""

from __future__ import annotations

import math

from gobrrr.ledger.work.call import Call, Work, formula, work
from gobrrr.ledger.work.tensor import NotCounted, Tensor, broadcast, promoted, read, written


def product(a: Tensor, b: Tensor, *others: Tensor | None, out_size: int | None = None) -> Work:
    """a (..., m, k) times b (..., k, n), and what else is read (a bias). A list of batches must be equal in both."""
    *batch, m, k = a.shape
    *batch_b, k_b, n = b.shape
    if k != k_b or batch != batch_b:
        raise NotCounted(f"{a.shape} x {b.shape} is no matrix product")
    rows = math.prod(batch) * m
    size = out_size or promoted([a, b])[1]
    return work("matmul", a.madd * rows * n * k, read(a, b, *others), rows * n * size)


@formula("mm bmm")
def mm(call: Call) -> Work:
    """mm(self, mat2), bmm(self, mat2)."""
    return product(call.tensor(0), call.tensor(1))


@formula("addmm baddbmm _addmm_activation sparse_sampled_addmm")
def addmm(call: Call) -> Work:
    """addmm(self, mat1, mat2, beta, alpha): self is read where beta is not 0."""
    bias = call.tensor(0) if call.number(3, 1.0) != 0 else None
    return product(call.tensor(1), call.tensor(2), bias)


@formula("addbmm")
def addbmm(call: Call) -> Work:
    """The sum over the batch of b products of m x k by k x n, plus self (m, n)."""
    a, b = call.tensor(1), call.tensor(2)
    each = product(a, b)
    m, n = a.shape[1], b.shape[2]
    return work("matmul", each.flops, read(a, b, call.tensor(0)), m * n * a.itemsize)


@formula("mv addmv")
def mv(call: Call) -> Work:
    """mv(self (m, k), vec (k)), addmv(self (m), mat (m, k), vec (k), beta, alpha)."""
    *others, a, x = call.tensors(0, 3 if call.name == "addmv" else 2)
    m, k = a.shape
    if x.shape != (k,):
        raise NotCounted(f"{a.shape} x {x.shape} is no matrix-vector product")
    return work("matmul", a.madd * m * k, read(a, x, *others), m * a.itemsize)


@formula("dot vdot")
def dot(call: Call) -> Work:
    """Two vectors of n elements to one."""
    a, b = call.tensor(0), call.tensor(1)
    return work("matmul", a.madd * a.numel, read(a, b), a.itemsize)


@formula("addr ger")
def outer(call: Call) -> Work:
    """addr(self (m, n), vec1 (m), vec2 (n)): an outer product, a multiply-add per element."""
    *bias, a, b = call.tensors(0, 3 if call.name == "addr" else 2)
    elements = a.numel * b.numel
    return work("matmul", a.madd * elements, read(a, b, *bias), elements * a.itemsize)


@formula("_int_mm")
def int_mm(call: Call) -> Work:
    """int8 times int8 to int32; the operations of integers count as FLOPs."""
    return product(call.tensor(0), call.tensor(1), out_size=4)


@formula("_scaled_mm _scaled_mm_v2")
def scaled_mm(call: Call) -> Work:
    """_scaled_mm(self, mat2, scale_a, scale_b, bias, scale_result, out_dtype): float8 inputs, out_dtype written;
    _scaled_mm_v2(self, mat2, scales...: lists, bias at 8, out_dtype at 9)."""
    others, at = (call.tensors(2, 6), 6) if call.name == "_scaled_mm" else (call.tensors(8, 9), 9)
    a = call.tensor(0)
    return product(a, call.tensor(1), *others, out_size=call.dtype_size(at, a.itemsize))


@formula("_grouped_mm")
def grouped_mm(call: Call) -> Work:
    """_grouped_mm(self, mat2, offs): 3-d by 3-d is a batch; 2-d by 3-d gives each row to one of the groups."""
    a, b = call.tensor(0), call.tensor(1)
    if len(a.shape) == len(b.shape) == 3:
        return product(a, b)
    if (len(a.shape), len(b.shape)) != (2, 3):
        raise NotCounted("groups over the columns depend on the offsets")
    rows, k = a.shape
    n = b.shape[2]
    return work("matmul", a.madd * rows * k * n, read(a, b, call.maybe(2)), rows * n * a.itemsize)


@formula("linear mkldnn_linear mkldnn::_linear_pointwise mkl::_mkl_linear _weight_int8pack_mm")
def linear(call: Call) -> Work:
    """linear(x (..., k), weight (n, k), bias); fused forms carry another addend or a packed weight too."""
    x, *rest = call.tensors(0, 4)
    weights = [t for t in rest if len(t.shape) == 2 and t.shape[-1] == x.shape[-1]]
    if not weights:
        raise NotCounted("no weight of shape (out, in)")
    weight = weights[-1]
    rows, others = x.numel // max(x.shape[-1], 1), [t for t in rest if t not in weights]
    n = weight.shape[0]
    return work("matmul", x.madd * rows * weight.numel, read(x, weight, *others), rows * n * x.itemsize)


@formula("onednn::qlinear_pointwise")
def onednn_linear(call: Call) -> Work:
    """qlinear_pointwise(qx (..., k), scale, zero, qw (k, n) ...): the weight is stored transposed."""
    x, weight = call.tensor(0), call.tensor(3)
    k, n = weight.shape
    if x.shape[-1] != k:
        raise NotCounted(f"{x.shape} x {weight.shape} is no linear layer")
    rows = x.numel // max(k, 1)
    return work("matmul", 2 * rows * k * n, read(x, weight), rows * n * x.itemsize)


@formula("_cdist_forward cdist _euclidean_dist")
def cdist(call: Call) -> Work:
    """Distances of p by r pairs in m dimensions: subtract, raise, add, so 3 p r m FLOPs. _euclidean_dist is that for
    p = 2 through one product of m + 2 columns: |a|^2 + |b|^2 - 2 a b."""
    a, b = call.tensor(0), call.tensor(1)
    if a.shape[-1] != b.shape[-1]:
        raise NotCounted("points of different dimensions")
    pairs = math.prod(broadcast((a.shape[:-2], b.shape[:-2]))) * a.shape[-2] * b.shape[-2]
    each = 2 * (a.shape[-1] + 2) if call.name == "_euclidean_dist" else 3 * a.shape[-1]
    return work("matmul", pairs * each, read(a, b), pairs * a.itemsize)


@formula("_cdist_backward")
def cdist_backward(call: Call) -> Work:
    """_cdist_backward(grad (p, r), x1, x2, p, cdist): per pair and dimension subtract, scale, divide, add."""
    grad, a, b = call.tensors(0, 3)
    batch = math.prod(broadcast((a.shape[:-2], b.shape[:-2])))
    result = batch * math.prod(a.shape[-2:]) * a.itemsize
    return work("matmul", 4 * grad.numel * a.shape[-1], read(grad, a, b, call.maybe(4)), result)


@formula("_pdist_forward")
def pdist(call: Call) -> Work:
    """Distances of all pairs of n rows: n (n - 1) / 2 of them, 3 FLOPs per dimension."""
    a = call.tensor(0)
    n, m = a.shape
    pairs = n * (n - 1) // 2
    return work("matmul", 3 * pairs * m, read(a), pairs * a.itemsize)


@formula("_pdist_backward")
def pdist_backward(call: Call) -> Work:
    """(grad, self, p, pdist)."""
    grad, a = call.tensor(0), call.tensor(1)
    return work("matmul", 4 * grad.numel * a.shape[-1], read(grad, a, call.maybe(3)), a.numel * a.itemsize)


# Quantised layers have their weight in an opaque object: the outputs are known from what the op allocates inside.
LINEARS = "linear_dynamic linear_relu_dynamic linear linear_relu linear_dynamic_fp16 linear_relu_dynamic_fp16"


@formula([f"quantized::{name}" for name in LINEARS.split()])
def packed_linear(call: Call) -> Work:
    """(x (..., k), packed weight, ...): the first allocation inside has the shape of the result (..., n). The weight is
    int8 (float16 for the fp16 forms)."""
    x = call.tensor(0)
    results = [size for size in call.inner if size[:-1] == x.shape[:-1]]
    if not results:
        raise NotCounted("the number of outputs is inside the packed weight")
    outputs, inputs = results[0][-1], x.shape[-1]
    weight = outputs * inputs * (2 if call.name.endswith("fp16") else 1)
    return work("matmul", 2 * x.numel * outputs, read(x), weight, math.prod(results[0]) * x.itemsize)


# Recurrent layers and cells. A layer is its matrix products, 2 tokens x gates x hidden x (inputs + hidden); what the
# gates do elementwise is small beside them and counted only where the cell is an op of its own.
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


def _stack(call: Call, mode_at: int, projection: bool) -> tuple[float, float, int]:
    """(forward FLOPs, parameter bytes, outputs per token) of a whole stack from its numbers, starting at the mode."""
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
    return 2.0 * _tokens(x) * parameters, float(parameters * x.itemsize), output * directions


# name: (position of the mode, whether a projection follows). cuDNN's: (x, weights, stride, buffer, hx, cx, mode,
# hidden, projection, layers, batch_first, dropout, train, both...); MIOpen's are without buffer and projection.
# Backward: (x, weights, stride, buffer, hx, cx, output, grads..., mode, ...).
RNNS = {"_cudnn_rnn": (6, True), "miopen_rnn": (5, False)}
RNN_BACKWARDS = {"_cudnn_rnn_backward": (10, True), "miopen_rnn_backward": (10, False)}


@formula(RNNS)
def rnn(call: Call) -> Work:
    """A whole stack of layers."""
    x = call.tensor(0)
    flops, parameters, outputs = _stack(call, *RNNS[call.name])
    return work("rnn", flops, read(x), parameters, _tokens(x) * outputs * x.itemsize)


@formula(RNN_BACKWARDS)
def rnn_backward(call: Call) -> Work:
    """Twice the forward."""
    x, output = call.tensor(0), call.tensor(6)
    flops, parameters, _ = _stack(call, *RNN_BACKWARDS[call.name])
    return work("rnn", 2 * flops, read(x, output, output), written(x), 2 * parameters)


@formula("_thnn_fused_lstm_cell _thnn_fused_gru_cell")
def cell(call: Call) -> Work:
    """(input gates (b, 4h or 3h), hidden gates, cx or hx, biases): adds, 4 activations, 2 products and a sum, tanh,
    product; writes h, c and the activated gates for backward, a GRU's a workspace of five vectors of h."""
    gates, _, state = call.tensors(0, 3)
    lstm = call.name == "_thnn_fused_lstm_cell"
    flops = gates.numel * (1 + len(call.tensors(3, 5)) + 4) + state.numel * (5 if lstm else 4)
    writes = 2 * written(state) + written(gates) if lstm else 6 * written(state)
    return work("rnn", flops, read(*call.tensors(0, 5)), writes)
