"""19: from which learning rate does gradient descent diverge?"""

from __future__ import annotations

import math
from typing import Any

from gobrrr_lab.measure.bench import Bench
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Figure, Found, Row

STEPS, POINTS, CLIMB = 400, 64, 20
SHARES = (0.1, 0.3, 0.5, 0.8, 0.95, 0.99, 1.01, 1.05, 1.2)
"""Rates, as shares of the rate from which training diverges by theory."""


def measure(bench: Bench) -> Found:
    """A line y = a x + b through points, fitted from nothing at rates around 2 over the largest curvature."""
    torch = bench.torch
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(POINTS, dtype=torch.float64, generator=generator) * 2
    y = 3 * x - 1 + 0.05 * torch.randn(POINTS, dtype=torch.float64, generator=generator)
    rows = torch.stack((x, torch.ones_like(x)), 1)
    curvature = torch.linalg.eigvalsh(2 * rows.T @ rows / POINTS)
    limit = float(2 / curvature[-1])
    best = rows @ torch.linalg.lstsq(rows, y).solution
    ends = {share: _fitted(torch, x, y, share * limit, float(((best - y) ** 2).mean())) for share in SHARES}
    diverged = min(share for share, loss in ends.items() if not loss < 1e3)
    told = tuple(
        Row(f"rate {share:.2f} of the limit", Figure.exact(min(max(loss, 1e-16), 1e30)), x=share)
        for share, loss in ends.items()
    )
    return Found(Figure.exact(diverged), 1.0, (*told, *_hill(torch)))


def _hill(torch: Any) -> list[Row]:
    """Steps that a ball at (3, -2) needs down the bowl x^2 + 4 y^2 to a millionth of its height, by share of the rate
    2 / 8 at which it no longer comes down; theory: the flatter side shrinks by 1 - 2 rate a step, the steeper by 8."""
    rows: list[Row] = []
    for share in (0.03, 0.1, 0.3, 0.5, 0.9, 0.97):
        rate, at, steps = share * 2 / 8, torch.tensor([3.0, -2.0], dtype=torch.float64), 0
        begun = height = 9.0 + 4 * 4.0
        while height > 1e-6 * begun and steps < STEPS:
            at, steps = at - rate * torch.stack((2 * at[0], 8 * at[1])), steps + 1
            height = float(at[0] ** 2 + 4 * at[1] ** 2)
        shrink = max(abs(1 - 2 * rate), abs(1 - 8 * rate))
        rows.append(
            Row(f"steps down a bowl, {share:.1f} of its limit", Figure.exact(steps), math.log(1e-3) / math.log(shrink))
        )
    rate, at = 1.1 * 2 / 8, torch.tensor([3.0, -2.0], dtype=torch.float64)
    for _ in range(CLIMB):
        at = at - rate * torch.stack((2 * at[0], 8 * at[1]))
    height = (3 * (1 - 2 * rate) ** CLIMB) ** 2 + 4 * (2 * (1 - 8 * rate) ** CLIMB) ** 2
    climbed = Figure.exact(float(at[0] ** 2 + 4 * at[1] ** 2))
    return [*rows, Row(f"height after {CLIMB} steps from 25, 1.1 of its limit", climbed, height)]


def _fitted(torch: Any, x: Any, y: Any, rate: float, least: float) -> float:
    """Loss above the best that any line has, after all steps."""
    line = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    for _ in range(STEPS):
        loss = ((line[0] * x + line[1] - y) ** 2).mean()
        (slope,) = torch.autograd.grad(loss, line)
        line = (line - rate * slope).detach().requires_grad_()
    found = line.detach()
    return float(((found[0] * x + found[1] - y) ** 2).mean()) - least


EXPERIMENT = Experiment(
    number=19, chapter="derivatives", title="Gradient descent: up to which learning rate?",
    claim="Small steps down the slope find the line that fits; too large ones climb: from 2 over the largest "
    "curvature on it diverges.",
    source="course on efficient deep learning: a ball on a hill, y = a x + b fitted by gradient descent",
    published="the method; the bound is that of a quadratic loss",
    factor="least of the tried learning rates that diverges over 2 / largest eigenvalue of the Hessian",
    reproduced=(1.0, 1.02), unit="",
    why="Along each direction of the bowl a step multiplies what is left by 1 - rate x curvature. Beyond 2 over "
    "the curvature that is larger than one and each step lands higher. The slowest direction needs many steps when "
    "curvatures differ much: that is what momentum, Adam and normalisation are for. Nets are no quadratics, but "
    "near each point they look like one.",
    measure=measure, axis="learning rate, share of the limit", seconds=5.0,
)  # fmt: skip
