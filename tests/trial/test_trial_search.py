"""Who races whom: first looks, the winners together, what else helps on top. Heats are played from a table of gains."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.rules.model.finding import Saving
from gobrrr.trial.race import candidates
from gobrrr.trial.race.candidates import Candidate
from gobrrr.trial.race.policy import POLICY
from gobrrr.trial.race.race_round import Heat
from gobrrr.trial.race.search import Race
from gobrrr.trial.statistics.objective import MEMORY

MS = 1e6


def candidate(name: str, expected: float = 10.0, ceiling: float = 20.0, low: float = 0.0, **fields) -> Candidate:
    return Candidate(name, Saving(low * MS, expected * MS, ceiling * MS), **fields)


def race(*candidates: Candidate) -> Race:
    return Race(candidates, 100 * MS)


def play(found: Race, gains: dict, places: int = 4, failed: tuple[str, ...] = (), noise: float = 0.001) -> list[Heat]:
    """Run all heats; a stack's step is 100 over the product of its gains, or over its own entry."""
    heats = []

    def step(stack: tuple[str, ...]) -> float:
        return 100 / gains.get(stack, math.prod(gains.get(name, 1.0) for name in stack))

    while (heat := found.next(places)) is not None:
        heats.append(heat)
        broken = {stack: "it died" for stack in heat.contenders if set(stack) & set(failed)}
        for stack in broken:
            heat.leave(stack)
        while order := heat.order():
            sign = (-1) ** len(heat.sweeps)
            heat.feed({stack: [step(stack) * math.exp(sign * noise * len(stack))] * 2 for stack in order})
        found.feed(heat, broken)
        assert len(heats) < 100
    return heats


def test_the_largest_expectation_is_looked_at_first() -> None:
    heats = play(race(candidate("small", 5), candidate("large", 30), candidate("middling", 12)), {}, places=2)
    assert [heat.contenders for heat in heats[:2]] == [(("large",), ("middling",)), (("small",),)]


def test_looks_are_brief_while_others_wait_and_are_made_up_for_where_nothing_wins() -> None:
    found = race(candidate("close", 30), candidate("other", 5))
    heats = play(found, {"close": 1.03, "other": 0.7}, places=1, noise=0.05)
    assert [(heat.contenders, heat.most) for heat in heats] == [
        ((("close",),), POLICY.sweeps[2]), ((("other",),), POLICY.sweeps[-1]), ((("close",),), POLICY.sweeps[-1]),
    ]  # fmt: skip
    assert len(heats[0].sweeps) == POLICY.sweeps[2]


def test_a_second_look_has_the_last_word() -> None:
    found = race(candidate("close", 30), candidate("other", 20))
    found.settle((), ("close",), "inconclusive", 0.05)
    found.settle((), ("other",), "inconclusive", 0.03)
    found.likely[("close",)] = False
    found.settle((), ("close",), "slower", -0.3)
    assert found.best() == ("other",) and not found.likely


def test_a_second_look_that_had_no_time_takes_nothing_back() -> None:
    """Two that leaned at 1.4 were forgotten so, and what leaned less was confirmed."""
    found = race(candidate("close", 30), candidate("other", 20))
    found.settle((), ("close",), "inconclusive", 0.35)
    found.settle((), ("other",), "inconclusive", 0.1)
    found.feed(Heat((), [("close",)]))
    assert found.best() == ("close",)


def test_a_brief_look_is_not_made_up_for_beside_a_winner() -> None:
    found = race(candidate("close", 30), candidate("other", 5))
    heats = play(found, {"close": 1.03, "other": 1.5}, places=1, noise=0.05)
    assert [heat.reference for heat in heats] == [(), (), ("other",)], "on top of the winner it is looked at again"


def test_what_a_rehearsal_saw_lose_is_not_looked_at_and_said_so() -> None:
    found = race(candidate("loser", 0, 0, rehearsed=True), candidate("other", 0, 0))
    assert play(found, {}) == []
    assert found.skipped["loser"] == "rehearsed here, it brings at most 0.0 % of the step"
    assert found.skipped["other"] == "at most 0.0 % of the step is there to gain"


def test_what_a_rehearsal_has_shown_to_gain_does_not_wait_beside_compile() -> None:
    fused = Candidate("fused", Saving(3 * MS, 6 * MS, 8 * MS), rehearsed=True)
    unsure = Candidate("unsure", Saving(0.0, 6 * MS, 8 * MS), rehearsed=True)
    heat = race(candidate("compile", 10), fused, unsure).next(4)
    assert heat is not None and heat.contenders == (("fused",), ("unsure",))
    heat = race(candidate("compile", 10), unsure).next(4)
    assert heat is not None and heat.contenders == (("compile",), ("unsure",))


def test_of_a_pair_that_was_refused_a_half_that_lost_is_not_left() -> None:
    """short_wait alone was at 0.74, and went into guard and confirmation when one_worker was out."""
    found = race(candidate("one_worker", 30, risk=2), candidate("short_wait", 20), candidate("mild", 10))
    play(found, {("one_worker", "short_wait"): 1.5, "one_worker": 1.01, "short_wait": 0.7, "mild": 1.1})
    assert set(found.best()) >= {"one_worker", "short_wait"}
    assert found.refuse(("one_worker", "short_wait")) == () and found.instead() == ("mild",)


