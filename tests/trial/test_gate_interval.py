"""The interval of a gate, held against simulated edits: looks after each pair, and 5 % of errors in all."""

from __future__ import annotations

import numpy as np
import pytest

from gobrrr.guard.model.gate import ACCEPTED, REFUSED, UNDECIDED
from gobrrr.trial.gate import interval

ALLOWED = -0.5
RUNS = 1000


def outcomes(change: float, deviation: float, seed: int = 0, runs: int = RUNS) -> list[str]:
    """Verdicts of edits with this true change, each looked at after every pair."""
    draws = np.random.default_rng(seed)
    found = []
    for _ in range(runs):
        changes = list[float]()
        verdict = UNDECIDED
        while verdict == UNDECIDED and len(changes) < interval.MOST:
            changes.append(draws.normal(change, deviation))
            verdict = interval.judged(changes, ALLOWED, falls=False).verdict
        found.append(verdict)
    return found


def share(found: list[str], verdict: str) -> float:
    return sum(each == verdict for each in found) / len(found)


def test_of_edits_that_lose_just_what_is_not_allowed_at_most_a_twentieth_passes() -> None:
    at_the_edge = outcomes(ALLOWED, 0.3)
    assert 0.02 < share(at_the_edge, ACCEPTED) < 0.06  # 5 % and three standard errors
    assert 0.02 < share(at_the_edge, REFUSED) < 0.06


@pytest.mark.parametrize("deviation", [0.1, 0.3])
def test_honest_edits_pass_and_sabotage_does_not(deviation: float) -> None:
    for change in (0.0, -0.25):
        assert share(outcomes(change, deviation, runs=200), ACCEPTED) > 0.9
    sabotaged = outcomes(2 * ALLOWED, deviation, runs=200)
    assert share(sabotaged, ACCEPTED) == 0 and share(sabotaged, REFUSED) > 0.9


def test_less_is_better_mirrors() -> None:
    changes = [0.1, 0.2, 0.15, 0.12, 0.2]
    up = interval.judged([-each for each in changes], -0.5, falls=False)
    down = interval.judged(changes, 0.5, falls=True)
    assert up.verdict == down.verdict == ACCEPTED and (up.low, up.high) == (-(down.high or 0), -(down.low or 0))
    assert interval.judged([each + 2 for each in changes], 0.5, falls=True).verdict == REFUSED


def test_values_on_a_grid_that_agree_by_chance_prove_nothing() -> None:
    assert interval.judged([0.0] * 4, ALLOWED, falls=False).verdict == ACCEPTED
    coarse = interval.judged([0.0] * 4, ALLOWED, falls=False, grain=interval.grain([90.0, 91.0, 92.0]))
    assert coarse.verdict == UNDECIDED and coarse.runs_needed and coarse.low is not None and coarse.low < ALLOWED


def test_what_would_settle_it_is_said() -> None:
    close = interval.judged([-0.4, -0.1, -0.6, -0.3, -0.2, -0.5], ALLOWED, falls=False)
    assert close.verdict == UNDECIDED and close.runs_needed is not None and 1 <= close.runs_needed < 80
    assert interval.judged([-0.1], ALLOWED, falls=False).verdict == UNDECIDED


def test_where_seeds_change_nothing_one_difference_decides() -> None:
    assert interval.exactly(-0.5, ALLOWED, falls=False).verdict == ACCEPTED  # as much as is allowed
    assert interval.exactly(-0.51, ALLOWED, falls=False).verdict == REFUSED
    assert interval.exactly(0.51, 0.5, falls=True).verdict == REFUSED
