"""Work per op by hand: what reads and writes through indices, copies, fills and draws."""

# ruff: noqa: E501  (a case is a line)
from __future__ import annotations

import pytest

from tests.ledger.test_work import F, H, L, call, check, counted

INT, D, Z, BOOL = "int", "double", "c10::complex<float>", "bool"


@pytest.mark.parametrize(
    ("name", "args", "flops", "size"),
    [
        # rows of 7 floats are 28 bytes; 5 indices, of a table of 11 rows or of 3, where each row is read once
        ("embedding", [(F, 11, 7), (L, 5), -1, False, False], 0, 5 * 28 + 40 + 5 * 28),
        ("embedding", [(F, 3, 7), (L, 5), -1, False, False], 0, 3 * 28 + 40 + 5 * 28),
        ("embedding", [(F, 0, 7), (L, 0), -1, False, False], 0, 0),
        ("embedding_dense_backward", [(F, 5, 7), (L, 5), 11, -1, False], 35, 5 * 28 + 40 + 11 * 28),
        ("_embedding_bag", [(F, 11, 7), (L, 5), (L, 2), False, 0, False, None, False, -1], 35, 5 * 28 + 40 + 16 + 2 * 28),
        # the last offset only closes the last bag
        ("_embedding_bag", [(F, 11, 7), (L, 5), (L, 3), False, 0, False, None, True, -1], 35, 5 * 28 + 40 + 24 + 2 * 28),
        ("_embedding_bag_forward_only", [(F, 3, 7), (L, 5), (L, 2), False, 0, False, None, False], 35, 3 * 28 + 40 + 16 + 2 * 28),
        ("_embedding_bag_backward", [(F, 2, 7), (L, 5), (L, 2), (L, 5), (L, 2), (L, 2), 11, False, 0, False, None, -1], 35,
         2 * 28 + 40 + 11 * 28),
        ("_embedding_bag_dense_backward", [(F, 2, 7), (L, 5), (L, 5), (L, 2), (L, 2), 11, False, 0, None, -1], 35,
         2 * 28 + 40 + 11 * 28),
        # a product and a sum of each element of the row of an index and of its bag's gradient
        ("_embedding_bag_per_sample_weights_backward", [(F, 2, 7), (F, 11, 7), (L, 5), (L, 2), (L, 5), 0, -1], 70,
         2 * 28 + 5 * 28 + 40 + 20),
        ("_embedding_bag_per_sample_weights_backward", [(F, 2, 7), (F, 3, 7), (L, 5), (L, 2), (L, 5), 0, -1], 70,
         2 * 28 + 3 * 28 + 40 + 20),
        # whole slices along a dimension, each read and written
        ("index_select", [(F, 11, 7), 0, (L, 5)], 0, 140 + 40 + 140),
        ("index_select", [(F, 11, 7), -1, (L, 5)], 0, 220 + 40 + 220),
        ("index_select", [(F, 3, 7), 0, (L, 5)], 0, 84 + 40 + 140),
        ("index_select", [(F, 11), 0, (L, 5)], 0, 20 + 40 + 20),
        ("gather", [(D, 11, 7), 0, (L, 5, 7), False], 0, 280 + 280 + 280),
        ("gather", [(D, 2, 7), 0, (L, 5, 7), False], 0, 112 + 280 + 280),
        ("take", [(F, 11, 7), (L, 5)], 0, 20 + 40 + 20),
        ("put", [(F, 11, 7), (L, 5), (F, 5), False], 0, 20 + 40 + 20 + 72 * 8),
        ("put_", [(F, 11, 7), (L, 5), (F, 5), True], 5, 20 + 40 + 2 * 20),
        # out of place the other elements are copied too, in place they are not touched
        ("scatter", [(F, 11, 7), 0, (L, 5, 7), (F, 5, 7)], 0, 280 + 140 + 140 + 2 * 4 * 42),
        ("scatter_", [(F, 11, 7), 0, (L, 5, 7), (F, 6, 7)], 0, 280 + 140 + 140),
        ("scatter_", [(F, 11, 7), 0, (L, 5, 7), (F, 2, 7)], 0, 280 + 56 + 140),
        ("scatter_", [(F, 11, 7), 0, (L, 5, 7), 1.0], 0, 280 + 140),
        ("scatter_add_", [(F, 11, 7), 0, (L, 5, 7), (F, 5, 7)], 35, 280 + 140 + 2 * 140),
        ("scatter_reduce_", [(F, 11, 7), 0, (L, 5, 7), (F, 5, 7), "sum", True], 35, 280 + 140 + 2 * 140),
        ("index_add_", [(F, 11, 7), 0, (L, 5), (F, 5, 7), 1], 35, 40 + 140 + 2 * 140),
        ("index_reduce_", [(F, 11, 7), 1, (L, 5), (F, 11, 5), "prod", True], 55, 40 + 220 + 2 * 220),
        ("index_copy_", [(F, 11, 7), 0, (L, 5), (F, 5, 7)], 0, 40 + 140 + 140),
        ("index_copy", [(F, 11, 7), 0, (L, 5), (F, 5, 7)], 0, 40 + 140 + 140 + 2 * 4 * 42),
        ("index_fill_", [(F, 11, 7), 0, (L, 5), 1.0], 0, 40 + 140),
        ("masked_select", [(D, 11, 7), (BOOL, 11, 7)], 77, 77),
        ("nonzero", [(F, 11, 7)], 77, 308),
        ("nonzero_static", [(F, 11, 7), 20, -1], 77, 308),
        ("masked_scatter", [(F, 11, 7), (BOOL, 11, 7), (F, 50)], 0, 308 + 77 + 308),
        ("masked_scatter_backward", [(F, 11, 7), (BOOL, 11, 7), [50]], 0, 77 + 200),
        ("_unsafe_masked_index", [(F, 11, 7), (BOOL, 5), None, 0], 0, 20 + 5 + 20),
        ("_unsafe_masked_index", [(F, 3), (BOOL, 5), None, 0], 0, 12 + 5 + 20),
        ("_unsafe_masked_index_put_accumulate_", [(F, 11, 7), (BOOL, 5), None, (F, 5)], 5, 5 + 20 + 2 * 20),
        # steps of a binary search: 4 boundaries leave 5 places, 3 comparisons; each reads a boundary and half an index
        ("bucketize", [(F, 9), (F, 4), False, False], 9 * 3, 36 + 16 + 72),
        ("bucketize", [(F, 9), (F, 4), True, False], 9 * 3, 36 + 16 + 36),
        ("searchsorted", [(F, 4), 2.5, False, False, None, None], 3, 16 + 8),
        ("isin", [(F, 9), (F, 4), False, False], 9 * 3, 36 + 16 + 9),
    ],
)  # fmt: skip
def test_reads_and_writes_through_indices(name: str, args: list[object], flops: float, size: float) -> None:
    check(name, args, flops, size)


