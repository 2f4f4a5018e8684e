"""When samples are taken and what is made of them, on a clock that only moves when told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.machine.measure.sampling import (
    BATCH_NS,
    WINDOW_NS,
    Budget,
    Clock,
    Kind,
    Repeated,
    Setting,
    calls_for,
    collect,
    quantile,
    spread,
    summarise,
)
from tests.support.fake_torch import FakeClock


def work(clock: FakeClock, ns: float | Callable[[], float]) -> Callable[[int], object]:
    def run(calls: int) -> None:
        for _ in range(calls):
            clock.advance(ns() if callable(ns) else ns)

    return run


@dataclass
class Scripted:
    """A gauge that takes a second for each sample and says what its script says, the last line for ever."""

    key: str
    script: list[float]
    clock: FakeClock
    setting: Setting = field(default_factory=Setting)
    unit: str = "B/s"
    kind: Kind = "rate"
    taken: int = 0

    def sample(self, clock: Clock) -> float:
        self.clock.advance(1e9)
        self.taken += 1
        return self.script[min(self.taken, len(self.script)) - 1]


class TestBudget:
    def test_counts_from_its_start(self) -> None:
        clock = FakeClock()
        clock.advance(5e9)
        budget = Budget(10, clock)
        clock.advance(4e9)
        assert budget.spent == pytest.approx(4)
        assert not budget.over(0.5)
        clock.advance(1e9)
        assert budget.over(0.5)
        assert not budget.over()


class TestRepeated:
    def test_a_rate_is_amount_over_time(self) -> None:
        clock = FakeClock()
        gauge = Repeated("x", "FLOP/s", work(clock, 1e6), calls=3, amount=2e6)
        assert gauge.sample(clock) == pytest.approx(2e9)
        assert gauge.kind == "rate"

    def test_without_an_amount_it_is_the_cost_of_a_call(self) -> None:
        clock = FakeClock()
        gauge = Repeated("x", "ns", work(clock, 700.0), calls=100)
        assert gauge.sample(clock) == pytest.approx(700)
        assert gauge.kind == "cost"

    def test_overhead_is_taken_off_but_never_more_than_three_quarters(self) -> None:
        clock = FakeClock()
        assert Repeated("x", "ns", work(clock, 1000), 1000, overhead_ns=400).sample(clock) == pytest.approx(600)
        assert Repeated("x", "ns", work(clock, 1000), 1000, overhead_ns=999).sample(clock) == pytest.approx(250)

    def test_a_stall_in_one_batch_does_not_hide_what_the_core_can_do(self) -> None:
        clock = FakeClock()
        stalls = iter([1e6, 9e6, 1e6, 9e6] * 10)
        assert Repeated("x", "ns", work(clock, lambda: next(stalls)), 1, warm=False).sample(clock) == pytest.approx(1e6)

    def test_a_sample_lasts_one_window_or_one_batch(self) -> None:
        clock = FakeClock()
        Repeated("x", "ns", work(clock, BATCH_NS), 1, warm=False).sample(clock)
        assert clock.now == pytest.approx(WINDOW_NS)
        Repeated("x", "ns", work(clock, 1e9), 1, warm=False).sample(clock)
        assert clock.now == pytest.approx(WINDOW_NS + 1e9)

    def test_warms_up_and_settles_outside_the_timed_part(self) -> None:
        clock = FakeClock()
        first = iter([50e6])
        gauge = Repeated("x", "ns", work(clock, lambda: next(first, 1e6)), 1, settle=lambda: clock.advance(7e6))
        assert gauge.sample(clock) == pytest.approx(1e6)


class TestCallsFor:
    @pytest.mark.parametrize(("ns", "calls"), [(1e3, 3000), (1e6, 3), (2.9e6, 1), (5e8, 1)])
    def test_fills_the_time(self, ns: float, calls: int) -> None:
        clock = FakeClock()
        assert calls_for(work(clock, ns), clock, 3e6) == calls

    def test_has_a_limit(self) -> None:
        clock = FakeClock()
        assert calls_for(work(clock, 1.0), clock, 3e6, most=500) == 500

    def test_a_slow_call_is_made_once_only(self) -> None:
        clock = FakeClock()
        calls_for(work(clock, 4e8), clock, 3e6)
        assert clock.now == pytest.approx(4e8)


class TestCollect:
    def test_visits_every_gauge_in_turn_under_its_own_setting(self) -> None:
        clock, entered = FakeClock(), []
        gauges = [Scripted("a", [1.0], clock, Setting(1)), Scripted("b", [1.0], clock, Setting(2, "medium"))]
        collect(gauges, entered.append, Budget(1000, clock), least=2, most=2)
        assert entered == [Setting(1), Setting(2, "medium")] * 2

    def test_stops_when_all_are_steady(self) -> None:
        clock = FakeClock()
        samples = collect([Scripted("a", [1.0], clock)], lambda s: None, Budget(1000, clock), least=8, most=24)
        assert len(samples["a"]) == 8

    def test_goes_on_while_one_is_not(self) -> None:
        clock = FakeClock()
        calm, wild = Scripted("a", [1.0], clock), Scripted("b", [1.0, 9.0] * 30, clock)
        samples = collect([calm, wild], lambda s: None, Budget(1000, clock), least=8, most=24)
        assert {key: len(found) for key, found in samples.items()} == {"a": 24, "b": 24}

    def test_the_budget_is_overdrawn_by_one_sample_at_most(self) -> None:
        clock = FakeClock()
        gauges = [Scripted(name, [1.0], clock) for name in "abc"]
        budget = Budget(4.5, clock)
        samples = collect(gauges, lambda s: None, budget)
        assert budget.spent == pytest.approx(5)
        assert [len(samples[name]) for name in "abc"] == [2, 2, 1]

    def test_a_spent_budget_leaves_empty_rows_not_missing_ones(self) -> None:
        clock = FakeClock()
        budget = Budget(1, clock)
        clock.advance(2e9)
        assert collect([Scripted("a", [1.0], clock)], lambda s: None, budget) == {"a": []}


class TestSummarise:
    def test_a_rate_is_the_median_of_its_better_half(self) -> None:
        found = summarise([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], "rate", "B/s")
        assert (found["low"], found["median"], found["high"]) == (2.75, 6.5, 7.25)
        assert (found["count"], found["unit"]) == (8, "B/s")

    def test_a_cost_is_the_same_upside_down(self) -> None:
        found = summarise([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], "cost", "ns")
        assert (found["low"], found["median"], found["high"]) == (1.75, 2.5, 6.25)

    def test_a_level_is_what_one_typically_gets(self) -> None:
        assert summarise([1.0, 2.0, 9.0], "level", "cores")["median"] == 2.0

    def test_disturbance_of_a_third_leaves_the_ceiling_and_widens_the_spread(self) -> None:
        quiet, disturbed = summarise([100.0] * 9, "rate", "B/s"), summarise([100.0] * 6 + [30.0] * 3, "rate", "B/s")
        assert quiet["median"] == disturbed["median"] == 100
        assert spread(quiet) == 0
        assert spread(disturbed) == pytest.approx(0.7)

    def test_nothing_measured_has_a_count_of_zero(self) -> None:
        assert summarise([], "rate", "B/s") == {"median": 0.0, "low": 0.0, "high": 0.0, "count": 0, "unit": "B/s"}
        assert spread(summarise([], "rate", "B/s")) == 0

    @given(st.lists(st.floats(0, 1e15), min_size=1), st.sampled_from(["rate", "cost", "level"]))
    def test_is_in_order_and_within_the_samples(self, samples: list[float], kind: Kind) -> None:
        found = summarise(samples, kind, "x")
        low, median, high = (float(found[name]) for name in ("low", "median", "high"))
        rounding = 1e-9 * max(samples)
        assert min(samples) - rounding <= low <= median <= high <= max(samples) + rounding

    @given(st.lists(st.floats(1, 1e6), min_size=1))
    def test_a_quantile_lies_between_its_neighbours(self, samples: list[float]) -> None:
        ordered = sorted(samples)
        assert quantile(ordered, 0) == ordered[0]
        assert quantile(ordered, 1) == ordered[-1]
