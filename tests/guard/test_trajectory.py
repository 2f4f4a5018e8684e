"""The bands of the losses, from hand-made runs: just inside nothing is said, just beyond it another way is told."""

from __future__ import annotations

import math
from typing import Any

import pytest

from gobrrr.guard.model.observation import Call, Data, Observation, Step
from gobrrr.guard.verdicts import trajectory

NUM = 30


def run(*offsets: float, begun: str = "own", **more: Any) -> Observation:
    """Losses of 1 and these offsets, over and over."""
    losses = (1.0 + offsets[n % len(offsets)] for n in range(NUM))
    return Observation(steps=tuple(Step(losses=(loss,), updates={}, begun=begun) for loss in losses), **more)


def verdict(candidate: Observation, *seeds: Observation, **more: Any) -> str:
    """What is said of a candidate beside a baseline whose losses are all 1."""
    return trajectory.check(run(0.0), candidate, seeds, more.pop("reference", None), {}, **more).verdict


def test_the_nearest_other_seed_is_the_band() -> None:
    seeds = run(0.5), run(0.1)
    assert verdict(run(0.0999), *seeds) == "equivalent" and verdict(run(0.1001), *seeds) == "changed"


def test_or_twice_the_distance_from_float64() -> None:
    true = run(0.1)
    assert verdict(run(0.1999), reference=true) == "equivalent" and verdict(run(0.2001), reference=true) == "changed"
    assert verdict(run(0.1999), run(0.1), reference=true) == "equivalent", "whichever is more"


def test_other_data_may_be_half_as_far_again_as_the_farthest_seed() -> None:
    seeds = run(0.1), run(0.2)
    assert verdict(run(0.2999), *seeds, same_data=False) == "equivalent"
    assert verdict(run(0.3001), *seeds, same_data=False) == "changed"
    assert verdict(run(0.01), reference=run(0.1), same_data=False) == "changed", "of other data float64 says nothing"
    assert verdict(run(0.01, begun="part"), *seeds, same_data=False) == "unverified"


@pytest.mark.parametrize(("strays", "said"), [(0.0199, "equivalent"), (0.0201, "unverified")])
def test_a_naive_version_that_strays_far_is_no_measure(strays: float, said: str) -> None:
    assert verdict(run(0.001), naive=run(strays)) == said


def test_the_last_third_keeps_to_the_band_by_itself() -> None:
    """Losses that scatter as far as a seed's, and end beyond where it ends."""
    seed = run(0.1, -0.1)
    ends = Observation(steps=run(0.0).steps[: 2 * NUM // 3] + run(0.11).steps[2 * NUM // 3 :])
    assert verdict(ends, seed) == "changed"
    assert (
        verdict(Observation(steps=run(0.0).steps[: 2 * NUM // 3] + run(0.09).steps[2 * NUM // 3 :]), seed)
        == "equivalent"
    )
    assert verdict(ends, seed, run(0.11)) == "changed", "the nearest seed's end counts"


def test_the_last_third_of_a_few_losses_is_one() -> None:
    assert trajectory._late([1.0, 1.0, 4.0, 9.0], [1.0, 1.0, 1.0]) == 3.0
    assert trajectory._late([1.0] * 4 + [2.0, 4.0], [1.0] * 6) == 2.0 and trajectory._late([], [1.0]) == math.inf


def test_equal_losses_and_steps_that_each_began_alike_are_exact() -> None:
    assert verdict(run(0.0)) == "exact" and verdict(run(0.5), apart=False) == "exact"
    assert verdict(run(0.5)) == "unverified", "without another seed nothing is known"


def test_too_few_twin_steps_are_no_proof_unless_the_program_ended() -> None:
    def short(**more: Any) -> Observation:
        return Observation(steps=run(0.0).steps[: NUM - 1], **more)

    found = trajectory.check(short(), short(), (), None, {})
    assert found.verdict == "unverified" and found.reason == "29 twin steps were seen, 30 are needed"
    assert trajectory.check(short(complete=True), short(complete=True), (), None, {}).verdict == "exact"
    assert trajectory.check(short(complete=True), short(), (), None, {}).verdict == "unverified"
    assert trajectory.check(short(planned=29), short(planned=29), (), None, {}).verdict == "exact"
    assert trajectory.check(short(planned=29), short(), (), None, {}).verdict == "unverified"


def test_a_program_that_does_not_train_has_no_losses() -> None:
    blind = Observation(steps=(Step(),) * NUM)
    still = Observation(training=False)
    assert trajectory.check(still, still, (), None, {}).verdict == "exact"
    for pair in ((blind, run(0.0)), (run(0.0), blind)):
        assert trajectory.check(*pair, (), None, {}).reason == "no loss was captured"


def test_distances_are_kept_as_evidence() -> None:
    told: dict[str, float | None] = {}
    trajectory.check(run(0.0), run(0.03, -0.04), [run(0.1)], None, told)
    assert told["trajectory_gap"] == pytest.approx(0.05 / math.sqrt(2))
    assert told["trajectory_band"] == pytest.approx(0.1)


def of(*losses: float) -> Observation:
    """A run of these losses."""
    return Observation(steps=tuple(Step(losses=(loss,)) for loss in losses))


@pytest.mark.parametrize(
    ("losses", "word"),
    [
        ((2.0, 3.0, 20.1), "grow to 10 times the first"), ((2.0, 3.0, 19.9), ""),
        ((2.0, 90.0, 90.0, 90.0, 90.0, 90.0), "grow to 45 times"), ((2.0, 90.0, 90.0, 90.0, 3.0, 90.0), ""),
        ((2.0, 2.0, 2.0, 2.0, 90.0, 90.0), "grow to 45 times"),
        ((0.05, 0.6, 0.6), "grow to 12 times"),
        ((-2.0, 90.0, 90.0), ""), ((2.0, math.inf, 2.0), "not finite"), ((2.0, 90.0), ""), ((), ""),
    ],
)  # fmt: skip
def test_losses_that_grow_and_stay_diverge(losses: tuple[float, ...], word: str) -> None:
    said = trajectory.diverges(of(*losses))
    assert word in said and bool(said) == bool(word)


def test_a_step_with_calls_and_no_loss_makes_the_run_blind() -> None:
    called = Step(calls=(Call("m", True, Data("d")),))
    assert trajectory.losses(Observation(steps=(Step(losses=(1.0, 2.0)), Step()))) == [1.5]
    assert trajectory.losses(Observation(steps=(Step(losses=(1.0,)), called))) == []
    second = Step(calls=called.calls, updates={})
    assert trajectory.losses(Observation(steps=(Step(losses=(1.0,)), second))) == [1.0], "of a second optimizer"
    assert trajectory.losses(None) == [] and trajectory.distance([], [1.0]) == math.inf


def test_a_run_that_was_cut_off_is_compared_as_far_as_it_goes() -> None:
    assert trajectory.distance([1.0, 2.0, 9.0], [1.0, 4.0]) == trajectory.distance([1.0, 4.0], [1.0, 2.0, 9.0])
    assert trajectory.distance([1.0, 2.0, 9.0], [1.0, 4.0]) == pytest.approx(math.sqrt(2))
