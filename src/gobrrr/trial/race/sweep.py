"""Measure a setting's values in turns: each in an arm of its own, blocks in an order drawn anew for every round.

A value's arm is started anew every few rounds: processes of one program differ by more than its blocks do.
"""

from __future__ import annotations

import itertools
import math
import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np

from gobrrr.machine.probe.system_probe import free_memory
from gobrrr.trial.arm.arm import SPENT, Arm, ArmError
from gobrrr.trial.arm.side import Side, clear
from gobrrr.trial.statistics.scaling import Line, bent, line, middle
from gobrrr.units import size

BLOCK_NS = 1e9
"""Length of a block (proposed: many steps of fast programs, one of slow ones)."""
ENOUGH = 0.02
"""Half the width of an interval, of the median, from which a value is measured well enough."""
ROUNDS, MOST_ROUNDS = 3, 30
"""Rounds of one process, and of all at most."""
PROCESSES = 3
"""Processes of a value at least, where the time allows: the same sizes of two sweeps differed by 11 % in the median
with one process each, whose blocks lay within 5 %, and by 8 % with two or three (two shared cores of an EPYC)."""
LATE_S = 5.0
"""Seconds that a block which has begun may take beyond the time."""
PEAK_WARM = 1
"""Steps before a block that is made for its peak: gradients and the optimizer's state are there after one."""
PEAK_STEPS, PEAK_NS = (3, 12), 10e9
"""Fewest and most steps of such a block, and its length between them: lengths differ from batch to batch."""
ROOM = 1.15
"""An arm is started where memory has room for so many times its predicted peak."""
CHEAPER = 0.98
"""Cost of a sample in a batch of twice the size, over that in a batch of the size, below which the next is tried."""
CLIFF = 1.2
"""Cost of a sample, over its cost in the next smaller size, from which a cliff is taken to lie between them (proposed:
neighbours without one differ by up to 10 % between processes)."""
BETWEEN = 2
"""Sizes that are kept for a look between doublings."""
TOO_LARGE = "memory has no room for it: {} predicted"


class Point(msgspec.Struct, frozen=True):
    """A value as it was measured. Times are ns of a step; null where none was made."""

    value: str
    step_ns: float | None = None
    low_ns: float | None = None
    high_ns: float | None = None
    p99_ns: float | None = None
    steps: int = 0
    peak_bytes: int | None = None
    """Most that its processes held: tensors of the device, else resident memory."""
    failed: str = ""
    """Why it could not be measured."""
    blocks: int = 0
    """Times that it was measured, in all its processes; 0 unknown."""
    joules: float | None = None
    """Energy of a step, where that is the objective."""

    @property
    def number(self) -> float:
        """The value as a number; 0 where it is none."""
        try:
            number = float(self.value)
        except ValueError:
            return 0.0
        return number if math.isfinite(number) else 0.0


