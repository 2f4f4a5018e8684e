"""47: latency and throughput by batch size."""

from __future__ import annotations

from gobrrr_lab.measure.bench import Bench, ratio
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Figure, Found, Row

LAYERS, WIDTH = 4, 512
BATCHES = (1, 4, 16, 64, 256)


def measure(bench: Bench) -> Found:
    """A small net by batch: time of a call, samples per second, and what the weights' bytes and FLOPs predict."""
    torch = bench.torch
    layers = [part for _ in range(LAYERS) for part in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())]
    net = torch.nn.Sequential(*layers).eval()
    rates, rows = [], []
    with torch.no_grad():
        for batch in BATCHES if not bench.tiny else (1, 2):
            x = torch.rand(batch, WIDTH)
            ns = bench.time(lambda x=x: net(x), of=len(BATCHES))  # type: ignore[misc]
            rates.append(Figure(*(1e9 * batch / each for each in (ns.value, ns.high, ns.low))))
            rows.append(Row(f"batch {batch}: latency", ns, _predicted(bench, batch), x=batch, unit="ns"))
            said = 1e9 * batch / _predicted(bench, batch)
            rows.append(Row(f"batch {batch}: samples per second", rates[-1], said))
    return Found(
        ratio(rates[-1], rates[0]), BATCHES[-1] * _predicted(bench, 1) / _predicted(bench, BATCHES[-1]), tuple(rows)
    )


def _predicted(bench: Bench, batch: int) -> float:
    weights = 4.0 * LAYERS * WIDTH**2
    flops = 1e9 * 2.0 * batch * LAYERS * WIDTH**2 / bench.flop_rate()
    return 2 * LAYERS * bench.machine.dispatch.median + max(flops, 1e9 * weights / bench.byte_rate(weights))


EXPERIMENT = Experiment(
    number=47, chapter="cost", title="Latency and throughput by batch",
    claim="A larger batch raises latency slowly and throughput fast, until the arithmetic is full: then both grow "
    "together.",
    source="course on efficient deep learning, latency against throughput",
    published="the curve; no figure",
    factor="samples per second with a batch of 256 over those with 1, four layers of width 512",
    reproduced=(3.0, 256.0),
    why="With one sample every weight is read for one multiply-add. A batch shares that trip, and the calls, so it "
    "is nearly free up to the roofline's knee. Beyond it latency grows with the batch and throughput stays. Serving "
    "chooses the largest batch whose latency users bear.",
    measure=measure, finding=("serves_one_by_one", "BRR313"), axis="batch", seconds=10.0,
)  # fmt: skip
