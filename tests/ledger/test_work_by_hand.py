"""Work per op, family by family, with the sums done by hand: FLOPs as the family says, bytes as the tensors are.

Sizes are chosen so that no two of them are equal: a dimension that is taken for another shows.
"""

# ruff: noqa: E501  (a case is a line)
from __future__ import annotations

import math

import pytest

from tests.ledger.test_work import B, F, H, L, call, check, counted

INT, D, Z, BOOL = "int", "double", "c10::complex<float>", "bool"


X, N = (F, 2, 3, 11, 13), 2 * 3 * 4


@pytest.mark.parametrize(
    ("args", "rows", "columns"),
    [
        ([[3, 5], [2, 4], [1, 2], [2, 1], False], 5, 4),  # (11 + 2 - 4 - 1) / 2 + 1, (13 + 4 - 4 - 1) / 4 + 1
        ([[3, 5], [], [0, 0], [1, 1], False], 3, 2),  # the stride is the kernel's
        ([[3, 5], [], [0, 0], [1, 1], True], 4, 3),  # rounded up
        ([[3], [2], [1], [1], False], 6, 7),  # one number for both
        ([[2, 2], [3, 3], [1, 1], [1, 1], True], 4, 5),  # rounded up to 5 and 6, whose last begin beyond the input
    ],
)
def test_windows_of_a_pool(args: list[object], rows: int, columns: int) -> None:
    """The shapes are torch's (held against it below); a comparison for each element of a window."""
    kernel = args[0]
    area = math.prod(kernel * 2 if len(kernel) == 1 else kernel)  # type: ignore[arg-type]
    out, read = 6 * rows * columns, 4 * 6 * 143
    check("max_pool2d", [X, *args], out * area, read + 4 * out)
    check("max_pool2d_with_indices", [X, *args], out * area, read + 12 * out)
    torch = pytest.importorskip("torch")
    how = dict(zip(("kernel_size", "stride", "padding", "dilation", "ceil_mode"), args, strict=True))
    how["stride"] = how["stride"] or None
    assert torch.nn.functional.max_pool2d(torch.empty(X[1:], device="meta"), **how).shape[2:] == (rows, columns)


