"""Work per op against formulas done by hand, and what happens where a call does not say enough."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.ledger.ops.pricing import Prices
from gobrrr.ledger.work import Work, is_wrapper, work_of
from gobrrr.ledger.work.attention import unmasked_share
from gobrrr.ledger.work.call import FORMULAS, formula
from gobrrr.ledger.work.elementwise import fused_work
from tests.support.handmade import machine

F, B, H, L = "float", "c10::BFloat16", "c10::Half", "long int"


def call(name: str, *args: object, strides: tuple[tuple[int, ...], ...] = (), **more: object) -> Work | None:
    """A call written short: (dtype, dims...) is a tensor, a list of those a list of tensors, the rest plain values."""
    shapes, dtypes, concrete = [], [], []
    for arg in args:
        if isinstance(arg, tuple):
            dtype, *dims = arg
            shapes.append(tuple(dims)), dtypes.append(dtype), concrete.append("")
        elif isinstance(arg, list) and arg and isinstance(arg[0], tuple):
            shapes.append(tuple(t[1:] for t in arg)), dtypes.append("TensorList"), concrete.append("")
        elif arg is None:
            shapes.append(()), dtypes.append(""), concrete.append("")
        else:
            kind = "ScalarList" if isinstance(arg, list) else "Scalar"
            shapes.append(()), dtypes.append(kind), concrete.append(str(arg))
    return work_of(f"aten::{name}" if "::" not in name else name, shapes, dtypes, concrete, strides, **more)  # type: ignore[arg-type]


def counted(name: str, *args: object, **more: object) -> Work:
    work = call(name, *args, **more)  # type: ignore[arg-type]
    assert work is not None, f"{name} is not counted"
    return work


def check(name: str, args: list[object], flops: float, size: float) -> None:
    """FLOPs and bytes."""
    work = counted(name, *args)
    assert (work.flops, work.bytes) == (pytest.approx(flops), size)


@pytest.mark.parametrize(
    ("name", "args", "flops", "size"),
    [
        ("mm", [(F, 3, 4), (F, 4, 5)], 2 * 3 * 4 * 5, 4 * (12 + 20 + 15)),
        ("mm", [(B, 3, 4), (B, 4, 5)], 120, 2 * (12 + 20 + 15)),
        ("mm", [("c10::complex<float>", 3, 4), ("c10::complex<float>", 4, 5)], 8 * 60, 8 * 47),
        ("addmm", [(F, 5), (F, 3, 4), (F, 4, 5), 1, 1], 120, 4 * (5 + 12 + 20 + 15)),
        ("addmm", [(F, 5), (F, 3, 4), (F, 4, 5), 0, 1], 120, 4 * (12 + 20 + 15)),
        ("bmm", [(F, 2, 3, 4), (F, 2, 4, 5)], 240, 4 * 2 * 47),
        ("baddbmm", [(F, 2, 3, 5), (F, 2, 3, 4), (F, 2, 4, 5), 1, 1], 240, 4 * 2 * (47 + 15)),
        ("addbmm", [(F, 3, 5), (F, 2, 3, 4), (F, 2, 4, 5), 1, 1], 240, 4 * (15 + 24 + 40 + 15)),
        ("mv", [(F, 3, 4), (F, 4)], 24, 4 * (12 + 4 + 3)),
        ("addmv", [(F, 3), (F, 3, 4), (F, 4), 1, 1], 24, 4 * (3 + 12 + 4 + 3)),
        ("dot", [(F, 7), (F, 7)], 14, 4 * 15),
        ("_int_mm", [("signed char", 32, 16), ("signed char", 16, 8)], 2 * 32 * 16 * 8, 512 + 128 + 4 * 256),
        ("linear", [(F, 2, 3, 4), (F, 5, 4), (F, 5)], 2 * 6 * 20, 4 * (24 + 20 + 5 + 30)),
        ("mkldnn::_linear_pointwise", [(F, 6, 4), (F, 5, 4), (F, 5), None, [], None], 240, 4 * (24 + 20 + 5 + 30)),
        ("_cdist_forward", [(F, 30, 4), (F, 31, 4), 2.0, None], 3 * 30 * 31 * 4, 4 * (120 + 124 + 930)),
        ("_weight_int8pack_mm", [(B, 6, 4), ("signed char", 5, 4), (B, 5)], 240, 48 + 20 + 10 + 60),
    ],
)
def test_matrix_products(name: str, args: list[object], flops: float, size: float) -> None:
    work = counted(name, *args)
    assert (work.kind, work.flops, work.bytes) == ("matmul", flops, size)


CONV = [(F, 2, 4, 10, 10), (F, 8, 4, 3, 3), (F, 8)]


@pytest.mark.parametrize(
    ("name", "args", "flops", "out"),
    [
        # (x, w, bias, stride, padding, dilation, transposed, output padding, groups)
        ("convolution", [*CONV, [1, 1], [1, 1], [1, 1], False, [0, 0], 1], 2 * 1600 * 36, (2, 8, 10, 10)),
        ("convolution", [*CONV, [2, 2], [0, 0], [1, 1], False, [0, 0], 1], 2 * 256 * 36, (2, 8, 4, 4)),
        ("convolution", [*CONV, [1, 1], [0, 0], [2, 2], False, [0, 0], 1], 2 * 576 * 36, (2, 8, 6, 6)),
        # transposed: every input element meets its filter; w is (in, out / groups, ...)
        (
            "convolution",
            [(F, 2, 4, 5, 5), (F, 4, 6, 3, 3), None, [2, 2], [1, 1], [1, 1], True, [1, 1], 1],
            2 * 200 * 54,
            (2, 6, 10, 10),
        ),
        # the libraries' own orders: padding before stride
        ("mkldnn_convolution", [*CONV, [1, 1], [2, 2], [1, 1], 1], 2 * 400 * 36, (2, 8, 5, 5)),
        ("cudnn_convolution", [*CONV[:2], [1, 1], [2, 2], [1, 1], 1, False, False, True], 2 * 400 * 36, (2, 8, 5, 5)),
        ("_slow_conv2d_forward", [*CONV[:2], [3, 3], (F, 8), [1, 1], [1, 1]], 2 * 1600 * 36, (2, 8, 10, 10)),
        (
            "slow_conv_transpose2d",
            [(F, 2, 4, 5, 5), (F, 4, 6, 3, 3), [3, 3], None, [2, 2], [1, 1], [1, 1], [1, 1]],
            2 * 200 * 54,
            (2, 6, 10, 10),
        ),
        # grouped and depthwise: the weight holds the channels of one group
        (
            "convolution",
            [(F, 2, 4, 10, 10), (F, 8, 2, 3, 3), None, [1, 1], [1, 1], [1, 1], False, [0, 0], 2],
            2 * 1600 * 18,
            (2, 8, 10, 10),
        ),
        (
            "_conv_depthwise2d",
            [(F, 2, 8, 10, 10), (F, 8, 1, 3, 3), [3, 3], None, [1, 1], [1, 1], [1, 1]],
            2 * 1600 * 9,
            (2, 8, 10, 10),
        ),
    ],
)
def test_convolutions(name: str, args: list[object], flops: float, out: tuple[int, ...]) -> None:
    work = counted(name, *args)
    reads = sum(_numel(arg[1:]) for arg in args if isinstance(arg, tuple))  # type: ignore[index]
    assert (work.kind, work.flops, work.bytes) == ("convolution", flops, 4 * (reads + _numel(out)))


def _numel(dims: tuple[int, ...]) -> int:
    count = 1
    for dim in dims:
        count *= dim
    return count


@pytest.mark.parametrize(
    ("mask", "passes"), [([True, True, True], 2), ([False, True, True], 1), ([True, False, False], 1)]
)
def test_convolution_backward_costs_a_forward_per_gradient(mask: list[bool], passes: int) -> None:
    args = [(F, 2, 8, 10, 10), (F, 2, 4, 10, 10), (F, 8, 4, 3, 3), [8], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, mask]
    work = counted("convolution_backward", *args)
    grad, x, w, bias = 1600, 800, 288, 8
    reads = grad + w * mask[0] + x * mask[1]
    assert work.flops == passes * 2 * 1600 * 36
    assert work.bytes == 4 * (reads + x * mask[0] + w * mask[1] + bias * mask[2])


Q = (F, 2, 4, 16, 8)


def test_attention_on_a_cpu_counts_forward_and_backward() -> None:
    forward = counted("_scaled_dot_product_flash_attention_for_cpu", Q, Q, Q, 0.0, False, None, None)
    scores = 2 * 4 * 16 * 16
    assert forward.flops == 2 * scores * 8 * 2
    assert forward.bytes == 4 * (4 * 1024 + 2 * 4 * 16)
    saved = [Q, (F, 2, 4, 16)]
    backward = counted(
        "_scaled_dot_product_flash_attention_for_cpu_backward", Q, Q, Q, Q, *saved, 0.0, False, None, None
    )
    assert backward.flops == 2.5 * forward.flops
    assert forward.least_flops is None and forward.kind == "attention"


def test_causal_attention_is_counted_in_full_and_says_what_half_is() -> None:
    work = counted("_scaled_dot_product_flash_attention_for_cpu", Q, Q, Q, 0.0, True, None, None)
    assert work.flops == 2 * 2 * 4 * 16 * 16 * 8 * 2
    assert work.least_flops == work.flops * 17 / 32
    back = counted(
        "_scaled_dot_product_flash_attention_backward", Q, Q, Q, Q, Q, (F, 2, 4, 16), None, None, 16, 16, 0.0, True
    )
    assert back.least_flops == back.flops * 17 / 32


@pytest.mark.parametrize("causal", [False, True])
def test_where_scales_of_quantised_inputs_come_first_the_flag_stands_behind_them(causal: bool) -> None:
    work = counted("_scaled_dot_product_flash_attention", Q, Q, Q, None, None, None, 0.0, causal, False, None)
    assert (work.least_flops is not None) == causal


@given(st.integers(1, 40), st.integers(1, 40))
def test_unmasked_share_counts_the_pairs_on_or_below_the_diagonal(queries: int, keys: int) -> None:
    pairs = sum(1 for q in range(queries) for k in range(keys) if k <= q)
    assert unmasked_share(queries, keys) == pytest.approx(pairs / (queries * keys))


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("_scaled_dot_product_flash_attention", [Q, Q, Q, 0.0, False, False, None]),
        ("_scaled_dot_product_efficient_attention", [Q, Q, Q, None, True, 0.0, False, None]),
        ("_scaled_dot_product_cudnn_attention", [Q, Q, Q, None, True, 0.0, False, False, None]),
        ("_scaled_dot_product_attention_math", [Q, Q, Q, None, 0.0, False, None, None, False]),
        (
            "_flash_attention_forward",
            [(F, 2, 16, 4, 8), (F, 2, 16, 4, 8), (F, 2, 16, 4, 8), None, None, 16, 16, 0.0, False, False, None],
        ),
    ],
)
def test_every_attention_kernel_costs_the_same(name: str, args: list[object]) -> None:
    assert counted(name, *args).flops == 2 * 2 * 4 * 16 * 16 * 8 * 2


def test_grouped_queries_cost_as_if_keys_were_repeated() -> None:
    keys = (F, 2, 1, 16, 8)
    work = counted("_scaled_dot_product_flash_attention_for_cpu", Q, keys, keys, 0.0, False, None, None)
    assert work.flops == 2 * 2 * 4 * 16 * 16 * 8 * 2
    assert work.bytes == 4 * (1024 + 2 * 256 + 1024 + 128)


def test_recurrent_layers() -> None:
    """One direction of one LSTM layer: 5 x 2 tokens, 16 inputs, 32 hidden, four gates."""
    weights = [(F, 128, 16), (F, 128, 32), (F, 128), (F, 128), (F, 2, 32), (F, 2, 32)]
    layer = counted("mkldnn_rnn_layer", (F, 5, 2, 16), *weights, False, [], 2, 32, 2, True, True, False, True)
    assert layer.flops == 2 * 10 * 128 * (16 + 32)
    # cuDNN runs the whole stack: two layers both ways, the second reads both directions of the first
    stack = counted(
        "_cudnn_rnn",
        (F, 5, 2, 16),
        [(F, 1)],
        4,
        (F, 1),
        (F, 4, 2, 32),
        None,
        2,
        32,
        0,
        2,
        False,
        0.0,
        True,
        True,
        [],
        None,
    )
    assert stack.flops == 2 * 10 * 128 * 2 * ((16 + 32) + (64 + 32))
    assert stack.kind == "rnn"
    assert call("_cudnn_rnn", (F, 5, 2, 16), [(F, 1)], 4, None, None, None, None) is None


@pytest.mark.parametrize(
    ("name", "args", "flops", "size"),
    [
        ("add", [(F, 4, 5), (F, 5), 1], 20, 4 * (20 + 5 + 20)),
        ("add", [(F, 4, 5), (F, 5), 2], 40, 4 * (20 + 5 + 20)),
        ("add_", [(F, 4, 5), (F, 4, 5), 1], 20, 4 * 60),
        ("add", [(F, 4, 5), (F, 4, 5), 1, (F, 4, 5)], 20, 4 * 60),  # out= is written, not read
        ("mul", [(B, 8), (F,)], 8, 16 + 4 + 16),  # a 0-d tensor does not raise the size
        ("mul", [(L, 8), 0.5], 8, 64 + 32),  # a fraction makes float32 of integers
        ("div", [(L, 8), (L, 8)], 8, 128 + 32),
        ("gt", [(F, 8), 0], 8, 32 + 8),
        ("sqrt", [(F, 8)], 8, 64),
        ("addcmul_", [(F, 8), (F, 8), (F, 8), 1], 24, 128),
        ("addcdiv_", [(F, 8), (F, 8), (F, 8), 1], 24, 128),
        ("lerp_", [(F, 8), (F, 8), 0.1], 24, 96),
        ("where", [("bool", 8), (F, 8), (F, 8)], 8, 8 + 96),
        ("masked_fill_", [(F, 8), ("bool", 8), 0], 8, 32 + 8 + 32),
        ("copy_", [(F, 8), (B, 8), False], 0, 16 + 32),
        ("clone", [(F, 8), None], 0, 64),
        ("_to_copy", [(F, 8), 15, None, None, None, False, None], 0, 32 + 16),
        ("cat", [[(F, 2, 3), (F, 4, 3)], 0], 0, 2 * 4 * 18),
        ("fill_", [(F, 8), 0], 0, 32),
        ("zeros", [[4, 5], 15, None, None, False], 0, 40),
        ("arange", [0, 10, 2, 4, None, None, False], 0, 5 * 8),
        ("sum", [(F, 4, 5), [1], False, None], 20, 4 * (20 + 4)),
        ("sum", [(F, 4, 5), None], 20, 4 * 21),
        ("sum", [("bool", 4, 5), None], 20, 20 + 8),
        ("mean", [(F, 4, 5), [-1], True, None], 20, 4 * 24),
        ("argmax", [(F, 4, 5), 1, False], 20, 80 + 8 * 4),
        ("max", [(F, 4, 5), 1, False], 20, 80 + 12 * 4),
        ("max", [(F, 4, 5), (F, 4, 5)], 20, 240),
        ("var", [(F, 4, 5), [0], 1, False], 80, 4 * 25),
        ("cumsum", [(F, 4, 5), 0, None], 20, 160),
        ("_softmax", [(B, 4, 5), 1, False], 100, 80),
        ("_log_softmax", [(B, 4, 5), 1, True], 100, 40 + 80),
        ("_log_softmax_backward_data", [(F, 4, 5), (F, 4, 5), 1, 6], 80, 240),
        ("topk", [(F, 4, 32), 4, 1, True, True], 128 + 16 * 2, 512 + 16 * 12),
        ("sort", [(F, 4, 32), -1, False], 128 * 5, 1024 + 8 * 128),
        ("native_layer_norm", [(F, 6, 8), [8], (F, 8), (F, 8), 1e-5], 7 * 48, 4 * (48 + 16 + 48 + 12)),
        (
            "native_layer_norm_backward",
            [(F, 6, 8), (F, 6, 8), [8], (F, 6, 1), (F, 6, 1), (F, 8), (F, 8), [True, True, True]],
            12 * 48,
            4 * (96 + 12 + 8 + 48 + 16),
        ),
        (
            "max_pool2d_with_indices",
            [(F, 2, 3, 8, 8), [2, 2], [2, 2], [0, 0], [1, 1], False],
            96 * 4,
            4 * 384 + 12 * 96,
        ),
        ("avg_pool2d", [(F, 2, 3, 7, 7), [2, 2], [], [0, 0], True, True, None], 96 * 5, 4 * (294 + 96)),
        ("upsample_nearest2d", [(F, 1, 2, 4, 4), [8, 8], None, None], 0, 4 * (32 + 128)),
        ("native_dropout", [(F, 8), 0.5, True], 24, 32 + 32 + 8),
        ("bernoulli_", [(F, 8), 0.5, None], 8, 32),
        ("_fft_r2c", [(F, 4, 64), [1], 0, True], 2.5 * 256 * 6, 1024 + 8 * 4 * 33),
        ("linalg_cholesky_ex", [(F, 3, 6, 6), False, False], 3 * 72, 2 * 4 * 108),
        ("geqrf", [(F, 6, 3)], 2 * 54 - 2 * 9, 2 * 4 * 18),
        ("_linalg_solve_ex", [(F, 6, 6), (F, 6, 2), True, False], 144 + 2 * 36 * 2, 4 * (36 + 12 + 12 + 36)),
        ("lu_unpack", [(F, 6, 4), ("int", 4), True, True], 0, 4 * 24 + 16 + 4 * (36 + 24 + 16)),
        ("lu_unpack", [(F, 4, 6), ("int", 4), True, True], 0, 4 * 24 + 16 + 4 * (16 + 16 + 24)),
        ("_euclidean_dist", [(F, 3, 4), (F, 5, 4)], 2 * 15 * 6, 4 * (12 + 20 + 15)),
        ("_pdist_forward", [(F, 5, 4), 2.0], 3 * 10 * 4, 4 * (20 + 10)),
        ("col2im", [(F, 2, 12, 9), [5, 6], [2, 2], [1, 1], [0, 0], [2, 2]], 216, 4 * (216 + 2 * 3 * 30)),
        ("var_mean", [(F, 4, 5), [0], 1, False], 80, 4 * 30),
        ("std_mean", [(F, 4, 5), [0], 1, False], 80, 4 * 30),
        ("eye", [3, 15, None, None, False], 0, 2 * 9),
        ("eye", [3, 4, 15, None, None, False], 0, 2 * 12),
        ("bucketize", [(F, 8), (F, 16), False, False], 8 * 5, 32 + 64 + 64),
        ("searchsorted", [(F, 16), (F, 8), False, False, None, None], 8 * 5, 32 + 64 + 64),
        ("searchsorted", [(F, 1024), (F, 2), True, False, None, None], 2 * 11, 8 + 2 * 11 * 12 + 8),
    ],
)
def test_other_families(name: str, args: list[object], flops: float, size: float) -> None:
    work = counted(name, *args)
    assert (work.flops, work.bytes) == (flops, size)


@pytest.mark.parametrize(
    ("name", "args", "ms", "bound"),
    [
        # 300 x 300 with 556 columns: 300^2 * 556 FLOPs at 100 GFLOP/s; its 1.7 MB would take 0.08 ms at 20 GB/s.
        ("linalg_solve_triangular", [(F, 300, 300), (F, 300, 556), True, True, False], 0.5004, "compute"),
        ("linalg_cholesky_ex", [(F, 600, 600), False, False], 0.72, "compute"),
        # As many sweeps as the values ask for: no floor is known but what is read and written.
        ("_linalg_eigh", [(F, 600, 600), "L", True], 0.144, "bandwidth"),
    ],
)
def test_direct_solvers_need_all_their_flops(name: str, args: list[object], ms: float, bound: str) -> None:
    floor, says = Prices(machine(), 1, "highest").floor(counted(name, *args), ("float",))
    assert says == bound and floor / 1e6 == pytest.approx(ms, rel=0.02)


def test_an_embedding_reads_the_rows_it_uses_and_its_gradient_writes_the_whole_table() -> None:
    forward = counted("embedding", (F, 50000, 64), (L, 8, 16), -1, False, False)
    assert forward.bytes == 4 * 64 * 128 * 2 + 8 * 128
    backward = counted("embedding_dense_backward", (F, 8, 16, 64), (L, 8, 16), 50000, -1, False)
    assert backward.bytes == 4 * 50000 * 64 + 4 * 64 * 128 + 8 * 128


def test_the_loss_reads_one_logit_per_target_and_its_gradient_writes_all() -> None:
    assert counted("nll_loss_forward", (F, 8, 1000), (L, 8), None, 1, -100).bytes == 8 * 4 + 8 * 8 + 2 * 4
    assert counted("nll_loss_backward", (F,), (F, 8, 1000), (L, 8), None, 1, -100, (F,)).bytes == 4 + 64 + 4 * 8000


def test_an_expanded_tensor_costs_only_what_it_holds() -> None:
    plain = counted("mul", (F, 1000, 64), (F, 1000, 64))
    expanded = counted("mul", (F, 1000, 64), (F, 1000, 64), strides=((64, 1), (0, 1)))
    assert plain.bytes - expanded.bytes == 4 * 64 * 999
    columns = counted("sqrt", (F, 1000, 50), strides=((64, 0),))
    assert columns.bytes == 4 * (1000 + 50_000)


def test_indexing_is_counted_by_the_view_that_torch_records_inside() -> None:
    assert call("index", (F, 50, 60), None) is None
    assert counted("index", (F, 50, 60), None, inner=((7, 60),)).bytes == 2 * 4 * 420
    assert call("index_put_", (F, 50, 60), None, (F,), False) is None
    assert counted("index_put_", (F, 50, 60), None, (F, 7, 60), False).bytes == 2 * 4 * 420
    assert counted("index_put_", (F, 50, 60), None, (F,), False, inner=((7, 60),)).bytes == 4 * 421


def test_a_quantised_linear_is_counted_by_what_it_allocates() -> None:
    assert call("quantized::linear_dynamic", (F, 4, 8), None, True) is None
    work = counted("quantized::linear_dynamic", (F, 4, 8), None, True, inner=((4, 16),))
    assert (work.flops, work.bytes, work.kind) == (2 * 4 * 8 * 16, 128 + 128 + 256, "matmul")


TWO = [(F, 10, 10), (F, 10)]


@pytest.mark.parametrize(
    ("name", "args", "lists", "flops"),
    [
        ("_fused_adamw_", [TWO, TWO, TWO, TWO, [], TWO, 1e-3, 0.9, 0.999, 0.01, 1e-8, False, False, None, None], 7, 15),
        ("_fused_adamw_", [TWO, TWO, TWO, TWO, TWO, TWO, 1e-3, 0.9, 0.999, 0.01, 1e-8, True, False, None, None], 9, 15),
        ("_fused_sgd_", [TWO, TWO, TWO, 0.0, 0.9, 0.1, 0.0, False, False, False, None, None], 5, 5),
        ("_foreach_mul_", [TWO, 0.9], 2, 1),
        ("_foreach_add_", [TWO, TWO, 1], 3, 1),
        ("_foreach_addcdiv_", [TWO, TWO, TWO, 1], 4, 3),
        ("_foreach_zero_", [TWO], 1, 0),
        ("_foreach_norm", [TWO, 2, None], 1, 2),
    ],
)
def test_optimizer_steps_over_lists(name: str, args: list[object], lists: int, flops: float) -> None:
    work = counted(name, *args)
    assert (work.bytes, work.flops, work.kind) == (lists * 440, flops * 110, "optimizer")


def test_lists_too_long_to_be_recorded_are_priced_by_their_elements() -> None:
    unrecorded = (((),) * 6, ("TensorList",) * 6, ("",) * 6)
    assert work_of("aten::_fused_adamw_", *unrecorded) is None
    assert work_of("aten::cat", ((), ()), ("TensorList", "Scalar"), ("", "0")) is None
    assert fused_work("aten::_fused_adamw_", 124_000_000).bytes == 7 * 4 * 124_000_000


def test_views_do_nothing() -> None:
    for name in ("view", "transpose", "expand", "as_strided", "detach", "empty_like", "resize_"):
        work = counted(name, (F, 4, 5))
        assert (work.flops, work.bytes, work.kind) == (0, 0, "view")


@pytest.mark.parametrize(
    ("name", "shapes", "dtypes"),
    [
        ("mylib::op", ((4,),), (F,)),
        ("aten::mm", ((3, 4), (5, 6)), (F, F)),  # no product
        ("aten::mm", ((3, 4),), (F,)),
        ("aten::mm", ((3, 4), (4, 5)), (F, "c10::NoSuchType")),
        ("aten::add", ((3, 4), (5,)), (F, F)),
        ("aten::add", ((-3, 4), (4,)), (F, F)),
        ("aten::sum", (("x",),), (F,)),
        ("aten::convolution", ((1, 1, 2, 2), (1, 1, 9, 9)), (F, F)),
        ("aten::mul", ((10**200, 10**200),), (F,)),
        ("", (), ()),
        ("aten::_scaled_mm_v2", ((2, 2),), (F,)),
        ("aten::_scaled_mm", ((2, 2),), (F,)),
    ],
)
def test_what_makes_no_sense_is_not_counted_and_does_not_raise(
    name: str, shapes: tuple[object, ...], dtypes: tuple[str, ...]
) -> None:
    assert work_of(name, shapes, dtypes, ("",) * len(dtypes)) is None


_dims = st.lists(st.integers(-2, 6), max_size=5).map(tuple)
_texts = st.sampled_from(["", "1", "-1", "True", "[1, 1]", "[]", "[True, False, True]", "0.5", "nan", "x", "[0, 0]"])
_types = st.sampled_from([F, B, L, "bool", "Scalar", "ScalarList", "TensorList", "", "odd"])


@given(st.sampled_from(sorted(FORMULAS)), st.lists(st.tuples(_dims, _types, _texts), max_size=11), st.booleans())
def test_no_formula_raises_or_goes_below_zero(
    name: str, args: list[tuple[tuple[int, ...], str, str]], in_place: bool
) -> None:
    shapes, dtypes, concrete = zip(*args, strict=True) if args else ((), (), ())
    work = work_of(f"aten::{name}" + "_" * in_place if "::" not in name else name, shapes, dtypes, concrete)
    assert work is None or (work.flops >= 0 and work.bytes >= 0)


def test_dtypes_of_other_devices_and_overloads_are_the_same_op() -> None:
    assert work_of("aten::mm.out", ((3, 4), (4, 5)), ("CUDAHalfType", "c10::Half"), ("", "")) == Work(120, 94, "matmul")
    assert counted("mm", (H, 3, 4), (H, 4, 5)).bytes == 94


def test_a_formula_may_not_be_replaced_by_accident() -> None:
    with pytest.raises(ValueError, match="two formulas"):
        formula("mm")(lambda call: Work(0, 0, ""))


def test_wrappers() -> None:
    for name in ("aten::matmul", "aten::conv2d", "aten::scaled_dot_product_attention", "aten::to", "aten::layer_norm"):
        assert is_wrapper(name)
    for name in ("AddmmBackward0", "autograd::engine::evaluate_function: MulBackward0", "Optimizer.step#AdamW.step"):
        assert is_wrapper(name)
    for name in ("aten::mm", "aten::mkldnn_convolution", "aten::native_layer_norm", "aten::add_"):
        assert not is_wrapper(name)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("cudnn_convolution", [(F, 2, 4, 9, 9), (F, 8, 4, 3, 3), None, None, None, None]),
        ("convolution_backward", [(F, 2, 8, 7, 7), (F, 2, 4, 9, 9), (F, 8, 4, 3, 3)]),
        ("max_pool2d_with_indices", [(F, 2, 4, 9, 9), None, None, None, None, None]),
        ("embedding_dense_backward", [(F, 8, 16), (L, 8), None, None, None]),
        ("zeros", [None, None, None, None, None]),
        ("topk", [(F, 8), None, None, None, None]),
    ],
)
def test_a_trace_without_plain_values_is_not_guessed_at(name: str, args: list[object]) -> None:
    assert call(name, *args) is None
