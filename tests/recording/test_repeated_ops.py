"""Ops that compute the same in every step: by what torch's own observer writes of steps whose truth is known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from gobrrr.capture.windows.dataflow import _kind, _look
from gobrrr.recording.model.event_kinds import STEP_MARK
from gobrrr.recording.run_folder.dataflow_file import CONSTANT, TWICE
from gobrrr.recording.run_folder.fates import fates
from gobrrr.recording.trace_files.limits import DEFAULT

FIXED, WEIGHT = torch.rand(32, 32), torch.rand(32, 32)
SHARED = np.random.default_rng(0).random((32, 32)).astype("f4")
SEEN_AS_TENSOR = torch.from_numpy(SHARED)


def observed(step: Callable[[int], Any], path: Path, steps: int = 3) -> Path:
    """The dataflow window's file of so many steps, after one that is not in it."""
    from torch._C import _profiler as observer

    file = path / "steps.json"
    step(-1)
    assert observer._add_execution_trace_observer(str(file))
    observer._enable_execution_trace_observer()
    for number in range(steps):
        step(number)
        with torch.autograd.profiler.record_function(STEP_MARK):
            pass
    observer._disable_execution_trace_observer()
    observer._remove_execution_trace_observer()
    return file


def same(
    step: Callable[[int], Any], path: Path, steps: int = 3, kinds: tuple[torch.Tensor, ...] = (FIXED,),
    known: int = CONSTANT,
) -> set[str]:  # fmt: skip
    """Names of the ops of which a call computes what was computed before: in an earlier step, or TWICE in one."""
    found = fates(observed(step, path, steps), [_kind(tensor) for tensor in kinds], DEFAULT)
    return {name.removeprefix("aten::") for (name, *_), calls in found.items() if known in calls}


def test_what_is_made_of_constants_is_constant_and_what_follows_from_a_batch_is_not(tmp_path: Path) -> None:
    found = same(lambda _: (FIXED / FIXED.sum(1)).exp() @ torch.rand(32, 32).tanh(), tmp_path)
    assert {"sum", "div", "exp"} <= found and not found & {"tanh", "mm", "matmul", "rand", "uniform_"}


def test_an_index_of_one_dimension_gives_none_for_the_other(tmp_path: Path) -> None:
    rows = torch.arange(16)
    assert "index" in same(lambda _: FIXED[:, rows], tmp_path, kinds=(FIXED, rows))


def test_a_matrix_of_ones_is_constant_and_a_buffer_that_is_filled_is_not(tmp_path: Path) -> None:
    def masks(_: int) -> torch.Tensor:
        return torch.randn(32, 32).masked_fill(torch.ones(32, 32).triu(1) > 0, 0.0)

    def fills(_: int) -> torch.Tensor:
        return torch.zeros(32, 32).index_add_(0, torch.randint(0, 32, (32,)), FIXED)

    assert {"ones", "triu", "gt"} <= same(masks, tmp_path)
    assert not same(fills, tmp_path) & {"zeros", "zero_", "index_add_"}


def test_a_number_that_differs_from_step_to_step_makes_another_result(tmp_path: Path) -> None:
    found = same(lambda number: (FIXED * float(number)).cos() + FIXED.sin(), tmp_path)
    assert found & {"cos", "sin", "mul", "add"} == {"sin"}


def test_weights_that_an_update_writes_are_not_constant(tmp_path: Path) -> None:
    weight = torch.rand(32, 32)

    def step(_: int) -> None:
        weight.t().exp()
        torch._foreach_add_([weight], [torch.rand(32, 32)])
        FIXED.log()

    found = same(step, tmp_path, kinds=(FIXED, weight))
    assert "log" in found and not found & {"exp", "_foreach_add_"}


def test_a_new_array_in_each_step_is_not_constant(tmp_path: Path) -> None:
    """Its memory may be that of the one before it."""
    numbers = np.random.default_rng(0)
    found = same(lambda _: torch.from_numpy(numbers.random((32, 32)).astype("f4")).exp(), tmp_path)
    assert "exp" not in found