@pytest.mark.parametrize(
    ("name", "args", "flops", "size"),
    [
        # a window's sum, and a division
        ("avg_pool2d", [X, [3, 5], [2, 4], [1, 2], False, True, None], 6 * 24 * 16, 4 * 858 + 4 * 6 * 24),
        ("avg_pool1d", [(F, 2, 3, 13), [3], [2], [0], False, True], 36 * 4, 4 * 78 + 4 * 36),
        ("avg_pool1d", [(F, 2, 3, 14), [3], [2], [0], True, True], 42 * 4, 4 * 84 + 4 * 42),
        ("max_pool1d", [(F, 2, 3, 13), [3], [2], [0], [1], False], 36 * 3, 4 * 78 + 4 * 36),
        ("max_pool3d", [(F, 3, 5, 7, 9), [2, 3, 4], [], [0, 0, 0], [1, 1, 1], False], 24 * 24, 4 * 945 + 4 * 24),
        ("_adaptive_avg_pool2d", [X, [4, 5]], 858 + 120, 4 * 858 + 4 * 120),
        ("adaptive_max_pool2d", [X, [4]], 858 + 96, 4 * 858 + 12 * 96),
        ("_adaptive_avg_pool3d", [(F, 3, 5, 7, 9), [2, 3, 4]], 945 + 72, 4 * 945 + 4 * 72),
        ("adaptive_max_pool3d", [(F, 3, 5, 7, 9), [2, 3, 4]], 945 + 72, 4 * 945 + 12 * 72),
        ("fractional_max_pool2d", [X, [2, 2], [4, 5], (F, 2, 3, 2)], 858 + 120, 4 * 858 + 12 * 120),
        # every gradient goes to its maximum, or is spread over its window
        ("max_pool2d_with_indices_backward", [(F, 6, 20), (F, 6, 80), [2, 2], [2, 2], [0, 0], [1, 1], False, (L, 6, 20)],
         120, 480 + 960 + 1920),
        ("avg_pool2d_backward", [(F, 6, 20), (F, 6, 80), [2, 2], [2, 2], [0, 0], False, True, None], 480, 480 + 1920),
        ("_adaptive_avg_pool2d_backward", [(F, 6, 20), (F, 6, 80)], 120, 480 + 1920),
        ("max_unpool2d", [(F, 2, 3, 4, 5), (L, 2, 3, 4, 5), [8, 10]], 0, 480 + 960 + 4 * 6 * 80),
        ("max_unpool3d", [(F, 3, 2, 4, 5), (L, 3, 2, 4, 5), [4, 8, 10], [2], [0]], 0, 480 + 960 + 4 * 3 * 320),
        # a weight and a sum for each of the inputs that an output is mixed from: 2, 4, 8 and 16
        ("upsample_linear1d", [(F, 2, 3, 5), [9], False, None], 2 * 2 * 54, 120 + 216),
        ("upsample_bilinear2d", [(F, 2, 3, 5, 7), [9, 11], False, None, None], 2 * 4 * 594, 840 + 2376),
        ("_upsample_bilinear2d_aa", [(F, 2, 3, 5, 7), [9, 11], False, None, None], 2 * 4 * 594, 840 + 2376),
        ("upsample_trilinear3d", [(F, 2, 3, 2, 3, 4), [3, 4, 5], False], 2 * 8 * 360, 576 + 1440),
        ("upsample_bicubic2d", [(F, 2, 3, 5, 7), [9, 11], False, None, None], 2 * 16 * 594, 840 + 2376),
        ("upsample_nearest2d", [(F, 2, 3, 5, 7), [9, 11], None, None], 0, 840 + 2376),
        ("upsample_nearest2d", [(F, 2, 3, 5, 7), [2, 3], None, None], 0, 144 + 144),
        ("upsample_bilinear2d", [(F, 2, 3, 5, 7), [2, 3], False, None, None], 2 * 4 * 36, 840 + 144),
        ("upsample_bilinear2d_backward", [(F, 2, 3, 9, 11), [9, 11], [2, 3, 5, 7], False], 2 * 4 * 594, 2376 + 840),
        ("upsample_nearest2d_backward", [(F, 2, 3, 9, 11), [9, 11], [2, 3, 5, 7]], 594, 2376 + 840),
        # 2 x 3 channels at 4 x 5 points of two coordinates, mixed from four neighbours each
        ("grid_sampler_2d", [(F, 2, 3, 11, 13), (F, 2, 4, 5, 2), 0, 0, False], 2 * 4 * 120, 4 * 480 + 320 + 480),
        ("grid_sampler_2d", [(F, 2, 3, 11, 13), (F, 2, 4, 5, 2), 1, 0, False], 0, 480 + 320 + 480),
        ("grid_sampler_2d", [(F, 2, 3, 11, 13), (F, 2, 4, 5, 2), 2, 0, False], 2 * 16 * 120, 4 * 858 + 320 + 480),
        ("grid_sampler_3d", [(F, 1, 3, 4, 5, 6), (F, 1, 2, 3, 4, 3), 0, 0, False], 2 * 8 * 72, 1440 + 288 + 288),
        ("grid_sampler_2d_backward", [(F, 2, 3, 4, 5), (F, 2, 3, 11, 13), (F, 2, 4, 5, 2), 0, 0, False, [True, True]],
         2 * 4 * 120 * 2, 480 + 3432 + 320 + 3432 + 320),
        ("grid_sampler_2d_backward", [(F, 2, 3, 4, 5), (F, 2, 3, 11, 13), (F, 2, 4, 5, 2), 1, 0, False, [False, True]],
         2 * 120, 480 + 3432 + 320 + 320),
        ("grid_sampler_2d_backward", [(F, 2, 3, 4, 5), (F, 2, 3, 11, 13), (F, 2, 4, 5, 2), 2, 0, False, [True, False]],
         2 * 16 * 120, 480 + 3432 + 320 + 3432),
        # windows of 2 x 3, 2 x 1 apart inside, strides 3 and 2: (11 + 2 - 2 - 1) // 3 + 1 = 4, (13 + 4 - 2 - 1) // 2 + 1 = 8
        ("im2col", [(F, 2, 3, 11, 13), [2, 3], [2, 1], [1, 2], [3, 2]], 0, 3432 + 4 * 6 * 6 * 32),
        ("im2col", [(F, 2, 3, 11, 13), [1, 1], [1, 1], [0, 0], [4, 4]], 0, 2 * 4 * 6 * 12),
        ("col2im", [(F, 2, 18, 9), [5, 7], [2, 3], [1, 1], [0, 0], [2, 2]], 324, 4 * 324 + 4 * 2 * 3 * 35),
    ],
)  # fmt: skip
def test_windows_and_interpolations(name: str, args: list[object], flops: float, size: float) -> None:
    check(name, args, flops, size)