def test_indices_that_write_values_say_how_many() -> None:
    """What is accumulated is read before it is written."""
    adding = counted("index_put_", (F, 11, 7), None, (F, 5, 7), True)
    assert (adding.flops, adding.bytes) == (35, 140 + 2 * 140)
    assert counted("index_put", (F, 11, 7), None, (F, 5, 7), False).bytes == 140 + 140 + 2 * 4 * 42
    assert counted("index_put_", (F,), None, (F,), False).bytes == 8
    assert counted("index_put_", (F, 11, 7), None, (F, 500), False).bytes == 2000 + 308
    some = counted("index", (F, 3, 7), None, inner=((5, 7), (9, 9)))
    assert (some.flops, some.bytes) == (0, 84 + 140)


@pytest.mark.parametrize(
    ("name", "args", "size"),
    [
        ("narrow_copy", [(F, 11, 7), 0, 2, 5], 2 * 4 * 5 * 7),
        ("narrow_copy", [(F, 11, 7), 1, 2, 3], 2 * 4 * 11 * 3),
        ("expand_copy", [(F, 1, 7), [11, -1], False], 28 + 4 * 77),
        ("expand_copy", [(F, 7), [11, 7], False], 28 + 4 * 77),
        ("as_strided_copy", [(F, 11, 7), [5, 3], [7, 1], None], 60 + 60),
        ("repeat", [(F, 11, 7), [2, 3]], 308 + 6 * 308),
        ("repeat_interleave", [(L, 5), 13], 40 + 104),
        ("repeat_interleave", [(L, 5), None], 40 + 40),
        ("stack", [[(F, 11, 7), (F, 11, 7), (F, 11, 7)], 0], 6 * 308),
        # 11 + 5 rows and 7 + 3 columns; a vector is a row, a number a row of one
        ("block_diag", [[(F, 11, 7), (F, 5, 3)]], 4 * (77 + 15 + 160)),
        ("block_diag", [[(F, 7), (F,), (F, 5, 3)]], 4 * (7 + 1 + 15 + 7 * 11)),
        ("fill", [(F, 11, 7), 1.0], 308),
        ("zero_", [(D, 11, 7)], 616),
        ("zeros_like", [(F, 11, 7), None, None, None, None, None], 308),
        ("ones_like", [(F, 11, 7), 7, None, None, None, None], 616),
        ("full_like", [(F, 11, 7), 2, 5, None, None, None, None], 154),
        ("full_like", [(F, 11, 7), 2, None, None, None, None, None], 308),
        ("new_zeros", [(D, 3), [11, 7], None, None, None, None], 616),
        ("new_ones", [(D, 3), [11, 7], 5, None, None, None], 154),
        ("new_full", [(D, 3), [11, 7], 2, 5, None, None, None], 154),
        ("new_full", [(D, 3), [11, 7], 2, None, None, None, None], 616),
        ("zeros", [[11, 7], None, None, None, None], 308),
        ("ones", [[11, 7], 7, None, None, None], 616),
        ("full", [[11, 7], 2.5, 7, None, None, None], 616),
        ("full", [[11, 7], 2.5, None, None, None, None], 308),
        ("scalar_tensor", [2.5, 7, None, None, None], 8),
        ("scalar_tensor", [2.5, None, None, None, None], 4),
        ("eye", [11, None, None, None, None], 484),
        ("eye", [11, 7, None, None, None, None], 308),
        ("eye", [11, 7, 7, None, None, None], 616),
        ("linspace", [0, 1, 77, None, None, None, None], 308),
        ("linspace", [0, 1, 77, 7, None, None, None], 616),
        ("logspace", [0, 1, 77, 2.0, None, None, None, None], 308),
        ("logspace", [0, 1, 77, 2.0, 7, None, None, None], 616),
        ("tril_indices", [2, 3, 0, 4, None, None, None], 8 * 6),
        ("arange", [9, None, None, None, None], 72),
        ("arange", [9.5, None, None, None, None], 40),
        ("arange", ["1e1", None, None, None, None], 40),
        ("arange", [9, 7, None, None, None], 72),
        ("arange", [9, 6, None, None, None], 36),
        ("arange", [2, 9, None, None, None, None], 56),
        ("arange", [2, 9, 3, None, None, None, None], 24),
        ("arange", [2, 9, 3, 3, None, None, None], 12),
        ("arange", [9, 2, -3, None, None, None, None], 24),
        ("arange", [9, 2, None, None, None, None], 0),
        ("arange", [0, 9, 1, (L, 9)], 72),
        ("constant_pad_nd", [(F, 11, 7), [1, 2], 0.0], 308 + 4 * 11 * 10),
        ("constant_pad_nd", [(F, 11, 7), [1, 2, 3, 4], 0.0], 308 + 4 * 18 * 10),
        ("constant_pad_nd", [(F, 11, 7), [-1, -2, 0, 0], 0.0], 176 + 176),
        ("reflection_pad1d", [(F, 11, 7), [1, 2]], 308 + 440),
        ("select_backward", [(F, 7), [11, 7], 0, 3], 28 + 308),
        ("slice_backward", [(F, 5, 7), [11, 7], 0, 0, 5, 1], 140 + 308),
        # what the source replaces is not read
        ("select_scatter", [(F, 11, 7), (F, 7), 0, 3], 4 * 70 + 28 + 308),
        ("slice_scatter", [(F, 11, 7), (F, 5, 7), 0, 0, 5, 1], 4 * 42 + 140 + 308),
        ("diag_embed", [(F, 11, 7), 0, -2, -1], 308 + 4 * 11 * 49),
        ("diag_embed", [(F, 11, 7), -2, -2, -1], 308 + 4 * 11 * 81),
        ("_to_copy", [(F, 11, 7), None, None, None, None, False, None], 308 + 308),
        ("copy_", [(D, 11, 7), (F, 7), False], 28 + 616),
    ],
)  # fmt: skip
def test_copies_do_no_flops(name: str, args: list[object], size: float) -> None:
    check(name, args, 0, size)


