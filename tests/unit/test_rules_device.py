"""BRR109 and BRR110: what a GPU's tensor cores want; on a ledger made by hand, as no GPU is at hand."""

from __future__ import annotations

import pytest

from gobrrr.ledger.model import DeviceLedger
from tests.unit.handmade import LINE, MS, Case, op, product

KERNELS = (("gemm", 10.0, 60 * MS, "matmul"), ("relu", 5.0, 10 * MS, "elementwise"))


def on_gpu(*ops: object, **fields: object) -> Case:
    given = {"busy_ns": 90 * MS, "idle_ns": 10 * MS, "span_busy_share": 0.9, "kernels": KERNELS, **fields}
    return Case(ops=ops, extra={"device": DeviceLedger("gpu", **given)})


def test_a_misaligned_vocabulary_is_told_with_its_size():
    (found,) = on_gpu(product(1024, 768, 50257, dtype="c10::Half")).raised("BRR109")
    assert "50257" in found.message and found.where == (LINE,)
    assert found.saving.expected_ns == pytest.approx(0.15 * 60 * 0.9 * MS)


def test_only_the_misaligned_part_counts():
    even = product(1024, 768, 50264, dtype="c10::Half")
    (found,) = on_gpu(even, product(1024, 768, 50257, dtype="c10::Half")).raised("BRR109")
    assert found.saving.expected_ns == pytest.approx(0.15 * 30 * 0.9 * MS, rel=0.001)


@pytest.mark.parametrize(
    "group",
    [
        product(1024, 768, 50304, dtype="c10::Half"),
        product(1024, 768, 50257),
        product(1024, 768, 2, dtype="c10::Half"),
    ],
    ids=["aligned", "fp32", "a head of two classes"],
)
def test_alignment_is_silent(group):
    assert not on_gpu(group).raised("BRR109")


def test_alignment_is_never_told_on_a_cpu():
    assert not Case(ops=(product(1024, 768, 50257, dtype="c10::Half"),)).raised("BRR109")


def test_idle_tensor_cores_are_told_where_the_device_has_them():
    fields = {"tensor_core_eligible_ns": 60 * MS, "capability": "8.0"}
    (found,) = on_gpu(op("mm", (64, 64), (64, 64)), **fields).raised("BRR110")
    assert found.saving.expected_ns == pytest.approx(0.6 * 60 * 0.5 * 0.9 * MS)
    assert not on_gpu(**{**fields, "capability": "6.1"}).raised("BRR110")
    assert not on_gpu(**{**fields, "capability": ""}).raised("BRR110")
    assert not on_gpu(**fields, tensor_core_ns=1.0).raised("BRR110")