@pytest.mark.parametrize(
    ("name", "args", "flops", "size"),
    [
        ("nansum", [(F, 11, 7), [1], False, None], 2 * 77, 308 + 44),
        ("sum", [(F, 11, 7), 7], 77, 308 + 8),
        ("sum", [(F, 11, 7), [0, -1], False, 7], 77, 308 + 8),
        ("sum", [(L, 11, 7), [0], True, None], 77, 616 + 56),
        ("mean", [(F, 11, 7), 7], 77, 308 + 8),
        ("prod", [(BOOL, 11, 7), 1, False, None], 77, 77 + 88),
        ("amax", [(F, 11, 7), [0], False], 77, 308 + 28),
        ("amin", [(F, 11, 7), [], False], 77, 308 + 4),
        ("aminmax", [(F, 11, 7), 1, False], 2 * 77, 308 + 88),
        ("_aminmax", [(F, 11, 7)], 2 * 77, 308 + 8),
        ("argmax", [(F, 11, 7), None, False], 77, 308 + 8),
        ("all", [(BOOL, 11, 7), 1, False], 77, 77 + 11),
        ("any", [(BOOL, 11, 7)], 77, 77 + 1),
        ("logsumexp", [(F, 11, 7), [1], False], 3 * 77, 308 + 44),
        ("std", [(F, 11, 7), [1], True, False], 4 * 77, 308 + 44),
        ("var_mean", [(F, 11, 7), [1], True, False], 4 * 77, 308 + 88),
        ("linalg_vector_norm", [(F, 11, 7), 2, [1], False, None], 2 * 77, 308 + 44),
        ("linalg_vector_norm", [(Z, 11, 7), 2, [1], False, None], 2 * 77, 616 + 44),
        ("linalg_vector_norm", [(F, 11, 7), 2, [1], False, 7], 2 * 77, 308 + 88),
        ("norm", [(F, 11, 7), 2, [0], True], 2 * 77, 308 + 28),
        ("norm", [(F, 11, 7), 2], 2 * 77, 308 + 4),
        ("count_nonzero", [(F, 11, 7), None], 77, 308 + 8),
        ("max", [(F, 11, 7)], 77, 308 + 4),
        ("min", [(F, 11, 7), 0, False], 77, 308 + 7 * 12),
        ("min", [(F, 11, 7), (F, 7)], 77, 308 + 28 + 308),
        ("max", [(F,), 0, False], 1, 4 + 12),
        ("cumsum", [(INT, 11, 7), 0, None], 77, 308 + 616),
        ("cumprod", [(F, 11, 7), 0, None], 77, 308 + 308),
        ("cummax", [(F, 11, 7), 0], 77, 308 + 308 + 616),
        ("_cummin_helper", [(F, 11, 7), (F, 11, 7), (L, 11, 7), 0], 77, 308 + 308 + 616),
        ("logcumsumexp", [(F, 11, 7), 0], 4 * 77, 308 + 308),
        ("_logcumsumexp", [(F, 11, 7), 0], 4 * 77, 308 + 308),
        ("dist", [(F, 11, 7), (F, 7), 2], 3 * 77, 308 + 28 + 4),
        ("trace", [(F, 11, 7)], 7, 28 + 4),
        ("renorm", [(F, 11, 7), 2, 0, 1.0], 3 * 77, 616),
        ("_local_scalar_dense", [(D,)], 0, 8),
        # 11 rows in segments of given lengths: 3 of them; by offsets one fewer than are given
        ("segment_reduce", [(F, 11, 7), "sum", (L, 3), None, None, 0, False, None], 77, 308 + 24 + 84),
        ("segment_reduce", [(F, 11, 7), "sum", None, None, (L, 4), 0, False, None], 77, 308 + 32 + 84),
        ("_segment_reduce_backward", [(F, 3, 7), (F, 3, 7), (F, 11, 7), "sum", (L, 3), None, 0, None], 77, 84 + 84 + 308 + 308),
        ("bincount", [(L, 11), (F, 11), 0], 11, 88 + 44),
        ("histc", [(F, 11, 7), 100, 0, 0], 77, 308),
        ("histogram", [(F, 11, 7), 100, None, None, False], 77, 308),
    ],
)  # fmt: skip
def test_reductions_and_scans(name: str, args: list[object], flops: float, size: float) -> None:
    check(name, args, flops, size)


