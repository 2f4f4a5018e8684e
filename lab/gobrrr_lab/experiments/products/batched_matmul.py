"""11: a small product alone is its call; many at once are arithmetic."""

from __future__ import annotations

from functools import partial
from typing import Any

from gobrrr_lab.measure.bench import Bench, ratio
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Figure, Found, Row

SIZES, BATCHES, JUDGED = (16, 64, 256), (1, 4, 16, 64, 256, 1024), 64
LARGEST = 1 << 22
"""Numbers in a batch."""


def measure(bench: Bench) -> Found:
    """Products of 16 to 256 rows, one to 1024 of them in a call of bmm: rate of each. With a device, the same there,
    the work alone and with the copies of factors and results."""
    torch = bench.torch
    cases = [(size, batch) for size in SIZES for batch in BATCHES if size**2 * batch <= bench.size(LARGEST, 1 << 14)]
    rates, rows = {}, []
    for size, batch in cases:
        x, flops = torch.rand(batch, size, size), 2.0 * size**3 * batch
        rates[size, batch] = _per_second(flops, bench.time(partial(torch.bmm, x, x), of=len(cases)))
        label = f"{batch} of {size} x {size}"
        rows.append(Row(label, rates[size, batch], _rate(bench, size, batch), batch, "FLOP/s", f"{size} rows"))
        if torch.cuda.is_available():
            rows += _on_device(bench, x, label, len(cases))
    most = max(batch for size, batch in cases if size == JUDGED)
    predicted = _rate(bench, JUDGED, most) / _rate(bench, JUDGED, 1)
    return Found(ratio(rates[JUDGED, most], rates[JUDGED, 1]), predicted, tuple(rows))


def _on_device(bench: Bench, x: Any, label: str, of: int) -> list[Row]:
    """Host's time over the device's, without the copies and with them."""
    there = x.to("cuda")
    alone = bench.pair(lambda: x.bmm(x), lambda: there.bmm(there), of=of)

    def with_copies() -> Any:
        one, two = x.to("cuda"), x.to("cuda")
        return one.bmm(two).cpu()

    copied = bench.pair(lambda: x.bmm(x), with_copies, of=of)
    return [Row(f"{label}: host over device", alone, unit="x"), Row(f"{label}: and its copies", copied, unit="x")]


def _per_second(flops: float, ns: Figure) -> Figure:
    return Figure(*(1e9 * flops / each for each in (ns.value, ns.high, ns.low)))


def _rate(bench: Bench, size: int, batch: int) -> float:
    """The call's own cost on top of the arithmetic at the ceiling; one product alone runs on one thread."""
    flops = 2.0 * size**3 * batch
    ceiling = bench.machine.flop_rate("fp32", min(batch, bench.threads)) or 1e9
    return 1e9 * flops / (bench.machine.dispatch.median + 1e9 * flops / ceiling)


EXPERIMENT = Experiment(
    number=11, chapter="products", title="Products by size and batch: when do calls stop to matter?",
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