def test_what_a_step_computes_twice_of_the_same_values_is_found(tmp_path: Path) -> None:
    weight = torch.rand(32, 32)

    def step(_: int) -> None:
        batch = torch.rand(32, 32)
        (batch @ weight).relu().sum()
        (batch @ weight).relu().mean()
        batch.add_(1)
        (batch @ weight).sigmoid()
        weight.add_(batch, alpha=0.1)

    found = same(step, tmp_path, known=TWICE)
    assert {"matmul", "mm", "relu"} <= found and not found & {"sum", "mean", "sigmoid", "add_", "rand"}


def test_other_rows_another_dtype_and_another_draw_are_not_the_same(tmp_path: Path) -> None:
    def step(_: int) -> None:
        batch = torch.rand(64, 32)
        batch[:32].exp(), batch[32:].exp()
        torch.dropout(batch, 0.5, True).cos(), torch.dropout(batch, 0.5, True).cos()
        batch[:32].sin(), batch.double()[:32].sin()

    assert not same(step, tmp_path, known=TWICE) & {"exp", "cos", "sin", "dropout"}


def test_a_dropout_that_drops_nothing_draws_nothing(tmp_path: Path) -> None:
    def step(_: int) -> None:
        batch = torch.rand(64, 32)
        torch.dropout(batch, 0.5, False).cos(), torch.dropout(batch, 0.5, False).cos()

    assert "cos" in same(step, tmp_path, known=TWICE)


def test_an_update_between_makes_another_model(tmp_path: Path) -> None:
    weight = torch.rand(32, 32)

    def step(_: int) -> None:
        batch = torch.rand(32, 32)
        (batch @ weight).sum()
        with torch.autograd.profiler.record_function("update"):
            torch._foreach_add_([weight], [batch])
        (batch @ weight).sum()

    assert not same(step, tmp_path, known=TWICE) & {"mm", "matmul", "sum"}


def test_python_numbers_are_not_known(tmp_path: Path) -> None:
    """What they become lies where another number was."""

    def step(_: int) -> None:
        batch = torch.rand(32, 32)
        for number in range(4):
            (batch + 0.01 * number).exp()

    assert "exp" not in same(step, tmp_path, known=TWICE)


def test_memory_of_a_worker_is_new_each_time(tmp_path: Path) -> None:
    sent = [torch.rand(32, 32) for _ in range(5)]

    def step(number: int) -> None:
        torch.empty(0).set_(sent[number].untyped_storage(), 0, (32, 32), (32, 1)).exp()

    assert "exp" not in same(step, tmp_path)


def test_results_of_one_op_are_told_apart(tmp_path: Path) -> None:
    def step(_: int) -> None:
        least, most = torch.aminmax(torch.rand(32, 32), dim=1)
        least.exp(), most.exp()

    assert "exp" not in same(step, tmp_path, known=TWICE)


def test_of_one_step_nothing_can_be_told(tmp_path: Path) -> None:
    assert not same(lambda _: FIXED.exp(), tmp_path, steps=1)


def test_a_tensor_that_nobody_saw_unchanged_is_not_constant(tmp_path: Path) -> None:
    assert "exp" not in same(lambda _: FIXED.exp(), tmp_path, kinds=(torch.rand(3),))


def test_a_broken_file_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "cut.json").write_text('{"nodes": [{"id"')
    with pytest.raises(msgspec.DecodeError):
        fates(tmp_path / "cut.json", (), DEFAULT)


def test_a_strangers_file_may_hold_anything(tmp_path: Path) -> None:
    """It is read, or not, without an error."""

    def step(file: Written) -> None:
        for odd in ([[1], [2], 0, 8, 4, "cpu"], [1, {}, 0, 8, 4, "cpu"], [[[[]]]], {}, None):
            file.op("aten::mm", (odd,), (odd, tensor(A)))
            for name in ("exp", "aten::index", "aten::add", "aten::addmm"):
                file.op(name, (tensor(A), odd), (odd,), schema="aten::op(Tensor(a!) self) -> ()")
        file.nodes[0]["attrs"] = [{"name": "tid", "value": [1]}, {"name": "op_schema", "value": {"a": 1}}]

    assert Written().found(tmp_path, step).keys() <= {"exp", "aten::mm", "aten::index", "aten::add", "aten::addmm"}