@pytest.mark.parametrize(
    ("name", "args", "flops", "size"),
    [
        # n log2 n comparisons for a sort of 16 or 64, n for a selection; int64 indices beside the values
        ("sort", [(F, 16, 64), -1, False], 1024 * 6, 4096 * 2 + 8192),
        ("sort", [(F, 16, 64), 0, False], 1024 * 4, 4096 * 2 + 8192),
        ("sort", [(F, 16, 64), True, 0, False], 1024 * 4, 4096 * 2 + 8192),
        ("sort", [(F, 16, 64), None, 0, True], 1024 * 4, 4096 * 2 + 8192),
        ("sort", [(F,), -1, False], 1, 16),
        ("msort", [(F, 64)], 64 * 6, 512 + 512),
        ("topk", [(F, 16, 64), 4, 0, True, True], 1024 + 256 * 2, 4096 + 256 * 12),
        ("topk", [(F, 16, 64), 4, None, True, True], 1024 + 64 * 2, 4096 + 64 * 12),
        ("kthvalue", [(F, 16, 64), 4, 0, False], 2048, 4096 + 64 * 12),
        ("kthvalue", [(F, 16, 64), 4, None, False], 2048, 4096 + 16 * 12),
        ("median", [(F, 16, 64)], 2048, 4096 + 4),
        ("median", [(F, 16, 64), 0, False], 2048, 4096 + 64 * 12),
        ("nanmedian", [(F, 16, 64), -1, False], 2048, 4096 + 16 * 12),
        ("mode", [(F, 16, 64), 0, False], 1024 * 4, 4096 + 64 * 12),
        ("_unique2", [(F, 64), True, False, False], 64 * 6, 256),
        ("_unique2", [(F, 64), True, True, False], 64 * 6, 256 + 512),
        ("_unique", [(F, 64), True, True], 64 * 6, 256 + 512),
        ("unique_dim", [(F, 16, 64), 0, True, True, False], 1024 * 10, 4096 + 128),
        ("unique_consecutive", [(F, 64), True, False, None], 64, 256 + 512),
        ("unique_consecutive", [(F, 16, 64), True, False, 1], 1024, 4096 + 512),
    ],
)
def test_sorts_and_selections(name: str, args: list[object], flops: float, size: float) -> None:
    check(name, args, flops, size)


PAIR = [(F, 11, 7), (F, 11, 7)]