def test_what_else_leans_is_left_where_the_best_was_refused() -> None:
    found = race(candidate("risky", 30), candidate("mild", 20), candidate("dull", 10))
    play(found, {"risky": 1.2, "mild": 1.1, "dull": 1.001}, noise=0.3)
    assert found.best() == ("risky",) and not found.shown
    assert found.refuse(("risky",)) == () and found.instead() == ("mild",) == found.best()
    found.refuse(("mild",))
    assert found.instead() == (), "0.1 % is no lean"


WHOLE = ("padding", "malloc", "fused")


def promising(*more: Candidate) -> Race:
    return race(
        candidate("padding", 40, 50, 20, cause="BRR409", risk=2), candidate("malloc", 20, 30, 9, cause="BRR202"),
        candidate("fused", 10, 12, 8, cause="BRR208", risk=1), *more,
    )  # fmt: skip


def test_what_findings_promise_is_raced_as_one_beside_the_best_of_it_alone() -> None:
    """And kept as one; what it is made of is looked at alone only while there is time."""
    found = promising(candidate("bf16", 15, 20, 2, cause="BRR102", risk=4))
    heats = play(found, {"padding": 2.0, "malloc": 1.3, "fused": 1.1, "bf16": 1.2}, places=2)
    whole = ("padding", "malloc", "bf16", "fused")
    assert heats[0].contenders == (whole, ("padding",))
    assert found.best() == whole and found.refuse(whole) == WHOLE, "of which the guard takes the riskiest out"


@pytest.mark.parametrize(("ceiling", "first"), [(29, "sure"), (31, "risky")])
def test_of_remedies_for_one_cause_that_goes_first_which_may_bring_most(ceiling: float, first: str) -> None:
    """If that is at least what the likeliest is expected to bring, 30."""
    known = [candidate("sure", 30, 30.5, cause="BRR102"), candidate("risky", 10, ceiling, cause="BRR102"),
             candidate("malloc", 20, cause="BRR202")]  # fmt: skip
    assert candidates.promised(known, 100 * MS, lambda *_: False) == (first, "malloc")


def test_a_promise_for_the_same_cause_or_against_a_better_one_or_of_little_has_no_part() -> None:
    found = promising(
        candidate("trim_padding", 39, cause="BRR409"),
        candidate("against", 12, cause="BRR1", conflicts=frozenset({"malloc"})),
        candidate("same", 12, cause="BRR2", overlaps=frozenset({"fused"})), candidate("little", 2.9, cause="BRR3"),
        candidate("guessed", 12), candidate("compile", 12, cause="BRR203"),
        candidate("compile_memory_budget", 12, cause="BRR4"),
    )  # fmt: skip
    assert (heat := found.next(1)) and heat.contenders == (("padding", "malloc", "same"),)


def test_of_two_promises_for_one_cause_the_one_that_may_bring_more_unless_it_surely_brings_less() -> None:
    """bf16 promised a GPT 104 ms (0 to 326), bf16 inside of its products 123 (18 to 199)."""
    products = candidate("products", 16, 19, 2, cause="BRR102")
    for ceiling, taken in ((33, "bf16"), (15, "products"), (18, "products")):
        found = promising(products, candidate("bf16", 14, ceiling, 2, cause="BRR102"))
        assert (heat := found.next(1)) and heat.contenders == (("padding", "malloc", taken, "fused"),)
    rival = candidate("bf16", 14, 33, 2, cause="BRR102", conflicts=frozenset({"malloc"}))
    assert (heat := promising(products, rival).next(1)) and "products" in heat.contenders[0]


def test_beside_the_whole_runs_the_same_without_what_may_be_in_vain() -> None:
    """Of several what may bring most; where it only rides along it is left out."""
    found = promising(candidate("chunked", 9, 45, cause="BRR203"), candidate("doubtful", 8, 30, cause="BRR1"))
    heats = play(found, {"padding": 2.0, "malloc": 1.3, "fused": 1.1, "chunked": 0.9, "doubtful": 1.1}, places=2)
    less = ("padding", "malloc", "fused", "doubtful")
    assert heats[0].contenders == (("padding", "malloc", "fused", "chunked", "doubtful"), less)
    assert set(found.best()) == set(less)


def test_where_there_is_room_the_whole_is_raced_with_what_brings_the_same_too() -> None:
    """What autocast launches shows once padding is cut: an H200 had 1.67 without float16's and 1.23 with it."""
    products = candidate("tf32", 12, 15, 2, cause="BRR102", overlaps=frozenset({"bf16"}))
    bf16 = candidate("bf16", 14, 33, 2, cause="BRR102")
    whole, other = ("padding", "malloc", "bf16", "fused"), ("padding", "malloc", "tf32", "fused")
    for places, first in ((5, (whole, other)), (4, (whole, ("padding",)))):
        heat = promising(products, bf16).next(places)
        assert heat is not None and heat.contenders[:2] == first
    gains = {"padding": 2.0, "malloc": 1.3, "fused": 1.1, "bf16": 0.9, "tf32": 1.1}
    found = promising(products, bf16)
    play(found, gains, places=6)
    assert set(found.best()) == set(other)
    little = candidate("tf32", 2, 15, 2, cause="BRR102", overlaps=frozenset({"bf16"}))
    heat = promising(little, bf16).next(6)
    assert heat is not None and other not in heat.contenders


