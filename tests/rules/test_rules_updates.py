"""BRR206 to BRR208: embedding gradients, zeroed gradients, optimizers op by op."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gobrrr.ledger.model.ledger import OpGroup
from gobrrr.recording.model.facts import Facts, OptimizerFacts
from tests.support.handmade import LINE, MS, OTHER_LINE, Case, op

ROWS, DIM = 500_000, 64
ADAM = OptimizerFacts(
    id=0,
    kind="AdamW",
    num_tensors=10,
    num_elements=40_000_000,
    param_bytes=160_000_000,
    grad_bytes=160_000_000,
    state_bytes=320_000_000,
    supports_fused=True,
    span=OTHER_LINE,
)


def embedding_backward(indices: tuple[int, ...] = (64, 32)) -> OpGroup:
    return op(
        "embedding_dense_backward",
        (*indices, DIM),
        indices,
        (),
        (),
        (),
        dtypes=("float", "long int", "Scalar", "Scalar", "Scalar"),
        concrete=("", "", str(ROWS), "-1", "False"),
        phase="backward",
        ms=5,
    )


def embedding(*more: OpGroup, **fields: tuple[int, ...]) -> Case:
    zero = op("zero_", (ROWS, DIM), ms=20, phase="backward", parents=("aten::embedding_dense_backward", "aten::zeros"))
    update = op("addcdiv_", (ROWS, DIM), (ROWS, DIM), ms=30, phase="optimizer", parents=("Optimizer.step#Adam.step",))
    return Case(ops=(embedding_backward(**fields), zero, update, *more))


def test_dense_gradient_costs_its_writing_and_its_update():
    (found,) = embedding().raised("BRR206")
    assert found.where == (LINE,)
    assert found.evidence["gradient"].value == 25 * MS and found.evidence["update"].value == 30 * MS
    assert found.saving.expected_ns == pytest.approx(0.8 * 55 * MS, rel=0.01)


def test_the_gradient_of_a_bags_table_is_one_too():
    shapes = ((64, DIM), (320,), (320,), (64,), (64,), ())
    bag = op("_embedding_bag_dense_backward", *shapes, concrete=("",) * 5 + (str(ROWS),), phase="backward", ms=25)
    update = op("add_", (ROWS, DIM), (ROWS, DIM), ms=30, phase="optimizer", parents=("Optimizer.step#SGD.step",))
    (found,) = Case(ops=(bag, update)).raised("BRR206")
    assert found.evidence["gradient"].value == 25 * MS and found.evidence["update"].value == 30 * MS


def test_dense_gradient_takes_the_optimizers_share_where_shapes_hide_in_lists():
    case = embedding()
    case.ops = case.ops[:2]
    case.facts, case.phases = Facts(optimizers=(ADAM,)), (("optimizer", 50 * MS),)
    (found,) = case.raised("BRR206")
    assert found.evidence["update"].value == pytest.approx(40 * MS)


def test_dense_gradient_is_told_up_to_one_row_in_eight():
    assert embedding(indices=(100, 500)).raised("BRR206")
    assert not embedding(indices=(100, 700)).raised("BRR206")


def test_dense_gradient_is_silent_where_most_rows_are_touched():
    assert not embedding(indices=(256, 512)).raised("BRR206")


def test_dense_gradient_is_silent_where_a_head_may_share_the_table():
    assert not embedding(op("mm", (64, DIM), (DIM, ROWS), ms=1)).raised("BRR206")


def test_dense_gradient_is_silent_where_the_table_is_not_recorded():
    case = embedding()
    case.ops = (replace(case.ops[0], concrete=()), *case.ops[1:])
    assert not case.raised("BRR206")


def zeroed(micro_steps: float = 1.0, parents: tuple[str, ...] = ("Optimizer.zero_grad#AdamW.zero_grad",)) -> Case:
    accumulate = (
        "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad",
        "torch::autograd::AccumulateGrad",
    )
    return Case(
        ops=(
            op("zero_", (4000, 10_000), ms=8, phase="other", parents=parents, where=(OTHER_LINE,)),
            op("add_", (4000, 10_000), (4000, 10_000), ms=12, phase="backward", parents=accumulate),
        ),
        facts=Facts(optimizers=(replace(ADAM, micro_steps=micro_steps),)),
    )


def test_zeroing_costs_the_writing_and_the_adding():
    (found,) = zeroed().raised("BRR207")
    assert found.where == (OTHER_LINE,)
    assert found.saving.expected_ns == pytest.approx(0.75 * 20 * MS)


def test_zeroing_with_accumulation_spares_one_addition_per_update():
    (found,) = zeroed(micro_steps=4.0).raised("BRR207")
    assert found.saving.expected_ns == pytest.approx(0.75 * 11 * MS)


def test_zeroing_by_hand_is_found_too():
    assert zeroed(parents=()).raised("BRR207")


def test_zeroing_of_something_else_is_silent():
    case = zeroed(parents=())
    case.ops = (op("zero_", (1000, 100), ms=8, phase="other"), case.ops[1])
    assert not case.raised("BRR207")


@pytest.mark.parametrize(("rows", "told"), [(2000, True), (1999, False)])
def test_zeroing_of_half_of_the_parameters_by_hand_is_found(rows: int, told: bool):
    """AdamW has 40 million of them here."""
    case = zeroed(parents=())
    case.ops = (op("zero_", (rows, 10_000), ms=8, phase="other"), case.ops[1])
    assert bool(case.raised("BRR207")) is told


def test_zeros_that_an_op_makes_for_itself_are_not_by_hand():
    assert not zeroed(parents=("aten::zeros",)).raised("BRR207")


def test_accumulation_without_zeroing_is_silent():
    case = zeroed()
    case.ops = case.ops[1:]
    assert not case.raised("BRR207")


def updating(ops_per_tensor: int = 10, **fields: object) -> Case:
    update = op("addcdiv_", (4000, 1000), (4000, 1000), ms=50, calls=10 * ops_per_tensor, bytes=0.9e9)
    return Case(
        ops=(replace(update, phase="optimizer", parents=("Optimizer.step#AdamW.step",)),),
        facts=Facts(optimizers=(replace(ADAM, **fields),)),
        phases=(("optimizer", 90 * MS), ("forward", 110 * MS)),
        ms=200,
    )


def test_unfused_optimizer_is_measured_against_one_pass():
    (found,) = updating().raised("BRR208")
    assert found.where == (OTHER_LINE,)
    # 1.12 GB at 20 GB/s take 56 ms; ten tensors 35 us.
    assert found.saving.expected_ns == pytest.approx(0.9 * (90 - 1.1 * 56 - 0.035) * MS, rel=0.01)
    assert found.saving.ceiling_ns == pytest.approx(62 * MS)


def test_an_optimizer_without_a_fused_kernel_is_to_be_compiled():
    (found,) = updating(kind="RAdam", supports_fused=False).raised("BRR208")
    assert "torch.compile(optimizer.step)" in found.advice and "fused" not in found.message
    assert found.saving.expected_ns == pytest.approx(0.6 * (90 - 1.1 * 56 - 0.035) * MS, rel=0.01)
    assert "fused=True" in updating().raised("BRR208")[0].advice


def test_foreach_is_named():
    assert "foreach" in updating(foreach=True).raised("BRR208")[0].message


def test_one_op_per_tensor_leaves_nothing_to_fuse():
    assert not updating(ops_per_tensor=1).raised("BRR208")


def test_one_pass_is_no_slower_than_the_ops_of_this_run():
    case = updating()
    case.ops = (replace(case.ops[0], bytes=2.24e9),)
    (found,) = case.raised("BRR208")
    assert found.evidence["one_pass"].value == pytest.approx(25 * MS)


@pytest.mark.parametrize("fields", [{"fused": True}, {"supports_fused": False}, {"num_elements": 0}])
def test_unfused_optimizer_is_silent(fields):
    assert not updating(**fields).raised("BRR208")


def test_an_optimizer_of_an_earlier_phase_is_not_this_loops():
    """Its tensors are as many again, and the ops no longer two for each."""
    case = updating(ops_per_tensor=2)
    (alone,) = case.raised("BRR208")
    before = replace(case.facts.optimizers[0], id=5)
    case.facts = replace(case.facts, optimizers=(before, *case.facts.optimizers))
    case.step = replace(case.step, updates=((case.facts.optimizers[1].id, 1),))
    assert case.raised("BRR208")[0].saving == alone.saving


def test_only_the_part_of_the_ill_optimizer_counts():
    case = updating()
    case.facts = Facts(optimizers=(ADAM, replace(ADAM, id=1, fused=True)))
    assert not case.raised("BRR208")
