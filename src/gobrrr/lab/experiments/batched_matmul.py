"""11: a small product alone is its call; many at once are arithmetic."""

from __future__ import annotations

from functools import partial

from gobrrr.lab.bench import Bench, ratio
from gobrrr.lab.model import Experiment, Figure, Found, Row

SIZE = 64


def measure(bench: Bench) -> Found:
    """64 x 64 products, one to 1024 of them in a call of bmm: rate of each, and the last over the first."""
    torch = bench.torch
    flops, batches = 2.0 * SIZE**3, (1, 4, 16, 64, 256, bench.size(1024, 2))
    rates, rows = [], []
    for batch in batches:
        x = torch.rand(batch, SIZE, SIZE)
        ns = bench.time(partial(torch.bmm, x, x), of=len(batches))
        rates.append(Figure(*(1e9 * batch * flops / each for each in (ns.value, ns.high, ns.low))))
        rows.append(Row(f"{batch} at once", rates[-1], _rate(bench, batch), x=batch, unit="FLOP/s"))
    return Found(ratio(rates[-1], rates[0]), _rate(bench, batches[-1]) / _rate(bench, 1), tuple(rows))


def _rate(bench: Bench, batch: int) -> float:
    """The call's own cost on top of the arithmetic at the ceiling; one product alone runs on one thread."""
    flops = 2.0 * SIZE**3 * batch
    ceiling = bench.machine.flop_rate("fp32", min(batch, bench.threads)) or 1e9
    return 1e9 * flops / (bench.machine.dispatch.median + 1e9 * flops / ceiling)


EXPERIMENT = Experiment(
    number=11, chapter="products", title="A product by its batch: when do calls stop to matter?",
    claim="A small product is bound by the cost of calling it; batching many of them reaches the machine's rate.",
    source="course on efficient deep learning, GPU against CPU products by batch",
    published="12.9x, 16.2x, 68x and 72.6x over a single small product (GPU against CPU, by size and batch)",
    factor="FLOP/s of 1024 products of 64 x 64 in one call over FLOP/s of one in a call",
    reproduced=(1.5, 80.0),
    why="A call of torch costs about a microsecond before any arithmetic. A 64 x 64 product has 0.5 MFLOP: less "
    "than a microsecond of one core's peak. With a batch the cost is paid once and all cores work. On a CPU the "
    "gain is the cores plus the call; on a GPU, where a launch costs 5 us and one product fills a hundredth of the "
    "device, it is tens of times.",
    measure=measure, finding=("loop_over_samples", "BRR301"), axis="products in a call",
)  # fmt: skip