def test_a_rival_neither_compiles_nor_goes_against_the_rest() -> None:
    rivals = [candidate(name, 12, overlaps=frozenset({"bf16"}), risk=risk)
              for name, risk in (("compile", 4), ("against", 3), ("mild", 1))]  # fmt: skip
    known = {each.name: each for each in (*rivals, *map(candidate, ("bf16", "malloc")))}
    found = candidates.with_rival(
        ("malloc", "bf16"), rivals, known, 100 * MS, lambda *pair: set(pair) == {"against", "malloc"}
    )
    assert found == [("malloc", "mild")]
    assert candidates.with_rival(("bf16",), rivals[:1], known, 100 * MS, lambda *_: False) == []


def test_of_several_rivals_the_riskiest_is_raced_and_none_twice() -> None:
    mild = candidate("pinned", 13, 20, 2, cause="BRR502", overlaps=frozenset({"malloc"}))
    products = candidate("tf32", 9, 15, 2, cause="BRR102", overlaps=frozenset({"bf16"}), risk=4)
    bf16 = candidate("bf16", 14, 33, 2, cause="BRR102", risk=4)
    found = promising(mild, products, bf16)
    heats = play(found, {"padding": 2.0, "malloc": 1.3, "fused": 1.1, "bf16": 0.9, "tf32": 1.1}, places=6)
    assert ("padding", "malloc", "tf32", "fused") in heats[0].contenders
    raced = [frozenset(stack) for heat in heats if not heat.reference for stack in heat.contenders]
    assert len(raced) == len(set(raced)), "in another order it is the same"


def test_what_another_needs_is_not_doubted_without_it() -> None:
    padding = candidate("trim_padding", 40, 50, cause="BRR409"), candidate("bucketing", 50, 60, 20, cause="BRR409")
    found = race(*padding, candidate("malloc", 20, 30, 9, cause="BRR202"))
    assert (heat := found.next(2)) and heat.contenders[1] == ("trim_padding", "bucketing")


def test_what_a_promise_needs_comes_with_it_where_it_has_anything_to_gain() -> None:
    """Batches that are cut already (accelerate's encoder) are bucketed without; more was tried there, and could not
    take hold."""
    bucketing = candidate("bucketing", 50, 60, 20, cause="BRR409")
    found = promising(bucketing, candidate("trim_padding", 5, cause="BRR409"))
    assert (heat := found.next(1)) and heat.contenders == (("trim_padding", "bucketing", "malloc", "fused"),)
    assert (heat := promising(bucketing).next(1)) and heat.contenders == (("bucketing", "malloc", "fused"),)


def test_one_promise_and_peaks_are_no_whole() -> None:
    assert (heat := race(candidate("malloc", 20, cause="BRR202")).next(1)) and heat.contenders == (("malloc",),)
    found = Race(promising().candidates, 100 * MS, objective=MEMORY)
    assert WHOLE not in found._openers()


def test_what_did_not_take_hold_leaves_the_whole_and_the_rest_takes_its_place() -> None:
    found = promising()
    heat = found.next(2)
    assert heat is not None and heat.contenders == (WHOLE, ("padding",))
    heat.leave(WHOLE)
    fresh = found.fill(heat, {WHOLE: "malloc never took hold in 3 steps: no libc"}, lambda stack: True)
    assert fresh == [("padding", "fused")] and found.refused == {"malloc"}
    assert "malloc" not in found.left(), "it was tried"


def test_a_whole_that_died_is_tried_again_without_who_dies_alone() -> None:
    found = promising()
    heats = play(found, {"padding": 2.0, "fused": 1.2}, failed=("malloc",), places=1)
    assert [heat.contenders for heat in heats[:4]] == [
        (WHOLE,), (("padding",),), (("malloc",),), (("padding", "fused"),),
    ]  # fmt: skip
    assert found.best() == ("padding", "fused")


@pytest.mark.parametrize("places", [1, 2, 4])
def test_what_costs_in_the_whole_is_out_once_it_was_slower_alone(places: int) -> None:
    """However sure its promise was; and however many cost."""
    more = (candidate("costs", 8, 12, 5, cause="BRR1"), candidate("too", 7, 12, 5, cause="BRR2"))
    found = promising(*more)
    play(found, {"padding": 2.0, "malloc": 1.3, "fused": 1.1, "costs": 0.9, "too": 0.95}, places)
    assert set(found.best()) == {*WHOLE}


