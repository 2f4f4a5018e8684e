"""What a planted illness really costs: the plain programs, timed from outside in turn, without gobrrr."""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks import quiet
from tests.planted.catalogue import Illness

CLOCK = Path(__file__).with_name("step_clock.py")
WARMUP_SHARE, WARMUP_LEAST = 0.2, 5
PATIENCE = 900
"""Seconds after which a program counts as hung."""


@dataclass(frozen=True)
class Timing:
    """One run of one program. Nanoseconds and bytes per step, after the warm-up."""

    num_steps: int
    median_ns: float
    mean_ns: float
    quartile_spread: float
    """(p75 - p25) / median."""
    faults_per_step: float
    growth_bytes_per_step: float
    cores: float
    """CPU time over wall time: how many cores the process got."""
    wall_s: float
    waits: float = 0.0
    """Share of the wall time in which the program asks its loaders for batches."""
    others: float | None = None
    """Share of the cores that other processes used meanwhile."""

    @property
    def calm(self) -> bool:
        """Nobody else was at work."""
        return self.others is None or self.others <= quiet.CALM


@dataclass
class Truth:
    """Sick and healthy runs of one illness, in the order they ran."""

    illness: Illness
    sick: list[Timing] = field(default_factory=list)
    healthy: list[Timing] = field(default_factory=list)

    def step_ns(self, who: str) -> float:
        """Median over the runs of the step that the illness is judged by, of the twin for as much work."""
        mean = self.illness.statistic == "mean"
        step = statistics.median(run.mean_ns if mean else run.median_ns for run in self._runs(who))
        return step / self.illness.steps_in_one if who == "healthy" else step

    def growth_bytes(self, who: str) -> float:
        """Median over the runs of the bytes by which the process grows per step."""
        return statistics.median(run.growth_bytes_per_step for run in self._runs(who))

    def waits(self, who: str) -> float:
        """Median over the runs of the share of the time in which the program asks its loaders for batches."""
        return statistics.median(run.waits for run in self._runs(who))

    def _runs(self, who: str) -> list[Timing]:
        """The calm runs, or all where there is none."""
        runs = self.sick if who == "sick" else self.healthy
        return [run for run in runs if run.calm] or runs

    @property
    def calm(self) -> bool:
        """Sick and healthy have a run that nobody disturbed."""
        return any(run.calm for run in self.sick) and any(run.calm for run in self.healthy)

    @property
    def ratio(self) -> float:
        """Sick step over healthy step."""
        return self.step_ns("sick") / self.step_ns("healthy")

    @property
    def saving_ns(self) -> float:
        """What the mended program gives back per step."""
        return self.step_ns("sick") - self.step_ns("healthy")

    @property
    def is_ill(self) -> bool:
        """Whether this is an illness on this machine."""
        return self.illness.is_ill(self.ratio)


def measure(illness: Illness, rounds: int, num_steps: int | None = None, patience_s: float = 0.0) -> Truth:
    """Run the pair `rounds` times in turn: sick, healthy, healthy, sick, ...

    Each run waits up to `patience_s` for a calm machine; one that was disturbed all the same is run once more.
    """
    truth = Truth(illness)
    for index in range(rounds):
        for who in ("sick", "healthy") if index % 2 == 0 else ("healthy", "sick"):
            runs = truth.sick if who == "sick" else truth.healthy
            runs.append(time_calmly(illness, who, num_steps, patience_s))
    return truth


def time_calmly(illness: Illness, who: str, num_steps: int | None, patience_s: float) -> Timing:
    """Time one program; once more where others were at work and there is patience."""
    timing = None
    for _ in range(2):
        quiet.wait(patience_s)
        neighbours = quiet.Neighbours()
        timing = time_program(illness.script(who), illness.kind, num_steps, bytes_count=illness.bytes_illness)
        timing = replace(timing, others=neighbours.share())
        if timing.calm or not patience_s:
            break
    assert timing is not None
    return timing


def time_program(script: Path, kind: str, num_steps: int | None = None, *, bytes_count: bool = False) -> Timing:
    """Run `script` under the clock; raises RuntimeError with the end of its stderr where it fails. `bytes_count`: what
    loader workers hold alone is part of its bytes."""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "rows.json"
        command = [sys.executable, str(CLOCK), str(out), kind, str(script), *step_arguments(num_steps)]
        done = subprocess.run(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=PATIENCE,
            env=environment() | ({"STEP_CLOCK_WORKERS": "1"} if bytes_count else {}),
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"{script} left with {done.returncode}: {done.stderr[-500:]}")
        return read_rows(json.loads(out.read_text()))


def step_arguments(num_steps: int | None) -> list[str]:
    """The programs' own option for their length."""
    return ["--steps", str(num_steps)] if num_steps else []


def environment() -> dict[str, str]:
    """The environment, with torch's own chatter off."""
    return {**os.environ, "KINETO_LOG_LEVEL": "99", "PYTHONWARNINGS": "ignore"}


def read_rows(seen: dict[str, Any]) -> Timing:
    """Figures per step from the clock's rows: (wall ns, minor faults, resident bytes, CPU ns, ns waited) at each step's
    end."""
    rows = seen["rows"]
    skipped = max(WARMUP_LEAST, round(WARMUP_SHARE * len(rows)))
    if len(rows) - skipped < 3:
        raise RuntimeError(f"only {len(rows)} steps were seen")
    rows = rows[skipped:]
    walls = [after[0] - before[0] for before, after in itertools.pairwise(rows)]
    num, (first, last) = len(walls), (rows[0], rows[-1])
    quarter, middle, three = statistics.quantiles(walls, n=4)
    return Timing(
        num_steps=num,
        median_ns=statistics.median(walls),
        mean_ns=statistics.fmean(walls),
        quartile_spread=(three - quarter) / middle,
        faults_per_step=(last[1] - first[1]) / num,
        growth_bytes_per_step=(last[2] - first[2]) / num,
        cores=(last[3] - first[3]) / (last[0] - first[0]),
        waits=(last[4] - first[4]) / (last[0] - first[0]),
        wall_s=(seen["end_ns"] - seen["start_ns"]) / 1e9,
    )
