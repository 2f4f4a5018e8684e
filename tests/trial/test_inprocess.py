"""`gobrrr.compare`: two callables in turn, on a clock of our own and on real ones."""

from __future__ import annotations

import random

import pytest

import gobrrr
from gobrrr.trial.race.callables import compare


class Clock:
    """Time goes by as the steps say."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now

    def step(self, ns: int, noise: float = 0.01):
        stream = random.Random(ns)

        def run() -> None:
            self.now += round(ns * (1 + stream.uniform(-noise, noise)))

        return run


SIZES = [(10_000_000, "equivalent"), (8_000_000, "faster"), (12_500_000, "slower")]


@pytest.mark.parametrize(("other", "verdict"), SIZES)
def test_a_difference_is_found_and_its_size(other: int, verdict: str) -> None:
    clock = Clock()
    found = compare(clock.step(10_000_000), clock.step(other), clock=clock)
    assert found.verdict == verdict and found.speedup == pytest.approx(10_000_000 / other, rel=0.005)
    assert found.low <= found.speedup <= found.high
    assert found.step_ns[0] == pytest.approx(1e7, rel=0.01) and verdict in str(found)


def test_what_cannot_be_told_apart_is_inconclusive_and_says_what_would_settle_it() -> None:
    clock = Clock()
    found = compare(clock.step(10_000_000, 0.5), clock.step(9_700_000, 0.5), clock=clock, seconds=3)
    assert found.verdict == "inconclusive" and found.blocks_needed is not None and found.blocks_needed > found.blocks


def test_every_block_begins_with_the_same_random_streams_and_states() -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(2, 2)
    before = [p.detach().clone() for p in model.parameters()]
    drawn: dict[int, set[float]] = {0: set(), 1: set()}
    clock = Clock()

    def step(arm: int):
        def run() -> None:
            clock.now += 60_000_000  # one step is a block
            drawn[arm].add(float(torch.rand(())) + random.random())
            with torch.no_grad():
                model.weight.add_(1.0)

        return run

    compare(step(0), step(1), state=[model], clock=clock, seconds=3)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert drawn[0] & drawn[1]


def test_what_a_callable_raises_comes_through_and_leaves_the_streams_as_they_were() -> None:
    before = random.getstate()

    def fails() -> None:
        random.random()
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        gobrrr.compare(lambda: None, fails, seconds=1)
    assert random.getstate() == before
