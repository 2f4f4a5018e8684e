"""Rules where an accelerator works: what they ask of kernels, what of its idle time, what of neither."""

from __future__ import annotations

from typing import Any

import pytest

from gobrrr.ledger.devicemodel import DeviceLedger
from gobrrr.ledger.model import OpGroup
from tests.unit import test_rules_data as data
from tests.unit.handmade import LINE, MS, Case, op


def device(busy: float = 90.0, **fields: Any) -> DeviceLedger:
    """A device that works `busy` of 100 ms."""
    given = {"busy_ns": busy * MS, "idle_ns": (100 - busy) * MS, "span_busy_share": busy / 100, **fields}
    return DeviceLedger("gpu", **given)


def on_gpu(case: Case, *kernels: OpGroup, **fields: Any) -> Case:
    """The same program, whose ops the host only launches: `kernels` is their work."""
    case.phases = ()
    case.extra = {**case.extra, "device": device(**fields), "device_ops": kernels}
    return case


def test_padding_is_priced_by_the_kernels_that_work_on_it():
    """The host's ops have no phases and no time of their own there; the embedding that launches them has no kernel."""
    kernels = (op("mm", ms=30), op("mm", ms=50, phase="backward"), op("_fused_adamw_", ms=10, phase="optimizer"))
    (found,) = on_gpu(data.padded(0.84, longest=128), *kernels).raised("BRR409")
    assert found.saving.expected_ns == pytest.approx(0.75 * 80 * MS * 0.9)  # the device works 90 % of the step
    assert found.saving.ceiling_ns == pytest.approx(0.84 * 80 * MS)
    assert found.where == (LINE,) and found.holds_ns == pytest.approx(0.84 * 80 * MS)


def test_attention_grows_with_the_square_of_the_padding_on_a_device_too():
    kernels = (op("mm", ms=40), op("_efficient_attention_forward", (16, 4, 512, 16), ms=40))
    (found,) = on_gpu(data.padded(0.5, longest=256), *kernels).raised("BRR409")
    assert found.evidence["attention_time"].value == 40 * MS
    assert found.saving.ceiling_ns == pytest.approx((0.5 + 0.75) * 40 * MS)


def test_padding_of_a_device_that_hardly_works_is_not_told():
    assert not on_gpu(data.padded(0.84), op("mm", ms=4), busy=4).raised("BRR409")