def test_what_costs_comes_back_with_no_other_whole() -> None:
    """One that it was part of was shown to be faster all the same."""
    found = race(
        candidate("b", 39, 40, 9), candidate("d", 24, 40, 9, cause="BRR1"), candidate("c", 22.4, cause="BRR2"),
        candidate("e", 22.1, 40, 9, cause="BRR3"), candidate("a", 3.2, cause="BRR3"),
    )  # fmt: skip
    play(found, {"b": 1.5, "c": 1.5, "d": 1.5, "e": 0.75}, places=1)
    assert ("d", "c", "e") in found.shown and {"b", "c", "d"} <= set(found.best()) and "e" not in found.best()


def test_what_a_refused_winner_conflicted_with_is_said_to_be_skipped_no_more() -> None:
    found = race(candidate("better", 30), candidate("other", 20, conflicts=frozenset({"better"})))
    found.settle((), ("better",), "faster", 0.3)
    found.next(4)
    assert "conflicts with better" in found.skipped["other"]
    found.refuse(("better",))
    assert found.again() and "other" not in found.skipped


def test_who_joined_a_brief_heat_has_a_second_look() -> None:
    found = race(*(candidate(name, 30 - 5 * n) for n, name in enumerate("abcd")))
    heat = found.next(2)
    assert heat is not None and heat.most == POLICY.sweeps[2]
    (joined,) = found.fill(heat, {heat.contenders[0]: "it died"}, lambda _: True)
    heat.join([joined])
    for stack in heat.contenders[1:]:
        found.settle((), stack, "inconclusive", 0.05 if stack == joined else -0.1)
    while (heat := found.next(2)) is not None and joined not in heat.contenders:
        for stack in heat.contenders:
            found.settle((), stack, "inconclusive", -0.1)
    assert heat is not None and heat.most == POLICY.sweeps[-1]


def test_a_look_is_brief_while_what_compiles_waits() -> None:
    fused = Candidate("fused", Saving(3 * MS, 6 * MS, 8 * MS), rehearsed=True)
    heat = race(candidate("compile", 10), fused).next(4)
    assert heat is not None and heat.contenders == (("fused",),) and heat.most == POLICY.sweeps[2]


def test_a_part_is_preferred_to_a_whole_that_is_hardly_faster() -> None:
    """By half a percent here: what rides along would stay in half of all races."""
    found = promising()
    play(found, {"padding": 2.0, WHOLE: 2.01}, noise=0.0001)
    assert found.best() == ("padding",)


def test_several_that_did_not_take_hold_are_out_at_once() -> None:
    found = promising()
    heat = found.next(2)
    assert heat is not None
    heat.leave(WHOLE)
    fresh = found.fill(heat, {WHOLE: "malloc and fused never took hold in 3 steps"}, lambda stack: True)
    assert fresh == [] and found.refused == {"malloc", "fused"}, "the other one runs already"


def test_a_whole_that_could_not_run_says_nothing_of_its_parts() -> None:
    found = promising()
    found.next(1)
    found.settle((), WHOLE, "failed", 0.0, why="it died")
    assert found.left() == WHOLE and not found.refused


def test_of_equal_risk_what_promises_least_goes_first() -> None:
    """Of a whole nothing was shown alone, and the first of it is what promises most."""
    found = promising(candidate("order", 8, 12, 5, cause="BRR1", risk=2))
    assert found.refuse(("padding", "malloc", "fused", "order")) == WHOLE


def test_compile_alone_waits_behind_a_whole_that_did_not_win_too() -> None:
    found = promising(candidate("compile", 9), candidate("bf16_autocast", 15, low=2, cause="BRR102"))
    order = [heat.contenders[0] for heat in play(found, {}, places=1)]
    assert order.index(("compile",)) > max(order.index((name,)) for name in (*WHOLE, "bf16_autocast"))


def test_a_promise_that_expects_nothing_takes_no_better_ones_place() -> None:
    found = promising(candidate("hopeful", 0.5, 60, cause="BRR202"))
    assert (heat := found.next(1)) and heat.contenders == (WHOLE,)


def test_an_opener_for_a_cause_of_its_own_comes_before_parts_of_the_whole() -> None:
    found = promising(candidate("other", 2, cause="BRR9"))
    assert (heat := found.next(2)) and heat.contenders == (WHOLE, ("other",))
    heats = play(promising(candidate("other", 2, cause="BRR9")), {"padding": 1.5}, places=1)
    assert [heat.contenders[0] for heat in heats[:2]] == [WHOLE, ("other",)]


def test_less_time_limits_what_is_promised() -> None:
    found = promising(candidate("model", 9, 30, 5, cause="BRR1", in_step=True))
    found.limit(0.02)
    assert (heat := found.next(1)) and heat.contenders == (WHOLE,)


def test_a_part_that_is_as_fast_as_the_whole_is_kept_without_the_rest() -> None:
    found = promising()
    play(found, {"padding": 2.0})
    assert found.best() == ("padding",)


def test_an_alternative_to_a_part_of_the_whole_is_still_looked_at() -> None:
    """That the whole is faster does not say that this part is."""
    found = promising(candidate("rival", 8, conflicts=frozenset({"fused"}), cause="BRR208"))
    heats = play(found, {WHOLE: 1.5, "padding": 1.4, "fused": 0.9, "rival": 1.3})
    assert ("rival",) in [stack for heat in heats for stack in heat.contenders]