@pytest.mark.parametrize(
    "args",
    [[None, None, None, None, None], [0, None, 2, None, None, None, None], [None] * 4, [1, 2, 3, 4] + [None] * 4],
)
def test_a_range_without_its_bounds_is_not_counted(args: list[object]) -> None:
    assert call("arange", *args) is None


def test_padding_back_adds_what_was_copied() -> None:
    check("reflection_pad1d_backward", [(F, 11, 10), (F, 11, 7), [1, 2]], 110, 440 + 308)


@pytest.mark.parametrize(
    ("name", "args", "flops", "size"),
    [
        ("normal_", [(F, 11, 7), 0.0, 1.0, None], 77, 308),
        ("normal", [(F, 11, 7), (F, 7), None], 77, 308 + 28 + 308),
        ("normal", [0.0, 1.0, [11, 7], None], 77, 308),
        ("bernoulli", [(F, 11, 7), None], 77, 616),
        ("bernoulli_", [(F, 11, 7), (F, 7), None], 77, 28 + 308),
        ("randn_like", [(F, 11, 7), 7, None, None, None, None], 77, 616),
        ("rand_like", [(F, 11, 7), None, None, None, None, None], 77, 308),
        ("randint_like", [(L, 11, 7), 0, 9, 3, None, None, None, None], 77, 308),
        ("rand", [[11, 7], None, None, None, None], 77, 308),
        ("randn", [[11, 7], 7, None, None, None], 77, 616),
        ("rand", [[11, 7], None, 7, None, None, None], 77, 616),
        ("randint", [9, [11, 7], None, None, None, None], 77, 616),
        ("randint", [9, [11, 7], 3, None, None, None], 77, 308),
        ("randint", [2, 9, [11, 7], 3, None, None, None], 77, 308),
        ("randperm", [77, None, None, None, None], 77, 616),
        ("native_dropout", [(H, 11, 7), 0.5, True], 231, 154 + 154 + 77),
        # 4 draws for each of 3 rows: a running sum of 8 weights, then 3 comparisons a draw
        ("multinomial", [(F, 3, 8), 4, True, None], 24 + 12 * 3, 96 + 96),
        ("quantize_per_tensor", [(F, 11, 7), 0.1, 0, 13], 231, 308 + 77),
        ("dequantize", [("c10::qint8", 11, 7)], 154, 77 + 308),
        ("fake_quantize_per_tensor_affine_cachemask", [(F, 11, 7), 0.1, 0, 0, 255], 385, 616 + 77),
    ],
)
def test_random_numbers_and_quantisation(name: str, args: list[object], flops: float, size: float) -> None:
    check(name, args, flops, size)
