"""The step against the ceilings: FLOPs once, the dtype of most of them, and what was not counted."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gobrrr.ledger.model.ledger import OpGroup
from gobrrr.ledger.ops.pricing import MAX_NAMED, Prices, roofline
from tests.support.handmade import MS, machine, op, product


def prices(precision: str | None = "highest", threads: int = 2, **rates: float) -> Prices:
    return Prices(machine(**rates), threads, precision)


def test_a_step_of_one_product_is_as_fast_as_the_product() -> None:
    mm = product(1024, 1024, 1024, gflops=100.0)
    found = roofline([mm], mm.ns, prices())
    assert found.flops == 2 * 1024**3
    assert found.ceiling_flop_rate == 200e9
    assert found.mfu == pytest.approx(0.5)
    assert found.dtype == "fp32"
    assert found.speed_of_light == pytest.approx(mm.floor_ns / mm.ns)
    assert found.not_counted_share == 0.0 and found.not_counted == ()


def test_utilisation_is_of_the_whole_step() -> None:
    mm = product(1024, 1024, 1024, gflops=200.0)
    assert roofline([mm], 4 * mm.ns, prices()).mfu == pytest.approx(0.25)


def test_what_is_computed_again_is_no_part_of_the_models_work() -> None:
    """In backward, of activations that were not kept: the hardware does it, the model did not ask for it."""
    mm = product(1024, 1024, 1024, gflops=200.0)
    again = replace(mm, recomputed=True)
    found = roofline([mm, again], 2 * mm.ns, prices())
    assert (found.mfu, found.hfu) == (pytest.approx(0.5), pytest.approx(1.0))
    assert roofline([mm], mm.ns, prices()).hfu is None


def test_the_dtype_is_that_of_most_flops_and_names_the_ceiling() -> None:
    small, large = product(256, 256, 256), product(512, 512, 512, dtype="c10::BFloat16")
    found = roofline([small, large], 10 * MS, prices(bf16=300.0))
    assert (found.dtype, found.ceiling_flop_rate) == ("bf16", 600e9)
    assert roofline([small, small], 10 * MS, prices(bf16=300.0)).dtype == "fp32"
    double = product(512, 512, 512, dtype="double")
    assert roofline([double], 10 * MS, prices()).ceiling_flop_rate == 100e9


def test_the_precision_that_the_program_set_names_the_ceiling() -> None:
    mm = product(512, 512, 512)
    assert roofline([mm], 10 * MS, prices("medium", fp32_medium=400.0)).ceiling_flop_rate == 800e9


def test_work_inside_the_wait_for_data_is_not_the_steps() -> None:
    mm = product(512, 512, 512)
    transform = op("mul", (512, 512), ms=5.0, phase="data", flops=1e9, bytes=1e9)
    unknown = OpGroup("mine::decode", ns=5 * MS, phase="data")
    assert roofline([mm, transform, unknown], 20 * MS, prices()) == roofline([mm], 20 * MS, prices())


def test_what_is_not_modelled_is_named_with_its_share() -> None:
    groups = [OpGroup(f"mine::op{n}", ns=n * MS, phase="forward") for n in range(1, 12)]
    wrapper = OpGroup("aten::linear", ns=50 * MS, phase="forward", leaf=False)
    found = roofline([*groups, wrapper, product(64, 64, 64)], 200 * MS, prices())
    assert found.not_counted_share == pytest.approx(66 / 200), "a wrapper does nothing itself"
    assert len(found.not_counted) == MAX_NAMED
    assert found.not_counted[0] == ("mine::op11", pytest.approx(11 / 200))


def test_what_ran_elsewhere_is_not_counted_though_it_calls_others() -> None:
    found = roofline([OpGroup("aten::addmm", ns=MS, leaf=False, elsewhere=True)], 10 * MS, prices())
    assert found.not_counted == (("aten::addmm", pytest.approx(0.1)),)


def test_calls_of_one_op_on_two_lines_are_one_name() -> None:
    groups = [OpGroup("mine::op", ns=MS, phase=phase) for phase in ("forward", "backward")]
    assert roofline(groups, 10 * MS, prices()).not_counted == (("mine::op", pytest.approx(0.2)),)


def test_a_step_of_no_length_has_no_shares() -> None:
    found = roofline([product(64, 64, 64), OpGroup("mine::op", ns=MS)], 0.0, prices())
    assert found.mfu is None and found.speed_of_light is None
    assert found.not_counted_share == 0.0


@pytest.mark.parametrize("groups", [[], [OpGroup("aten::mm", ns=MS)]])
def test_unknown_work_is_no_utilisation_of_zero(groups: list[OpGroup]) -> None:
    found = roofline(groups, 10 * MS, prices())
    assert (found.flops, found.bytes, found.floor_ns) == (0.0, 0.0, 0.0)
    assert found.mfu is None and found.speed_of_light is None