@pytest.mark.parametrize(
    ("name", "args", "flops", "size"),
    [
        # one value: the mean (1) or the sum (2); else one for each element
        ("mse_loss", [*PAIR, 1], 3 * 77, 616 + 4),
        ("mse_loss", [*PAIR, 2], 3 * 77, 616 + 4),
        ("mse_loss", [*PAIR, 0], 3 * 77, 616 + 308),
        ("smooth_l1_loss", [*PAIR, 1, 1.0], 4 * 77, 616 + 4),
        ("huber_loss", [*PAIR, 0, 1.0], 4 * 77, 616 + 308),
        ("soft_margin_loss", [*PAIR, 1], 5 * 77, 616 + 4),
        ("binary_cross_entropy", [*PAIR, (F, 11, 7), 1], 6 * 77, 3 * 308 + 4),
        ("binary_cross_entropy_with_logits", [*PAIR, (F, 7), (F, 7), 1], 7 * 77, 616 + 56 + 4),
        ("mse_loss_backward", [(F,), *PAIR, 1], 3 * 77, 4 + 616 + 308),
        ("huber_loss_backward", [(F,), *PAIR, 1, 1.0], 4 * 77, 4 + 616 + 308),
        ("smooth_l1_loss_backward", [(F,), *PAIR, 1, 1.0], 4 * 77, 4 + 616 + 308),
        ("soft_margin_loss_backward", [(F,), *PAIR, 1], 5 * 77, 4 + 616 + 308),
        ("binary_cross_entropy_backward", [(F,), *PAIR, (F, 7), 1], 6 * 77, 4 + 616 + 28 + 308),
        ("multi_margin_loss_backward", [(F,), (F, 11, 7), (L, 11), 1, 1.0, (F, 7), 1], 3 * 77, 4 + 308 + 88 + 28 + 308),
        ("multilabel_margin_loss_backward", [(F,), (F, 11, 7), (L, 11, 7), 1, (F, 11, 7)], 3 * 77, 4 + 308 + 616 + 308 + 308),
        ("multi_margin_loss", [(F, 11, 7), (L, 11), 1, 1.0, (F, 7), 1], 3 * 77, 308 + 88 + 28 + 4),
        ("multi_margin_loss", [(F, 11, 7), (L, 11), 1, 1.0, None, 0], 3 * 77, 308 + 88 + 44),
        ("multi_margin_loss", [(F, 7), (L,), 1, 1.0, None, 0], 3 * 7, 28 + 8 + 4),
        ("multilabel_margin_loss_forward", [(F, 11, 7), (L, 11, 7), 0], 3 * 77, 308 + 616 + 44 + 308),
        ("multilabel_margin_loss_forward", [(F, 11, 7), (L, 11, 7), 1], 3 * 77, 308 + 616 + 4 + 308),
        # one class of 7 is read for each of 11 targets; the total weight is written beside the loss
        ("nll_loss_forward", [(F, 11, 7), (L, 11), (F, 7), 1, -100], 11, 44 + 88 + 28 + 8),
        ("nll_loss_forward", [(F, 11, 7), (L, 11), None, 0, -100], 11, 44 + 88 + 12 * 4),
        ("nll_loss_backward", [(F,), (F, 11, 7), (L, 11), (F, 7), 1, -100, (F,)], 11, 4 + 88 + 28 + 308),
        # 5 steps for 3 samples of 2 targets each: 5 states with the blanks between, 7 FLOPs each; of 4 classes
        ("_ctc_loss", [(F, 5, 3, 4), (L, 3, 2), [5], [2], 0, False], 7 * 75, 60 * 4 + 48 + 75 * 4),
        ("_ctc_loss", [(F, 5, 3, 40), (L, 6), [5], [2], 0, False], 7 * 75, 75 * 4 + 48 + 75 * 4),
        ("_ctc_loss", [(F, 5, 40), (L, 2), [5], [2], 0, False], 7 * 25, 25 * 4 + 16 + 25 * 4),
        ("_ctc_loss_backward", [(F, 3), (F, 5, 3, 4), (L, 3, 2), [5], [2], (F, 3), (F, 3, 5, 5), 0, False],
         7 * 75 + 3 * 60, 240 + 48 + 300 + 240),
        ("_softmax", [(H, 11, 7), 1, True], 5 * 77, 154 + 308),
        ("_masked_softmax", [(F, 11, 7), (BOOL, 11, 7), 1, None], 5 * 77, 308 + 77 + 308),
        ("_softmax_backward_data", [(F, 11, 7), (F, 11, 7), 1, 5], 4 * 77, 616 + 154),
    ],
)  # fmt: skip
def test_losses(name: str, args: list[object], flops: float, size: float) -> None:
    check(name, args, flops, size)


IMAGE, C = (F, 2, 3, 4, 5), (F, 3)


ALL = 120