@pytest.mark.parametrize(("change", "holds"), [
    (lambda: None, True),
    (lambda: SHARED.__imul__(1.5), False),  # behind torch's back: no version tells of it
    (lambda: SEEN_AS_TENSOR.add_(1), False),
])  # fmt: skip
def test_what_is_written_while_the_window_is_open_does_not_hold(change: Callable[[], Any], holds: bool) -> None:
    look = _look(SEEN_AS_TENSOR)
    assert look is not None
    change()
    assert (look.unchanged() is not None) == holds


def test_a_tensor_that_has_gone_does_not_hold() -> None:
    tensor = torch.rand(4)
    look = _look(tensor)
    del tensor
    assert look is not None and look.unchanged() is None


# Files written by hand: what a live step shows only by chance, since memory is used again.

A, B, C, D = 11, 12, 13, 14
"""Storages."""


def tensor(storage: int, size: int = 4) -> list[Any]:
    return [90 + storage, storage, 0, 8, size, "cpu"]


class Written:
    """Ops of three steps that are alike, in the observer's form."""

    def __init__(self) -> None:
        self.nodes: list[dict[str, Any]] = []
        self.step = 0

    def op(self, name: str, reads: tuple[Any, ...] = (), gives: tuple[Any, ...] = (), within: int = 2,
           schema: str = "aten::op(Tensor self) -> Tensor", kinds: tuple[str, ...] = ()) -> int:  # fmt: skip
        def side(values: tuple[Any, ...]) -> dict[str, Any]:
            is_tensor = [isinstance(each, list) for each in values]
            shapes = [[8] if known and each[4:5] != [8] else [] for each, known in zip(values, is_tensor, strict=True)]
            strides = [[1] if shape else [] for shape in shapes]
            types = list(kinds) or ["Tensor(float)" if known else "Int" for known in is_tensor]
            return {"values": list(values), "shapes": shapes, "strides": strides, "types": types}

        attrs = [{"name": "tid", "value": 1}, {"name": "op_schema", "value": schema}]
        number = len(self.nodes) + 10
        self.nodes.append({"id": number, "name": name, "ctrl_deps": within, "inputs": side(reads),
                           "outputs": side(gives), "attrs": attrs})  # fmt: skip
        return number

    def found(
        self, path: Path, step: Callable[[Written], Any], steps: int = 3, own: tuple[str, ...] = ()
    ) -> dict[str, tuple[int, ...]]:
        for self.step in range(steps):
            step(self)
            self.op(STEP_MARK, schema="")
        file = path / "steps.json"
        file.write_bytes(msgspec.json.encode({"nodes": self.nodes}))
        return {name: calls for (name, *_), calls in fates(file, ["[8] [1] 4"], DEFAULT, own).items()}


def old_memory(file: Written) -> None:
    """A constant lies in A, then something else does."""
    file.op("ones", (1,), (tensor(A),))


@pytest.mark.parametrize(
    ("name", "reads", "kinds"),
    [
        ("aten::lift_fresh", (tensor(A),), ()),  # of an array that has the memory now
        ("aten::of_storage", (tensor(A), "<Storage>"), ("Tensor(float)", "Storage")),
        ("aten::rand_like", (tensor(A),), ()),
    ],
)
def test_what_comes_from_elsewhere_is_not_constant_in_memory_that_was(
    name: str, reads: tuple[Any, ...], kinds: tuple[str, ...], tmp_path: Path
) -> None:
    def step(file: Written) -> None:
        old_memory(file)
        file.op(name, reads, (tensor(B),), kinds=kinds)
        file.op("exp", (tensor(B),), (tensor(C),))

    found = Written().found(tmp_path, step)
    assert found["ones"] == (CONSTANT,) and name not in found and "exp" not in found


