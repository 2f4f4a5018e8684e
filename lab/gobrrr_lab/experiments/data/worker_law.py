"""37: step = max(C, I/w, P/min(w, e))."""

from __future__ import annotations

import statistics
import time
from typing import Any

from gobrrr.errors import GobrrrError
from gobrrr_lab.measure.bench import Bench
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Figure, Found, Row

COMPUTE_S, WAIT_S = 0.010, 0.024
"""Seconds of a step, and of making a batch: both sleep, so that no core is shared."""
STEPS, WARM = 24, 6


def measure(bench: Bench) -> Found:
    """Steps over a loader whose batches wait for storage, by workers; over what the law says."""
    steps = bench.size(STEPS, WARM + 2)
    ratios, rows = [], []
    for workers in (0, 1, 2, 3, 4) if not bench.tiny else (0, 1):
        predicted = COMPUTE_S + WAIT_S if workers == 0 else max(COMPUTE_S, WAIT_S / workers)
        seen = _step(bench.torch, workers, steps)
        ratios.append(seen / predicted)
        rows.append(Row(f"{workers} workers", Figure.exact(1e9 * seen), 1e9 * predicted, x=workers + 1, unit="ns"))
    return Found(Figure(statistics.median(ratios), min(ratios), max(ratios)), 1.0, tuple(rows))


class Slow:
    """A batch that comes late."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> int:
        time.sleep(WAIT_S)
        return index


def _step(torch: Any, workers: int, steps: int) -> float:
    """Mean seconds per step after the warm-up."""
    try:
        loader = torch.utils.data.DataLoader(Slow(steps), batch_size=None, num_workers=workers)
        began = []
        for _ in loader:
            time.sleep(COMPUTE_S)
            began.append(time.perf_counter())
    except (RuntimeError, OSError) as error:
        raise GobrrrError(f"workers could not start: {error}") from None
    return (began[-1] - began[WARM]) / (len(began) - 1 - WARM)


EXPERIMENT = Experiment(
    number=37, chapter="data", title="How many workers: the law of the loader",
    claim="A step takes the longest of its own compute, the wait per batch over the workers, and the CPU time per "
    "batch over workers or cores.",
    source="course EDLS, week 2; the law as gobrrr's loader model has it (decision 0019)",
    published="no table; predictions by nproc alone miss by up to 80 %",
    factor="measured step over the law's, least to largest over 0 to 4 workers, batches that wait 24 ms, steps of "
    "10 ms",
    reproduced=(0.85, 1.25),
    why="Workers make batches side by side, so waits shrink with their number until the step itself is longer. CPU "
    "time shrinks only until the cores are busy, which is why this test sleeps. Without workers the two add up. "
    "More workers than that cost memory and start-up and give nothing.",
    measure=measure, finding=("no_workers", "BRR405"), axis="workers + 1", seconds=8.0,
)  # fmt: skip
