"""42: a small net with and without a teacher."""

from __future__ import annotations

import statistics
from typing import Any

from gobrrr.lab.bench import Bench
from gobrrr.lab.model import Experiment, Figure, Found, Row
from gobrrr.trial.statistics import student_quantile

SEEDS, STEPS, LABELLED = 5, 200, 96
WARMTH = 3.0


def measure(bench: Bench) -> Found:
    """Held-out accuracy of a small net on few labels, with a large net's opinion on unlabelled data and without it."""
    torch = bench.torch
    scores: list[list[float]] = []
    for seed in range(bench.size(SEEDS, 2)):
        x, y, far, truth = _data(torch, seed)
        teacher = _trained(torch, bench, 128, x, y, seed)
        few = (x[:LABELLED], y[:LABELLED])
        nets = (
            teacher,
            _trained(torch, bench, 8, *few, seed),
            _trained(torch, bench, 8, *few, seed, (x, teacher(x).detach())),
        )
        scores.append([_accuracy(net(far), truth) for net in nets])
    names = ("teacher, all labels", "alone, few labels", "with the teacher")
    means = [statistics.mean(each) for each in zip(*scores, strict=True)]
    rows = [Row(name, Figure.exact(mean), unit="%") for name, mean in zip(names, means, strict=True)]
    gains = [taught - alone for _, alone, taught in scores]
    middle = statistics.mean(gains)
    half = student_quantile(0.975, len(gains) - 1) * statistics.stdev(gains) / len(gains) ** 0.5
    return Found(Figure(middle, middle - half, middle + half), None, tuple(rows))


def _data(torch: Any, seed: int) -> tuple[Any, Any, Any, Any]:
    """Three interleaved spirals in the plane, for training and held out."""
    generator = torch.Generator().manual_seed(seed)
    label = torch.randint(0, 3, (3000,), generator=generator)
    r = torch.rand(3000, generator=generator) * 3 + 0.3
    angle = r * 1.2 + label * 2.094 + 0.15 * torch.randn(3000, generator=generator)
    x = torch.stack((r * angle.cos(), r * angle.sin()), 1)
    return x[:1000], label[:1000], x[1000:], label[1000:]


def _trained(torch: Any, bench: Bench, width: int, x: Any, y: Any, seed: int, taught: Any = None) -> Any:
    torch.manual_seed(seed)
    nn, functional = torch.nn, torch.nn.functional
    net = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 3))
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    for _ in range(bench.size(STEPS, 5)):
        loss = functional.cross_entropy(net(x), y)
        if taught is not None:
            inputs, opinion = taught
            soft = functional.log_softmax(net(inputs) / WARMTH, 1)
            loss = loss + WARMTH**2 * functional.kl_div(
                soft, functional.softmax(opinion / WARMTH, 1), reduction="batchmean"
            )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return net


def _accuracy(out: Any, truth: Any) -> float:
    return 100 * float((out.argmax(1) == truth).float().mean())


EXPERIMENT = Experiment(
    number=42, chapter="smaller", title="Distillation: a small net with and without a teacher",
    claim="A small net that also imitates a large one's soft outputs, on data that has no labels, ends with a "
    "higher accuracy than one that sees the few labels alone.",
    source="Hinton, Vinyals and Dean, Distilling the Knowledge in a Neural Network (2015)",
    published="MNIST: 146 errors of 10,000 alone, 74 with a teacher (67 errors)",
    factor="points of held-out accuracy that the teacher brings a net of width 8, mean over five seeds",
    reproduced=(0.5, 60.0), unit="%",
    why="Soft outputs say how alike classes are, and they can be had for data without labels: here the small net "
    "sees 96 labels and the teacher's opinion on 1,000 points. With as many labels as the teacher had, the gain "
    "shrinks to what the softness alone tells.",
    measure=measure, seconds=10.0,
)  # fmt: skip
