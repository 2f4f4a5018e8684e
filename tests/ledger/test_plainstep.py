"""A device at the plain step: what is time or work is scaled, what is a count, a share or a rate is not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gobrrr.ledger.model.device import DeviceLedger, DeviceOp, DeviceWork, SizedCalls, Transfer
from gobrrr.ledger.steps.scaling import at_plain_step, factors

OP = DeviceOp("aten::mm", "bf16", 3.0, 400.0, 8000.0, 160.0, 200.0, "compute", 1e12, "8x8, 8x8")
WORK = DeviceWork(
    ops=(OP,), kernel_ns=900.0, counted_ns=400.0, compute_ns=150.0, bandwidth_ns=50.0, dtype="bf16",
    ceiling_flop_rate=1e12, ceiling="sheet", not_counted=(("aten::x", 500.0),), recomputed_flops=80.0, by_shape=(OP,),
)  # fmt: skip
DEVICE = DeviceLedger(
    name="GPU", busy_ns=900.0, idle_ns=300.0, span_busy_share=0.8, idle_by_cause=(("host", 300.0),),
    exposed_copy_ns=10.0, copies=(("HtoD", 2, 64.0, 10.0),), kernels=(("gemm", 3.0, 400.0, "matmul"),),
    syncs=(("cudaStreamSynchronize", 1.0, 40.0, ()),), tensor_core_ns=20.0, tensor_core_eligible_ns=30.0,
    exposed_communication_ns=70.0, start_up_ns=8.0, work=WORK,
    transfers=(Transfer("all-reduce", (SizedCalls(100.0, 1.0, 50.0, 40.0, 150.0),)),),
)  # fmt: skip
WORKING, IDLING = 0.5, 0.25
TIMES = {"ns", "floor_ns", "flops", "bytes", "kernel_ns", "counted_ns", "compute_ns", "bandwidth_ns",
         "recomputed_flops"}  # fmt: skip


def fields(thing: Any) -> dict[str, Any]:
    return {name: getattr(thing, name) for name in thing.__struct_fields__}


def test_all_work_shrinks_alike_and_nothing_else_does() -> None:
    found = at_plain_step(DEVICE, WORKING, IDLING).work
    assert found is not None
    for name, value in fields(WORK).items():
        now = getattr(found, name)
        if name in TIMES:
            assert now == value * WORKING, name
        elif name in ("ops", "by_shape"):
            for field, before in fields(OP).items():
                assert getattr(now[0], field) == (before * WORKING if field in TIMES else before), (name, field)
        elif name == "not_counted":
            assert now == (("aten::x", 250.0),)
        else:
            assert now == value, name


def test_work_and_idle_of_a_run_that_is_watched_shrink_each_by_itself() -> None:
    found = at_plain_step(DEVICE, WORKING, IDLING)
    assert (found.busy_ns, found.idle_ns) == (450.0, 75.0)
    assert (found.idle_by_cause, found.start_up_ns) == ((("host", 75.0),), 2.0)
    assert (found.copies, found.exposed_copy_ns) == ((("HtoD", 2, 32.0, 5.0),), 5.0)
    assert (found.kernels, found.syncs[0][2]) == ((("gemm", 3.0, 200.0, "matmul"),), 10.0)
    assert (found.tensor_core_ns, found.tensor_core_eligible_ns, found.exposed_communication_ns) == (10.0, 15.0, 35.0)
    assert found.transfers == (Transfer("all-reduce", (SizedCalls(100.0, 0.5, 25.0, 20.0, 75.0),)),)
    same = {"name", "span_busy_share", "unlinked_share", "ahead_ns", "unseen_share", "captured_share", "overlap_share"}
    assert {name: getattr(found, name) for name in same} == {name: getattr(DEVICE, name) for name in same}


@pytest.mark.parametrize(
    ("plain", "alike", "expected"),
    [
        (600.0, True, (0.5, 0.5)), (1000.0, False, (1.0, 1 / 3)), (450.0, False, (0.5, 0.0)),
        (2400.0, True, (2.0, 2.0)), (2400.0, False, (1.0, 5.0)),
    ],
)  # fmt: skip
def test_how_much_of_each_is_left(plain: float, alike: bool, expected: tuple[float, float]) -> None:
    assert factors(DEVICE, plain, alike) == pytest.approx(expected)


def test_a_device_that_never_worked_or_never_idled_divides_by_nothing() -> None:
    nothing = msgspec.structs.replace(DEVICE, busy_ns=0.0, idle_ns=0.0)
    assert factors(nothing, 100.0, True) == (1.0, 1.0)
    assert factors(nothing, 100.0, False) == (1.0, 0.0)
