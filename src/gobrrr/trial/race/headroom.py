"""The most that any loader fix could give, measured: the program as it is beside the program with its batches replayed.

step                the program as it is, in the same sweeps
C                   with batches that are ready: trial/arm/replaying.py
headspace           step - C
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from gobrrr.trial.arm import protocol
from gobrrr.trial.race.policy import POLICY
from gobrrr.trial.race.race_round import Heat, Stack
from gobrrr.trial.receipt.receipt import Figure, Headspace, Samples, Speedup
from gobrrr.trial.statistics import anytime

if TYPE_CHECKING:
    from gobrrr.rules.verdict.report import Report
    from gobrrr.trial.race.race import Racing

REPLAYED: Stack = (protocol.REPLAYED,)
"""An arm that is measured and never kept: no race knows it."""
WAITS = (
    "BRR401", "BRR402", "BRR403", "BRR404", "BRR405", "BRR406", "BRR407", "BRR408", "BRR410", "BRR411",
)  # fmt: skip
"""Findings that say that the program waits for its loader."""
LOADERS = ("loader_workers", "one_worker", "batched_fetch", "persistent_workers", "computed_once", "decoded_once")
"""Remedies that shorten that wait, and nothing else: pinned memory shortens the copy, which is no wait for batches."""


class Glimpse(Heat):
    """A heat of the replayed batches alone, of so many seconds at most."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__((), [REPLAYED])
        self._seconds, self._clock, self._until = seconds, clock, math.inf
        self._lasted = 0.0

    def order(self) -> list[Stack]:
        """None where another sweep would last too long. The time begins with the first: starts are not its own."""
        now = self._clock()
        if self._until == math.inf:
            self._until = now + self._seconds
        return super().order() if now + self._lasted < self._until else []

    def feed(self, costs: Mapping[Stack, Sequence[float]]) -> None:
        super().feed(costs)
        began = self._until - self._seconds
        self._lasted = (self._clock() - began) / len(self.sweeps)

    def _runs_on(self, arm: Stack) -> bool:
        found = self.standing(arm)
        return found.num < POLICY.sweeps[-1] and found.high - found.mean > POLICY.narrow


def is_wanted(report: Report, named: Collection[str]) -> bool:
    """Whether the program waits for its loader, by a finding that is more than a note (54 s of four minutes went on
    what was 5 % of a step at most), or by remedies that the user named."""
    waits = any(each.code in WAITS and each.severity != "note" for each in report.findings)
    return waits or bool({*named} & {*LOADERS})


def measured(racing: Racing, seconds: float, clock: Callable[[], float] = time.monotonic) -> Headspace:
    """In `seconds` of blocks; why not, where it could not be. Leaves the program as it is alive."""
    began, heat = clock(), Glimpse(seconds, clock)
    looked = racing.look(heat)
    racing.let_go()
    if looked is None:
        return Headspace(reason="the program as it is could not be run")
    (result,) = looked.results
    found = heat.standing(REPLAYED)
    if result.verdict == "failed" or not found.num:
        return Headspace(reason=result.reason, seconds=clock() - began)
    if not math.isfinite(found.high):
        few = f"{found.num} of {anytime.FEWEST} sweeps fitted into a tenth of the time"
        return Headspace(reason=few, samples=result.samples, seconds=clock() - began)
    return of(result.samples, Speedup(*map(math.exp, found[:3])), clock() - began)


def of(samples: Samples, speedup: Speedup, seconds: float = 0.0) -> Headspace:
    """From the blocks of both, and how much faster the replayed batches are."""
    step = samples.step_ns(0)
    assert step is not None
    compute = Figure(step / speedup.median, step / speedup.high, step / speedup.low)
    saved = Figure(*(max(0.0, step - ns) for ns in (compute.value, compute.high, compute.low)))
    return Headspace(step_ns=step, compute_ns=compute, saved_ns=saved, samples=samples, seconds=seconds)


def enough(found: Headspace | None) -> float:
    """Log ratio from which on a setting brings enough of it; infinite where nothing is known of it, or it is none."""
    if found is None or found.saved_ns is None or not found.saved_ns.low:
        return math.inf
    return -math.log(1 - POLICY.enough * found.saved_ns.value / found.step_ns)


def reached(found: Headspace | None, brought: Speedup | None) -> Headspace | None:
    """The same with the part of it that loader remedies brought."""
    if found is None or found.saved_ns is None or not found.saved_ns.low or brought is None:
        return found
    part = [(1 - 1 / times) * found.step_ns for times in (brought.median, brought.low, brought.high)]
    most = found.saved_ns
    shares = (min(1.0, max(0.0, ns / of)) for ns, of in zip(part, (most.value, most.high, most.low), strict=True))
    return msgspec.structs.replace(found, reached=Figure(*shares))
