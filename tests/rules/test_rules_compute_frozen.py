"""BRR113: forwards of layers that never train."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gobrrr.ledger.model.ledger import OpGroup, StepStats
from gobrrr.recording.model.facts import Facts, LoaderFacts, ModuleFacts
from tests.support.handmade import LINE, MS, OTHER_LINE, Case, op

PART = ModuleFacts(id=0, kind="Tagger", num_params=1000, trainable_params=100, calls_per_step=1.0, frozen_moved=False)
LOADER = LoaderFacts(id=0, num_looked=20, iter_ns=(1, 1), length=80, batch_size=8, num_batches=20, step_batches=1.0)
FACTS = Facts(modules=(PART,), loaders=(LOADER,))
THIRD = replace(LINE, line=77)


def work(flops: float, ms: float, phase: str = "forward", **fields: Any) -> OpGroup:
    return op("mm", (64, 64), (64, 64), ms=ms, phase=phase, flops=flops, **fields)


def tagger(
    *ops: OpGroup, loader: LoaderFacts = LOADER, modules: tuple[ModuleFacts, ...] = (PART,), **fields: Any
) -> Case:
    """A frozen trunk of 40 ms with an activation of 10, and a head that trains, on lines of their own."""
    trunk = (work(1e9, 40.0, order=1), op("relu", (64, 64), ms=10.0, order=2))
    head = (
        op("mm", (8, 64), (64, 8), ms=4.0, flops=1e8, where=(OTHER_LINE,), order=3),
        work(2e8, 8.0, "backward", where=(OTHER_LINE,), order=4),
    )
    facts = Facts(modules=modules, loaders=(loader,))
    return Case(ops=(*trunk, *head, *ops), facts=facts, ms=100.0, **fields)


def test_a_frozen_trunk_may_be_kept_with_all_that_runs_at_its_line() -> None:
    (found,) = tagger().raised("BRR113")
    saving = found.saving
    assert (saving.low_ns, saving.expected_ns, saving.ceiling_ns) == pytest.approx((25 * MS, 45 * MS, 50 * MS))
    assert found.where[0] == LINE and found.evidence["batches_without_draws"].value == 20
    assert found.evidence["frozen_parameters"].value == 900


TRUNK = ModuleFacts(
    id=0, kind="Trunk", num_params=1000, trainable_params=0, calls_per_step=1.0, span=LINE, frozen_moved=False
)
HEAD = ModuleFacts(id=1, kind="Head", num_params=90, trainable_params=90, calls_per_step=1.0, span=OTHER_LINE)
SERVED = StepStats(count=30, plain_count=20, kind="training", batches=1)


def test_a_trunk_that_the_program_calls_by_itself_may_be_kept_where_a_loader_serves_the_step() -> None:
    (found,) = tagger(modules=(TRUNK, HEAD), step=SERVED).raised("BRR113")
    assert "goes into frozen Trunk" in found.message
    assert found.evidence["frozen_parameters"].value == 1000 and found.evidence["trained_share"].value == 0
    (part,) = tagger().raised("BRR113")
    assert "goes into frozen first layers of Tagger" in part.message


@pytest.mark.parametrize(
    ("order", "phase", "again"), [(-1, "other", False), (2, "forward", True), (-1, "backward", True)]
)
def test_noise_that_is_drawn_before_it_makes_each_input_another(order: int, phase: str, again: bool) -> None:
    """A teacher that takes noise off pictures, an augmentation in the loop: at lines of their own."""
    noise = op("normal_", (64, 64), phase=phase, where=(THIRD,), order=order)
    assert bool(tagger(noise, modules=(TRUNK, HEAD), step=SERVED).raised("BRR113")) == again
    (part,) = tagger(noise).raised("BRR113")
    assert (part.saving.low_ns > 0) == again == ("batches_without_draws" in part.evidence)


@pytest.mark.parametrize(
    ("trunk", "batches"),
    [
        (TRUNK, 0),
        (replace(TRUNK, num_params=0), 1),
        (replace(TRUNK, calls_per_step=0.0), 1),
        (replace(TRUNK, kind="Normalize", span=THIRD), 1),
        (replace(TRUNK, kind="Normalize", span=None), 1),
        (replace(TRUNK, kind="Head", num_params=90), 1),
        (replace(TRUNK, frozen_moved=True), 1),
    ],
    ids=["a simulator's", "an activation", "not called", "another line's", "of no known line", "a teacher", "it moves"],
)
def test_a_frozen_model_whose_outputs_may_differ_or_that_did_not_run_there_is_none(
    trunk: ModuleFacts, batches: int
) -> None:
    """An EMA teacher gets no gradient, and follows its student; a normalisation with six frozen numbers did not run the
    forward for labels."""
    assert not tagger(modules=(trunk, HEAD), step=replace(SERVED, batches=batches)).raised("BRR113")


def test_of_weights_that_were_looked_at_once_nothing_is_sure() -> None:
    (found,) = tagger(modules=(replace(PART, frozen_moved=None),)).raised("BRR113")
    assert found.saving.low_ns == 0 and "drew a random" not in found.message


@pytest.mark.parametrize("loader", [LoaderFacts(id=0, num_looked=20, num_drew=1), LoaderFacts(id=0, num_looked=7)])
def test_where_inputs_may_differ_nothing_is_promised(loader: LoaderFacts) -> None:
    (found,) = tagger(loader=loader).raised("BRR113")
    assert found.saving.low_ns == 0 and found.saving.expected_ns == pytest.approx(25 * MS)


@pytest.mark.parametrize(
    "loaders",
    [
        (replace(LOADER, iter_ns=(1,), num_batches=10),),
        (replace(LOADER, num_batches=8),),
        (replace(LOADER, iter_ns=(1,), num_batches=10), replace(LOADER, id=1, step_batches=0.0)),
    ],
    ids=["one epoch", "begun anew after a break", "an evaluation's loader came again"],
)
def test_where_nothing_was_seen_to_come_again_nothing_is_sure(loaders: tuple[LoaderFacts, ...]) -> None:
    case = tagger()
    case.facts = replace(case.facts, loaders=loaders)
    (once,) = case.raised("BRR113")
    assert once.saving.low_ns == 0 and "no sample came again" in once.message


def test_a_stream_that_was_read_once_has_nothing_to_keep() -> None:
    stream = replace(LOADER, stream=True, length=None)
    (again,) = tagger(loader=stream).raised("BRR113")
    assert again.saving.low_ns > 0, "its second epoch gives what its first gave"
    assert not tagger(loader=replace(stream, iter_ns=(1,))).raised("BRR113")


@pytest.mark.parametrize(
    "case",
    [
        tagger(modules=(ModuleFacts(id=0, num_params=1000, trainable_params=1000, calls_per_step=1.0),)),
        tagger(modules=(ModuleFacts(id=0, num_params=1000, trainable_params=0, calls_per_step=1.0),)),
        tagger(modules=(ModuleFacts(id=0, num_params=1000, trainable_params=100),)),
        tagger(modules=(ModuleFacts(id=0, num_params=1000, trainable_params=981, calls_per_step=1.0),)),
        tagger(modules=(replace(PART, compiled=True),)),
        tagger(op("threshold_backward", (64, 64), phase="backward")),
        tagger(work(1e9, 1.0, "backward", where=(THIRD,))),
        tagger(work(1e8, 1.0, "backward", recomputed=True)),
        tagger(work(1e9, 40.0, where=(OTHER_LINE,), order=5)),
        tagger(op("bernoulli_", (64, 64), order=2)),
        tagger(op("native_batch_norm", (64, 64), order=2, concrete=("", "", "", "", "", "True", "", ""))),
        tagger(step=StepStats(count=30, profiled_count=3, wall_ns=100 * MS, kind="inference")),
        Case(ops=(work(1e9, 3.0), work(1e8, 3.0, "backward", where=(OTHER_LINE,))), facts=FACTS, ms=100.0),
    ],
    ids=["all trains", "all frozen, of no line", "not called", "a table of positions", "compiled", "weights alone",
         "gradients elsewhere", "checkpointed", "a twin", "dropout", "batch norm that trains", "inference", "cheap"],
)  # fmt: skip
def test_what_a_gradient_passes_or_nobody_trains_is_silent(case: Case) -> None:
    assert not case.raised("BRR113")


def test_batch_norm_that_is_fixed_and_what_comes_behind_the_gradient_are_no_matter() -> None:
    norm = op("native_batch_norm", (64, 64), order=2, concrete=("", "", "", "", "", "False", "", ""))
    behind = op("mm", (9, 9), (9, 9), flops=1e9, ms=20.0, where=(THIRD,), order=9)
    loss = work(1e6, 1.0, "backward", where=(replace(LINE, line=78),))
    (found,) = tagger(norm, behind, loss).raised("BRR113")
    assert found.saving.ceiling_ns == pytest.approx(51 * MS)
