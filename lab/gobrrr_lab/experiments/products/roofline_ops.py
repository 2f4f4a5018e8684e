"""17: this machine's roofline with real ops on it."""

from __future__ import annotations

import statistics

from gobrrr_lab.measure.bench import Bench
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Figure, Found, Row


def measure(bench: Bench) -> Found:
    """Ops from a copy to a large product, each held against the roof at its intensity; the median of the ratios."""
    torch = bench.torch
    n = bench.size(1 << 24, 1 << 10)
    x, out = torch.rand(n), torch.empty(n)
    ops = [("copy", lambda: out.copy_(x), 0.0, 8.0 * n), ("add", lambda: torch.add(x, x, out=out), 1.0 * n, 8.0 * n),
           ("sum", lambda: x.sum(), 1.0 * n, 4.0 * n)]  # fmt: skip
    for size in (64, 256, 1024, bench.size(2048, 32)):
        a, c = torch.rand(size, size), torch.empty(size, size)
        ops.append((f"mm {size}", lambda a=a, c=c: torch.mm(a, a, out=c), 2.0 * size**3, 12.0 * size**2))  # type: ignore[misc]
    rows, ratios = [], []
    for name, call, flops, moved in ops:
        figure = bench.time(call, of=len(ops))
        roof = bench.machine.dispatch.median + max(
            1e9 * flops / bench.flop_rate(), 1e9 * moved / bench.byte_rate(moved)
        )
        ratios.append(tuple(each / roof for each in (figure.value, figure.low, figure.high)))
        rows.append(Row(f"{name} ({flops / moved:.3g} FLOP per byte)", figure, roof, unit="ns"))
    middle = Figure(*(statistics.median(column) for column in zip(*ratios, strict=True)))
    return Found(middle, 1.0, tuple(rows))


EXPERIMENT = Experiment(
    number=17, chapter="products", title="The roofline of this machine, with real ops on it",
    claim="An op takes the longer of its bytes at the memory's rate and its FLOPs at the arithmetic's.",
    source="Williams, Waterman and Patterson, Roofline (2009); course EDLS, week 6",
    published="sums of 168 + 12 us for an addition of 8192 x 8192, 2.6 + 12 us for a product of 1024 x 1024 (H100, "
    "by hand)",
    factor="measured over roof, median of seven ops",
    reproduced=(0.7, 1.5),
    why="Two figures of a machine say what any op takes at least: how fast it computes and how fast it moves. Most "
    "large ops of a good library come near one of the two; small ones pay for the call. Far above the roof is an op "
    "without a good kernel, below it one whose data lay in a cache that the ceiling was not measured in.",
    measure=measure, seconds=14.0,
)  # fmt: skip
