"""18: a derivative by hand, by differences, by autograd."""

from __future__ import annotations

import math
from typing import Any

from gobrrr.errors import GobrrrError
from gobrrr.lab.bench import Bench
from gobrrr.lab.model import Experiment, Figure, Found, Row

POINT = 1.3
EXPONENTS = range(1, 15)


def measure(bench: Bench) -> Found:
    """Errors of forward differences of e^x + x - 1 over the step, in float64; autograd of it and of (a x + b)^3."""
    torch = bench.torch
    exact = math.exp(POINT) + 1
    errors = {10.0**-k: abs((_hill(POINT + 10.0**-k) - _hill(POINT)) / 10.0**-k - exact) for k in EXPONENTS}
    _agree(_autograd(torch, lambda x: x.exp() + x - 1, POINT), exact)
    _agree(_autograd(torch, lambda x: (2 * x + 3) ** 3, POINT), 6 * (2 * POINT + 3) ** 2)
    best = min(errors, key=lambda step: errors[step])
    rows = tuple(
        Row(f"step {step:.0e}", Figure.exact(max(error, 1e-17)), _predicted(step), x=step)
        for step, error in errors.items()
    )
    ideal = math.sqrt(2 * 2.2e-16 * _hill(POINT) / math.exp(POINT))
    return Found(Figure.exact(best / ideal), 1.0, rows)


def _hill(x: float) -> float:
    return math.exp(x) + x - 1


def _predicted(step: float) -> float:
    """What the series leaves out, and what the last digit of two numbers is over the step."""
    return math.exp(POINT) * step / 2 + 2.2e-16 * _hill(POINT) / step


def _autograd(torch: Any, function: Any, at: float) -> float:
    x = torch.tensor(at, dtype=torch.float64, requires_grad=True)
    function(x).backward()
    return float(x.grad)


def _agree(one: float, other: float) -> None:
    if abs(one - other) > 1e-12 * abs(other):
        raise GobrrrError(f"autograd says {one}, the formula {other}")


EXPERIMENT = Experiment(
    number=18, chapter="derivatives", title="A derivative by hand, by differences, by autograd",
    claim="Autograd applies the chain rule and is exact to the last digit; differences are wrong by the larger of "
    "step and rounding, at best by half of the digits.",
    source="course on efficient deep learning: e^x + x - 1 and (a x + b)^3",
    published="the formulas; the best step of a forward difference is near the square root of the machine's "
    "precision",
    factor="best decade of the step over sqrt(2 eps f / f''), so within a factor of 3.2 of it",
    reproduced=(0.3, 3.3),
    why="A forward difference leaves out f'' h / 2 and loses eps f / h to rounding: small steps lose digits, large "
    "ones the slope. The two are equal near the square root of the precision, where some 8 of 16 digits are left. "
    "Reverse mode computes the formula itself, for all inputs at the cost of a few evaluations.",
    measure=measure, axis="step", unit="", seconds=5.0,
)  # fmt: skip
