"""Whether the bytes that an op is priced at fit what its tensors stand for, and for which ops only roughly.

Knows neither torch nor the formulas: the live walk over OpInfo and its recording are held to the same."""

from __future__ import annotations

from collections.abc import Mapping

# Arguments that are written over, or asked only for their shape or dtype, by position: they cost nothing to read.
_OVERWRITTEN = """copy_ fill_ fill zero_ zeros_like ones_like full_like rand_like randn_like randint_like new_zeros
    new_ones new_full uniform_ normal_ exponential_ cauchy_ log_normal_ geometric_ bernoulli_ random_ scatter_
    index_put_"""
_SHAPE_ONLY = """_adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward avg_pool2d_backward avg_pool3d_backward
    max_pool2d_with_indices_backward max_pool3d_with_indices_backward adaptive_max_pool2d_backward
    adaptive_max_pool3d_backward fractional_max_pool2d_backward fractional_max_pool3d_backward
    replication_pad1d_backward replication_pad2d_backward replication_pad3d_backward reflection_pad1d_backward
    reflection_pad2d_backward reflection_pad3d_backward nll_loss_backward nll_loss2d_backward"""
UNREAD: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(_OVERWRITTEN.split(), (0,)),
    **dict.fromkeys(_SHAPE_ONLY.split(), (1,)),
    **dict.fromkeys(("linspace", "logspace"), (0, 1)),
}
# Reads only what its indices, its output or its mask name; how much a mask or a unique keeps is not in the shapes.
AT_MOST = set(
    """embedding _embedding_bag _embedding_bag_backward _embedding_bag_per_sample_weights_backward gather take index
    index_select index_add index_add_ index_copy index_fill index_put index_put_ put scatter scatter_ nll_loss_forward
    nll_loss2d_forward nonzero nonzero_static masked_select masked_scatter _unique _unique2 unique_dim
    unique_consecutive bucketize searchsorted trace constant_pad_nd reflection_pad2d replication_pad2d
    upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d
    _upsample_nearest_exact3d grid_sampler_2d grid_sampler_3d im2col narrow_copy as_strided_copy _unsafe_masked_index
    _unsafe_masked_index_put_accumulate histc histogram bincount _histogramdd_bin_edges _histogramdd_from_bin_cts
    _histogramdd_from_bin_tensors _segment_reduce_backward select_scatter slice_scatter diagonal_scatter
    as_strided_scatter rrelu_with_noise""".split()
)
# Saved statistics, infos and pivots beside the results: relative tolerance, and an absolute one of some bytes each.
NEARLY = {
    **dict.fromkeys("native_batch_norm _native_batch_norm_legit _batch_norm_with_update".split(), 0.25),
    **dict.fromkeys("batch_norm_backward native_batch_norm_backward native_layer_norm_backward".split(), 0.25),
    **dict.fromkeys("native_group_norm_backward fractional_max_pool2d fractional_max_pool3d".split(), 0.25),
    **dict.fromkeys(
        "_ctc_loss _ctc_loss_backward nll_loss_backward nll_loss2d_backward masked_scatter_backward".split(), 0.1
    ),
    **dict.fromkeys("cat _chunk_cat _scaled_mm_v2".split(), 0.5),  # the dtype of a list's members is not recorded
    **dict.fromkeys("_cdist_backward grid_sampler_2d_backward grid_sampler_3d_backward segment_reduce".split(), 0.5),
}
LINALG = ("linalg_", "_linalg_", "geqrf", "ormqr", "lu_unpack", "cholesky", "triangular_solve")
BYTES_OF_INFO = 64


def really_read(name: str, reads: Mapping[int, int]) -> int:
    """Bytes behind the arguments that the op has to read."""
    return sum(size for i, size in reads.items() if i not in UNREAD.get(name, ()))


def agrees(name: str, got: float, held: Mapping[int, int], writes: int) -> bool:
    """Whether the bytes fit the op's class: exact, at most, nearly, or a factorisation's approximation."""
    reads = really_read(name, held)
    expected = reads + writes
    if name in AT_MOST:
        return got <= 1.05 * expected + BYTES_OF_INFO
    if name.startswith(LINALG) and not reads:
        return True  # factors of an empty matrix: an identity, which no formula is worth
    if name.startswith(LINALG):
        return 0.5 * expected - BYTES_OF_INFO <= got <= 2 * expected + BYTES_OF_INFO
    if name in NEARLY:
        return abs(got - expected) <= NEARLY[name] * expected + BYTES_OF_INFO
    return got == expected