@pytest.mark.parametrize("cause", ["BRR203", ""], ids=["called for", "a staple"])
def test_once_the_whole_has_won_what_compiles_is_tried_with_what_it_goes_with_of_it(cause: str) -> None:
    """An expert's stack of four: compile with bf16 alone says little of it. Its parts come after that."""
    found = promising(
        candidate("chunked", 9, cause="BRR203", conflicts=frozenset({"compile"})),
        candidate("compile", 9, cause=cause), candidate("bf16_autocast", 15, low=2, rehearsed=True, cause="BRR102"),
    )  # fmt: skip
    gains = {"padding": 2.0, "malloc": 1.3, "fused": 1.1, "bf16_autocast": 1.2, "chunked": 1.02, "compile": 1.2}
    heats = play(found, gains, places=1)
    four = ("compile", "bf16_autocast", "padding", "malloc", "fused")
    whole = ("padding", "malloc", "bf16_autocast", "fused", "chunked")
    assert [heat.contenders for heat in heats[:4]] == [(whole,), (whole[:-1],), (four,), (("padding",),)]
    assert found.best() == four
    assert [heat.contenders for heat in heats[-2:]] == [(("compile", "bf16_autocast"),), (("compile",),)], (
        "what starts slowest comes last"
    )


def test_a_pair_that_nothing_of_the_whole_joins_is_raced_once() -> None:
    """Dropout masks bring what compiled code draws too; twice in a heat it never had a pair of blocks to compare."""
    found = race(
        candidate("compile", 9), candidate("bf16_autocast", 15, low=2, cause="BRR102"),
        candidate("masks", 14, low=2, cause="BRR112", overlaps=frozenset({"compile"})),
    )  # fmt: skip
    heats = play(found, {"bf16_autocast": 1.3, "masks": 1.2}, places=4)
    assert all(len(set(heat.contenders)) == len(heat.contenders) for heat in heats)
    assert sum(("compile", "bf16_autocast") in heat.contenders for heat in heats) == 1


def test_winners_become_one_stack_the_best_first() -> None:
    found = race(candidate("a", 30), candidate("b", 20), candidate("c", 10))
    heats = play(found, {"a": 1.2, "b": 1.5, "c": 0.8})
    assert heats[1].reference == ("b",) and heats[1].contenders[0] == ("b", "a")
    assert found.best() == ("b", "a")


def test_a_stack_that_is_slower_than_its_best_member_is_not_kept() -> None:
    found = race(candidate("a", 30), candidate("b", 20))
    play(found, {"a": 1.5, "b": 1.2, ("a", "b"): 1.3})
    assert found.best() == ("a",)


def test_a_pair_that_only_pays_together_is_found() -> None:
    found = race(candidate("compile", 30), candidate("bf16_autocast", 20))
    gains = {"compile": 1.1, "bf16_autocast": 0.7, ("compile", "bf16_autocast"): 1.8}
    heats = play(found, gains)
    assert heats[0].contenders == (("compile", "bf16_autocast"), ("bf16_autocast",), ("compile",))
    assert set(found.best()) == {"compile", "bf16_autocast"}


def test_what_starts_slowest_waits_where_a_pair_has_it() -> None:
    others = candidate("bf16_autocast", 20), candidate("malloc", 1)
    heat = race(candidate("compile", 30), *others).next(3)
    assert heat is not None and heat.contenders == (("compile", "bf16_autocast"), ("bf16_autocast",), ("malloc",))
    heat = race(candidate("compile", 30), candidate("malloc", 1)).next(3)
    assert heat is not None and heat.contenders == (("compile",), ("malloc",))


def test_a_pair_waits_with_a_member_that_excludes_a_better_one() -> None:
    """One worker is thought to bring more than many: many wait until it has lost."""
    one = candidate("one_worker", 30, conflicts=frozenset({"loader_workers"}))
    many = candidate("loader_workers", 20, conflicts=frozenset({"one_worker"}))
    race = Race([one, many, candidate("short_wait", 5)], 100.0)
    heat = race.next(places=9)
    assert heat is not None
    assert set(heat.contenders) == {("one_worker",), ("one_worker", "short_wait"), ("short_wait",)}
    race.feed(heat, {("one_worker",): "it died"})
    heat = race.next(places=9)
    assert heat is not None and set(heat.contenders) == {("loader_workers",), ("loader_workers", "short_wait")}


def test_of_two_that_bring_the_same_the_better_one_goes_into_the_stack() -> None:
    masks = candidate("masks", 20, overlaps=frozenset({"compile"}))
    for alone, better in ((1.5, {"masks", "malloc"}), (1.2, {"compile", "malloc"})):
        found = race(candidate("compile", 30), masks, candidate("malloc", 5))
        heats = play(found, {"masks": alone, "compile": 1.3, "malloc": 1.1})
        assert {("masks",), ("compile",)} <= set(heats[0].contenders)
        assert set(found.best()) == better


