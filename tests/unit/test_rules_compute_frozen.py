"""BRR113: forwards of layers that never train."""

from __future__ import annotations

from typing import Any

import pytest

from gobrrr.ledger.model import OpGroup, StepStats
from gobrrr.recording.facts import Facts, LoaderFacts, ModuleFacts
from tests.unit.handmade import LINE, MS, OTHER_LINE, Case, op

PART = ModuleFacts(id=0, kind="Tagger", num_params=1000, trainable_params=100, calls_per_step=1.0)
LOADER = LoaderFacts(id=0, num_looked=20)


def work(flops: float, ms: float, phase: str = "forward", **fields: Any) -> OpGroup:
    return op("mm", (64, 64), (64, 64), ms=ms, phase=phase, flops=flops, **fields)


def tagger(*ops: OpGroup, loader: LoaderFacts = LOADER, module: ModuleFacts = PART, **fields: Any) -> Case:
    """A frozen trunk of 40 ms with an activation of 10, and a head that trains, on lines of their own."""
    trunk = (work(1e9, 40.0), op("relu", (64, 64), ms=10.0))
    head = (work(1e8, 4.0, where=(OTHER_LINE,)), work(2e8, 8.0, "backward", where=(OTHER_LINE,)))
    facts = Facts(modules=(module,), loaders=(loader,))
    return Case(ops=(*trunk, *head, *ops), facts=facts, ms=100.0, **fields)


def test_a_frozen_trunk_may_be_kept_with_all_that_runs_at_its_line() -> None:
    (found,) = tagger().raised("BRR113")
    saving = found.saving
    assert (saving.low_ns, saving.expected_ns, saving.ceiling_ns) == pytest.approx((25 * MS, 45 * MS, 50 * MS))
    assert found.where[0] == LINE and "none of 20 batches drew" in found.message
    assert found.evidence["frozen_parameters"].value == 900


@pytest.mark.parametrize("loader", [LoaderFacts(id=0, num_looked=20, num_drew=1), LoaderFacts(id=0, num_looked=7)])
def test_where_inputs_may_differ_nothing_is_promised(loader: LoaderFacts) -> None:
    (found,) = tagger(loader=loader).raised("BRR113")
    assert found.saving.low_ns == 0 and found.saving.expected_ns == pytest.approx(25 * MS)


def test_of_a_line_that_trains_in_part_the_rest_is_told() -> None:
    """Sixteen frozen layers and four that train, all called at one line: two products each on the way back."""
    both = (work(1.6e9, 32.0), work(4e8, 8.0), work(8e8, 16.0, "backward"))
    case = Case(ops=both, facts=Facts(modules=(PART,), loaders=(LOADER,)), ms=100.0)
    (found,) = case.raised("BRR113")
    assert found.saving.ceiling_ns == pytest.approx(40 * MS * (1 - 8 / 20))


@pytest.mark.parametrize(
    "case",
    [
        tagger(module=ModuleFacts(id=0, num_params=1000, trainable_params=1000, calls_per_step=1.0)),
        tagger(module=ModuleFacts(id=0, num_params=1000, trainable_params=0, calls_per_step=1.0)),
        tagger(module=ModuleFacts(id=0, num_params=1000, trainable_params=100)),
        tagger(work(1e9, 20.0, "backward")),
        tagger(work(0.85e9, 20.0, "backward")),
        tagger(step=StepStats(count=30, profiled_count=3, wall_ns=100 * MS, kind="inference")),
        Case(ops=(work(1e9, 3.0),), facts=Facts(modules=(PART,), loaders=(LOADER,)), ms=100.0),
    ],
    ids=["all trains", "a model of its own", "not called", "weights alone", "hardly any", "inference", "cheap"],
)  # fmt: skip
def test_what_a_gradient_passes_or_nobody_trains_is_silent(case: Case) -> None:
    assert not case.raised("BRR113")


def test_what_is_computed_again_for_backward_is_no_gradient() -> None:
    (found,) = tagger(work(1e9, 10.0, "backward", recomputed=True)).raised("BRR113")
    assert found.saving.ceiling_ns == pytest.approx(50 * MS)
