"""The search of lossy forms with runs that are played: what it keeps, how often it runs, which layers stay."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gobrrr.guard.model.gate import Gated
from gobrrr.remedies.edits.lossy import FORMS, Facts, Part, Point, form, name_of
from gobrrr.trial.lossy import search as searching
from gobrrr.trial.lossy.search import MOST, Search, Seen, fewest, front

OWN_NS = 100.0


def gate(change: float, rule: str = "accuracy >= -0.5") -> Gated:
    return Gated(rule=rule, name="accuracy", change=change, allowed=0.5 if "<=" in rule else -0.5)


class Played:
    """Each form has a factor of time and a loss; layers that stay take their share of the loss, and of the gain."""

    def __init__(self, forms: Mapping[str, tuple[float, float]], layers: Mapping[str, float], over: int = 99) -> None:
        self.forms, self.layers, self.over, self.runs = forms, layers, over, list[Point]()

    def is_over(self) -> bool:
        return len(self.runs) >= self.over

    def sensitivity(self, part: Part) -> Mapping[str, float]:
        return self.layers

    def run(self, point: Point) -> Seen:
        self.runs.append(point)
        ns, loss = OWN_NS, 0.0
        for part in point:
            times, lost = self.forms[part.form]
            if math.isnan(times):
                return Seen(reason="RuntimeError")
            share = sum(each for name, each in self.layers.items() if name not in part.keep)
            share *= (1 - part.knob) / 0.1 if part.knob is not None else 1.0
            loss += lost * share
            ns *= 1 - (1 - times) * (1 - len(part.keep) / max(1, len(self.layers)))
        return Seen((gate(-loss),), ns, 10)


NAMES = [each.name for each in FORMS]
FACTOR = st.one_of(st.floats(0.1, 1.5), st.just(math.nan))


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(NAMES), st.tuples(FACTOR, st.floats(0, 3)), min_size=1),
       st.integers(1, 80), st.integers(0, 30))  # fmt: skip
def test_nothing_that_its_gate_refuses_is_recommended_and_runs_are_few(
    forms: dict[str, tuple[float, float]], layers: int, over: int
) -> None:
    played = Played(forms, {f"layer{n}": 2.0 ** -(n + 1) for n in range(layers)}, over)
    found = Search(OWN_NS, played)
    best = found.run(list(forms))
    assert len(played.runs) <= min(MOST, over) and len(set(played.runs)) == len(played.runs)
    for point in best:
        seen = found.seen[point]
        assert seen.held and seen.gates[0].change >= -0.5 and seen.ns < OWN_NS
    assert [found.seen[point].ns for point in best] == sorted(found.seen[point].ns for point in best)
    for point in found.seen:
        taken = [word for part in point for word in form(part.form).takes.split()]
        assert len(set(taken)) == len(taken) and len({part.form for part in point}) == len(point)


def test_the_few_layers_that_matter_stay_and_what_goes_together_is_combined() -> None:
    layers = {f"layer{n}": 0.3 if n < 2 else 0.001 for n in range(40)}
    played = Played({"int8_dynamic": (0.3, 1.0), "half_precision": (0.7, 0.1), "compile": (0.9, 0.0)}, layers)
    best = Search(OWN_NS, played).run(["int8_dynamic", "half_precision", "compile"])[0]
    kept = next(part for part in best if part.form == "int8_dynamic")
    assert {part.form for part in best} == {"int8_dynamic", "half_precision", "compile"}
    assert 1 <= len(kept.keep) <= 4 and set(kept.keep) & {"layer0", "layer1"}
    assert name_of((kept,)).startswith("int8_dynamic (")


def test_a_rank_goes_as_far_as_its_gate_lets_it() -> None:
    for loss, low, high in ((0.1, 0.5, 0.75), (1.0, 0.93, 0.999)):
        played = Played({"low_rank": (0.6, loss)}, {"layer": 1.0})
        found = Search(OWN_NS, played)
        found.run(["low_rank"])
        held = [point[0].knob for point, seen in found.seen.items() if seen.held]
        assert low <= min(knob for knob in held if knob is not None) <= high
        assert len(played.runs) <= 1 + searching.REFINED


def test_the_users_own_edit_is_a_point_and_goes_with_forms() -> None:
    played = Played({"a.diff": (0.5, 0.0), "compile": (0.5, 0.0)}, {"layer": 1.0})
    best = Search(OWN_NS, played, [(Part("a.diff"),)]).run(["compile"])
    assert {part.form for part in best[0]} == {"a.diff", "compile"}


def test_a_form_that_is_slower_and_refused_is_given_up_and_one_that_is_exact_is_not_refined() -> None:
    played = Played({"int8_dynamic": (1.2, 3.0), "compile": (0.5, 0.0), "fold_batch_norm": (0.9, 3.0)}, {"layer": 1.0})
    asked: list[str] = []
    played.sensitivity = lambda part: asked.append(part.form) or {}  # type: ignore[method-assign, func-returns-value]
    Search(OWN_NS, played).run(["int8_dynamic", "compile", "fold_batch_norm"])
    assert asked == []


def test_what_two_forms_lose_together_is_refused_though_each_is_held() -> None:
    played = Played({"int8_dynamic": (0.5, 0.3), "half_precision": (0.6, 0.3)}, {"layer": 1.0})
    best = Search(OWN_NS, played).run(["int8_dynamic", "half_precision"])
    assert [name_of(point) for point in best] == ["int8_dynamic", "half_precision"]


def test_what_is_refused_together_is_no_ground_for_more() -> None:
    forms = {"int8_dynamic": (0.5, 0.3), "half_precision": (0.6, 0.3), "compile": (0.7, 0.0)}
    best = Search(OWN_NS, Played(forms, {"layer": 1.0})).run([*forms])[0]
    assert {part.form for part in best} == {"int8_dynamic", "compile"}


def test_layers_are_not_asked_for_when_the_time_is_over() -> None:
    played = Played({"int8_dynamic": (0.5, 3.0)}, {"layer": 1.0}, over=1)
    asked: list[str] = []
    played.sensitivity = lambda part: asked.append(part.form) or {}  # type: ignore[method-assign, func-returns-value]
    Search(OWN_NS, played).run(["int8_dynamic"])
    assert asked == []


def test_a_gain_within_two_starts_noise_is_none() -> None:
    played = Played({"int8_dynamic": (0.98, 0.0), "half_precision": (0.9, 0.0)}, {"layer": 1.0})
    assert [name_of(point) for point in Search(OWN_NS, played).run(["int8_dynamic", "half_precision"])][-1:] == [
        "half_precision"
    ]


def test_forms_that_there_is_no_time_for_are_left_and_told() -> None:
    names = ["int8_dynamic", "half_precision", "compile"]
    found = Search(OWN_NS, Played(dict.fromkeys(names, (0.5, 0.0)), {"layer": 1.0}, over=1))
    found.run(names)
    assert found.left == names[1:]


def test_runs_are_left_for_forms_together() -> None:
    layers = {f"layer{n}": 1 / 400 for n in range(400)}
    names = [each.name for each in FORMS if not each.exact and each.knobs is None][:5]
    played = Played(dict.fromkeys(names, (0.5, 9.0)) | {"compile": (0.9, 0.0), "low_rank": (0.8, 0.1)}, layers)
    Search(OWN_NS, played).run([*names, "compile", "low_rank"])
    alone = [point for point in played.runs if len(point) == 1]
    assert len(alone) <= MOST - searching.RESERVED < len(played.runs) + searching.RESERVED


def test_a_change_that_is_the_allowance_but_for_rounding_is_held() -> None:
    exactly = Gated(rule="accuracy >= -0.1", name="accuracy", change=91.6 - 91.7, allowed=-0.1)
    assert Seen((exactly,), 1, 1).held
    assert not Seen((Gated(rule="accuracy >= -0.1", name="accuracy", change=-0.11, allowed=-0.1),), 1, 1).held


@pytest.mark.parametrize("needed", [1, 2, 5, 30])
def test_halving_finds_a_count_that_holds_and_never_one_that_does_not(needed: int) -> None:
    asked: list[int] = []
    found = fewest(74, lambda count: asked.append(count) or count >= needed)  # type: ignore[func-returns-value]
    assert found is not None and needed <= found <= max(8, 2.5 * needed) and len(asked) <= searching.REFINED
    assert fewest(1, lambda count: True) is None and fewest(9, lambda count: None) is None


def test_the_front_holds_what_nothing_beats_and_nothing_refused() -> None:
    seen = [Seen((gate(0),), 100, 10), Seen((gate(-0.1),), 50, 5), Seen((gate(-0.2),), 60, 6),
            Seen((gate(-9),), 1, 1), Seen(reason="no"), Seen((gate(0.4, "loss <= +0.5"),), 10, 9)]  # fmt: skip
    assert front(seen) == [True, True, False, False, False, True]
    assert front([Seen((gate(0),), 100, 10), Seen((gate(0),), 110, 9), Seen((gate(0),), 110, 10)]) == [
        True,
        True,
        False,
    ]


def test_a_form_that_cannot_help_says_why() -> None:
    cpu = Facts(1, 1, 9, 1, {"linear": 2})
    told = {each.name: each.unfit(cpu) for each in FORMS}
    assert "no batch norm layer" in told["fold_batch_norm"] and "pip install" in told["int8_weights"]
    assert "8.0" in told["sparse_2_4"] and "8.9" in told["fp8"] and not told["int8_dynamic"]
    h100 = Facts(1, 1, 9, 1, {"linear": 2}, "cuda", 90, True)
    assert not form("fp8").unfit(h100) and not form("sparse_2_4").unfit(h100) and form("int8_dynamic").unfit(h100)