def test_a_pair_that_one_member_beats_is_left_alone() -> None:
    found = race(candidate("compile", 30), candidate("bf16_autocast", 20))
    play(found, {"compile": 2.0, "bf16_autocast": 0.7, ("compile", "bf16_autocast"): 1.4})
    assert found.best() == ("compile",)


def test_what_leaned_alone_is_tried_on_top_all_of_it_together_first() -> None:
    found = race(candidate("a", 30), candidate("b", 20), candidate("c", 10))
    heats = play(found, {"a": 1.5, "b": 1.026, "c": 1.025})
    assert heats[1].reference == ("a",) and heats[1].contenders[0] == ("a", "b", "c")
    assert set(found.best()) == {"a", "b", "c"}


def test_what_only_rides_along_is_left_out() -> None:
    found = race(candidate("a", 30), candidate("b", 20), candidate("c", 10))
    for name, said, mean in (("a", "faster", 0.4), ("b", "inconclusive", 0.05), ("c", "inconclusive", 0.03)):
        found.settle((), (name,), said, mean)
    heat = found.next(4)
    assert heat is not None and heat.contenders == (("a", "b", "c"), ("a", "b"), ("a", "c"))
    for n in range(12):
        off = math.exp((-1) ** n * 0.01)
        heat.feed({("a",): [100, 100], ("a", "b"): [90 * off] * 2, ("a", "c"): [100, 100], ("a", "b", "c"): [90, 90]})
    found.feed(heat)
    assert found.best() == ("a", "b")


def test_what_nothing_shows_to_help_is_not_kept() -> None:
    found = race(candidate("a", 30), candidate("b", 20))
    play(found, {"a": 1.004, "b": 0.99})
    assert found.best() == ()


def test_the_likeliest_is_confirmed_where_nothing_is_shown() -> None:
    found = race(candidate("a", 30), candidate("b", 20))
    heat = found.next(2)
    assert heat is not None
    heat.feed({(): [100, 100], ("a",): [95, 95], ("b",): [90, 90]})
    found.feed(heat)
    assert found.best() == ("b",)


def test_winners_that_no_heat_put_together_yet_are_confirmed_together() -> None:
    found = race(candidate("a", 30), candidate("b", 20))
    for name, mean in (("a", 0.2), ("b", 0.3)):
        found.settle((), (name,), "faster", mean)
    assert found.best() == ("b", "a")


def test_what_very_likely_helps_comes_along_where_the_time_ends_early() -> None:
    """b leans by many errors, c by less than two, d is riskier than what was shown, e conflicts with it."""
    found = race(
        candidate("a", 30), candidate("b", 20), candidate("c", 10), candidate("d", 9, risk=3),
        candidate("e", 8, conflicts=frozenset({"a"})),
    )  # fmt: skip
    heat = found.next(5)
    assert heat is not None
    stream = random.Random(1)
    for _ in range(3):
        arms = {(): 100, ("a",): 40, ("b",): 87, ("c",): 99, ("d",): 87}
        heat.feed({arm: [ns * math.exp(stream.gauss(0, 0.05))] * 2 for arm, ns in arms.items()})
    found.feed(heat)
    found.settle((), ("e",), "inconclusive", 0.2)
    found.likely[("e",)] = False
    assert found.shown.keys() == {("a",)} and found.likely.keys() == {("b",), ("d",), ("e",)}
    assert found.best() == ("a", "b")


def test_alternatives_wait_until_the_first_has_lost() -> None:
    rivals = candidate("fused", 30), candidate("foreach", 20, conflicts=frozenset({"fused"}))
    won = race(*rivals)
    assert [heat.contenders for heat in play(won, {"fused": 1.5, "foreach": 1.5})] == [(("fused",),)]
    assert "fused, which is faster" in won.skipped["foreach"] and won.left() == ()
    lost = race(*rivals)
    play(lost, {"fused": 0.9, "foreach": 1.5})
    assert lost.best() == ("foreach",)


def test_what_the_ledger_does_not_allow_is_not_tried_unless_it_is_named() -> None:
    found = race(candidate("nothing", 0.1, 0.5), candidate("asked", 0.0, 0.0, named=True))
    assert [heat.contenders for heat in play(found, {})] == [(("asked",),)]
    assert "0.5 %" in found.skipped["nothing"] and found.left() == ()


def test_what_works_on_the_step_comes_after_what_shortens_the_wait_for_a_loader() -> None:
    """Of a step of 100 ns of which 97 wait compile can save 3; what is expected of the loader stays."""
    step, loader = (
        Candidate("compile", Saving(0.0, 10.0, 100.0), in_step=True),
        Candidate("keeps", Saving(0.0, 5.0, 90.0)),
    )
    found = Race([step, loader], 100.0)
    assert found.left() == ("compile", "keeps")
    found.limit(0.03)
    assert found.left() == ("keeps", "compile")
    told = {each.name: each.predicted for each in found.candidates}
    assert told["compile"] == Saving(0.0, 3.0, 3.0) and told["keeps"] == loader.predicted
    found.limit(0.005)
    assert found.next(4) is not None and "compile" in found.skipped  # less than a look is worth


