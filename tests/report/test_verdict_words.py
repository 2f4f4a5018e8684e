"""Verdicts as people read them."""

from __future__ import annotations

from gobrrr.guard.model.verdict import Guarded
from gobrrr.remedies import registry
from gobrrr.report.told import speedup_text
from gobrrr.report.told.report import EDITS


def test_each_remedy_that_lowers_the_precision_has_its_word() -> None:
    lowering = {n: found for n in registry.names() if (found := registry.remedy(n).precision)}
    assert {name: said.split()[0] for name, said in speedup_text.ROUNDING.items()} == {
        name: precision.replace("bfloat16", "bf16") for name, precision in lowering.items()
    }


def test_edits_are_told_from_remedies() -> None:
    assert {*registry.edit_names()} == EDITS


def test_what_is_bounded_says_by_what() -> None:
    order = Guarded("bounded", ("data: the same samples came in another order",))
    assert speedup_text.numbers(order, ("bucketing",)) == "within seed variation"
    assert speedup_text.numbers(order, ("bucketing", "bf16_autocast")) == "within bf16 rounding and seed variation"
    assert speedup_text.numbers(Guarded("bounded"), ("compile",)) == "within rounding"


def test_what_is_not_said_otherwise_stays_as_it_is() -> None:
    assert [speedup_text.numbers(Guarded(each)) for each in ("exact", "equivalent", "wrong")] == [
        "match", "match", "wrong",
    ]  # fmt: skip
    assert [speedup_text.speed(each) for each in ("equivalent", "inconclusive", "smaller\x1b")] == [
        "no difference", "no clear difference", "smaller",
    ]  # fmt: skip
