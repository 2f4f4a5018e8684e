"""Two callables in this process, measured in turn: `gobrrr.compare(baseline, candidate)`."""

from __future__ import annotations

import copy
import random
import statistics as figures
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from gobrrr.capture.steps.device_memory import cuda_in_use
from gobrrr.recording.model.warmup import warmup
from gobrrr.trial.statistics.block_schedule import Pairing

WARM_STEPS, MOST_WARM_STEPS = 5, 50
EDGE_NS = 2e4
"""Restoring random streams and reading the clock."""


class Compared(NamedTuple):
    """Result of `compare`: `str()` is a sentence. Above 1 the candidate is faster; `step_ns` are medians of blocks."""

    verdict: str
    speedup: float
    low: float
    high: float
    step_ns: tuple[float, float]
    blocks: int
    blocks_needed: int | None

    def __str__(self) -> str:
        times = f"{self.speedup:.3f}x ({self.low:.3f} to {self.high:.3f}), {self.blocks} blocks"
        needed = f"; {self.blocks_needed} would settle it" if self.blocks_needed else ""
        return f"{self.verdict}: {times}{needed}"


def compare(
    baseline: Callable[[], object], candidate: Callable[[], object], *, state: Iterable[Any] = (),
    seconds: float = 10.0, seed: int = 0, clock: Callable[[], int] = time.perf_counter_ns,
) -> Compared:  # fmt: skip
    """Measure two callables in alternating blocks, A B B A in random order, until it is settled or the time is spent.

    Both are one step each. Random streams of Python, NumPy and torch begin every block where they began the first;
    `state` holds modules and optimizers (whatever has state_dict and load_state_dict) that do so too. Devices are
    synchronised at the edges of blocks only. Raises what the callables raise.

    The verdict is of these two callables as they lie in this process. Where their memory lies is drawn once, so another
    start may differ from this one by as much as starts do (PROCESS_SD in trial/statistics/paired.py, per callable): a
    difference of 1 or 2 % may be of this process alone. `gobrrr tune` starts both anew and tells that apart.
    """
    calls = (baseline, candidate)
    kept = _State(list(state))
    times: tuple[list[float], list[float]] = ([], [])
    try:
        walls = [_warm_up(call, clock) for call in calls]
        pairing = Pairing((walls[0], walls[1]), EDGE_NS, seed=seed, seconds=seconds)
        while (block := pairing.next()) is not None:
            kept.restore()
            synchronise()
            began = clock()
            for _ in range(block.steps):
                calls[block.arm]()
            synchronise()
            ns = clock() - began
            pairing.feed(ns)
            times[block.arm].append(ns / block.steps)
    finally:
        kept.restore()
    found = pairing.result()
    step_ns = (figures.median(times[0]), figures.median(times[1]))
    needed = 4 * found.needed if found.needed else None
    return Compared(found.verdict, found.median, found.low, found.high, step_ns, 4 * found.num, needed)


def _warm_up(call: Callable[[], object], clock: Callable[[], int]) -> float:
    """Run until the last steps agree; return the median of those after the warm-up, ns."""
    walls: list[int] = []
    while len(walls) < MOST_WARM_STEPS:
        for _ in range(WARM_STEPS):
            began = clock()
            call()
            synchronise()
            walls.append(clock() - began)
        if warmup(walls) <= len(walls) - WARM_STEPS:
            break
    return float(figures.median(walls[warmup(walls) :] or walls))


def synchronise() -> None:
    if (cuda := cuda_in_use()) is not None:
        cuda.synchronize()


class _State:
    """Random streams and state dicts as they are now."""

    def __init__(self, holders: list[Any]) -> None:
        self._holders = [(holder, copy.deepcopy(holder.state_dict())) for holder in holders]
        self._python = random.getstate()
        numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
        self._numpy = numpy.random.get_state() if numpy is not None else None
        self._torch = torch.get_rng_state() if torch is not None else None

    def restore(self) -> None:
        """Put all of it back."""
        random.setstate(self._python)
        if self._numpy is not None:
            sys.modules["numpy"].random.set_state(self._numpy)
        if self._torch is not None:
            sys.modules["torch"].set_rng_state(self._torch)
        for holder, state in self._holders:
            holder.load_state_dict(copy.deepcopy(state))
