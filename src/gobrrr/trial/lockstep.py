"""The referee: two arms in turn, block by block, until the schedule has what it needs."""

from __future__ import annotations

import shutil
import statistics as figures
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import psutil

from gobrrr.recording.warmup import warmup
from gobrrr.trial import schedule, statistics
from gobrrr.trial.arm import ArmError, Block
from gobrrr.trial.receipt import Compiled, Samples, Speedup, StartUp
from gobrrr.trial.schedule import Pairing
from gobrrr.trial.tuning import Measured

WARM_STEPS, MOST_WARM_STEPS = 10, 200
WARM_BAND = 0.15
"""Halves of the last WARM_STEPS steps agree within it: the arm is warm."""
EDGE_NS = 1e6
"""Waking a group and telling it to go, measured on two cores: 0.3 to 0.8 ms."""
MOST_RESTARTS = 20
ROOM = 1.25
"""A second arm is started beside the first where this many times its memory is free."""

Progress = Callable[[int, int, Speedup | None], None]


class Runner(Protocol):
    """What the referee needs of an arm; `arm.Arm` is one, tests have others."""

    applied: dict[str, str]
    start_seconds: float
    peak_bytes: int

    def start(self, seconds: float = ...) -> None: ...

    def run(self, steps: int, expected_ns: float | None = None) -> Block: ...

    def end(self) -> None: ...

    def resident(self) -> int: ...