def test_a_number_in_memory_of_a_constant_is_none(tmp_path: Path) -> None:
    def step(file: Written) -> None:
        file.op("ones", (1,), (tensor(A, 8),))
        file.op("mul", (tensor(D), tensor(A, 8)), (tensor(B),))

    assert "mul" not in Written().found(tmp_path, step)


def test_an_argument_that_differs_makes_another_value(tmp_path: Path) -> None:
    def step(file: Written) -> None:
        file.op("slice", (tensor(D), file.step), (tensor(B),))
        file.op("flip", (tensor(D), 0), (tensor(C),))

    assert Written().found(tmp_path, step) == {"flip": (CONSTANT,)}


def test_memory_inside_an_op_is_not_what_lay_there_before(tmp_path: Path) -> None:
    """The sum fills memory of its own, where the constant was that is used again afterwards by nobody."""

    def step(file: Written) -> None:
        old_memory(file)
        outer = file.op("sum", (tensor(D), file.step), (tensor(B),))
        file.op(
            "fill_", (tensor(A), file.step), (tensor(A),), outer, "aten::fill_(Tensor(a!) self, Scalar v) -> Tensor(a!)"
        )

    assert Written().found(tmp_path, step)["ones"] == (CONSTANT,)


def test_an_annotation_hides_no_write(tmp_path: Path) -> None:
    def step(file: Written) -> None:
        file.op("exp", (tensor(D),), (tensor(B),))
        mark = file.op("Optimizer.step#SGD.step", schema="")
        file.op(
            "add_", (tensor(B), file.step), (tensor(B),), mark, "aten::add_(Tensor(a!) self, Scalar v) -> Tensor(a!)"
        )
        file.op("log", (tensor(B),), (tensor(C),))

    assert "log" not in Written().found(tmp_path, step)


def test_what_is_written_in_a_later_step_was_never_constant(tmp_path: Path) -> None:
    def step(file: Written) -> None:
        file.op("exp", (tensor(D),), (tensor(B),))
        if file.step == 2:
            file.op("add_", (tensor(D), 1), (tensor(D),), schema="aten::add_(Tensor(a!) self, Scalar v) -> Tensor(a!)")

    assert not Written().found(tmp_path, step)


def test_an_op_inside_a_constant_one_is_constant(tmp_path: Path) -> None:
    def step(file: Written) -> None:
        outer = file.op("div", (tensor(D), 2), (tensor(B),))
        file.op("to", (tensor(C, 8),), (tensor(A),), outer)  # of a number, which is not known by itself

    found = Written().found(tmp_path, step)
    assert found["div"] == found["to"] == (CONSTANT,)


def test_an_array_that_is_taken_over_is_new(tmp_path: Path) -> None:
    def step(file: Written) -> None:
        file.op("aten::lift_fresh", (tensor(D),), (tensor(D),))
        file.op("exp", (tensor(D),), (tensor(B),))

    assert not Written().found(tmp_path, step)


@pytest.mark.parametrize(("varying", "known"), [(0, ()), (1, ("exp",) * 3)])
def test_a_test_of_speed_gives_one_input_again_and_again(varying: int, known: tuple[str, ...], tmp_path: Path) -> None:
    """An inference, all of whose ops are constant; with prompts beside pictures some are."""

    def step(file: Written) -> None:
        for storage in (A, B, C):
            file.op("exp", (tensor(D),), (tensor(storage),))
        for number in range(2 * varying):
            file.op(f"rand{number}", (1,), (tensor(A),))

    found = Written().found(tmp_path, step, own=("[3] [1] 4",))
    assert found == ({"exp": (CONSTANT,) * 3} if known else {})


def test_one_whole_step_is_too_few_whatever_it_repeats(tmp_path: Path) -> None:
    def step(file: Written) -> None:
        file.op("exp", (tensor(D),), (tensor(B),))
        file.op("exp", (tensor(D),), (tensor(C),))

    assert Written().found(tmp_path, step, steps=3) == {"exp": (CONSTANT, CONSTANT)}
    assert not Written().found(tmp_path, step, steps=1)
