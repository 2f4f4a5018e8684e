"""6: a step that does not grow with its batch is bound by overhead."""

from __future__ import annotations

from typing import Any

from gobrrr_lab.measure.bench import Bench
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Figure, Found, Row

LAYERS = 8  # linear layers, each with a ReLU; proposed: calls enough to time; other depths would settle it
OPS_PER_LAYER = 2
"""addmm and relu."""


def measure(bench: Bench) -> Found:
    """Forward of small and of large layers, with a batch and with twice that."""
    small, large = (64, 8), (bench.size(1024, 64), bench.size(256, 4))
    found = {each: _doubled(bench, *each) for each in (small, large)}
    rows = tuple(
        Row(f"width {width}, batch {batch} to {2 * batch}", figure, _predicted(bench, width, batch), unit="x")
        for (width, batch), figure in found.items()
    )
    return Found(found[small], _predicted(bench, *small), rows)


def _doubled(bench: Bench, width: int, batch: int) -> Figure:
    torch = bench.torch
    layers = [part for _ in range(LAYERS) for part in (torch.nn.Linear(width, width), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers).eval()
    one, two = torch.rand(batch, width), torch.rand(2 * batch, width)

    def forward(x: Any) -> Any:
        with torch.no_grad():
            return model(x)

    return bench.pair(lambda: forward(two), lambda: forward(one), of=2)


def _predicted(bench: Bench, width: int, batch: int) -> float:
    """Calls cost the same for both; arithmetic or the weights' bytes come on top."""
    calls = LAYERS * OPS_PER_LAYER * bench.machine.dispatch.median
    return _step(bench, width, 2 * batch, calls) / _step(bench, width, batch, calls)


def _step(bench: Bench, width: int, batch: int, calls: float) -> float:
    flops = LAYERS * 1e9 * 2.0 * batch * width**2 / bench.flop_rate()
    weights = 4.0 * LAYERS * width**2
    return calls + max(flops, 1e9 * weights / bench.byte_rate(weights))


EXPERIMENT = Experiment(
    number=6, chapter="time", title="Double the batch: does the step grow?",
    claim="Where a step takes hardly longer with twice the batch, it is bound by overhead: calls, not work.",
    source="Horace He, Making Deep Learning Go Brrrr From First Principles (2022)",
    published="+10 % of run time for twice the batch means overhead-bound (a rule of thumb)",
    factor="time with a batch of 16 over time with 8, eight layers of width 64",
    reproduced=(0.95, 1.25),
    why="A call of torch costs a microsecond or more whatever it is given. Eight rows of 64 numbers are less work "
    "than that, so sixteen are free. Layers of width 1024 with a batch of 256 take twice as long with 512, for "
    "there the arithmetic is all. The rule fails where more work fits another cache or wakes another thread.",
    measure=measure, finding=("small_batch", "BRR301"), seconds=12.0,
)  # fmt: skip
