"""A convolution and its batch norm, of which backward computes the convolution again instead of keeping its result.

Batch norm keeps its input for backward, which is the convolution's result: as large as the activations behind it. With
the convolution's own input, which is kept anyway, and the batch's mean and deviation (a number per channel) it can be
computed again. Bytes: the result of each convolution. Time: one more convolution, a third of the layer's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


class _Recomputed(torch.autograd.Function):
    """Convolution and batch norm; `how`: stride, padding, dilation, groups, training, momentum, eps."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, gamma: Tensor | None, beta: Tensor | None,
        mean: Tensor | None, variance: Tensor | None, how: tuple[Any, ...],
    ) -> Tensor:  # fmt: skip
        *_, training, momentum, eps = how
        inner = _convolved(x, weight, bias, how)
        if training and inner.numel() == inner.shape[1]:
            raise ValueError(f"Expected more than 1 value per channel when training, got input size {inner.size()}")
        result, batch_mean, deviation = torch.native_batch_norm(
            inner, gamma, beta, mean, variance, training, momentum, eps
        )
        ctx.save_for_backward(x, weight, bias, gamma, mean, variance, batch_mean, deviation)
        ctx.how = how
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, gamma, mean, variance, batch_mean, deviation = ctx.saved_tensors
        stride, padding, dilation, groups, training, _, eps = ctx.how
        needs = ctx.needs_input_grad
        inner, for_gamma, for_beta = torch.ops.aten.native_batch_norm_backward(
            grad, _convolved(x, weight, bias, ctx.how), gamma, mean, variance, batch_mean, deviation, training, eps,
            [True, needs[3], needs[4]],
        )  # fmt: skip
        for_x, for_weight, for_bias = torch.ops.aten.convolution_backward(
            inner, x, weight, None if bias is None else list(bias.shape), stride, padding, dilation, False, [0, 0],
            groups, [needs[0], needs[1], needs[2]],
        )  # fmt: skip
        return for_x, for_weight, for_bias, for_gamma, for_beta, None, None, None


def _convolved(x: Tensor, weight: Tensor, bias: Tensor | None, how: tuple[Any, ...]) -> Tensor:
    stride, padding, dilation, groups, *_ = how
    return torch.convolution(x, weight, bias, stride, padding, dilation, False, [0, 0], groups)


class ConvBn2d(nn.Module):
    """`norm(conv(x))` of a Conv2d and a BatchNorm2d, which it holds as they are: state_dict names `conv.*`, `norm.*`.

    x: (N, C_in, H, W), any floating dtype that both take; the result is theirs: affine or not, running statistics or
    not, momentum None, eps. Gradients are theirs up to rounding, running statistics are updated once. Where a second
    derivative is wanted use the two as they are; under autocast, with hooks on them and for other paddings than zeros
    this does so itself.
    """

    def __init__(self, conv: nn.Conv2d, norm: nn.BatchNorm2d) -> None:
        """Raises ValueError where the norm is not for as many channels as the convolution gives."""
        super().__init__()
        if conv.out_channels != norm.num_features:
            raise ValueError(f"the convolution gives {conv.out_channels} channels, the norm takes {norm.num_features}")
        self.conv, self.norm = conv, norm

    def forward(self, x: Tensor) -> Tensor:
        """Return the normed convolution of x."""
        conv, norm = self.conv, self.norm
        plain = conv.padding_mode != "zeros" or isinstance(conv.padding, str) or x.dim() != 4
        plain = plain or any(part._forward_hooks or part._forward_pre_hooks or part._backward_hooks
                             or part._backward_pre_hooks for part in (conv, norm))  # fmt: skip
        if plain or torch.is_autocast_enabled(x.device.type) or not torch.is_grad_enabled():
            result: Tensor = norm(conv(x))
            return result
        momentum = norm.momentum or 0.0
        if norm.training and norm.track_running_stats and norm.num_batches_tracked is not None:
            norm.num_batches_tracked.add_(1)
            if norm.momentum is None:  # a cumulative average, as torch has it
                momentum = 1.0 / float(norm.num_batches_tracked)
        by_batch = norm.training or (norm.running_mean is None and norm.running_var is None)
        kept = not norm.training or norm.track_running_stats
        how = (conv.stride, conv.padding, conv.dilation, conv.groups, by_batch, momentum, norm.eps)
        found: Tensor = _Recomputed.apply(  # type: ignore[no-untyped-call]
            x, conv.weight, conv.bias, norm.weight, norm.bias, norm.running_mean if kept else None,
            norm.running_var if kept else None, how,
        )  # fmt: skip
        return found
