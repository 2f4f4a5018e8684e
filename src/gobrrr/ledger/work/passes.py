"""Ops that go over their tensors once: what each reads and writes, and how many FLOPs an element costs."""

from __future__ import annotations

from typing import NamedTuple

from gobrrr.ledger.work.call import Call, Work, formula, work
from gobrrr.ledger.work.tensor import read, written


class Pass(NamedTuple):
    """Positions are of arguments that must be tensors."""

    kind: str
    flops: float
    """For each element of argument `of`."""
    reads: tuple[int, ...] = (0,)
    writes: tuple[int, ...] = (0,)
    """Arguments that have the size and dtype of what is written."""
    of: int = 0
    also: tuple[int, ...] = ()
    """Arguments that are read where they are tensors."""
    beside: float = 0.0
    """Bytes written for each element beside."""


_PASSES = {
    """clone _conj_copy alias_copy view_copy permute_copy transpose_copy t_copy squeeze_copy unsqueeze_copy
    detach_copy unbind_copy split_copy split_with_sizes_copy unsafe_split view_as_real_copy view_as_complex_copy
    pixel_shuffle pixel_unshuffle channel_shuffle roll flip rot90 tril triu lift _pin_memory""": Pass("copy", 0),
    # copy_(self, src): whatever self held before
    "copy _copy_from _copy_from_and_resize": Pass("copy", 0, reads=(1,)),
    # not read, unless a copy is filled (fill without an underscore reads nothing either)
    "fill zero": Pass("copy", 0, reads=()),
    # (grad, self, padding): gradients of copied elements are added
    """reflection_pad1d_backward reflection_pad2d_backward reflection_pad3d_backward replication_pad1d_backward
    replication_pad2d_backward replication_pad3d_backward""": Pass("copy", 1, writes=(1,)),
    # (self, mask, source): a copy of self in which some elements come from the source
    "masked_scatter": Pass("gather", 0, reads=(0, 1)),
    "frexp": Pass("elementwise", 1, beside=4),  # mantissas, and exponents as int32
    "log_sigmoid_forward": Pass("elementwise", 5, writes=(0, 0)),  # on a CPU with a buffer for backward
    # float to int8: scale, round, clamp
    "quantize_per_tensor quantize_per_tensor_dynamic quantize_per_channel": Pass("elementwise", 3, writes=(), beside=1),
    "dequantize": Pass("elementwise", 2, writes=(), beside=4),  # int8 to float32: subtract, scale
    # scale, round, clamp, scale back; with a mask of booleans
    """fake_quantize_per_tensor_affine_cachemask
    fake_quantize_per_channel_affine_cachemask""": Pass("elementwise", 5, beside=1),
    "native_dropout _fused_dropout": Pass("random", 3, beside=1),  # draw, compare, scale; with a mask
    "glu_backward": Pass("elementwise", 8, (0, 1), (1,)),  # (grad, self, dim): the gradient of both halves
    # gradients of the input and, elementwise, of the weight
    "_prelu_kernel_backward": Pass("elementwise", 3, (0, 1, 2), (1, 1), of=1),
    # two tensors to one boolean; it may stop early, which is not known here
    "equal allclose": Pass("reduction", 1, (0, 1), ()),
    "renorm": Pass("reduction", 3),  # a norm per slice, then a scale: the input is read once in the ideal
    # (grad, output, data, reduce, lengths, ...): a gradient for every element of data
    "_segment_reduce_backward": Pass("reduction", 1, (0, 1, 2), (2,), of=2),
    # every value counted once; the bins are small beside the values and data-dependent, so not in the traffic
    "bincount histc _histogramdd_from_bin_cts": Pass("reduction", 1, writes=(), also=(1,)),
    "histogram _histogramdd_bin_edges _histogramdd_from_bin_tensors": Pass("reduction", 1, writes=()),  # of any width
    # the second half of a synchronised batch norm: (x, weight, bias, mean, invstd, eps)
    "batch_norm_elemt": Pass("norm", 4, also=(1, 2, 3, 4)),
    # (x, grad, weight, running_mean, running_var, save_mean, save_var, eps, reserve)
    "cudnn_batch_norm_backward miopen_batch_norm_backward": Pass("norm", 12, (0, 1, 2), (0, 2, 2), also=(5, 6)),
    # (grad, self, target, weight, ...): the whole (n, c, ...) is written, nearly all of it zeros
    "nll_loss_backward nll_loss2d_backward": Pass("loss", 1, (0, 2), (1,), of=2, also=(3,)),
    # gradients of losses have the shape of the second argument
    "mse_loss_backward": Pass("loss", 3, (1,), (1,), of=1, also=(0, 2)),
    "smooth_l1_loss_backward huber_loss_backward": Pass("loss", 4, (1,), (1,), of=1, also=(0, 2)),
    "soft_margin_loss_backward": Pass("loss", 5, (1,), (1,), of=1, also=(0, 2)),
    "binary_cross_entropy_backward": Pass("loss", 6, (1,), (1,), of=1, also=(0, 2, 3)),
    "multi_margin_loss_backward": Pass("loss", 3, (1,), (1,), of=1, also=(0, 2, 3, 4, 5)),
    "multilabel_margin_loss_backward": Pass("loss", 3, (1,), (1,), of=1, also=(0, 2, 3, 4)),
    # (grad_h, grad_c, cx, cy, workspace, ...): about 6 FLOPs per gate element; the gradients of gates, c
    "_thnn_fused_lstm_cell_backward_impl _thnn_fused_lstm_cell_backward": Pass(
        "rnn", 6, (2, 4), (2, 4), of=4, also=(0, 1, 3)
    ),
    # (grad_h, workspace (b, 5h), has_bias): gradients of both gate inputs and of the state
    "_thnn_fused_gru_cell_backward": Pass("rnn", 18, (0, 1), (0,) * 7),
}  # fmt: skip
PASSES = {name: rule for names, rule in _PASSES.items() for name in names.split()}


@formula(PASSES)
def once(call: Call) -> Work:
    """As the table says."""
    at = PASSES[call.name]
    numel = call.tensor(at.of).numel
    reads = read(*map(call.tensor, at.reads), *map(call.maybe, at.also))
    return work(at.kind, at.flops * numel, reads, written(*map(call.tensor, at.writes)), at.beside * numel)
