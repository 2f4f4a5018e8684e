"""Matrix products: 2 m n k FLOPs; adding a bias or scaling by alpha is not counted, as everywhere in the field."""

from __future__ import annotations

import math

from gobrrr.ledger.work.call import Call, work
from gobrrr.ledger.work.model import NotCounted, Work
from gobrrr.ledger.work.registry import formula
from gobrrr.ledger.work.tensor import Tensor, broadcast, promoted, read


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


@formula("mv")
def mv(call: Call) -> Work:
    """mv(self (m, k), vec (k))."""
    return _vector(call.tensor(0), call.tensor(1))


@formula("addmv")
def addmv(call: Call) -> Work:
    """addmv(self (m), mat (m, k), vec (k), beta, alpha)."""
    return _vector(call.tensor(1), call.tensor(2), call.tensor(0))


def _vector(a: Tensor, x: Tensor, *others: Tensor) -> Work:
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


@formula("_scaled_mm")
def scaled_mm(call: Call) -> Work:
    """_scaled_mm(self, mat2, scale_a, scale_b, bias, scale_result, out_dtype): float8 inputs, out_dtype written."""
    out_size = call.dtype_size(6, call.tensor(0).itemsize)
    return product(call.tensor(0), call.tensor(1), *call.tensors(2, 6), out_size=out_size)


@formula("_scaled_mm_v2")
def scaled_mm_v2(call: Call) -> Work:
    """_scaled_mm_v2(self, mat2, scales...: lists, bias at 8, out_dtype at 9)."""
    out_size = call.dtype_size(9, call.tensor(0).itemsize)
    return product(call.tensor(0), call.tensor(1), call.maybe(8), out_size=out_size)


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
    rows, others = x.numel // max(x.shape[-1], 1), [t for t in rest if t is not weight and t not in weights]
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


@formula("_cdist_forward cdist")
def cdist(call: Call) -> Work:
    """Distances of p by r pairs in m dimensions: subtract, raise, add, so 3 p r m FLOPs. (Where torch goes through a
    matrix product instead, that product is an op of its own inside.)"""
    a, b = call.tensor(0), call.tensor(1)
    if a.shape[-1] != b.shape[-1]:
        raise NotCounted("points of different dimensions")
    pairs = _pairs(a, b)
    return work("matmul", 3 * pairs * a.shape[-1], read(a, b), pairs * a.itemsize)


def _pairs(a: Tensor, b: Tensor) -> int:
    """Pairs of points of two sets, batches broadcast."""
    return math.prod(broadcast((a.shape[:-2], b.shape[:-2]))) * a.shape[-2] * b.shape[-2]


@formula("_euclidean_dist")
def euclidean_dist(call: Call) -> Work:
    """cdist for p = 2 through one product of m + 2 columns: |a|^2 + |b|^2 - 2 a b."""
    a, b = call.tensor(0), call.tensor(1)
    pairs = _pairs(a, b)
    return work("matmul", 2 * pairs * (a.shape[-1] + 2), read(a, b), pairs * a.itemsize)


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