def test_what_promises_most_does_not_wait_for_compile() -> None:
    """minGPT: 113 of 180 s went by until compile was not ready, beside masks that promised a fifth of the step."""
    names = candidate("masks", 20), candidate("compile", 10), candidate("bf16_autocast", 1), candidate("fused", 1)
    found = race(*names)
    first = found.next(4)
    assert first is not None and set(first.contenders) == {("masks",), ("bf16_autocast",), ("fused",)}
    second = race(candidate("bf16_autocast", 20), *names).next(6)
    assert second is not None and ("compile", "bf16_autocast") in second.contenders, "its pair is what promises most"
    only = race(candidate("compile", 10)).next(4)
    assert only is not None and list(only.contenders) == [("compile",)]


def test_who_failed_is_in_no_stack() -> None:
    found = race(candidate("a", 30), candidate("b", 20))
    play(found, {"a": 1.5, "b": 1.5}, failed=("b",))
    assert found.best() == ("a",) and "b" in found.refused


def test_of_equal_risk_what_was_not_shown_by_itself_is_dropped_first() -> None:
    found = race(candidate("shown"), candidate("along"))
    found.shown[("shown",)] = 0.05
    assert found.milder(("shown", "along")) == found.milder(("along", "shown")) == ("shown",)
    found.shown[("along",)] = 0.2
    assert found.milder(("shown", "along")) == ("along",)


def test_the_riskiest_leaves_where_the_guard_is_red() -> None:
    found = race(candidate("exact"), candidate("low", risk=4), candidate("rounds", risk=1))
    assert found.refuse(("exact", "low", "rounds")) == ("exact", "rounds")
    assert found.refuse(("exact", "rounds")) == ("exact",)


def test_what_was_refused_is_not_raced_again_and_hides_nothing_that_leans() -> None:
    """compile was seen with bf16 alone; both were red."""
    found = race(candidate("compile", 30), candidate("bf16_autocast", 20, risk=4), candidate("other", 10))
    found.settle((), ("compile", "bf16_autocast"), "faster", 0.5)
    found.settle((), ("bf16_autocast",), "slower", -0.2)
    assert found.refuse(("compile", "bf16_autocast")) == ("compile",) and found.refuse(("compile",)) == ()
    assert found.again()
    heat = found.next(3)
    assert heat is not None and heat.contenders == (("other",),)
    found.settle((), ("other",), "inconclusive", 0.1)
    assert found.best() == ("other",) and not found.again()


def test_what_a_refused_setting_made_needless_is_raced_after_all() -> None:
    found = race(candidate("computed_once", 30), candidate("loader_workers", 20))
    found.withdraw("loader_workers")
    found.settle((), ("computed_once",), "faster", 0.7)
    found.refuse(("computed_once",))
    assert found.again()
    heat = found.next(3)
    assert heat is not None and heat.contenders == (("loader_workers",),)


def test_a_race_that_was_cut_says_what_it_never_looked_at() -> None:
    found = race(candidate("a", 30), candidate("b", 20))
    assert found.open() and found.left() == ("a", "b")
    assert not race().open()


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from("abcdef"), st.floats(0.6, 1.6), min_size=1), st.randoms(), st.integers(1, 5))
def test_it_always_ends_and_keeps_nothing_that_is_slower(gains: dict[str, float], random, places: int) -> None:
    causes, lows = random.choices(["", "BRR1", "BRR2", "BRR3"], k=6), random.choices([0.0, 0.9], k=6)
    told = ((name, random.uniform(1, 40), low, cause) for name, low, cause in zip(gains, lows, causes, strict=False))
    found = race(*(candidate(name, gain, 40, low, cause=cause) for name, gain, low, cause in told))
    play(found, gains, places)
    assert all(gains[name] >= 0.99 for name in found.best()), "what does nothing may ride along"
    assert {name for name, gain in gains.items() if gain > 1.1} <= set(found.best())


def test_a_pair_with_a_guilty_member_is_in_no_stack() -> None:
    found = race(candidate("compile"), candidate("bf16_autocast", risk=4))
    found.settle((), ("compile", "bf16_autocast"), "faster", 0.6)
    found.settle((), ("compile",), "faster", 0.2)
    found.refuse(("compile", "bf16_autocast"))
    assert found.best() == ("compile",)


def test_a_pair_whose_member_failed_alone_leads_and_is_not_raced_against_the_program_as_it_is() -> None:
    found = race(candidate("compile"), candidate("bf16_autocast"), candidate("c"))
    found.next(4)
    found.settle((), ("c",), "faster", 0.1)
    found.settle((), ("compile",), "failed", 0.0)
    found.settle((), ("compile", "bf16_autocast"), "faster", 0.5)
    found.settle((), ("bf16_autocast",), "slower", -0.1)
    assert found.next(4) is None and found.best() == ("c",), "a failed remedy leads nothing"


