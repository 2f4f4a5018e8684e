"""Ops that only move or make numbers: copies, joins, fills, paddings and shuffles (no FLOPs, only traffic), views (no
traffic either) and random numbers."""

from __future__ import annotations

import math

from gobrrr.ledger.work.call import NOTHING, Call, Work, formula, work
from gobrrr.ledger.work.tensor import NotCounted, read, written


@formula("_to_copy")
def to_copy(call: Call) -> Work:
    """_to_copy(self, dtype, ...): read in the old dtype, written in the new."""
    x = call.tensor(0)
    return work("copy", 0, read(x), x.numel * call.dtype_size(1, x.itemsize))


@formula("narrow_copy")
def narrow_copy(call: Call) -> Work:
    """narrow_copy(self, dim, start, length)."""
    x = call.tensor(0)
    part = x.numel // max(x.shape[call.sizes(1)[0]], 1) * call.sizes(3)[0]
    return work("copy", 0, 2 * part * x.itemsize)


@formula("expand_copy as_strided_copy")
def expand_copy(call: Call) -> Work:
    """(self, size, ...): the size is that of the result; -1 keeps a dimension."""
    x, size = call.tensor(0), call.sizes(1)
    sizes = [s if s >= 0 else x.shape[i - len(size)] for i, s in enumerate(size)]
    out = math.prod(sizes)
    return work("copy", 0, min(out, x.distinct) * x.itemsize, out * x.itemsize)


@formula("repeat")
def repeat(call: Call) -> Work:
    """repeat(self, repeats)."""
    x = call.tensor(0)
    return work("copy", 0, read(x), written(x) * math.prod(call.sizes(1)))


@formula("repeat_interleave")
def repeat_interleave(call: Call) -> Work:
    """repeat_interleave(repeats, output_size): indices, as many as the repeats add up to, where that was said."""
    x, size = call.tensor(0), call.ints(1)
    return work("copy", 0, read(x), size[0] * 8 if size else written(x))


@formula("cat _cat concat stack hstack vstack block_diag _chunk_cat")
def cat(call: Call) -> Work:
    """Every member read once and written once. Block_diag also writes the zeros between."""
    members = call.members(0)
    if call.name == "block_diag":
        shapes = [(*([1] * (2 - len(t.shape))), *t.shape) for t in members]
        out = sum(s[0] for s in shapes) * sum(s[1] for s in shapes) * members[0].itemsize
        return work("copy", 0, read(*members), out)
    return work("copy", 0, read(*members), written(*members))


DTYPE_AT = {"zeros_like": 1, "ones_like": 1, "full_like": 2, "new_zeros": 2, "new_ones": 2, "new_full": 3}


@formula(DTYPE_AT)
def fill_like(call: Call) -> Work:
    """zeros_like(self, dtype, ...), full_like(self, value, dtype, ...), new_full(self, size, value, dtype, ...)."""
    x = call.tensor(0)
    numel = math.prod(call.sizes(1)) if call.name.startswith("new") else x.numel
    return work("copy", 0, numel * call.dtype_size(DTYPE_AT[call.name], x.itemsize))


@formula("zeros ones full eye tril_indices triu_indices arange range linspace logspace scalar_tensor")
def create(call: Call) -> Work:
    """Written once. arange and linspace pass out= or their bounds; the size is then counted from the bounds."""
    given = [t for t in call.tensors() if t.shape]
    if given:
        return work("copy", 0, written(given[-1]))
    return work("copy", 0, _created(call))


def _created(call: Call) -> float:
    """Bytes that a factory writes; the dtype follows the sizes, float32 (int64 for counts) where it is left out."""
    if call.name in ("zeros", "ones", "full"):
        return math.prod(call.sizes(0)) * call.dtype_size(2 if call.name == "full" else 1, 4)
    if call.name == "scalar_tensor":
        return call.dtype_size(1, 4)
    plain = [call.text(i) for i in range(len(call.args))]
    if call.name == "eye":
        square = len(call.args) == 5
        rows, columns = call.sizes(0)[0], call.sizes(0 if square else 1)[0]
        return rows * columns * call.dtype_size(1 if square else 2, 4)
    if call.name in ("linspace", "logspace"):
        return call.number(2) * call.dtype_size(4 if call.name == "logspace" else 3, 4)
    if call.name == "arange":
        return _arange(call, plain)
    rows, columns = call.sizes(0)[0], call.ints(1)[0]
    return rows * columns * 8


