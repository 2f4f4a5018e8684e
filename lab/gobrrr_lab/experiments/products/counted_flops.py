"""12: FLOPs by formula, by torch's counter, and by the clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gobrrr.errors import GobrrrError
from gobrrr_lab.measure.bench import Bench
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Figure, Found, Row


def measure(bench: Bench) -> Found:
    """A product with a bias, a convolution and attention: two counts that must agree, and the rate that they give."""
    torch = bench.torch
    n, length = bench.size(1024, 16), bench.size(512, 8)
    a, bias = torch.rand(n, n), torch.rand(n)
    image, kernels = torch.rand(8, 64, 56, 56), torch.rand(64, 64, 3, 3)
    q = torch.rand(4, 8, length, 64)
    ways: dict[str, tuple[Callable[[], Any], float]] = {
        "addmm": (lambda: torch.addmm(bias, a, a), 2.0 * n**3),
        "conv2d": (lambda: torch.conv2d(image, kernels, padding=1), 2.0 * 8 * 56 * 56 * 64 * 64 * 9),
        "attention": (lambda: (q @ q.transpose(-1, -2)).softmax(-1) @ q, 4.0 * 32 * length**2 * 64),
    }
    worst, rows = 1.0, []
    for name, (call, formula) in ways.items():
        counted = _counted(torch, call)
        if not counted:
            raise GobrrrError(f"torch's counter knows nothing of {name}")
        worst = max(worst, counted / formula, formula / counted)
        ns = bench.time(call, of=len(ways))
        rows.append(Row(f"{name}: counted", Figure.exact(counted), formula, unit="FLOP"))
        rate = Figure(*(1e9 * formula / each for each in (ns.value, ns.high, ns.low)))
        rows.append(Row(f"{name}: timed", rate, bench.flop_rate(), unit="FLOP/s"))
    return Found(Figure.exact(worst), 1.0, tuple(rows))


def _counted(torch: Any, call: Callable[[], Any]) -> float:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter, torch.no_grad():
        call()
    return float(counter.get_total_flops())


EXPERIMENT = Experiment(
    number=12, chapter="products", title="FLOPs by formula, by counter, by the clock",
    claim="addmm of l x m and m x n needs 2 l m n FLOPs (the bias apart), a convolution 2 per kernel weight and "
    "output pixel, attention 4 per pair of positions and channel.",
    source="course on efficient deep learning, formulas of addmm, convolution and attention",
    published="l m n multiplications and l (m - 1) n additions for a product of l x m and m x n",
    factor="the larger of counter over formula and formula over counter, worst of the three",
    reproduced=(1.0, 1.001),
    why="A count says what an op must do, not how long it takes: the rates that the clock gives lie below the "
    "ceiling by what the library, the shape and the memory cost. Counters follow conventions: a multiply-add is two "
    "FLOPs, biases, softmax and everything pointwise are left out, and causal attention is counted whole.",
    measure=measure, seconds=9.0,
)  # fmt: skip
