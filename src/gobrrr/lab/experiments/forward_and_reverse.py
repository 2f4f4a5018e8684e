"""20: which mode for a Jacobian: forward or reverse?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gobrrr.errors import GobrrrError
from gobrrr.lab.bench import Bench
from gobrrr.lab.model import Experiment, Figure, Found, Row

HIDDEN = 256


def measure(bench: Bench) -> Found:
    """Jacobians of a small net from n inputs to m outputs by jacfwd and jacrev."""
    many = bench.size(256, 4)
    shapes = ((many, 1), (many, many // 4), (many // 2, many // 2), (many // 4, many), (1, many))
    rows, first = [], Figure.exact(1.0)
    for inputs, outputs in shapes:
        figure = _compared(bench, inputs, outputs, len(shapes))
        first = figure if (inputs, outputs) == shapes[0] else first
        rows.append(Row(f"{inputs} inputs, {outputs} outputs", figure, x=inputs / outputs, unit="x"))
    return Found(first, None, tuple(rows))


def _compared(bench: Bench, inputs: int, outputs: int, of: int) -> Figure:
    torch = bench.torch
    x, one, two = torch.rand(inputs), torch.rand(HIDDEN, inputs) / inputs, torch.rand(outputs, HIDDEN) / HIDDEN

    def net(x: Any) -> Any:
        return two @ (one @ x).tanh().cos()

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
    "is that of one small to one large product, not of n calls. The curve crosses 1 where inputs and outputs are as "
    "many, a little in reverse mode's disfavour, which keeps what forward computed.",
    measure=measure, axis="inputs over outputs", seconds=15.0,
)  # fmt: skip