def _arange(call: Call, plain: list[str]) -> float:
    """arange(end), (start, end) or (start, end, step), each followed by dtype, layout, device, pin_memory."""
    count = len(call.args) - 4
    bounds = [float(text) for text in plain[:count] if text]
    if not 1 <= count <= 3 or len(bounds) != count:
        raise NotCounted("bounds of arange were not recorded")
    start, end = (0.0, bounds[0]) if count == 1 else bounds[:2]
    numel = max(math.ceil((end - start) / (bounds[2] if count == 3 else 1.0)), 0)
    whole = all("." not in text and "e" not in text for text in plain[:count])
    return numel * call.dtype_size(count, 8 if whole else 4)


@formula("""constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d
    replication_pad3d""")
def pad(call: Call) -> Work:
    """pad(self, padding): pairs for the last dimensions, last first; negative ones crop."""
    x, pads = call.tensor(0), call.sizes(1)
    sizes = list(x.shape)
    for i in range(len(pads) // 2):
        sizes[-1 - i] += pads[2 * i] + pads[2 * i + 1]
    out = math.prod(sizes)
    return work("copy", 0, min(out, x.distinct) * x.itemsize, out * x.itemsize)


@formula("select_backward slice_backward diagonal_backward unfold_backward")
def view_backward(call: Call) -> Work:
    """(grad, input_sizes, ...): the whole input's gradient is written, zeros around the slice."""
    grad = call.tensor(0)
    return work("copy", 0, read(grad), math.prod(call.sizes(1)) * grad.itemsize)


@formula("select_scatter slice_scatter diagonal_scatter as_strided_scatter")
def view_scatter(call: Call) -> Work:
    """(self, src, ...): a copy of self with one slice replaced."""
    x, source = call.tensor(0), call.tensor(1)
    kept = min(x.numel - min(source.numel, x.numel), x.distinct)
    return work("copy", 0, kept * x.itemsize, read(source), written(x))


@formula("diag_embed")
def diag_embed(call: Call) -> Work:
    """A square matrix for each last row, zeros off its diagonal."""
    x, offset = call.tensor(0), call.ints(1)
    side = (x.shape[-1] if x.shape else 1) + abs(offset[0] if offset else 0)
    rows = x.numel // max(x.shape[-1] if x.shape else 1, 1)
    return work("copy", 0, read(x), rows * side * side * x.itemsize)


# Ops that move no data: they make a new view, allocate without writing, or ask about a tensor.

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


# Random numbers: one FLOP per draw by convention (a generator does tens of integer operations); written once.


@formula("normal uniform random exponential cauchy log_normal geometric bernoulli poisson _standard_gamma binomial")
def draw(call: Call) -> Work:
    """normal_(self, ...) fills self; normal(mean, std) and bernoulli(p) read their parameters."""
    tensors = call.tensors()
    if call.in_place:
        return work("random", tensors[0].numel, read(*tensors[1:]), written(tensors[0]))
    if not tensors:
        numel = math.prod(call.sizes(2))
        return work("random", numel, 4 * numel)
    largest = max(tensors, key=lambda t: t.numel)
    return work("random", largest.numel, read(*tensors), written(largest))


@formula("rand_like randn_like randint_like")
def draw_like(call: Call) -> Work:
    """The shape and dtype of self, which is not read."""
    x = call.tensor(0)
    return work("random", x.numel, x.numel * call.dtype_size(len(call.args) - 5, x.itemsize))


@formula("rand randn randint")
def draw_new(call: Call) -> Work:
    """rand(size, ..., dtype, layout, device, pin_memory): float32; randint([low,] high, size, ...): int64, or given."""
    whole = call.name == "randint"
    at = next((i for i in range(1, 3) if call.text(i).startswith("[")), 1) if whole else 0
    numel = math.prod(call.sizes(at))
    return work("random", numel, numel * call.dtype_size(len(call.args) - 4, 8 if whole else 4))


@formula("randperm")
def permutation(call: Call) -> Work:
    """randperm(n): a draw and a swap per element."""
    n = int(call.number(0))
    return work("random", n, 8 * n)


@formula("multinomial")
def multinomial(call: Call) -> Work:
    """multinomial(p (..., n), num_samples): a running sum over the weights, then a search per sample."""
    x, samples = call.tensor(0), int(call.number(1, 1))
    rows = x.numel // max(x.shape[-1], 1)
    steps = math.log2(max(x.shape[-1], 2))
    return work("random", x.numel + rows * samples * steps, read(x), 8 * rows * samples)
