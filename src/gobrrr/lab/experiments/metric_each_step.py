"""10: a metric in Python after every step, or once an epoch."""

from __future__ import annotations

from gobrrr.lab.bench import Bench
from gobrrr.lab.model import Experiment, Found, Row

STEPS = 10


def measure(bench: Bench) -> Found:
    """An epoch of ten steps of a small net, and the area under the ROC curve of all that was seen, in Python."""
    torch = bench.torch
    x, y = torch.rand(256, 32), torch.rand(256, 1).round()
    seen = torch.rand(bench.size(20_000, 100)).tolist()
    truth = [score > 0.4 for score in seen]
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(model(x), y).backward()
        optimizer.step()

    def epoch(every: int) -> None:
        for number in range(1, STEPS + 1):
            step()
            if number % every == 0:
                _auroc(seen, truth)

    factor = bench.pair(lambda: epoch(1), lambda: epoch(STEPS), of=2)
    alone, metric = bench.time(step, of=4), bench.time(lambda: _auroc(seen, truth), of=4)
    predicted = STEPS * (alone.value + metric.value) / (STEPS * alone.value + metric.value)
    return Found(factor, predicted, (Row("a step", alone, unit="ns"), Row("the metric", metric, unit="ns")))


def _auroc(scores: list[float], truth: list[bool]) -> float:
    """By the ranks of the positives (Mann and Whitney)."""
    order = sorted(range(len(scores)), key=scores.__getitem__)
    positives = sum(truth)
    ranks = sum(rank for rank, index in enumerate(order, 1) if truth[index])
    return (ranks - positives * (positives + 1) / 2) / max(1, positives * (len(truth) - positives))


EXPERIMENT = Experiment(
    number=10, chapter="time", title="A metric on the CPU after every step, or once an epoch",
    claim="A metric that Python computes after each step can cost several times the step; once an epoch it is "
    "free.",
    source="course Efficient-DL-Models (2024), metrics of sklearn in the training loop",
    published="some 350 ms a step with the metric, 46 without: 7.6 times",
    factor="epoch of ten steps with the metric after each over an epoch with it once",
    reproduced=(1.5, 12.0),
    why="While Python counts, nothing trains; on a GPU each such metric also waits for the device. Collect tensors "
    "and count once, with tensor ops, or use a metric that works on tensors. With ten steps an epoch the gain is at "
    "most ten; it is small where the step itself takes long.",
    measure=measure, finding=("python_metric", "BRR302"), seconds=12.0,
)  # fmt: skip
