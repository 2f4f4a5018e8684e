"""BRR112: masks that are drawn one element after the other."""

from __future__ import annotations

import pytest

from gobrrr.ledger.model.device import DeviceLedger
from gobrrr.ledger.model.ledger import OpGroup, StepStats
from gobrrr.rehearsal.scenes import scene
from gobrrr.rules.compute.random_numbers import LEAST
from tests.support.handmade import LINE, MS, OTHER_LINE, Case, machine, op

DEVICE = DeviceLedger("gpu", 50 * MS, 50 * MS, 0.5)


def mask(ms: float = 10.0, rows: int = 1024, **fields) -> OpGroup:
    return op("bernoulli_", (rows, 64), (), (), ms=ms, calls=3.0, **{"concrete": ("", "0.9", ""), **fields})


def test_masks_are_found_at_the_line_that_draws_most() -> None:
    (found,) = Case(ops=(mask(), mask(4, where=(OTHER_LINE,)))).raised("BRR112")
    assert found.where == (LINE,) and found.evidence["elements"].value == 2 * 3 * 1024 * 64
    assert (found.saving.low_ns, found.saving.expected_ns, found.saving.ceiling_ns) == pytest.approx(
        (7 * MS, 10.5 * MS, 14 * MS)
    )


@pytest.mark.parametrize(
    "case",
    [
        Case(ops=(mask(rows=LEAST // 64 - 1),)),
        Case(ops=(mask(3.9),), ms=100),
        Case(ops=(mask(phase="data"),)),
        Case(ops=(op("uniform_", (1024, 64), ms=20),)),
        Case(ops=(op("bernoulli_", (1024, 64), (1024, 64), (), ms=20),)),
        Case(ops=(mask(concrete=("", "0.9905", "")),)),
        Case(ops=(mask(concrete=("", "0.0095", "")),)),
        Case(ops=(mask(dtypes=("bool", "", "")),)),
        Case(ops=(mask(strides=((1, 1024), (), ())),)),
        Case(ops=(mask(),), extra={"device": DEVICE}),
        Case(ops=(mask(),), step=StepStats(count=30, profiled_count=3, wall_ns=100 * MS, kind="inference")),
    ],
    ids=[
        "small",
        "cheap",
        "a loader's",
        "none",
        "many chances",
        "rare zeros",
        "rare ones",
        "truths",
        "strided",
        "device",
        "inference",
    ],
)
def test_what_pays_for_no_other_way_is_silent(case: Case) -> None:
    assert not case.raised("BRR112")


def test_the_stride_of_a_dimension_of_one_says_nothing() -> None:
    one = op(
        "bernoulli_", (1024, 1, 64), (), (), ms=10, calls=3.0, concrete=("", "0.9", ""), strides=((64, 7, 1), (), ())
    )
    assert Case(ops=(one,)).raised("BRR112")


@pytest.mark.parametrize("chance", ["0.989", "0.011"])
def test_one_in_ninety_is_not_rare(chance: str) -> None:
    assert Case(ops=(mask(concrete=("", chance, "")),)).raised("BRR112")


def test_each_mask_is_rehearsed_with_its_size_and_dtype() -> None:
    case = Case(ops=(mask(), mask(4, rows=512, dtypes=("c10::BFloat16", "", ""))))
    found = scene("packed_masks", case.ledger, machine(), 3.0)
    assert found is not None
    sides = [(part.today, part.then, part.calls) for part in found.parts]
    made = [("float", "float32", 65536), ("c10::BFloat16", "bfloat16", 32768)]
    assert sides == [
        (
            *(
                {"make": "mask", "elements": n, "keep": 0.9, "dtype": d, "torch_dtype": t, "packed": packed}
                for packed in (False, True)
            ),
            3.0,
        )
        for d, t, n in made
    ]
    assert scene("packed_masks", Case(ops=(mask(rows=8),)).ledger, machine(), 3.0) is None
