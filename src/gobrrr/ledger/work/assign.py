"""Which op of a tree of ops has the work: everything is counted once, at the op that does it.

A wrapper passes its work to the ops inside it. Any other op with a formula owns all that happens inside it: what addmm
copies to lay out its bias is part of addmm. Where an op contains itself (sort calls sort) the inner one counts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from gobrrr.ledger.work.call import FORMULAS, NOTHING, Work, parse, table_name
from gobrrr.ledger.work.elementwise import FUSED, fused_work
from gobrrr.ledger.work.tensor import NotCounted
from gobrrr.recording.model.trace import Signature
from gobrrr.words import UPDATE

_INTEGER = re.compile(r"-?\d+")
_IDLE, _LIGHT, _HEAVY = range(3)
HEAVY_KINDS = frozenset(("matmul", "convolution", "attention", "rnn"))
_OPTIMIZER = re.compile(rf"{re.escape(UPDATE)}(\w+)\.")


def work_of(
    name: str, shapes: Sequence[Any], dtypes: Sequence[str], concrete: Sequence[str], strides: Sequence[Any] = (),
    *, list_dtype: str = "float", inner: Sequence[tuple[int, ...]] = (),
) -> Work | None:  # fmt: skip
    """The work of one call, from the fields of a profiler event; None where it is not known ("not counted").

    `name` is the event's name (aten::addmm), `shapes` its "Input Dims" (one per argument, () for scalars, nested for
    lists of tensors), `dtypes` its "Input type", `concrete` its "Concrete Inputs", `strides` its "Input Strides" (an
    expanded argument then costs only what it really holds). torch does not record the dtype of the members of a list:
    `list_dtype` is taken for it. `inner` are the sizes that ops inside this one allocated or viewed (`assign` collects
    them), which tells what indexing and packed weights do not. Never raises on what a file may hold.
    """
    found = FORMULAS.get(table_name(name))
    if found is None:
        return None
    try:
        work = found(parse(name, shapes, dtypes, concrete, strides, list_dtype, inner))
    except (NotCounted, ValueError, TypeError, IndexError, KeyError, ArithmeticError):
        return None
    return work if 0 <= work.flops < float("inf") and 0 <= work.bytes < float("inf") else None


class Assigned(NamedTuple):
    """Each FLOP and byte of a tree of ops once."""

    works: list[Work | None]
    """The work of every op: NOTHING for a wrapper, a view and what belongs to the op around it, None for an op that
    works and is not modelled."""
    owners: list[int]
    """For every op the op that answers for its time: the outermost one that owns it, or itself."""


def assign(
    names: Sequence[str], parents: Sequence[int], recorded: Sequence[Signature | None],
    updated: Mapping[str, float] | None = None,
) -> Assigned:  # fmt: skip
    """The work of every op of a tree, and who answers for it.

    `parents` are indices of the enclosing op or annotation (-1 for none); a parent stands before its children.
    `updated` is the number of parameter elements that one step of an optimizer class updates ({"AdamW": 124e6}): fused
    steps over more than 30 tensors are priced by it, divided by the fused calls within one Optimizer.step.
    """
    works = _works(names, parents, recorded, updated or {})
    passes = _passing(names, parents, works)
    priced = {name: table_name(name) in FORMULAS for name in set(names)}
    owns = [priced[name] and not passed for name, passed in zip(names, passes, strict=True)]
    owners: list[int] = []
    for i, parent in enumerate(parents):
        above = owners[parent] if parent >= 0 else i
        belongs = parent >= 0 and owns[above]
        owners.append(above if belongs else i)
        if belongs or passes[i]:
            works[i] = NOTHING
    return Assigned(works, owners)


def _works(
    names: Sequence[str], parents: Sequence[int], recorded: Sequence[Signature | None], updated: Mapping[str, float]
) -> list[Work | None]:
    """Each op's own price, as if it stood alone; equal calls are priced once."""
    calls = dict(zip(zip(names, map(id, recorded), strict=True), recorded, strict=True))
    plain = {key: _alone(key[0], call) for key, call in calls.items()}
    works = [plain[key] for key in zip(names, map(id, recorded), strict=True)]
    known: dict[Any, Work | None] = {}
    for i, sizes in _inner_sizes(names, parents, recorded).items():
        key = (names[i], id(recorded[i]), *sizes)
        if key not in known:
            known[key] = _alone(names[i], recorded[i], tuple(sizes))
        works[i] = known[key]
    for i, work in _fused_steps(names, parents, works, updated):
        works[i] = work
    return works


