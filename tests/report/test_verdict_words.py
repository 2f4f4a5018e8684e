"""Verdicts as people read them."""

from __future__ import annotations

from gobrrr.guard.model.verdict import Guarded
from gobrrr.remedies import registry
from gobrrr.report.told import verdict_words


def test_each_remedy_that_lowers_the_precision_has_its_word() -> None:
    lowering = {n: found for n in registry.names() if (found := registry.remedy(n).precision)}
    assert {name: said.split()[0] for name, said in verdict_words.ROUNDING.items()} == {
        name: precision.replace("bfloat16", "bf16") for name, precision in lowering.items()
    }


def test_what_is_bounded_says_by_what() -> None:
    order = Guarded("bounded", ("data: the same samples came in another order",))
    assert verdict_words.numbers(order, ("bucketing",)) == "within seed variation"
    assert verdict_words.numbers(order, ("bucketing", "bf16_autocast")) == "within bf16 rounding and seed variation"
    assert verdict_words.numbers(Guarded("bounded"), ("compile",)) == "within rounding"


def test_what_is_not_said_otherwise_stays_as_it_is() -> None:
    assert [verdict_words.numbers(Guarded(each)) for each in ("exact", "equivalent", "wrong")] == [
        "match", "match", "wrong",
    ]  # fmt: skip
    assert [verdict_words.speed(each) for each in ("equivalent", "inconclusive", "smaller\x1b")] == [
        "no difference", "no clear difference", "smaller",
    ]  # fmt: skip
