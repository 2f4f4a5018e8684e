"""Pooling, resampling and sliding windows: one FLOP per window element, and the weights of an interpolation."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gobrrr.ledger.work.call import Call, work
from gobrrr.ledger.work.model import Work
from gobrrr.ledger.work.registry import formula
from gobrrr.ledger.work.tensor import read, written


def _spread(values: Sequence[int], dims: int, default: int) -> Sequence[int]:
    return values if len(values) == dims else [values[0] if values else default] * dims


def pooled_shape(call: Call, dims: int, dilated: bool) -> tuple[tuple[int, ...], Sequence[int]]:
    """(output shape, kernel) of pool(self, kernel, stride, padding, [dilation,] ceil_mode)."""
    x = call.tensor(0)
    kernel = _spread(call.sizes(1), dims, 1)
    stride = _spread(call.ints(2) or kernel, dims, 1)
    padding = _spread(call.ints(3), dims, 0)
    dilation = _spread(call.ints(4) if dilated else [], dims, 1)
    ceil = call.flag(5 if dilated else 4)
    sizes = []
    for length, k, s, p, d in zip(x.shape[-dims:], kernel, stride, padding, dilation, strict=True):
        room = length + 2 * p - d * (k - 1) - 1
        size = (-(-room // s) if ceil else room // s) + 1
        sizes.append(size - 1 if ceil and (size - 1) * s >= length + p else size)
    return (*x.shape[:-dims], *sizes), kernel


@formula("""max_pool1d max_pool2d max_pool3d max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices
    mkldnn_max_pool2d mkldnn_max_pool3d quantized_max_pool2d""")
def max_pool(call: Call) -> Work:
    """A comparison per window element; the indices, where asked for, are int64."""
    x, dims = call.tensor(0), int(call.name.split("pool")[1][0])
    shape, kernel = pooled_shape(call, dims, dilated=True)
    out = math.prod(shape)
    indices = 8 * out if call.name.endswith("indices") else 0
    return work("pool", out * math.prod(kernel), read(x), out * x.itemsize, indices)


@formula("avg_pool1d avg_pool2d avg_pool3d mkldnn_avg_pool2d")
def avg_pool(call: Call) -> Work:
    """A sum over each window and a division."""
    x, dims = call.tensor(0), int(call.name.split("pool")[1][0])
    shape, kernel = pooled_shape(call, dims, dilated=False)
    out = math.prod(shape)
    return work("pool", out * (math.prod(kernel) + 1), read(x), out * x.itemsize)


@formula("""_adaptive_avg_pool2d _adaptive_avg_pool3d mkldnn_adaptive_avg_pool2d adaptive_max_pool2d
    adaptive_max_pool3d fractional_max_pool2d fractional_max_pool3d""")
def adaptive_pool(call: Call) -> Work:
    """The output size is given; windows are counted as covering the input once."""
    x = call.tensor(0)
    at = 2 if call.name.startswith("fractional") else 1
    dims = 3 if "3d" in call.name else 2
    out = math.prod(x.shape[:-dims]) * math.prod(_spread(call.sizes(at), dims, 1))
    indices = 8 * out if "max" in call.name else 0
    return work("pool", x.numel + out, read(x), out * x.itemsize, indices)


@formula("""max_pool2d_with_indices_backward max_pool3d_with_indices_backward avg_pool2d_backward avg_pool3d_backward
    _adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward adaptive_max_pool2d_backward
    adaptive_max_pool3d_backward fractional_max_pool2d_backward fractional_max_pool3d_backward
    mkldnn_max_pool2d_backward mkldnn_adaptive_avg_pool2d_backward""")
def pool_backward(call: Call) -> Work:
    """(grad, self, ..., indices): every gradient is spread or sent to its maximum; the input's is written whole."""
    grad, x, *indices = call.tensors()
    flops = grad.numel
    if call.name.startswith("avg"):
        flops = grad.numel * max(math.prod(call.sizes(2)), 1)
    return work("pool", flops, read(grad, *[i for i in indices if i.itemsize == 8]), written(x))


