"""Convolutions, forward and backward: every output element times the filter, padding counted like data."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from gobrrr.ledger.work.call import Call, work
from gobrrr.ledger.work.model import NotCounted, Work
from gobrrr.ledger.work.registry import FORMULAS, formula
from gobrrr.ledger.work.tensor import Tensor, read, written


class Layout(msgspec.Struct, frozen=True):
    """Where an op keeps its arguments; -1 is "has none"."""

    bias: int = 2
    stride: int = 3
    padding: int = 4
    dilation: int = 5
    transposed: bool = False
    output_padding: int = -1
    groups: int = -1


LAYOUTS = {
    "mkldnn_convolution": Layout(padding=3, stride=4, groups=6),
    "mkldnn::_convolution_transpose_pointwise": Layout(
        padding=3, output_padding=4, stride=5, dilation=6, groups=7, transposed=True
    ),
    "cudnn_convolution": Layout(bias=-1, padding=2, stride=3, dilation=4, groups=5),
    "cudnn_convolution_transpose": Layout(
        bias=-1, padding=2, output_padding=3, stride=4, dilation=5, groups=6, transposed=True
    ),
    "cudnn_convolution_relu": Layout(groups=6),
    "cudnn_convolution_add_relu": Layout(bias=4, stride=5, padding=6, dilation=7, groups=8),
    "miopen_convolution_relu": Layout(groups=6),
    "miopen_convolution_add_relu": Layout(bias=4, stride=5, padding=6, dilation=7, groups=8),
    "miopen_convolution": Layout(padding=3, stride=4, groups=6),
    "miopen_depthwise_convolution": Layout(padding=3, stride=4, groups=6),
    "miopen_convolution_transpose": Layout(
        padding=3, output_padding=4, stride=5, dilation=6, groups=7, transposed=True
    ),
    "_slow_conv2d_forward": Layout(bias=3, stride=4, padding=5, dilation=-1),
    "thnn_conv2d_forward": Layout(bias=3, stride=4, padding=5, dilation=-1),
    "slow_conv3d_forward": Layout(bias=3, stride=4, padding=5, dilation=-1),
    "_conv_depthwise2d": Layout(bias=3, stride=4, padding=5, dilation=6),
    "conv_depthwise3d": Layout(bias=3, stride=4, padding=5, dilation=6),
    "thnn_conv_depthwise2d_forward": Layout(bias=3, stride=4, padding=5, dilation=6),
    "slow_conv_dilated2d": Layout(bias=3, stride=4, padding=5, dilation=6),
    "slow_conv_dilated3d": Layout(bias=3, stride=4, padding=5, dilation=6),
    "slow_conv_transpose2d": Layout(bias=3, stride=4, padding=5, output_padding=6, dilation=7, transposed=True),
    "slow_conv_transpose3d": Layout(bias=3, stride=4, padding=5, output_padding=6, dilation=7, transposed=True),
}


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
    layout = Layout(padding=3, stride=4, groups=6)
    if not call.in_place and len(call.args) < 13:
        return forward(call, layout)
    other, x = (0, 1) if call.in_place else (1, 0)
    inner = forward(Call(call.name, False, (call.args[x], *call.args[2:])), layout)
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


@formula("_slow_conv2d_backward slow_conv3d_backward thnn_conv2d_backward")
def slow_backward(call: Call) -> Work:
    """_slow_conv2d_backward(grad, x, w, ..., mask): the mask is the last list of booleans, else outputs are given."""
    grad, x, w = call.tensors(0, 3)
    masks = [call.flags(i) for i in range(3, len(call.args)) if len(call.flags(i)) >= 2]
    return _backward(grad, x, w, False, masks[-1] if masks else [True, True, True])


@formula("cudnn_convolution_backward mkldnn_convolution_backward miopen_convolution_backward")
def library_backward(call: Call) -> Work:
    """cudnn_convolution_backward(x, grad, w, ..., mask), as traces before torch 1.12 have it; the oldest do not record
    the mask, and then both gradients are counted (too much for the first layer, whose input needs none)."""
    x, grad, w = call.tensors(0, 3)
    masks = [call.flags(i) for i in range(3, len(call.args)) if len(call.flags(i)) >= 2]
    return _backward(grad, x, w, False, masks[-1] if masks else [True, True, False])


@formula("cudnn_convolution_backward_input cudnn_convolution_backward_weight")
def cudnn_half_backward(call: Call) -> Work:
    """backward_input(sizes, grad, w, ...) and backward_weight(sizes, grad, x, ...) of old traces."""
    grad, other, sizes = call.tensor(1), call.tensor(2), call.sizes(0)
    into_weight = call.name.endswith("weight")
    filter_shape = tuple(sizes) if into_weight else other.shape
    flops = grad.madd * grad.numel * math.prod(filter_shape[1:])
    return work("convolution", flops, read(grad, other), math.prod(sizes) * grad.itemsize)
