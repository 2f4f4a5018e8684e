"""Measure for an experiment: pairs in turn, times with their interval, and this machine's ceilings."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gobrrr.machine.model.machine import Machine
from gobrrr.trial.race.callables import compare, synchronise
from gobrrr.trial.statistics.paired import interval
from gobrrr_lab.measure.result import Figure

FEWEST, MOST = 7, 200
"""Blocks of a time."""
BLOCK_NS = 2e6
"""A block is at least so long: the clock's own cost is some 50 ns."""

PAGE, MAPPED = 4096, 32 << 20
"""Bytes of a page, and of an allocation from which glibc always asks the system (DEFAULT_MMAP_THRESHOLD_MAX)."""

Call = Callable[[], object]


class Bench:
    """Handed to `Experiment.measure`. `machine` has the ceilings, `threads` is the number of torch's. `tiny`: each call
    once or a few times, so that the way through is tested and nothing else."""

    def __init__(
        self, machine: Machine, seconds: float, tiny: bool = False, clock: Callable[[], int] = time.perf_counter_ns
    ) -> None:
        self.machine, self.tiny = machine, tiny
        self._seconds, self._clock = seconds, clock

    @property
    def torch(self) -> Any:
        """Imported when it is asked for."""
        import torch

        return torch

    @property
    def threads(self) -> int:
        """Threads of torch's ops."""
        return int(self.torch.get_num_threads())

    def size(self, full: int, tiny: int) -> int:
        """Return the size of a tensor, a loop or a batch: `full`, or `tiny` in a tiny run."""
        return tiny if self.tiny else full

    def pair(self, baseline: Call, candidate: Call, of: int = 1) -> Figure:
        """Time of `baseline` over that of `candidate`, in alternating blocks (gobrrr.compare); above 1 the candidate is
        faster. It has one part in `of` of the experiment's time."""
        if self.tiny:
            one, other = self._block(baseline, 1), self._block(candidate, 1)
            return Figure(one / other, one / other / 2, one / other * 2)
        found = compare(baseline, candidate, seconds=self._share(of), clock=self._clock)
        return Figure(found.speedup, found.low, found.high)

    def time(self, call: Call, of: int = 1) -> Figure:
        """Nanoseconds of one call: the median over blocks with its interval. `of` as in pair()."""
        call()
        calls = self._calls(call)
        ends = self._clock() + 1e9 * self._share(of)
        walls: list[float] = []
        while len(walls) < FEWEST or (self._clock() < ends and len(walls) < MOST):
            walls.append(self._block(call, calls) / calls)
        return middle_of(walls)

    def flop_rate(self, dtype: str = "fp32") -> float:
        """This machine's ceiling at torch's threads, FLOP/s; not a number where it was not measured."""
        return self.machine.flop_rate(dtype, self.threads) or math.nan

    def byte_rate(self, num_bytes: float) -> float:
        """Return bytes per second, read and written, of memory or of the cache that holds so many bytes."""
        return self.machine.byte_rate(num_bytes, self.threads)

    def fresh_ns(self, num_bytes: float) -> float:
        """Nanoseconds that the pages of a new result cost: the system hands them out zeroed. Smaller results come from
        what the allocator kept."""
        pages = num_bytes / PAGE if num_bytes >= MAPPED else 0.0
        return pages * self.machine.fresh_page.median

    def _share(self, of: int) -> float:
        return 0.0 if self.tiny else self._seconds / max(1, of)

    def _block(self, call: Call, calls: int) -> float:
        began = self._clock()
        for _ in range(calls):
            call()
        synchronise()
        return max(1.0, self._clock() - began)

    def _calls(self, call: Call) -> int:
        return 1 if self.tiny else max(1, min(100_000, round(BLOCK_NS / self._block(call, 1))))


def middle_of(walls: Sequence[float]) -> Figure:
    """The median of times with its 95 % interval."""
    logs = np.log(np.maximum(1.0, np.asarray(walls, float)))
    low, high = interval(logs)
    return Figure(*(math.exp(each) for each in (float(np.median(logs)), low, high)))


def ratio(over: Figure, under: Figure) -> Figure:
    """One figure over another that was measured apart; their intervals are added as independent ones of logarithms."""
    middle = math.log(over.value / under.value)
    half = math.hypot(*(math.log(one.high / one.low) / 2 for one in (over, under)))
    return Figure(*(math.exp(each) for each in (middle, middle - half, middle + half)))
