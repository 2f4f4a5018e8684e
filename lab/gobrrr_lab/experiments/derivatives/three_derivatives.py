"""18: a derivative by hand, by differences, by autograd."""

from __future__ import annotations

from typing import Any

from gobrrr.errors import GobrrrError
from gobrrr_lab.measure.bench import Bench
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Figure, Found, Row

A, B = 0.7, 0.4
POINTS, AROUND = 64, (1.2, 1.4)
"""Rounding is chance: an error is the root of the mean square over so many places between the two."""
EPS = {"float32": 2.0**-23, "float64": 2.0**-52}
DECADES = {"float32": range(-6, -1), "float64": range(-12, -1)}
"""Powers of ten of the steps that are shown; the best step is sought among ten of each decade."""
ORDERS = {"forward": 1, "central": 2}
TINY = 1e-30  # imaginary step: its square is lost beside 1 in float64, and nothing is subtracted
DIGITS = 16
"""Errors in units of eps that the chain rule may have: a dozen roundings of at most half of one each."""


def measure(bench: Bench) -> Found:
    """Relative errors of f', f(x) = (a (e^x + x - 1) + b)^3: by hand and by autograd in both formats, and of
    forward and central differences over the step."""
    torch = bench.torch
    x = torch.linspace(*AROUND, POINTS, dtype=torch.float64)
    rows: list[Row] = []
    worst = 1.0
    for name, eps in EPS.items():
        low = x.to(getattr(torch, name))
        exact = by_complex_step(torch, low.double())
        for way, found in (("by hand", slopes(low)[0]), ("by autograd", _autograd(torch, low))):
            error = _error(found, exact)
            if error > DIGITS * eps:
                raise GobrrrError(f"the derivative {way} in {name} is wrong by {error:.1e}")
            rows.append(Row(f"{name}, {way}", Figure.exact(error), eps))
        for way, order in ORDERS.items():
            steps = [10.0 ** (tenth / 10) for tenth in range(10 * DECADES[name][0], 10 * DECADES[name][-1] + 1)]
            best = min(steps, key=lambda step: _error(_difference(low, step, way), exact))
            ideal = best_step(float(x[POINTS // 2]), eps, order)
            worst = max(worst, best / ideal, ideal / best)
            for step in (10.0**k for k in reversed(DECADES[name])):
                error = _error(_difference(low, step, way), exact)
                label = f"{name}, {way}, step {step:.0e}"
                rows.append(
                    Row(label, Figure.exact(error), _predicted(x, step, eps, order), step, "", f"{way}, {name}")
                )
            rows.append(Row(f"{name}, {way}, best step", Figure.exact(best), ideal))
    return Found(Figure.exact(worst), 1.0, tuple(rows))


def function(x: Any) -> Any:
    """Composed of an exponential, a line and a cube."""
    return (A * (x.exp() + x - 1) + B) ** 3


def slopes(x: Any) -> tuple[Any, Any, Any]:
    """First to third derivative, by hand: with v = a (e^x + x - 1) + b the chain rule gives 3 v^2 v'."""
    v, v1, v2 = A * (x.exp() + x - 1) + B, A * (x.exp() + 1), A * x.exp()
    return 3 * v**2 * v1, 6 * v * v1**2 + 3 * v**2 * v2, 6 * v1**3 + 18 * v * v1 * v2 + 3 * v**2 * v2


def by_complex_step(torch: Any, x: Any) -> Any:
    """f' in float64 to the last digits: nothing cancels in the imaginary part of f(x + i h) / h."""
    return function(torch.complex(x, torch.full_like(x, TINY))).imag / TINY


def best_step(at: float, eps: float, order: int) -> float:
    """Where f'' h / 2 + eps f / h (forward), f''' h^2 / 6 + eps f / h (central) is least."""
    import torch

    x = torch.tensor(at, dtype=torch.float64)
    _, second, third = slopes(x)
    return float(
        (2 * eps * function(x) / second) ** (1 / 2) if order == 1 else (3 * eps * function(x) / third) ** (1 / 3)
    )


def _difference(x: Any, step: float, way: str) -> Any:
    """Over the step that the format has really taken."""
    above, below = x + step, x - step if way == "central" else x
    return (function(above) - function(below)) / (above - below)


def _predicted(x: Any, step: float, eps: float, order: int) -> float:
    """Return the relative error by theory: the rest of the series, plus the two numbers' rounding over the step."""
    first, second, third = slopes(x)
    left_out = second * step / 2 if order == 1 else third * step**2 / 6
    return float((((left_out + eps * function(x) / step) / first) ** 2).mean().sqrt())


def _autograd(torch: Any, x: Any) -> Any:
    x = x.clone().requires_grad_()
    return torch.autograd.grad(function(x).sum(), x)[0]


def _error(found: Any, exact: Any) -> float:
    return float(((found.double() - exact) / exact).square().mean().sqrt())


EXPERIMENT = Experiment(
    number=18, chapter="derivatives", title="A derivative by hand, by differences, by autograd",
    claim="Autograd applies the chain rule and is exact to the last digits; differences are wrong by the larger of "
    "step and rounding: forward ones keep half of the digits at best, central ones two thirds.",
    source="course on efficient deep learning: e^x + x - 1 and (a x + b)^3; here one inside the other",
    published="the formulas; the best step is near the square root (forward) and the cube root (central) of the "
    "machine's precision",
    factor="best step over the predicted one or the other way round, worst of forward and central in fp32 and fp64",
    reproduced=(1.0, 4.0),
    why="A forward difference leaves out f'' h / 2, a central one f''' h^2 / 6, and both lose eps f / h to "
    "rounding: small steps lose digits, large ones the slope. The sum is least near the square or the cube root of "
    "the precision. In fp32 that leaves three or four digits, so gradients are checked in fp64. Reverse mode computes "
    "the formula itself, for all inputs at the cost of a few evaluations.",
    measure=measure, axis="step", unit="", seconds=5.0,
)  # fmt: skip
