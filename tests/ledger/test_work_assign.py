"""Where the work of a tree of ops is counted: once, at the op that does it and in whose time it shows."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from gobrrr.ledger.work import Work, assign


class Row(NamedTuple):
    """What an op was recorded with."""

    shapes: tuple[object, ...] = ()
    dtypes: tuple[str, ...] = ()
    concrete: tuple[str, ...] = ()
    strides: tuple[object, ...] = ()


def tensors(*shapes: tuple[int, ...]) -> Row:
    """A call with these float tensors."""
    return Row(shapes, ("float",) * len(shapes), ("",) * len(shapes))


X, W, BIAS = (2, 3, 4), (5, 4), (5,)


def priced(*tree: tuple[str, int, Row | None], **more: object) -> tuple[list[Work | None], list[int]]:
    """Work and owners of a tree given as (name, parent, recorded)."""
    names, parents, rows = [t[0] for t in tree], [t[1] for t in tree], [t[2] for t in tree]
    return assign(names, parents, rows, **more).works, assign(names, parents, rows).owners  # type: ignore[arg-type]


def flops(works: list[Work | None]) -> list[float | None]:
    """FLOPs in order."""
    return [None if w is None else w.flops for w in works]


def test_a_linear_layer_counts_at_addmm_and_not_what_addmm_copies() -> None:
    works, owner = priced(
        ("aten::linear", -1, tensors(X, W, BIAS)),
        ("aten::t", 0, tensors(W)),
        ("aten::addmm", 0, tensors(BIAS, (6, 4), (4, 5))),
        ("aten::clone", 2, tensors((6, 5))),
        ("aten::copy_", 3, tensors((6, 5), (6, 5))),
    )
    assert flops(works) == [0, 0, 240, 0, 0]
    assert [w.bytes for w in works[3:] if w is not None] == [0, 0]
    assert owner == [0, 1, 2, 2, 2]


def test_a_linear_layer_without_ops_inside_counts_itself() -> None:
    works, _ = priced(("aten::linear", -1, tensors(X, W, BIAS)))
    assert flops(works) == [240]


@pytest.mark.parametrize("inside", ["aten::clone", "aten::add_"])
def test_a_convolution_that_no_op_inside_does_counts_where_it_is_although_it_copies(inside: str) -> None:
    shapes = ((8, 16, 8, 8), (16, 8, 2, 2))
    plain = ("", "", "", "[2, 2]", "[0, 0]", "[1, 1]", "True", "[0, 0]", "1")
    row = Row((*shapes, *((),) * 7), ("float", "float", "", *("ScalarList",) * 6), plain)
    works, owner = priced(
        ("aten::conv_transpose2d", -1, row),
        ("aten::convolution", 0, row),
        ("aten::_convolution", 1, row),
        (inside, 2, tensors((8, 8, 16, 16), (8, 8, 16, 16))),
    )
    assert flops(works) == [0, 0, 2 * 8192 * 32, 0]
    assert owner == [0, 1, 2, 2]


def test_what_torch_makes_of_other_ops_counts_at_those() -> None:
    """On a CPU mean is a sum and a division: the time is in the sum."""
    row = Row(((4, 5), (), (), ()), ("float", "ScalarList", "Scalar", ""), ("", "[1]", "False", ""))
    works, owner = priced(
        ("aten::mean", -1, row),
        ("aten::sum", 0, row),
        ("aten::fill_", 1, tensors((1,))),
        ("aten::div_", 0, tensors((4,))),
    )
    assert [w.bytes if w else None for w in works] == [0, 96, 0, 32]
    assert owner == [0, 1, 1, 3]
    works, _ = priced(("aten::mean", -1, row))
    assert works[0] is not None and works[0].bytes == 96


def test_an_op_inside_itself_counts_inside() -> None:
    row = Row(((4, 32), (), ()), ("float", "Scalar", "Scalar"), ("", "-1", "False"))
    works, _ = priced(("aten::sort", -1, row), ("aten::sort", 0, row), ("aten::copy_", 1, tensors((4, 32), (4, 32))))
    assert flops(works) == [0, 640, 0]


def test_unknown_ops_are_not_counted_unless_others_work_inside_them() -> None:
    works, _ = priced(("mylib::attention", -1, tensors(X)))
    assert works == [None]
    works, _ = priced(("mylib::block", -1, tensors(X)), ("aten::mm", 0, tensors((3, 4), (4, 5))), ("mylib::k", 0, None))
    assert flops(works) == [0, 120, None]


def test_events_of_the_autograd_engine_are_wrappers() -> None:
    works, _ = priced(
        ("autograd::engine::evaluate_function: MmBackward0", -1, None),
        ("MmBackward0", 0, tensors((3, 5))),
        ("aten::mm", 1, tensors((4, 3), (3, 5))),
        ("torch::autograd::AccumulateGrad", -1, tensors((3, 4))),
    )
    assert flops(works) == [0, 0, 120, 0]


def test_a_fused_step_over_unrecorded_lists_is_shared_among_its_calls() -> None:
    row = Row(((),) * 6, ("TensorList",) * 6, ("",) * 6)
    tree = [
        ("Optimizer.step#AdamW.step", -1, None),
        ("aten::_fused_adamw_", 0, row),
        ("aten::item", 1, tensors(())),
        ("aten::_fused_adamw_", 0, row),
        ("aten::_fused_adamw_", -1, row),
    ]
    assert [w is None for w in priced(*tree)[0]] == [False, True, False, True, True]
    works, _ = priced(*tree, updated={"AdamW": 1000.0})
    assert [w.bytes if w else None for w in works] == [0, 14_000, 0, 14_000, None]
    assert [w is None for w in priced(*tree, updated={"SGD": 1000.0})[0]] == [False, True, False, True, True]


def test_the_first_op_of_a_trace_owns_what_is_inside_it() -> None:
    works, owner = priced(("aten::addmm", -1, tensors(BIAS, (6, 4), (4, 5))), ("aten::clone", 0, tensors((6, 5))))
    assert [w.bytes if w else None for w in works] == [4 * (5 + 24 + 20 + 30), 0]
    assert owner == [0, 0]


def test_a_fused_step_whose_lists_are_recorded_is_priced_by_them() -> None:
    """Two tensors of 110 elements in all: 4 lists read, 3 written, whatever its optimizer updates elsewhere."""
    lists = (((10, 10), (10,)),) * 4
    row = Row((*lists, (), ()), ("TensorList",) * 6, ("",) * 6)
    tree = [("Optimizer.step#AdamW.step", -1, None), ("aten::_fused_adamw_", 0, row)]
    works, _ = priced(*tree, updated={"AdamW": 1e9})
    assert works[1] is not None and (works[1].bytes, works[1].flops) == (7 * 440, 15 * 110)


def test_an_empty_tree() -> None:
    assert priced() == ([], [])
