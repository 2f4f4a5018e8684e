"""46: data parallel training on one machine, with and without sums of gradients."""

from __future__ import annotations

import contextlib
import time

from gobrrr_lab.measure.bench import Bench, middle_of, ratio
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Figure, Found, Row
from gobrrr_lab.nets.ranks import meet

RANKS, STEPS, WARM = 2, 20, 4


def measure(bench: Bench) -> Found:
    """Samples per second of two ranks with one thread each over those of one; the same without summing (no_sync)."""
    size, steps = bench.size(512, 8), bench.size(STEPS, 2)
    times = {
        (n, sync): middle_of(meet(_steps, n, sync, size, steps))
        for n, sync in ((1, True), (RANKS, True), (RANKS, False))
    }
    one, two, apart = times[1, True], times[RANKS, True], times[RANKS, False]
    scaled = ratio(Figure(*(RANKS * each for each in (one.value, one.low, one.high))), two)
    rows = (Row("step of one process", one, unit="ns"), Row("step of two, summed", two, unit="ns"),
            Row("step of two, no_sync", apart, unit="ns"))  # fmt: skip
    summing = 100 * (1 - apart.value / two.value)
    rest = apart.value / one.value
    cause = f"{summing:.0f} % of the step of two is summing gradients; the rest takes {rest:.2f} times one's step."
    return Found(scaled, RANKS * one.value / max(one.value, apart.value), rows, cause)


def _steps(rank: int, sync: bool, size: int, steps: int) -> list[float]:
    """Nanoseconds of each step of a net of four layers."""
    import torch

    layers = [part for _ in range(4) for part in (torch.nn.Linear(size, size), torch.nn.ReLU())]
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers))
    x, walls = torch.rand(64, size), []
    for _ in range(steps + WARM):
        torch.distributed.barrier()
        began = time.perf_counter_ns()
        with contextlib.nullcontext() if sync else net.no_sync():
            net(x).sum().backward()
        walls.append(float(time.perf_counter_ns() - began))
    return walls[WARM:]


EXPERIMENT = Experiment(
    number=46, chapter="cost", title="Two ranks on one machine: what summing gradients costs",
    claim="Two ranks train nearly twice the samples of one, less what the sums of gradients cost; accumulating "
    "under no_sync leaves those out.",
    source="course EDLS, week 3; Li et al., PyTorch Distributed (2020)",
    published="near-linear scaling while communication hides behind backward; no_sync saves each skipped sum",
    factor="samples per second of two ranks with one thread each over those of one",
    reproduced=(1.2, 2.0),
    why="Each rank computes as before; the gradients, 4 MiB here, go around once per step. Buckets are summed "
    "while backward goes on, if a core or a network card is free to do it. On one machine the ranks share memory "
    "bandwidth, and gloo's sums take cores from the training itself.",
    measure=measure, finding=("sums_every_micro_step", "BRR703"), needs=("torch", "gloo"), seconds=15.0,
)  # fmt: skip
