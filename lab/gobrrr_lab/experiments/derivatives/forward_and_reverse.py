"""20: which mode for a Jacobian: forward or reverse?"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

from gobrrr.errors import GobrrrError
from gobrrr_lab.measure.bench import Bench
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Figure, Found, Row

HIDDEN, LARGE = 256, 1 << 15
"""Width of the net between its products; inputs of a net so large that reading its weights takes all of its time."""
OPS = 30
"""Calls in a Jacobian by torch.func, either way: its four ops, their derivatives, and the batching of them."""


def measure(bench: Bench) -> Found:
    """Jacobians of a small net from n inputs to m outputs by jacfwd and jacrev, where they cross, and a jvp and a vjp
    over the net itself."""
    many = bench.size(256, 4)
    shapes = ((many, 1), (many, many // 4), (many // 2, many // 2), (many // 4, many), (1, many))
    of = len(shapes) + 4
    found = {shape: _compared(bench, *shape, of) for shape in shapes}
    rows = [
        Row(f"{n} inputs, {m} outputs", figure, predicted(bench, n, m), x=n / m, unit="x")
        for (n, m), figure in found.items()
    ]
    crossing = crossed([(n / m, figure.value) for (n, m), figure in found.items()])
    if crossing:
        by_formula = crossed([(n / m, predicted(bench, n, m)) for n, m in shapes])
        rows.append(Row("inputs over outputs where both cost the same", Figure.exact(crossing), by_formula))
    return Found(found[shapes[0]], predicted(bench, *shapes[0]), (*rows, *_passes(bench, bench.size(LARGE, 4), of)))


def predicted(bench: Bench, inputs: int, outputs: int) -> float:
    """A pass for each input forward, for each output in reverse, all as one product; calls and the net in both."""
    per_flop = 1e9 / bench.flop_rate()
    calls = OPS * bench.machine.dispatch.median
    one = 2.0 * HIDDEN * (inputs + outputs) * per_flop
    return (calls + one + inputs * one) / (calls + one + outputs * one)


def crossed(points: list[tuple[float, float]]) -> float | None:
    """Where a falling or rising line through logarithms passes 1; none where it does not."""
    for (x1, y1), (x2, y2) in itertools.pairwise(points):
        if (y1 - 1) * (y2 - 1) <= 0 and y1 != y2:
            share = math.log(y1) / (math.log(y1) - math.log(y2))
            return math.exp(math.log(x1) + share * math.log(x2 / x1))
    return None


def _net(torch: Any, inputs: int, outputs: int) -> tuple[Callable[[Any], Any], Any]:
    x, one, two = torch.rand(inputs), torch.rand(HIDDEN, inputs) / inputs, torch.rand(outputs, HIDDEN) / HIDDEN
    return (lambda x: two @ (one @ x).tanh().cos()), x


def _passes(bench: Bench, size: int, of: int) -> list[Row]:
    """One direction forward and one in reverse, over the net alone: each a net once more."""
    torch = bench.torch
    net, x = _net(torch, size, size)
    along, back = torch.rand(size), torch.func.vjp(net, x)
    slope = torch.rand_like(back[0])
    if not math.isclose(
        float(slope @ torch.func.jvp(net, (x,), (along,))[1]), float(back[1](slope)[0] @ along), rel_tol=1e-3
    ):
        raise GobrrrError("jvp and vjp say different things of one direction")
    forward = bench.pair(lambda: torch.func.jvp(net, (x,), (along,)), lambda: net(x), of=of)
    reverse = bench.pair(lambda: torch.func.vjp(net, x)[1](slope), lambda: net(x), of=of)
    return [
        Row("jvp over the net alone", forward, 2.0, unit="x"),
        Row("vjp over the net alone", reverse, 2.0, unit="x"),
    ]


def _compared(bench: Bench, inputs: int, outputs: int, of: int) -> Figure:
    torch = bench.torch
    net, x = _net(torch, inputs, outputs)
    forward: Callable[[Any], Any] = torch.func.jacfwd(net)
    reverse: Callable[[Any], Any] = torch.func.jacrev(net)
    if not torch.allclose(forward(x), reverse(x), atol=1e-5):
        raise GobrrrError("the Jacobians of forward and reverse mode differ")
    return bench.pair(lambda: forward(x), lambda: reverse(x), of=of)


EXPERIMENT = Experiment(
    number=20, chapter="derivatives", title="Forward or reverse mode: by inputs and outputs",
    claim="Forward mode costs one pass per input, reverse mode one per output: with many inputs and one loss "
    "reverse wins by far.",
    source="course on efficient deep learning: forward against reverse differentiation",
    published="cost proportional to the number of inputs or outputs; no figure",
    factor="time of forward mode over reverse mode, 256 inputs and one output",
    reproduced=(1.5, 1000.0),
    why="Forward mode pushes one direction of the inputs through the net; a gradient of n inputs needs n of them. "
    "Reverse mode pulls one direction of the outputs back. torch.func makes the passes as one batch, so the ratio "
    "is that of one small to one large product, not of n calls: n inputs and m outputs cost n (n + m) forward and "
    "m (n + m) in reverse, so the curve crosses 1 where both are as many, and calls hide it where both are few.",
    measure=measure, axis="inputs over outputs", seconds=15.0,
)  # fmt: skip