def _alone(name: str, call: Signature | None, inner: Sequence[tuple[int, ...]] = ()) -> Work | None:
    return work_of(name, call.shapes, call.dtypes, call.concrete, call.strides, inner=inner) if call else None


def _inner_sizes(
    names: Sequence[str], parents: Sequence[int], recorded: Sequence[Signature | None]
) -> dict[int, list[tuple[int, ...]]]:
    """Return shapes that ops allocate (packed weights) or view (indexing) directly inside those that need them."""
    wanted = dict.fromkeys(("aten::index", "aten::_index_put_impl_"), ("aten::as_strided", 1))
    found: dict[int, list[tuple[int, ...]]] = {}
    asking = {name for name in set(names) if name in wanted or name.startswith("quantized::")}
    for i, parent in enumerate(parents if asking else ()):
        if parent < 0 or names[parent] not in asking:
            continue
        child, at = wanted.get(names[parent], ("aten::empty", 0))
        call = recorded[i]
        if names[i] == child and call is not None and len(call.concrete) > at:
            found.setdefault(parent, []).append(tuple(int(n) for n in _INTEGER.findall(call.concrete[at])))
    return found


def _fused_steps(
    names: Sequence[str], parents: Sequence[int], works: Sequence[Work | None], updated: Mapping[str, float]
) -> list[tuple[int, Work | None]]:
    """Fused optimizer calls whose lists were not recorded, priced by what their optimizer is known to update."""
    steps: dict[int, tuple[int, float]] = {}
    fused = {name for name in set(names) if table_name(name) in FUSED}
    for i, name in enumerate(names if fused else ()):
        if works[i] is None and name in fused:
            above = parents[i]
            while above >= 0 and not (step := _OPTIMIZER.match(names[above])):
                above = parents[above]
            if above >= 0 and step and step.group(1) in updated:
                steps[i] = (above, updated[step.group(1)])
    calls = Counter(step for step, _ in steps.values())
    return [(i, fused_work(names[i], int(elements / calls[step]))) for i, (step, elements) in steps.items()]


def _passing(names: Sequence[str], parents: Sequence[int], works: Sequence[Work | None]) -> list[bool]:
    """Mark ops that leave their work to others: wrappers, and partial ones inside which something works. A product or a
    convolution is left only to another of that weight: what it copies on the way is not its work."""
    num = len(names)
    below, has_child, repeats, passes = [_IDLE] * num, [False] * num, [False] * num, [False] * num
    told = {name: (table_name(name), is_wrapper(name), is_partly_wrapper(name)) for name in set(names)}
    for i in range(num - 1, -1, -1):
        name, parent, work = names[i], parents[i], works[i]
        table, wrapper, partly = told[name]
        if table not in FORMULAS:
            passes[i] = has_child[i] or wrapper
        elif repeats[i] or wrapper or partly:
            passes[i] = below[i] >= (_HEAVY if work is not None and work.kind in HEAVY_KINDS else _LIGHT)
        if parent >= 0:
            if below[parent] != _HEAVY:
                below[parent] = max(below[parent], below[i], _IDLE if passes[i] else _weight(work))
            has_child[parent] = True
            repeats[parent] |= told[names[parent]][0] == table
    return passes


def _weight(work: Work | None) -> int:
    """Whether an op works, and whether its work is of the kind that FLOPs bound; an unknown op may be anything."""
    if work is None or (work.kind in HEAVY_KINDS and work.flops > 0):
        return _HEAVY
    return _LIGHT if work.bytes > 0 else _IDLE


