"""Ops whose outputs see a window of the input: convolutions (every output element times the filter, padding counted
like data), pooling, resampling."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from gobrrr.ledger.work.call import FORMULAS, Call, Work, formula, work
from gobrrr.ledger.work.tensor import NotCounted, Tensor, read, written


class Layout(msgspec.Struct, frozen=True):
    """Where an op keeps its arguments; -1 is "has none"."""

    bias: int = 2
    stride: int = 3
    padding: int = 4
    dilation: int = 5
    transposed: bool = False
    output_padding: int = -1
    groups: int = -1


_ADD_RELU = Layout(bias=4, stride=5, padding=6, dilation=7, groups=8)
_SLOW, _DILATED = (Layout(bias=3, stride=4, padding=5, dilation=at) for at in (-1, 6))
_PADDED = Layout(padding=3, stride=4, groups=6)
_PADDED_BACK = Layout(padding=3, output_padding=4, stride=5, dilation=6, groups=7, transposed=True)
_SLOW_BACK = Layout(bias=3, stride=4, padding=5, output_padding=6, dilation=7, transposed=True)
LAYOUTS = {
    **dict.fromkeys(("mkldnn_convolution", "miopen_convolution", "miopen_depthwise_convolution"), _PADDED),
    **dict.fromkeys(("mkldnn::_convolution_transpose_pointwise", "miopen_convolution_transpose"), _PADDED_BACK),
    "cudnn_convolution": Layout(bias=-1, padding=2, stride=3, dilation=4, groups=5),
    "cudnn_convolution_transpose": Layout(
        bias=-1, padding=2, output_padding=3, stride=4, dilation=5, groups=6, transposed=True
    ),
    **dict.fromkeys(("cudnn_convolution_relu", "miopen_convolution_relu"), Layout(groups=6)),
    **dict.fromkeys(("cudnn_convolution_add_relu", "miopen_convolution_add_relu"), _ADD_RELU),
    **dict.fromkeys(("_slow_conv2d_forward", "thnn_conv2d_forward", "slow_conv3d_forward"), _SLOW),
    **dict.fromkeys(("_conv_depthwise2d", "conv_depthwise3d", "thnn_conv_depthwise2d_forward"), _DILATED),
    **dict.fromkeys(("slow_conv_dilated2d", "slow_conv_dilated3d"), _DILATED),
    **dict.fromkeys(("slow_conv_transpose2d", "slow_conv_transpose3d"), _SLOW_BACK),
}  # fmt: skip


def output_shape(x: Tensor, w: Tensor, call: Call, at: Layout, transposed: bool) -> tuple[int, ...]:
    """Shape of the result, from the arguments that the layout points to."""
    dims = len(x.shape) - 2
    stride, padding, dilation, extra = (
        _spread(call.sizes(i) if i >= 0 else [], dims, default)
        for i, default in ((at.stride, 1), (at.padding, 0), (at.dilation, 1), (at.output_padding, 0))
    )
    sizes = []
    for length, kernel, s, p, d, e in zip(x.shape[2:], w.shape[2:], stride, padding, dilation, extra, strict=True):
        reach = d * (kernel - 1)
        sizes.append((length - 1) * s - 2 * p + reach + e + 1 if transposed else (length + 2 * p - reach - 1) // s + 1)
    groups = call.sizes(at.groups)[0] if at.groups >= 0 else 1
    return (x.shape[0], w.shape[1] * groups if transposed else w.shape[0], *sizes)


def _spread(values: Sequence[int], dims: int, default: int) -> Sequence[int]:
    """One number for all spatial dimensions, or one for each."""
    return values if len(values) == dims else [values[0] if values else default] * dims


def madds(w: Tensor, swept: Tensor | tuple[int, ...]) -> int:
    """Multiply-adds: each element of what the filter sweeps over (the output; when transposed the input) meets one
    filter of weight.shape[1:], which already holds the channels of one group."""
    count = swept.numel if isinstance(swept, Tensor) else math.prod(swept)
    return count * math.prod(w.shape[1:])


def forward(call: Call, at: Layout) -> Work:
    """A convolution whose arguments lie as the layout says."""
    x, w = call.tensor(0), call.tensor(1)
    if len(x.shape) != len(w.shape) or len(x.shape) < 3:
        raise NotCounted("input and weight must have the same dimensions")
    shape = output_shape(x, w, call, at, at.transposed)
    if min(shape) < 0:
        raise NotCounted("the filter is larger than the input")
    flops = x.madd * madds(w, x if at.transposed else shape)
    bias = call.maybe(at.bias) if at.bias >= 0 else None
    other = call.maybe(2) if "add_relu" in call.name else None
    return work("convolution", flops, read(x, w, bias, other), math.prod(shape) * x.itemsize)


def _leaf(call: Call) -> Work:
    return forward(call, LAYOUTS[call.name])


FORMULAS.update(dict.fromkeys(LAYOUTS, _leaf))


@formula("convolution _convolution convolution_overrideable")
def convolution(call: Call) -> Work:
    """convolution(x, w, bias, stride, padding, dilation, transposed, output_padding, groups)."""
    if not call.flags(6):
        raise NotCounted("whether it is transposed was not recorded")
    return forward(call, Layout(transposed=call.flag(6), output_padding=7, groups=8))


@formula("mkldnn::_convolution_pointwise")
def pointwise(call: Call) -> Work:
    """mkldnn::_convolution_pointwise(x, w, bias, ...). Its overload with another addend has that at 1; in place it is
    at 0, where the result goes: (other, x, w, bias, ...)."""
    if not call.in_place and len(call.args) < 13:
        return forward(call, _PADDED)
    other, x = (0, 1) if call.in_place else (1, 0)
    inner = forward(Call(call.name, False, (call.args[x], *call.args[2:])), _PADDED)
    return work("convolution", inner.flops, inner.bytes, read(call.tensor(other)))


@formula("convolution_backward convolution_backward_overrideable")
def backward(call: Call) -> Work:
    """(grad, x, w, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, mask).

    The gradient of the input and that of the weight each cost as much as the forward; that of the bias is not counted.
    """
    grad, x, w = call.tensors(0, 3)
    if not call.flags(7) or not call.flags(10):
        raise NotCounted("which gradients were wanted was not recorded")
    return _backward(grad, x, w, call.flag(7), call.flags(10))


def _backward(grad: Tensor, x: Tensor, w: Tensor, transposed: bool, mask: Sequence[bool]) -> Work:
    once = x.madd * madds(w, x if transposed else grad)
    want_x, want_w, want_bias = (*mask, False, False, False)[:3]
    reads = read(grad, w if want_x else None, x if want_w else None)
    writes = written(x if want_x else None, w if want_w else None) + want_bias * grad.shape[1] * w.itemsize
    return work("convolution", once * (want_x + want_w), reads, writes)


@formula("""_slow_conv2d_backward slow_conv3d_backward thnn_conv2d_backward cudnn_convolution_backward
    mkldnn_convolution_backward miopen_convolution_backward""")
def old_backward(call: Call) -> Work:
    """_slow_conv2d_backward(grad, x, w, ..., mask): the mask is the last list of booleans, else outputs are given.
    cudnn_convolution_backward(x, grad, w, ..., mask), as traces before torch 1.12 have it; the oldest do not record
    the mask, and then both gradients are counted (too much for the first layer, whose input needs none)."""
    grad, x, w = call.tensors(0, 3)
    library = "_convolution_" in call.name
    if library:
        grad, x = x, grad
    masks = [call.flags(i) for i in range(3, len(call.args)) if len(call.flags(i)) >= 2]
    return _backward(grad, x, w, False, masks[-1] if masks else [True, True, not library])


@formula("cudnn_convolution_backward_input cudnn_convolution_backward_weight")
def cudnn_half_backward(call: Call) -> Work:
    """backward_input(sizes, grad, w, ...) and backward_weight(sizes, grad, x, ...) of old traces."""
    grad, other, sizes = call.tensor(1), call.tensor(2), call.sizes(0)
    into_weight = call.name.endswith("weight")
    filter_shape = tuple(sizes) if into_weight else other.shape
    flops = grad.madd * grad.numel * math.prod(filter_shape[1:])
    return work("convolution", flops, read(grad, other), math.prod(sizes) * grad.itemsize)


# Pooling, resampling and sliding windows: one FLOP per window element, and the weights of an interpolation.


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
    mkldnn_max_pool2d mkldnn_max_pool3d quantized_max_pool2d avg_pool1d avg_pool2d avg_pool3d mkldnn_avg_pool2d""")
def pool(call: Call) -> Work:
    """A comparison per window element, or a sum and a division; the indices, where asked for, are int64."""
    x, dims, averages = call.tensor(0), int(call.name.split("pool")[1][0]), "avg" in call.name
    shape, kernel = pooled_shape(call, dims, dilated=not averages)
    out = math.prod(shape)
    indices = 8 * out if call.name.endswith("indices") else 0
    return work("pool", out * (math.prod(kernel) + averages), read(x), out * x.itemsize, indices)


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