@formula("max_unpool2d max_unpool3d")
def unpool(call: Call) -> Work:
    """(self, indices, output_size, ...): zeros with the maxima in place."""
    x, indices = call.tensor(0), call.tensor(1)
    dims = 3 if "3d" in call.name else 2
    out = math.prod(x.shape[:-dims]) * math.prod(call.sizes(2))
    return work("pool", 0, read(x, indices), out * x.itemsize)


# Inputs that one output element is mixed from, times two FLOPs each (weight and add); nearest only copies.
TAPS = {"nearest": 0, "linear": 2, "bilinear": 4, "trilinear": 8, "bicubic": 16, "lanczos": 36}
_FAMILIES = "nearest1d nearest2d nearest3d linear1d bilinear2d trilinear3d bicubic2d"
_UPSAMPLES = [f"upsample_{f}" for f in _FAMILIES.split()]
_UPSAMPLES += [f"_upsample_nearest_exact{d}d" for d in (1, 2, 3)]
_UPSAMPLES += ["_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"]


def _taps(name: str) -> int:
    return next(taps for family, taps in TAPS.items() if f"_{family}" in name)


@formula(_UPSAMPLES)
def upsample(call: Call) -> Work:
    """(self, output_size, ...)."""
    x, size = call.tensor(0), call.sizes(1)
    out = math.prod(x.shape[:2]) * math.prod(size)
    source = x.nbytes if _taps(call.name) else min(out * x.itemsize, x.nbytes)
    return work("pool", 2 * _taps(call.name) * out, source, out * x.itemsize)


@formula([f"{name}_backward" for name in _UPSAMPLES])
def upsample_backward(call: Call) -> Work:
    """(grad, output_size, input_size, ...)."""
    grad = call.tensor(0)
    flops = max(2 * _taps(call.name), 1) * grad.numel
    return work("pool", flops, read(grad), math.prod(call.sizes(2)) * grad.itemsize)


@formula("grid_sampler_2d grid_sampler_3d cudnn_grid_sampler _grid_sampler_2d_cpu_fallback")
def grid_sampler(call: Call) -> Work:
    """(x (n, c, ...), grid (n, ..., dims), mode, ...): 2^dims inputs per output element, or 16 for bicubic."""
    x, grid = call.tensor(0), call.tensor(1)
    points, dims = grid.numel // grid.shape[-1], grid.shape[-1]
    out = points * x.shape[1]
    taps = {0: 2**dims, 1: 0, 2: 16}[int(call.number(2))]
    touched = min(x.nbytes, out * max(taps, 1) * x.itemsize)
    return work("pool", 2 * taps * out, touched, read(grid), out * x.itemsize)


@formula("grid_sampler_2d_backward grid_sampler_3d_backward")
def grid_sampler_backward(call: Call) -> Work:
    """(grad, x, grid, mode, ..., mask): gradients of the input and of the grid."""
    grad, x, grid = call.tensors(0, 3)
    want_x, want_grid = (call.flags(6) or [True, True])[:2]
    taps = {0: 2 ** grid.shape[-1], 1: 1, 2: 16}[int(call.number(3))]
    writes = want_x * written(x) + want_grid * written(grid)
    return work("pool", 2 * taps * grad.numel * (want_x + want_grid), read(grad, x, grid), writes)


@formula("im2col")
def im2col(call: Call) -> Work:
    """im2col(self, kernel, dilation, padding, stride): every window written out."""
    x = call.tensor(0)
    kernel, dilation, padding, stride = (_spread(call.sizes(i), 2, 1) for i in range(1, 5))
    windows = math.prod(
        (length + 2 * p - d * (k - 1) - 1) // s + 1
        for length, k, d, p, s in zip(x.shape[-2:], kernel, dilation, padding, stride, strict=True)
    )
    out = math.prod(x.shape[:-2]) * math.prod(kernel) * windows
    return work("copy", 0, min(x.nbytes, out * x.itemsize), out * x.itemsize)


@formula("col2im")
def col2im(call: Call) -> Work:
    """col2im(self, output_size, kernel, ...): windows added back."""
    x = call.tensor(0)
    channels = math.prod(x.shape[:-1]) // max(math.prod(_spread(call.sizes(2), 2, 1)), 1)
    return work("copy", x.numel, read(x), channels * math.prod(call.sizes(1)) * x.itemsize)
