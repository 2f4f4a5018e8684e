"""How a ceiling is sampled: gauges visited in turn, round after round, until they are steady or the time is up.

Interleaving makes a drift of the machine (clock, neighbours, heat) show up as spread in every figure instead of
silently favouring whichever was measured first. Pure but for the clock, which is given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Literal, Protocol

Clock = Callable[[], int]
"""Nanoseconds from any start."""

MAX_SPREAD = 0.25
"""(high - low) / median above which a figure is doubted: the quietest shared 2-core machine that gobrrr was
developed on shows 0.02 to 0.23 for its matrix products, so 0.25 means that something else ran or the clock moved."""

Kind = Literal["rate", "cost", "level"]
"""Kind of a figure: a rate's best is its highest, a cost's its lowest; a level is what one typically gets."""


class Budget:
    """Time that may be spent. `clock` gives nanoseconds, so that tests can bring their own."""

    def __init__(self, seconds: float, clock: Clock = perf_counter_ns) -> None:
        self.clock = clock
        self.start = clock()
        self.seconds = seconds

    @property
    def spent(self) -> float:
        """Seconds since the start."""
        return (self.clock() - self.start) / 1e9

    def over(self, share: float = 1.0) -> bool:
        """Say whether `share` of the time is used up."""
        return self.spent >= share * self.seconds


@dataclass(frozen=True)
class Setting:
    """The process-wide switches that a gauge runs under."""

    threads: int = 1
    precision: str = "highest"


class Gauge(Protocol):
    """Something that yields one sample of one figure, in `unit` (FLOP/s, B/s, ns or cores), whenever it is asked. `key`
    names the figure: the thing, the threads, the dtype or size, with slashes between; `setting` is entered before."""

    @property
    def key(self) -> str: ...
    @property
    def unit(self) -> str: ...
    @property
    def kind(self) -> Kind: ...
    @property
    def setting(self) -> Setting: ...
    def sample(self, clock: Clock) -> float: ...


WINDOW_NS = 12e6
"""How long one sample lasts: long against the clock's cost, short enough to fit in between disturbances."""
BATCH_NS = 3e6
"""How long the calls that are timed as one should take: 10,000 times the clock's own cost, and four to a window."""


@dataclass(frozen=True)
class Repeated:
    """Batches of `calls` calls of one thing: `amount` per second if it has one, else nanoseconds per call."""

    key: str
    unit: str
    run: Callable[[int], object]
    """Does the thing that many times, and waits for it if it is asynchronous and its end counts."""
    calls: int
    setting: Setting = field(default_factory=Setting)
    amount: float = 0.0
    overhead_ns: float = 0.0
    """ns that a call costs besides the work; taken off, up to three quarters of the whole."""
    settle: Callable[[], object] = lambda: None
    """Runs untimed after each batch."""
    warm: bool = True
    """Whether an untimed call comes first: not worth its time where one is long and finds the caches cold anyway."""

    @property
    def kind(self) -> Kind:
        """A rate where there is an amount, else a cost."""
        return "rate" if self.amount else "cost"

    def sample(self, clock: Clock) -> float:
        """The fastest batch of one window; before it one call to warm up, because the setting changed.

        The fastest, because on a shared machine a team of threads can lose its core for milliseconds in every other
        batch, which says nothing about what the core can do.
        """
        if self.warm:
            self.run(1)
            self.settle()
        begin, fastest = clock(), math.inf
        while fastest == math.inf or clock() - begin < WINDOW_NS - BATCH_NS / 2:
            start = clock()
            self.run(self.calls)
            fastest = min(fastest, max(clock() - start, 1) / self.calls)
            self.settle()
        each = max(fastest - self.overhead_ns, fastest / 4)
        return self.amount * 1e9 / each if self.amount else each


def shortest(run: Callable[[int], object], calls: int, clock: Clock, enough_ns: float) -> int:
    """Nanoseconds of the shortest of three runs; a first one that took `enough_ns` is believed at once."""
    times: list[int] = []
    for _ in range(3):
        start = clock()
        run(calls)
        times.append(max(clock() - start, 1))
        if times[0] >= enough_ns:
            break
    return min(times)


def calls_for(run: Callable[[int], object], clock: Clock, target_ns: float = BATCH_NS, most: int = 100_000) -> int:
    """How many calls fill `target_ns`, found by growing the number fourfold: at least 1, at most `most`."""
    calls = 1
    while True:
        took = shortest(run, calls, clock, 10 * target_ns)
        if took >= target_ns / 4 or calls >= most:
            return max(1, min(most, round(calls * target_ns / took)))
        calls = min(most, calls * 4)


def collect(
    gauges: Sequence[Gauge], enter: Callable[[Setting], object], budget: Budget, least: int = 8, most: int = 24
) -> dict[str, list[float]]:
    """Samples by key: at least `least` rounds, then on until every figure is steady, `most` rounds or the time is up.

    The time is looked at before each sample, so it is overdrawn by one sample at most.
    """
    samples: dict[str, list[float]] = {gauge.key: [] for gauge in gauges}
    for number in range(most):
        for gauge in gauges:
            if budget.over():
                return samples
            enter(gauge.setting)
            samples[gauge.key].append(gauge.sample(budget.clock))
        if number + 1 >= least and all(spread(summarise(samples[g.key], g.kind, g.unit)) <= MAX_SPREAD for g in gauges):
            break
    return samples


def quantile(ordered: Sequence[float], share: float) -> float:
    """Linear interpolation in an ordered, non-empty row."""
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def summarise(samples: Iterable[float], kind: Kind, unit: str) -> dict[str, float | int | str]:
    """The fields of `Measured`.

    A ceiling is what can be attained, and disturbance only ever makes things slower: so `median` is the median of the
    better half of the samples. The quartile on the worse side is that of all samples, which keeps the disturbance
    visible; the quartile on the better side is that of the better half. A level is summarised by its plain quartiles.
    """
    ordered = sorted(samples)
    if not ordered:
        return {"median": 0.0, "low": 0.0, "high": 0.0, "count": 0, "unit": unit}
    half = (len(ordered) + 1) // 2
    if kind == "rate":
        better = ordered[-half:]
        low, median, high = quantile(ordered, 0.25), quantile(better, 0.5), quantile(better, 0.75)
    elif kind == "cost":
        better = ordered[:half]
        low, median, high = quantile(better, 0.25), quantile(better, 0.5), quantile(ordered, 0.75)
    else:
        low, median, high = (quantile(ordered, share) for share in (0.25, 0.5, 0.75))
    return {"median": median, "low": min(low, median), "high": max(high, median), "count": len(ordered), "unit": unit}


def spread(summary: Mapping[str, float | int | str]) -> float:
    """(high - low) / median; 0 where nothing was measured."""
    low, median, high = (float(summary[name]) for name in ("low", "median", "high"))
    return (high - low) / median if median else 0.0
