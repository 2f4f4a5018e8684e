"""27: an optimizer's update: a loop over tensors, many at once, or fused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gobrrr_lab.measure.bench import Bench
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Found, Row

OPS_OF_A_TENSOR = 9
"""Ops of Adam's step for each tensor in the loop."""
SMALL, FEW, LARGE = 4_096, 20, 1 << 20
WAYS: dict[str, dict[str, bool]] = {"loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
RATE, BETAS, EPS = 1e-3, (0.9, 0.999), 1e-8
"""Adam's own defaults."""


def measure(bench: Bench) -> Found:
    """Adam over 200 and 20 small tensors and over 4 large ones: by hand, three ways of torch, and compiled."""
    torch = bench.torch
    many, few, large = (bench.size(200, 4), SMALL), (bench.size(FEW, 2), SMALL), (4, bench.size(LARGE, 1 << 8))
    of, rows = 14, []
    for shape in (many, few, large):
        ways: dict[str, Callable[[], object]] = {"by hand": ByHand(torch, tensors(torch, *shape)).step}
        ways |= {name: torch.optim.Adam(tensors(torch, *shape), **how).step for name, how in WAYS.items()}
        if shape != many:  # a minute of compiling for 200
            ways["compiled"] = torch.compile(torch.optim.Adam(tensors(torch, *shape), foreach=True).step)
        for name, step in ways.items():
            step()
            rows.append(Row(f"{shape[0]} tensors of {shape[1]:,}, {name}", bench.time(step, of=of), unit="ns"))
    loop, fused = (torch.optim.Adam(tensors(torch, *many), **WAYS[name]).step for name in ("loop", "fused"))
    factor = bench.pair(loop, fused, of=7)
    calls = many[0] * OPS_OF_A_TENSOR * bench.machine.dispatch.median
    moved = 4.0 * 7 * many[0] * many[1]
    predicted = calls / max(1e9 * moved / bench.byte_rate(moved), 10 * bench.machine.dispatch.median)
    return Found(factor, predicted, tuple(rows))


def tensors(torch: Any, count: int, size: int) -> list[Any]:
    """With gradients, drawn."""
    made = [torch.rand(size).requires_grad_() for _ in range(count)]
    for tensor in made:
        tensor.grad = torch.rand(size)
    return made


class ByHand:
    """Adam as its paper writes it (Kingma and Ba, algorithm 1), op by op."""

    def __init__(self, torch: Any, weights: list[Any]) -> None:
        self._torch, self._weights, self._count = torch, weights, 0
        self._means = [torch.zeros_like(weight) for weight in weights]
        self._squares = [torch.zeros_like(weight) for weight in weights]

    def step(self) -> None:
        """Update every weight from its gradient."""
        self._count += 1
        one, two = BETAS
        with self._torch.no_grad():
            for at, weight in enumerate(self._weights):
                self._means[at] = one * self._means[at] + (1 - one) * weight.grad
                self._squares[at] = two * self._squares[at] + (1 - two) * weight.grad**2
                mean, square = self._means[at] / (1 - one**self._count), self._squares[at] / (1 - two**self._count)
                weight -= RATE * mean / (square.sqrt() + EPS)


EXPERIMENT = Experiment(
    number=27, chapter="kernels", title="Adam: by hand, a loop over tensors, many at once, fused, compiled",
    claim="A fused optimizer passes over each tensor once, in one call: with many tensors the update takes a "
    "fraction of the loop's time.",
    source="course Efficient-DL-Models (2024), fused Adam and mixed precision on a transformer",
    published="26 to 31 % less per epoch together with mixed precision; the update alone is not given",
    factor="time of Adam's loop over that of fused Adam, 200 tensors of 4,096 numbers",
    reproduced=(1.3, 100.0),
    why="By hand each formula is an op with a new result. The loop calls nine ops for each tensor: small tensors cost "
    "calls, large ones nine trips to memory instead of one. foreach makes lists of the calls, which on a GPU become "
    "one launch; on a CPU it walks the list, and gains less. fused reads weight, gradient and moments once and writes "
    "three of them; compiling makes such a loop of the formulas, after a minute for 200 tensors, and enters it through "
    "guards on each. An optimizer is a small part of a step that computes a lot.",
    measure=measure, finding=("loop_optimizer", "BRR208"), needs=("torch", "compiler"), seconds=20.0,
)  # fmt: skip