# Ops that do nothing themselves: torch calls them composite, and their work is done by the ops they call. The table is
# torch 2.13's own: every aten op whose only kernel is CompositeImplicitAutograd (a test compares it). Ops that are
# composite in part (a kernel of their own on some devices) stand in PARTLY; `assign` decides those by what was recorded
# inside them. Events of the autograd engine and annotations are wrappers too.
COMPOSITE = frozenset(
    """__and__ __iand__ __ior__ __ixor__ __or__ __xor__ _add_batch_dim _autocast_to_full_precision
    _autocast_to_reduced_precision _backward _batch_norm_impl_index _batch_norm_impl_index_backward _cast_Byte
    _cast_Char _cast_Double _cast_Float _cast_Half _cast_Int _cast_Long _cast_Short _choose_qparams_per_tensor
    _convolution_double_backward _convolution_mode _cufft_clear_plan_cache _cufft_get_plan_cache_max_size
    _cufft_get_plan_cache_size _cufft_set_plan_cache_max_size _debug_has_internal_overlap _dim_arange
    _embedding_bag_sparse_backward _fused_rms_norm _gather_sparse_backward _has_compatible_shallow_copy_type
    _is_zerotensor _lu_with_info _nnpack_available _pack_padded_sequence_backward _pad_circular _pad_enum
    _pad_packed_sequence _propagate_xla_data _remove_batch_dim _reshape_from_tensor _rowwise_prune
    _saturate_weight_to_fp16 _scaled_dot_product_attention_math _shape_as_tensor _sobol_engine_draw _sobol_engine_ff
    _sobol_engine_initialize_state _sobol_engine_scramble _sparse_bsc_tensor_unsafe _sparse_bsr_tensor_unsafe
    _sparse_compressed_tensor_unsafe _sparse_coo_tensor_unsafe _sparse_csc_tensor_unsafe _sparse_csr_tensor_unsafe
    _sparse_mm _thnn_differentiable_gru_cell_backward _thnn_differentiable_lstm_cell_backward
    _thnn_fused_lstm_cell_backward _to_cpu _unpack_dual _use_cudnn_rnn_flatten_weight
    _validate_sparse_bsc_tensor_args _validate_sparse_bsr_tensor_args _validate_sparse_compressed_tensor_args
    _validate_sparse_coo_tensor_args _validate_sparse_csc_tensor_args _validate_sparse_csr_tensor_args _version
    _weight_norm _weight_norm_differentiable_backward _wrapped_linear_prepack _wrapped_quantized_linear_prepacked
    absolute adaptive_max_pool1d adjoint affine_grid_generator_backward alpha_dropout arccos arccosh arcsin arcsinh
    arctan arctan2 arctanh argsort argwhere atleast_1d atleast_2d atleast_3d batch_norm bilinear broadcast_tensors
    broadcast_to can_cast cartesian_prod cdist chain_matmul chalf choose_qparams_optimized chunk clip coalesce
    column_stack combinations concat concatenate conj contiguous conv1d conv2d conv3d conv_tbc_backward
    conv_transpose1d conv_transpose2d conv_transpose3d corrcoef cosine_embedding_loss cosine_similarity cov cross
    cross_entropy_loss ctc_loss cudnn_is_acceptable cummaxmin_backward cumprod_backward cumulative_trapezoid data
    det diag diagflat diff dim divide dropout dsplit dstack einsum embedding_backward embedding_bag
    embedding_sparse_backward expand_as fake_quantize_per_channel_affine
    fake_quantize_per_channel_affine_cachemask_backward fake_quantize_per_tensor_affine
    fake_quantize_per_tensor_affine_cachemask_backward fbgemm_linear_fp16_weight
    fbgemm_linear_fp16_weight_fp32_activation fbgemm_linear_int8_weight fbgemm_linear_int8_weight_fp32_activation
    fbgemm_linear_quantize_weight fbgemm_pack_gemm_matrix_fp16 fbgemm_pack_quantized_matrix feature_alpha_dropout
    feature_dropout fft_fft fft_fft2 fft_fftn fft_fftshift fft_hfft fft_hfft2 fft_hfftn fft_ifft fft_ifft2 fft_ifftn
    fft_ifftshift fft_ihfft fft_ihfft2 fft_ihfftn fft_irfft fft_irfft2 fft_irfftn fft_rfft fft_rfft2 fft_rfftn
    fill_diagonal fix flatten flatten_dense_tensors fliplr flipud float_power frobenius_norm
    fused_moving_avg_obs_fake_quant gather_backward ger get_device get_gradients gradient greater greater_equal
    grid_sampler group_norm gru gru_cell hinge_embedding_loss histogramdd hsplit hstack imag index_select_backward
    infinitely_differentiable_gelu_backward inner instance_norm inverse is_complex is_conj is_contiguous
    is_distributed is_floating_point is_inference is_leaf is_neg is_nonzero is_signed is_vulkan_available isclose
    isfinite isreal istft item kl_div kron l1_loss layer_norm less less_equal linalg_cholesky linalg_cond linalg_det
    linalg_diagonal linalg_eigh linalg_eigvalsh linalg_inv linalg_ldl_factor linalg_lu_factor linalg_matmul
    linalg_matrix_norm linalg_matrix_power linalg_matrix_rank linalg_multi_dot linalg_norm linalg_slogdet
    linalg_solve linalg_solve_ex linalg_svd linalg_svdvals linalg_tensorinv linalg_tensorsolve linalg_vander
    linalg_vecdot log_sigmoid logdet lstm lstm_cell lu_solve mH mT margin_ranking_loss masked_select_backward matmul
    matrix_H matrix_exp matrix_exp_backward matrix_power max_pool1d max_pool1d_with_indices max_pool2d max_pool3d
    meshgrid mish_backward moveaxis movedim msort multilabel_margin_loss multiply nanmean nanquantile narrow
    native_channel_shuffle negative nested_to_padded_tensor nll_loss nll_loss2d nll_loss_nd nonzero_numpy
    norm_except_dim not_equal nuclear_norm numel numpy_T one_hot orgqr outer output_nr pad pad_sequence
    pairwise_distance pdist pin_memory pinverse poisson_nll_loss positive prelu promote_types qr quantile
    quantized_gru_cell quantized_lstm_cell quantized_rnn_relu_cell quantized_rnn_tanh_cell ravel real relu6
    requires_grad reshape reshape_as resolve_conj resolve_neg result_type retain_grad retains_grad rms_norm rnn_relu
    rnn_relu_cell rnn_tanh rnn_tanh_cell row_stack rrelu scaled_dot_product_attention selu set_data size slogdet
    slow_conv3d smm sparse_bsc_tensor sparse_bsr_tensor sparse_csc_tensor sparse_csr_tensor special_digamma
    special_erf special_erfc special_erfinv special_exp2 special_expit special_expm1 special_gammainc
    special_gammaincc special_gammaln special_i0 special_log1p special_log_softmax special_logit special_logsumexp
    special_multigammaln special_ndtr special_polygamma special_psi special_round special_sinc special_softmax
    special_xlogy square stft storage_offset stride subtract sum_to_size svd swapaxes swapdims take_along_dim
    tensor_split tensordot thnn_conv2d tile to to_dense to_dense_backward to_mkldnn_backward to_sparse to_sparse_bsc
    to_sparse_bsr to_sparse_csc to_sparse_csr trace_backward trapezoid trapz triplet_margin_loss true_divide type_as
    unflatten unflatten_dense_tensors unsafe_chunk value_selecting_reduction_backward vander view_as vsplit vstack
    """.split()
)
PARTLY = frozenset(
    """_convolution convolution convolution_overrideable linear log_softmax softmax _safe_softmax max min mean nanmean
    std std_mean var var_mean logsumexp norm dist renorm count_nonzero isnan clone _to_copy zeros ones full eye
    zeros_like ones_like full_like new_zeros new_ones new_full rand randn randint rand_like randn_like randint_like
    randperm normal bernoulli multinomial native_dropout native_dropout_backward stack repeat roll rot90 flip fill
    constant_pad_nd block_diag diag_embed slice_backward select_backward diagonal_backward unfold_backward
    select_scatter slice_scatter diagonal_scatter as_strided_scatter masked_fill masked_scatter
    masked_scatter_backward index_put put _index_put_impl _unsafe_index_put embedding _embedding_bag_backward
    _scaled_dot_product_attention_math _euclidean_dist addr mv addbmm vdot _scaled_mm _scaled_mm_v2 _trilinear
    adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d avg_pool1d linalg_pinv linalg_eigvals linalg_inv_ex
    _linalg_solve_ex linalg_lu linalg_matrix_exp _linalg_det _linalg_slogdet cholesky_solve logcumsumexp cummax cummin
    relu celu selu hardtanh rsub rad2deg deg2rad isinf isclose allclose conj_physical silu_backward glu_backward
    binary_cross_entropy_with_logits soft_margin_loss soft_margin_loss_backward mvlgamma rrelu_with_noise_backward
    repeat_interleave channel_shuffle split_with_sizes_copy unbind_copy alias_copy view_copy expand_copy permute_copy
    transpose_copy t_copy squeeze_copy unsqueeze_copy _sparse_softmax _sparse_log_softmax _sparse_sum
    upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_nearest1d upsample_nearest2d
    upsample_nearest3d upsample_bicubic2d
    """.split()
)
_EVENTS = re.compile(
    r"autograd::engine::evaluate_function:|torch::autograd::|\w+Backward\d*$|Optimizer\.|ProfilerStep#|enumerate\("
    r"|nn\.Module:|Torch-Compiled Region|CompiledFunction|## |detach_?$|DistributedDataParallel\.|Lightning|\["
)


@lru_cache(1 << 14)
def is_wrapper(name: str) -> bool:
    """Whether an event of this name leaves its work to the ops inside it (composite ops, autograd's own events)."""
    return table_name(name) in COMPOSITE or _EVENTS.match(name) is not None


@lru_cache(1 << 14)
def is_partly_wrapper(name: str) -> bool:
    """Whether it does so on some devices only."""
    return table_name(name) in PARTLY or table_name(name).startswith("_foreach_")
