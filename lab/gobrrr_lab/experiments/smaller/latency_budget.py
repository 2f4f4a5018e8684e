"""43: a tiny search under a latency budget."""

from __future__ import annotations

import statistics
from functools import partial
from typing import Any

from gobrrr_lab.measure.bench import Bench
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Figure, Found, Row

WIDTHS, DEPTHS = (128, 256, 512), (2, 4, 8)
BATCH = 64  # rows that a net is given at once; proposed: any one will do; other sizes would settle it


def measure(bench: Bench) -> Found:
    """Latency of nets predicted from one measured layer of each width, against the nets measured whole."""
    torch = bench.torch
    depths = DEPTHS if not bench.tiny else (2,)
    of = len(WIDTHS) * (1 + len(depths))
    ratios, rows = [], []
    with torch.no_grad():
        for width in WIDTHS:
            x = torch.rand(BATCH, width)
            layer = bench.time(partial(_net(torch, width, 1), x), of=of)
            for depth in depths:
                whole = bench.time(partial(_net(torch, width, depth), x), of=of)
                ratios.append(whole.value / (depth * layer.value))
                rows.append(Row(f"width {width}, depth {depth}", whole, depth * layer.value, unit="ns"))
    error = statistics.median(abs(ratio - 1) for ratio in ratios)
    return Found(Figure.exact(100 * error), None, tuple(rows))


def _net(torch: Any, width: int, depth: int) -> Any:
    layers = [part for _ in range(depth) for part in (torch.nn.Linear(width, width), torch.nn.ReLU())]
    return torch.nn.Sequential(*layers).eval()


EXPERIMENT = Experiment(
    number=43, chapter="smaller", title="A search under a latency budget: can latency be predicted?",
    claim="A net's latency is the sum of its layers' measured latencies, so a search can choose among thousands "
    "without running them.",
    source="course ITMO (2026), homework 1; Cai et al., ProxylessNAS (2019)",
    published="median absolute error of 17.6 % for a calibrated roofline on a CNN",
    factor="median absolute error of the predicted latency of nine nets",
    reproduced=(0.0, 20.0), unit="%",
    why="Layers run one after the other, so times add up, as long as a layer finds the caches as it did alone and "
    "no compiler joins it with its neighbours. The call of the net itself is counted once too often in the sum. A "
    "FLOP count predicts far worse: layers of one FLOP count differ by several times in latency.",
    measure=measure, seconds=14.0,
)  # fmt: skip
