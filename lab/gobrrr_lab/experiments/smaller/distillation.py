"""42: a small net with and without a teacher, on the same data."""

from __future__ import annotations

import statistics
from typing import Any, NamedTuple

from gobrrr.trial.statistics.paired import student_quantile
from gobrrr_lab.measure.bench import Bench
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Figure, Found, Row

SEEDS, STEPS, FAR, CLASSES, TURN, WIDE = 12, 200, 2000, 3, 1.2, 64
FRESH = 1000  # the settings below were chosen on seeds 0 to 11: these were never looked at
WARMTH, SOFT = 3.0, 0.9
"""Temperature of the soft targets and their weight; the labels get what is left (Hinton: "considerably lower")."""


class Case(NamedTuple):
    """A task for the small net."""

    width: int
    seen: int
    grain: float
    jitter: float
    """Noise on the teacher's inputs: what keeps it from learning the points by heart. The small net has none."""


CASES = {
    "width 32, 150 points that overlap": Case(32, 150, 0.5, 0.3),  # Hinton's: a regularised teacher, a plain small net
    "width 8, 600 clean points": Case(8, 600, 0.3, 0.0),  # too small a net, and nothing to learn by heart
}


def measure(bench: Bench) -> Found:
    """Held-out accuracy of a small net on labels, and on labels with a teacher's soft targets for the same points: the
    same first weights, order and steps for each seed, so that a pair differs in its targets alone."""
    rows, gains = [], []
    for said, case in CASES.items():
        scores = [accuracies(bench, case, seed) for seed in range(FRESH, FRESH + bench.size(SEEDS, 3))]
        names = ("teacher", "labels alone", "labels and teacher")
        for name, column in zip(names, zip(*scores, strict=True), strict=True):
            rows.append(Row(f"{said}: {name}", _mean(column), unit="%"))
        gains.append(_mean([with_it - alone for _, alone, with_it in scores]))
    rows.append(Row("points that the teacher brings the latter", gains[1], unit="%"))
    return Found(gains[0], None, tuple(rows))


def accuracies(bench: Bench, case: Case, seed: int) -> list[float]:
    """Return the accuracies of the teacher, of the small net on labels, and of the small net on both."""
    torch = bench.torch
    x, y, far, truth = data(torch, seed, case)
    labels = torch.nn.functional.one_hot(y, CLASSES).float()
    teacher = trained(bench, WIDE, x, lambda out: _hard(torch, out, labels), seed, case.jitter)
    opinion = teacher(x).detach()
    alone = trained(bench, case.width, x, lambda out: _hard(torch, out, labels), seed)
    both = trained(bench, case.width, x, lambda out: taught(torch, out, labels, opinion), seed)
    return [100 * float((net(far).argmax(1) == truth).float().mean()) for net in (teacher, alone, both)]


def data(torch: Any, seed: int, case: Case) -> tuple[Any, Any, Any, Any]:
    """Interleaved spirals in the plane whose edges overlap: points and labels that are trained on, and held out."""
    generator = torch.Generator().manual_seed(seed)
    count = case.seen + FAR
    label = torch.randint(0, CLASSES, (count,), generator=generator)
    r = torch.rand(count, generator=generator) * 3 + 0.3
    angle = r * TURN + label * 2 * torch.pi / CLASSES + case.grain * torch.randn(count, generator=generator)
    x = torch.stack((r * angle.cos(), r * angle.sin()), 1)
    return x[: case.seen], label[: case.seen], x[case.seen :], label[case.seen :]


def taught(torch: Any, out: Any, labels: Any, opinion: Any) -> Any:
    """Cross-entropy to labels and to the teacher's distribution at a temperature, whose gradients shrink with its
    square."""
    soft = (opinion / WARMTH).softmax(1)
    return (1 - SOFT) * _hard(torch, out, labels) + SOFT * WARMTH**2 * _hard(torch, out / WARMTH, soft)


def _hard(torch: Any, out: Any, target: Any) -> Any:
    return torch.nn.functional.cross_entropy(out, target)


def trained(bench: Bench, width: int, x: Any, loss: Any, seed: int, jitter: float = 0.0) -> Any:
    """A net of two hidden layers, from weights that the seed alone decides."""
    torch, nn = bench.torch, bench.torch.nn
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, CLASSES))
    optimizer = torch.optim.Adam(net.parameters(), 0.01, fused=True)
    for _ in range(bench.size(STEPS, 5)):
        optimizer.zero_grad()
        loss(net(x + jitter * torch.randn(x.shape) if jitter else x)).backward()
        optimizer.step()
    return net


def _mean(values: Any) -> Figure:
    """With Student's interval over the seeds."""
    middle = statistics.mean(values)
    half = student_quantile(0.975, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
    return Figure(middle, middle - half, middle + half)


EXPERIMENT = Experiment(
    number=42, chapter="smaller", title="Distillation: a small net with and without a teacher",
    claim="A small net that also imitates a large one's soft outputs on the same examples ends with a higher accuracy "
    "than one that sees the labels alone.",
    source="Hinton, Vinyals and Dean, Distilling the Knowledge in a Neural Network (2015)",
    published="MNIST: 146 errors of 10,000 alone, 74 with a teacher (67 errors)",
    factor="points of held-out accuracy that the teacher brings a net of width 32, mean of pairs over twelve seeds",
    reproduced=(0.2, 30.0), unit="%",
    why="Soft targets say how alike classes are at each point, so a label from where classes overlap pulls less: the "
    "teacher hands on what kept it from learning points by heart. Both arms see the same points in the same steps from "
    "the same first weights; more points, or fewer labels for the other arm, would be a gain of data. A net too small "
    "for the task gains nothing where labels are clean: to imitate all outputs is harder than to be right.",
    measure=measure, seconds=20.0,
)  # fmt: skip