@pytest.mark.parametrize(
    ("name", "args", "flops", "size"),
    [
        # 7 FLOPs an element, 4 where the statistics are given, 12 for gradients; statistics of 3 channels are 12 bytes
        ("native_batch_norm", [IMAGE, C, C, C, C, True, 0.1, 1e-5], 7 * ALL, 480 + 48 + 480 + 48),
        ("native_batch_norm", [IMAGE, C, C, None, None, True, 0.1, 1e-5], 7 * ALL, 480 + 24 + 480 + 24),
        ("native_batch_norm", [IMAGE, C, C, C, C, False, 0.1, 1e-5], 4 * ALL, 480 + 48 + 480),
        ("_native_batch_norm_legit", [IMAGE, C, C, True, 0.1, 1e-5], 7 * ALL, 480 + 24 + 480 + 24),
        ("cudnn_batch_norm", [IMAGE, C, C, C, C, True, 0.1, 1e-5], 7 * ALL, 480 + 48 + 480 + 48),
        ("_batch_norm_with_update", [IMAGE, C, C, C, C, 0.1, 1e-5], 7 * ALL, 480 + 48 + 480 + 48),
        ("_native_batch_norm_legit_functional", [IMAGE, C, C, C, C, 0.1, 1e-5], 7 * ALL, 480 + 48 + 480 + 48),
        ("_batch_norm_no_update", [IMAGE, C, C, C, C, 0.1, 1e-5], 4 * ALL, 480 + 48 + 480),
        ("_native_batch_norm_legit_no_training", [IMAGE, C, C, C, C, 0.1, 1e-5], 4 * ALL, 480 + 48 + 480),
        ("native_batch_norm", [(F, 11), None, None, None, None, True, 0.1, 1e-5], 7 * 11, 44 + 44 + 8),
        ("native_batch_norm_backward", [IMAGE, IMAGE, C, C, C, C, C, True, 1e-5, [True, True, True]], 12 * ALL,
         960 + 12 + 24 + 480 + 24),
        ("native_batch_norm_backward", [IMAGE, IMAGE, C, C, C, C, C, True, 1e-5, [False, True, False]], 12 * ALL,
         960 + 12 + 24 + 12),
        ("cudnn_batch_norm_backward", [IMAGE, IMAGE, C, C, C, C, C, 1e-5, (F, 9)], 12 * ALL, 960 + 12 + 24 + 480 + 24),
        ("native_group_norm", [(F, 2, 6, 4, 5), (F, 6), (F, 6), 2, 6, 20, 3, 1e-5], 7 * 240, 960 + 48 + 960 + 2 * 4 * 6),
        ("native_group_norm_backward", [(F, 2, 6, 20), (F, 2, 6, 20), (F, 2, 3), (F, 2, 3), (F, 6), 2, 6, 20, 3,
         [True, True, True]], 12 * 240, 1920 + 48 + 24 + 960 + 48),
        ("native_layer_norm", [(F, 11, 7), [7], None, None, 1e-5], 7 * 77, 616 + 8 * 11),
        ("native_layer_norm", [(F, 2, 11, 7), [11, 7], (F, 11, 7), (F, 11, 7), 1e-5], 7 * 154, 1232 + 616 + 8 * 2),
        ("_fused_rms_norm", [(F, 11, 7), [7], (F, 7), 1e-5], 7 * 77, 616 + 28 + 4 * 11),
        ("native_layer_norm_backward", [(F, 11, 7), (F, 11, 7), [7], (F, 11, 1), (F, 11, 1), (F, 7), (F, 7),
         [True, False, True]], 12 * 77, 616 + 88 + 28 + 308 + 28),
        ("_fused_rms_norm_backward", [(F, 11, 7), (F, 11, 7), [7], (F, 11, 1), (F, 7), [True, True]], 12 * 77,
         616 + 44 + 28 + 308 + 28),
        ("batch_norm_stats", [IMAGE, 1e-5], 4 * ALL, 480 + 24),
        ("batch_norm_stats", [(F, 11), 1e-5], 44, 44 + 8),
        ("batch_norm_elemt", [IMAGE, C, C, C, C, 1e-5], 4 * ALL, 480 + 48 + 480),
    ],
)  # fmt: skip
def test_normalisations(name: str, args: list[object], flops: float, size: float) -> None:
    check(name, args, flops, size)


def test_quantised_linear_layers_hold_their_weight_inside() -> None:
    """4 x 8 by 8 x 16 at one byte a weight, or two; other sizes inside are of its own doing."""
    for name, weight in (("linear_dynamic", 128), ("linear_relu_dynamic_fp16", 256)):
        work = counted(f"quantized::{name}", (F, 2, 2, 8), None, True, inner=((3, 3), (2, 2, 16), (2, 2, 5)))
        assert (work.flops, work.bytes) == (2 * 4 * 8 * 16, 128 + weight + 256)


