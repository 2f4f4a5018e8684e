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
from gobrrr.recording.run_folder.repeated_ops import CONSTANT, TWICE, repeated_ops
from gobrrr.recording.trace_files.limits import DEFAULT

FIXED, WEIGHT = torch.rand(32, 32), torch.rand(32, 32)
SHARED = np.random.default_rng(0).random((32, 32)).astype("f4")
SEEN_AS_TENSOR = torch.from_numpy(SHARED)


def same(
    step: Callable[[int], Any], path: Path, steps: int = 3, kinds: tuple[torch.Tensor, ...] = (FIXED,),
    known: int = CONSTANT,
) -> set[str]:  # fmt: skip
    """Names of the ops of which a call computes what was computed before: in an earlier step, or TWICE in one."""
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
    found = repeated_ops(file, [_kind(tensor) for tensor in kinds], DEFAULT)
    return {name.removeprefix("aten::") for (name, _), calls in found.items() if known in calls}


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
        repeated_ops(tmp_path / "cut.json", (), DEFAULT)


@pytest.mark.parametrize(("change", "holds"), [
    (lambda: None, True),
    (lambda: SHARED.__imul__(1.5), False),  # behind torch's back: no version tells of it
    (lambda: SEEN_AS_TENSOR.add_(1), False),
])  # fmt: skip
def test_what_is_written_while_the_window_is_open_does_not_hold(change: Callable[[], Any], holds: bool) -> None:
    look = _look(SEEN_AS_TENSOR)
    assert look is not None
    change()
    assert look.holds() == holds


def test_a_tensor_that_has_gone_does_not_hold() -> None:
    tensor = torch.rand(4)
    look = _look(tensor)
    del tensor
    assert look is not None and not look.holds()