class Sweep:
    """The arms of one sweep. `make` gives a value's arm in a folder; `until` (of time.monotonic) ends all."""

    def __init__(
        self, make: Callable[[str, Path], Arm], folder: Path, *, until: float, seed: int = 0, in_ram: bool = True,
        peaks_alone: bool = False, is_batch: bool = True, block_ns: float = BLOCK_NS,
    ) -> None:  # fmt: skip
        """`in_ram`: peaks are of this machine's memory, which must have room for an arm before it starts."""
        self._in_ram, self._peaks_alone, self._is_batch = in_ram, peaks_alone, is_batch
        self._block_ns = block_ns
        self._make, self._folder, self._until, self._random = make, folder, until, random.Random(seed)
        self._arms: list[Arm] = []
        self._watch = threading.Timer(max(0.0, until - time.monotonic()) + LATE_S, self.stop)
        self._watch.daemon = True
        self._watch.start()
        self._sides: dict[str, Side] = {}
        self._blocks: dict[str, dict[int, list[float]]] = {}  # by process
        self._walls: dict[str, list[int]] = {}
        self._peaks: dict[str, int] = {}
        self._joules: dict[str, list[float]] = {}
        self._failed: dict[str, str] = {}

    def first(self, value: str) -> Point:
        """Bring a value's arm up and make a block of it: its first figures."""
        held = sum(side.resident() for side in self._sides.values())
        if self._lacks(value) > held:
            self._failed[value] = TOO_LARGE.format(size(self._predicted(value) or 0))
        else:
            self._sides[value] = Side(lambda place: self._arm(value, place), self._folder / f"{len(self._sides)}", (),
                                      warm_steps=PEAK_WARM if self._peaks_alone else 0)  # fmt: skip
            self._block(value)
        return self.point(value)

    def rounds(self) -> Iterator[int]:
        """Make rounds until every value is measured well enough, or the time is over; yields the number of each."""
        for number in range(1, MOST_ROUNDS + 1):
            order = [value for value in self._sides if value not in self._failed]
            self._random.shuffle(order)
            if not order or all(map(self._is_settled, order)) or self.over or self._peaks_alone:
                return
            if number % ROUNDS == 0:
                ready = sum(self._sides[value].ready_seconds for value in order)
                if time.monotonic() + ready < self._until:
                    self._end()  # all come up again in their turn
            for value in order:
                if not self.over:
                    self._block(value)
            yield number

    @property
    def over(self) -> bool:
        """Whether the time is."""
        return time.monotonic() > self._until

    def point(self, value: str) -> Point:
        """The figures of a value so far."""
        processes = list(self._blocks.get(value, {}).values())
        if not processes:
            return Point(value, failed=self._failed.get(value, "not measured"))
        median, low, high = middle(processes[0] if len(processes) == 1 else list(map(statistics.median, processes)))
        p99 = float(np.percentile(self._walls[value], 99, method="higher"))
        return Point(value, median, low, high, p99, len(self._walls[value]), self._peaks.get(value) or None,
                     self._failed.get(value, ""), sum(map(len, processes)),
                     statistics.median(found) if (found := self._joules.get(value)) else None)  # fmt: skip

    def stop(self) -> None:
        """Kill whatever runs, from any thread; no arm starts any more."""
        self._until = -math.inf
        for arm in list(self._arms):
            arm.kill()

    def close(self) -> None:
        """End all arms."""
        self._watch.cancel()
        self._end()
        clear(self._folder)

    def _arm(self, value: str, place: Path) -> Arm:
        if self._until == -math.inf:
            raise ArmError(SPENT)
        arm = self._make(value, place)
        self._arms.append(arm)
        return arm

    def _end(self) -> None:
        for side in self._sides.values():
            side.close()

    def _predicted(self, value: str) -> float | None:
        known = peaks([self.point(each) for each in self._blocks], is_batch=self._is_batch)
        number = Point(value).number
        if known is not None and number > 0:
            return known.at(number)
        return max(self._peaks.values(), default=None)

    def _lacks(self, value: str) -> float:
        """Return the bytes that memory lacks for a value's arm, by the peaks of others; below 0 where it has room."""
        free, need = free_memory(), self._predicted(value)
        return need * ROOM - free if self._in_ram and free is not None and need is not None else -math.inf

    def _block(self, value: str) -> None:
        side = self._sides[value]
        if not side.resident() and self._lacks(value) > 0:
            self._end()  # the others come up again in their turn
        try:
            side.start()
            side.warm()
            (fewest, most), ns = (PEAK_STEPS, PEAK_NS) if self._peaks_alone else ((1, math.inf), self._block_ns)
            block = side.block(int(max(fewest, min(most, round(ns / side.step_ns)))) if side.step_ns else fewest)
        except ArmError as error:
            if error.reason != SPENT or value not in self._blocks:
                self._failed[value] = error.reason
            side.close()
            return
        processes = self._blocks.setdefault(value, {})
        processes.setdefault(side.processes, []).append(block.ns / len(block.walls))
        self._walls.setdefault(value, []).extend(block.walls)
        if block.joules:
            self._joules.setdefault(value, []).append(block.joules / len(block.walls))
        self._peaks[value] = max(self._peaks.get(value, 0), block.peak_bytes or 0)

    def _is_settled(self, value: str) -> bool:
        point = self.point(value)
        if point.step_ns is None or point.low_ns is None or point.high_ns is None:
            return True
        is_narrow = (point.high_ns - point.low_ns) / 2 <= ENOUGH * point.step_ns
        return is_narrow and len(self._blocks[value]) >= PROCESSES


def peaks(points: Sequence[Point], *, is_batch: bool = True) -> Line | None:
    """Return the line of peaks over values that are numbers: of a batch straight, else with a square where it has
    one."""
    known = [(each.number, float(each.peak_bytes)) for each in points if each.peak_bytes and each.number > 0]
    return bent(known) if is_batch else line(known, squared=True)


def next_size(now: int, measured: Sequence[Point], most: int) -> int | None:
    """Return the next batch size that is worth a look; None where enough were looked at.

    First twice the largest while that makes samples cheaper, then half the smallest. Caches and cores make sizes cheap
    that are no doublings: then the middle of the steepest cliff (the largest size before it is often the best), and of
    the wider gap beside the best (golden-section search).
    """
    known = {int(point.number): point.step_ns for point in measured}
    if not known:
        return now
    if len(known) >= most:
        return None
    largest, smallest = max(known), min(known)
    top, below = known[largest], known.get(largest // 2)
    if top is not None and (below is None or top / largest < CHEAPER * below / (largest // 2)):
        return 2 * largest
    if smallest > max(1, now // 8) and len(known) < most - BETWEEN:
        return smallest // 2
    return _between({size: size / ns if ns else 0.0 for size, ns in sorted(known.items())})


def _between(rates: dict[int, float]) -> int | None:
    """Return the middle of the steepest cliff of the rate over the size, else of the wider gap beside the best; None
    where no gap is wide."""
    gaps = [(low, high) for low, high in itertools.pairwise(rates) if high - low >= max(2, low / 4)]
    cliffs = [(rates[low] / rates[high], low, high) for low, high in gaps if rates[low] > CLIFF * rates[high] > 0]
    if cliffs:
        _, low, high = max(cliffs)
        return (low + high) // 2
    best = max(rates, key=lambda size: rates[size])
    sides = [low if high == best else high for low, high in gaps if best in (low, high) and high - low >= best / 4]
    return (best + max(sides, key=lambda size: (abs(size - best), rates[size]))) // 2 if sides else None