@pytest.mark.parametrize(
    ("name", "args", "flops", "size"),
    [
        ("dot", [(Z, 7), (Z, 7)], 56, 8 * 15),
        ("addr", [(F, 11, 7), (F, 11), (F, 7), 1, 1], 154, 4 * (77 + 11 + 7 + 77)),
        ("ger", [(F, 11), (F, 7)], 154, 4 * (11 + 7 + 77)),
        ("_scaled_mm", [("c10::Float8_e4m3fn", 3, 4), ("c10::Float8_e4m3fn", 4, 5), (F,), (F,), (B, 5), None, 15, False],
         120, 12 + 20 + 8 + 10 + 30),
        ("_scaled_mm", [("c10::Float8_e4m3fn", 3, 4), ("c10::Float8_e4m3fn", 4, 5), (F,), (F,), None, None, None, False],
         120, 12 + 20 + 8 + 15),
        ("_grouped_mm", [(B, 2, 3, 4), (B, 2, 4, 5)], 240, 2 * (24 + 40 + 30)),
        ("_grouped_mm", [(B, 6, 4), (B, 2, 4, 5), (INT, 2)], 240, 2 * (24 + 40 + 30) + 8),
        ("linear", [(F, 4), (F, 5, 4), None], 40, 4 * (4 + 20 + 5)),
        ("mkl::_mkl_linear", [(F, 6, 4), (F, 99), (F, 5, 4), (F, 5), 6], 240, 4 * (24 + 99 + 20 + 5 + 30)),
        ("onednn::qlinear_pointwise", [("unsigned char", 6, 4), 0.1, 0, ("signed char", 4, 5), (F, 5), (L, 5)], 240, 24 + 20 + 30),
        ("_cdist_forward", [(F, 2, 1, 11, 4), (F, 3, 7, 4), 2.0, None], 3 * 6 * 77 * 4, 4 * (88 + 84 + 6 * 77)),
        ("_cdist_backward", [(F, 2, 11, 7), (F, 2, 11, 4), (F, 2, 7, 4), 2.0, (F, 2, 11, 7)], 4 * 154 * 4,
         4 * (154 + 88 + 56 + 154 + 88)),
        ("_pdist_backward", [(F, 55), (F, 11, 4), 2.0, (F, 55)], 4 * 55 * 4, 4 * (55 + 44 + 55 + 44)),
    ],
)  # fmt: skip
def test_products_of_other_forms(name: str, args: list[object], flops: float, size: float) -> None:
    check(name, args, flops, size)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("mv", [(F, 3, 4), (F, 5)]),
        ("bmm", [(F, 2, 3, 4), (F, 3, 4, 5)]),
        ("_grouped_mm", [(F, 4, 6), (F, 6, 5), (INT, 2)]),
        ("linear", [(F, 6, 4), (F, 5, 3), None]),
        ("onednn::qlinear_pointwise", [(F, 6, 4), 0.1, 0, (F, 5, 4), (F, 5), (L, 5)]),
        ("_cdist_forward", [(F, 11, 4), (F, 7, 5), 2.0, None]),
        ("convolution", [(F, 2, 4, 9), (F, 8, 4, 3, 3), None, [1], [0], [1], False, [0], 1]),
        ("convolution", [(F, 2, 4), (F, 8, 4), None, [], [], [], False, [], 1]),
        ("convolution", [(F, 2, 4, 9), (F, 8, 4, 3), None, [1], [0], [1], None, [0], 1]),
        (
            "convolution_backward",
            [(F, 2, 8, 7), (F, 2, 4, 9), (F, 8, 4, 3), [8], [1], [0], [1], None, [0], 1, [True] * 3],
        ),
        ("convolution_backward", [(F, 2, 8, 7), (F, 2, 4, 9), (F, 8, 4, 3), [8], [1], [0], [1], False, [0], 1, None]),
    ],
)
def test_what_does_not_fit_is_not_counted(name: str, args: list[object]) -> None:
    assert call(name, *args) is None