class Side:
    """One of the two stacks: its arm, started again where the program came to its end, and what starting costs."""

    def __init__(self, make: Callable[[Path], Runner], folder: Path, remedies: tuple[str, ...]) -> None:
        self._make, self._folder, self._remedies = make, folder, remedies
        self._arm: Runner | None = None
        self._starts = 0
        self.step_ns = 0.0
        self.warm_seconds = 0.0
        """From the start of the process to its first warm step; of the first start."""
        self.program_steps: int | None = None
        self._peak = 0
        self._made = 0
        self._warm: tuple[int, int] | None = None
        self._graphs: tuple[int, int] | None = None

    def ready(self) -> None:
        """Running and warm. Raises ArmError."""
        if self._arm is not None:
            return
        if self._starts > MOST_RESTARTS:
            raise ArmError(
                f"the program is too short: it ended {self._starts} times before enough blocks were measured"
            )
        self._starts += 1
        self._arm = self._make(self._folder / str(self._starts))
        self._made = 1
        self._arm.start()
        walls = self._warm_up(self._arm)
        missing = [name for name in self._remedies if name not in self._arm.applied]
        if missing:
            raise ArmError(f"{missing[0]} never took hold in this program")
        if self._starts == 1:
            self.step_ns = figures.median(walls[warmup(walls) :] or walls)
            self.warm_seconds = self._arm.start_seconds + sum(walls[: warmup(walls)]) / 1e9

    def _warm_up(self, arm: Runner) -> list[int]:
        """Steps until the last ones agree with each other; some programs never do, and are measured all the same."""
        walls: list[int] = []
        while len(walls) < MOST_WARM_STEPS:
            try:
                walls += arm.run(WARM_STEPS).walls
            except ArmError as error:
                if error.over:
                    raise ArmError("the program is too short: it ended while it was still warming up") from None
                raise
            self._made += WARM_STEPS
            last = sorted(walls[-WARM_STEPS // 2 :]), sorted(walls[-WARM_STEPS : -WARM_STEPS // 2])
            first, second = (figures.median(half) for half in last)
            if abs(first - second) <= WARM_BAND * min(first, second) and warmup(walls) < len(walls) - WARM_STEPS // 2:
                break
        return walls

    def block(self, steps: int) -> Block:
        """One block; a program that ends in it starts again and makes it anew. Raises ArmError."""
        while True:
            self.ready()
            assert self._arm is not None
            try:
                block = self._arm.run(steps, self.step_ns * steps)
            except ArmError as error:
                if not error.over:
                    raise
                self.program_steps = self._made
                self.end()
                continue
            self._made += len(block.walls)
            self._graphs = block.graphs
            self._warm = self._warm or block.graphs
            return block

    @property
    def compiled(self) -> Compiled | None:
        """What torch.compile made; None where it was not used. An arm that was started anew counts from there."""
        if self._graphs is None or self._warm is None:
            return None
        return Compiled(*self._graphs, recompiled=max(0, self._graphs[0] - self._warm[0]))

    @property
    def peak_bytes(self) -> int:
        """Most that its processes held whenever it was stopped."""
        return max(self._peak, self._arm.peak_bytes if self._arm is not None else 0)

    def resident(self) -> int:
        """Bytes that its processes hold."""
        return self._arm.resident() if self._arm is not None else 0

    def end(self) -> None:
        """End its arm, if it runs."""
        if self._arm is not None:
            self._arm.end()
            self._peak, self._arm = self.peak_bytes, None


def measure(
    baseline: Side, candidate: Side, *, seed: int, seconds: float, progress: Progress | None = None,
    free_bytes: Callable[[], int] = lambda: int(psutil.virtual_memory().available),
    pairing: Callable[..., Pairing] = Pairing,
) -> Measured:  # fmt: skip
    """Compare two stacks. What goes wrong in an arm is a failed trial with its reason; only Ctrl-C comes through."""
    sides = (baseline, candidate)
    try:
        _made_ready(baseline, "the program as it is")
        _made_ready(candidate, "with the remedy")
        apart = free_bytes() < (ROOM - 1) * (baseline.resident() + candidate.resident())
        return _compared(sides, pairing((baseline.step_ns, candidate.step_ns), EDGE_NS, seed=seed, seconds=seconds),
                         progress, apart)  # fmt: skip
    except ArmError as error:
        return Measured(verdict="failed", reason=error.reason)
    finally:
        for side in sides:
            side.end()


def _made_ready(side: Side, who: str) -> None:
    try:
        side.ready()
    except ArmError as error:
        raise ArmError(f"{who}: {error.reason}") from None


def _compared(sides: tuple[Side, Side], pairing: Pairing, progress: Progress | None, apart: bool) -> Measured:
    arms: list[int] = []
    steps: list[int] = []
    times: list[int] = []
    while (wanted := pairing.next()) is not None:
        if apart:  # memory for one arm at a time: every block is a run of its own, warmed up anew
            sides[1 - wanted.arm].end()
        block = sides[wanted.arm].block(wanted.steps)
        pairing.feed(block.ns, len(block.walls))
        arms.append(wanted.arm)
        steps.append(len(block.walls))
        times.append(block.ns)
        if progress is not None:
            progress(len(arms), 4 * pairing.planned, _so_far(pairing))
    found = pairing.result()
    baseline, candidate = sides
    start = max(0.0, candidate.warm_seconds - baseline.warm_seconds)
    per_step = [_per_step(arms, steps, times, arm) for arm in (0, 1)]
    return Measured(
        verdict=found.verdict, speedup=Speedup(found.median, found.low, found.high), p_value=found.p_value,
        reason="one arm at a time: there was no memory for two" if apart else "",
        blocks_needed=4 * found.needed if found.needed else None, step_ns=(per_step[0], per_step[1]),
        start_up=StartUp(start, statistics.break_even(start, *per_step), baseline.program_steps),
        compiled=candidate.compiled, peak_bytes=(baseline.peak_bytes or None, candidate.peak_bytes or None),
        samples=Samples(tuple(arms), tuple(steps), tuple(times)),
    )  # fmt: skip


def _so_far(pairing: Pairing) -> Speedup | None:
    if len(pairing.logs) < schedule.PILOT:
        return None
    found = statistics.compare(pairing.logs)
    return Speedup(found.median, found.low, found.high)


def _per_step(arms: list[int], steps: list[int], times: list[int], arm: int) -> float:
    return figures.median(t / n for a, n, t in zip(arms, steps, times, strict=True) if a == arm)


def clear(folder: Path) -> None:
    """Remove the folders of arms that are over."""
    shutil.rmtree(folder, ignore_errors=True)
