"""Ops that move no data: they make a new view, allocate without writing, or ask about a tensor."""

from __future__ import annotations

from gobrrr.ledger.work.call import Call
from gobrrr.ledger.work.model import NOTHING, Work
from gobrrr.ledger.work.registry import formula

VIEWS = """view _unsafe_view view_as expand expand_as permute transpose t T mT H mH adjoint numpy_T movedim moveaxis
    swapaxes swapdims squeeze unsqueeze select slice narrow split split_with_sizes chunk tensor_split hsplit vsplit
    dsplit unsafe_chunk unsafe_split_with_sizes unbind diagonal linalg_diagonal as_strided _reshape_alias reshape_as
    unflatten flatten ravel unfold alias detach lift_fresh view_as_real view_as_complex _conj conj _neg_view real_view
    imag_view resolve_conj resolve_neg positive_view atleast_1d atleast_2d atleast_3d values indices _values _indices
    crow_indices col_indices _nested_view_from_buffer set set_data _has_compatible_shallow_copy_type
    _propagate_xla_data _coalesced"""
ALLOCATIONS = """empty empty_like empty_strided empty_permuted new_empty new_empty_strided empty_quantized
    _empty_affine_quantized _empty_per_channel_affine_quantized _efficientzerotensor resize resize_as
    _resize_output resize_output"""
QUESTIONS = """size stride numel dim is_complex is_floating_point is_signed is_same_size is_pinned is_nonzero
    is_contiguous result_type can_cast promote_types cudnn_is_acceptable _cudnn_init_dropout_state q_scale
    q_zero_point qscheme q_per_channel_scales q_per_channel_zero_points q_per_channel_axis record_stream
    requires_grad output_nr _version retain_grad rename is_coalesced sparse_dim dense_dim is_inference
    _fw_primal _make_dual _unpack_dual sym_size sym_stride sym_numel sym_storage_offset is_vulkan_available
    _debug_has_internal_overlap _nnpack_available _linalg_check_errors _assert_async _assert_scalar
    _assert_tensor_metadata _functional_assert_async storage_offset profiler::_record_function_enter_new
    profiler::_record_function_exit"""


@formula(" ".join((VIEWS, ALLOCATIONS, QUESTIONS)))
def view(call: Call) -> Work:
    """No FLOPs and no bytes."""
    return NOTHING