@pytest.mark.parametrize("places", [1, 2, 4])
@pytest.mark.parametrize("expected", [5, 40])
def test_what_takes_hold_with_another_alone_is_raced_with_it(places: int, expected: int) -> None:
    """Whichever comes first, and however many are alive at once."""
    found = race(candidate("trim_padding", 20), candidate("bucketing", expected))
    heats = []
    while (heat := found.next(places)) is not None:
        heats.append(heat)
        broken = {stack: "never took hold" for stack in heat.contenders if stack == ("bucketing",)}
        for stack in broken:
            heat.leave(stack)
        gains = {("trim_padding",): 1.1, ("trim_padding", "bucketing"): 2.0}
        while order := heat.order():
            sign = (-1) ** len(heat.sweeps)
            heat.feed(
                {stack: [100 / gains.get(stack, 1.0) * math.exp(sign * 0.001 * len(stack))] * 2 for stack in order}
            )
        found.feed(heat, broken)
    assert set(found.best()) == {"trim_padding", "bucketing"} and len(heats) < 10
    assert not any(("bucketing",) in heat.contenders for heat in heats), "alone it has nothing more to show"


def test_what_takes_hold_with_another_alone_does_not_start_without_it_first() -> None:
    """Where the other has nothing to gain, batches are cut already, and it is looked at by itself."""
    heat = race(candidate("trim_padding", 20), candidate("bucketing", 40), candidate("c")).next(4)
    assert heat is not None
    assert heat.contenders == (("trim_padding", "bucketing"), ("trim_padding",), ("c",))
    cut = race(candidate("trim_padding", 0, 0), candidate("bucketing", 40)).next(4)
    assert cut is not None and cut.contenders == (("bucketing",),)


def test_of_a_pair_that_changes_the_numbers_what_needs_the_other_goes_first() -> None:
    found = race(candidate("trim_padding", 20, risk=1), candidate("bucketing", 40, risk=1))
    found.settle((), ("trim_padding", "bucketing"), "faster", 0.7)
    found.settle((), ("trim_padding",), "inconclusive", 0.03)
    assert found.refuse(("trim_padding", "bucketing")) == ("trim_padding",) and found.refused == {"bucketing"}


def test_who_fails_alone_and_with_what_it_needs_is_out() -> None:
    found = race(candidate("trim_padding", 20), candidate("bucketing", 10))
    play(found, {"trim_padding": 1.3}, failed=("bucketing",))
    assert found.best() == ("trim_padding",) and found.refused == {"bucketing"}
    alone = race(candidate("bucketing", 10))
    play(alone, {}, failed=("bucketing",))
    assert alone.refused == {"bucketing"}


@pytest.mark.parametrize("alone", ["", "faster", "inconclusive"])
def test_who_fails_with_what_it_needs_may_stay_for_what_it_does_alone(alone: str) -> None:
    found = race(candidate("trim_padding", 20), candidate("bucketing", 10))
    if alone:
        found.settle((), ("bucketing",), alone, 0.2)
    found.settle((), ("trim_padding", "bucketing"), "failed", 0.0)
    assert found.refused == set()
    heat = found.next(4)
    assert heat is not None and (("bucketing",) in heat.contenders) == (not alone)


def test_in_a_hurry_all_that_are_as_risky_go_at_once() -> None:
    risky = [candidate(name, risk=3) for name in ("bf16", "medium")]
    found = race(candidate("exact"), candidate("mild", risk=1), *risky)
    stack = ("exact", "mild", "bf16", "medium")
    assert len(found.refuse(stack)) == 3 and len(found.refused) == 1
    found.refused.clear()
    assert found.refuse(stack, hurried=True) == ("exact", "mild") and found.refused == {"bf16", "medium"}
    assert found.refuse(("exact", "mild"), hurried=True) == ("exact",)
    plain = race(candidate("a"), candidate("b"))
    assert len(plain.refuse(("a", "b"), hurried=True)) == 1, "exact ones are not suspected together"


def test_a_union_that_nobody_measured_does_not_lead() -> None:
    """The time was over before its first sweep."""
    found = race(candidate("a"), candidate("b"))
    found.next(4)
    found.settle((), ("a",), "faster", 0.5)
    found.settle((), ("b",), "faster", 0.1)
    heat = found.next(4)
    assert heat is not None and heat.contenders == (("a", "b"),)
    found.feed(heat)
    assert found.best() == ("a",)


def test_what_is_withdrawn_is_neither_looked_at_nor_part_of_a_stack() -> None:
    """An earlier tuning may have shown it."""
    race = Race([Candidate(name, Saving(0.0, 5e6, 1e7)) for name in ("a", "loader_workers", "short_wait")], 2e7)
    race.settle((), ("loader_workers",), "faster", 0.3)
    race.withdraw("loader_workers")
    assert race.best() == () and race.left() == ("a", "short_wait")
    heat = race.next(6)
    assert heat is not None and set(heat.contenders) == {("a",), ("short_wait",)}


@pytest.mark.parametrize(("pair", "union"), [(0.1, ("x",)), (0.3, ("x", "z"))])
def test_a_pair_that_one_of_its_own_members_is_faster_than_is_no_part_of_the_union(
    pair: float, union: tuple[str, ...]
) -> None:
    found = race(candidate("x"), candidate("z"))
    found.shown = {("x",): 0.2, ("x", "z"): pair}
    assert found.union() == union
