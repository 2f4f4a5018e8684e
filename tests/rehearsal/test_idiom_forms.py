"""Idioms whose two forms are timed on recorded shapes: the forms compute the same, and a finding takes their saving."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from gobrrr.ledger.model.ledger import Statement
from gobrrr.recording.run_folder.run import Start
from gobrrr.rehearsal import callables, findings
from gobrrr.rehearsal.findings import Rehearsal
from gobrrr.rehearsal.script import Played, Scene
from gobrrr.report.told.findings import basis
from gobrrr.rules import judge
from gobrrr.rules.idioms.table import Idiom, idioms
from gobrrr.rules.model.finding import Finding
from tests.support.handmade import LINE, MS, Case, machine, op

ARGMAX = op("argmax", (2, 5, 32, 32), (), (), concrete=("", "1", "False"), ms=20, floor_ns=MS)
WRITTEN = Statement(LINE, "found = scores.argmax(dim=1)")
SHAPES: dict[str, list[tuple[int, ...]]] = {
    "argmax_over_channels": [(2, 5, 6), (), ()], "cosine_of_all_pairs": [(6, 6, 4), (6, 6, 4)],
    "cross_entropy_by_one_hot": [(6, 5), (), ()], "diagonal_product": [(5, 5), (5, 3)],
    "diagonal_by_name": [(5, 5), (5, 3)], "trace_of_product": [(5, 4), (4, 5)], "gelu_by_hand": [(6, 4)],
    "integer_matmul": [(5, 4), (4, 3)], "inverse_times": [(2, 5, 5), (2, 5, 1)], "one_hot_product": [(6, 9), (9, 3)],
    "pairwise_differences": [(6, 1, 4), (1, 5, 4), ()], "quantile_by_sort": [(40,), (), (), ()],
    "softmax_by_hand": [(6, 9)],
    "svd_for_values": [(9, 4), (), (), ()], "svd_full_matrices": [(9, 4), (), (), ()],
}  # fmt: skip
CONCRETE = {
    "argmax_over_channels": ["", "1", "False"], "cross_entropy_by_one_hot": ["", "-1", "False"],
    "pairwise_differences": ["", "", "1"], "quantile_by_sort": ["", "False", "-1", "False"],
    "svd_for_values": ["", "True", "True", ""],
    "svd_full_matrices": ["", "True", "True", ""],
}  # fmt: skip
PLAYED = [each for each in idioms() if each.play]
DISCRETE = ("argmax_over_channels", "integer_matmul")


def side(name: str, form: str, *, backward: bool) -> dict[str, Any]:
    [op_name, *_] = next(each.play.ops for each in PLAYED if each.name == name and each.play)
    dtype = "long int" if name == "integer_matmul" else "float"
    shapes, concrete = SHAPES[name], CONCRETE.get(name, [])
    dtypes = [dtype if shape else "Scalar" for shape in shapes]
    return {"make": "form", "name": op_name, "form": form, "shapes": shapes, "dtypes": dtypes, "strides": [],
            "concrete": concrete, "backward": backward}  # fmt: skip


def value(name: str, form: str) -> torch.Tensor:
    """What one form computes, on numbers that are the same for both."""
    torch.manual_seed(0)
    found = callables.make(torch, side(name, form, backward=False), "cpu")()
    assert isinstance(found, torch.Tensor)
    return found


def test_every_idiom_that_is_played_has_shapes_here() -> None:
    assert {each.name for each in PLAYED} == set(SHAPES)


@pytest.mark.parametrize("idiom", PLAYED, ids=lambda each: each.name)
def test_both_forms_compute_the_same(idiom: Idiom) -> None:
    assert idiom.play is not None
    slow, fast = value(idiom.name, idiom.play.today), value(idiom.name, idiom.play.then)
    if idiom.name == "quantile_by_sort":
        slow = slow[int(0.9 * len(slow)) - 1]
    torch.testing.assert_close(slow, fast, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("idiom", PLAYED, ids=lambda each: each.name)
def test_both_forms_have_their_backward(idiom: Idiom) -> None:
    assert idiom.play is not None
    for form in (idiom.play.today, idiom.play.then):
        callables.make(torch, side(idiom.name, form, backward=True), "cpu")()


def told(monkeypatch: pytest.MonkeyPatch, then_ns: float) -> tuple[list[Finding], list[Scene]]:
    """The findings of one argmax over channels, rehearsed with a mended form that takes so long."""
    scenes: list[Scene] = []

    def play(script: Any, interpreter: str) -> dict[str, Played]:
        scenes.extend(script.scenes)
        rounds = tuple(tuple((20.0 * MS, then_ns) for _ in each.parts) for each in script.scenes)
        return {each.remedy: Played(each.remedy, (rounds[i],) * 9) for i, each in enumerate(script.scenes)}

    monkeypatch.setattr(findings, "perform", play)
    ledger = Case(ops=(ARGMAX,), extra={"statements": (WRITTEN,)}).ledger
    rehearsed = Rehearsal(ledger, machine(), Start(torch="2.13.0"), "python")
    found, _ = judge(ledger, machine(), rehearsed=rehearsed)
    return [each for each in found if each.name == "argmax-over-channels"], scenes


def test_a_finding_without_an_edit_takes_what_its_forms_save(monkeypatch: pytest.MonkeyPatch) -> None:
    [found], [scene] = told(monkeypatch, 5 * MS)
    assert (found.basis, found.remedies) == ("rehearsed", ())
    assert found.saving.expected_ns == pytest.approx(15 * MS)
    [part] = scene.parts
    assert part.ns == 20 * MS and part.today is not None and part.today["shapes"][0] == [2, 5, 32, 32]


def test_where_the_mended_form_is_no_faster_here_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(monkeypatch, 21 * MS)[0] == []


def test_a_form_that_cannot_be_played_leaves_the_pairs_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "perform", lambda script, _: {s.remedy: Played(s.remedy) for s in script.scenes})
    ledger = Case(ops=(ARGMAX,), extra={"statements": (WRITTEN,)}).ledger
    found, skipped = judge(ledger, machine(), rehearsed=Rehearsal(ledger, machine(), Start(torch="2.13.0"), "python"))
    [told] = [each for each in found if each.name == "argmax-over-channels"]
    assert told.basis != "rehearsed" and basis(told) == "from an example"
    assert any("could not be rehearsed" in why for _, why in skipped)
