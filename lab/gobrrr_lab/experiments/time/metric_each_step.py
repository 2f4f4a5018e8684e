"""10: a metric in Python after every step, or once an epoch."""

from __future__ import annotations

from typing import Any

from gobrrr_lab.measure.bench import Bench
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Found, Row

STEPS = 10  # of an epoch; proposed: the metric's share shows, and it is short; other lengths would settle it


def measure(bench: Bench) -> Found:
    """An epoch of ten steps of a small net, and the area under the ROC curve of all that was seen, in Python."""
    torch = bench.torch
    has_device = torch.cuda.is_available()
    device = "cuda" if has_device else "cpu"
    x, y = torch.rand(256, 32, device=device), torch.rand(256, 1, device=device).round()
    seen = torch.rand(bench.size(20_000, 100)).tolist()
    truth = [score > 0.4 for score in seen]
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def step() -> Any:
        optimizer.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    def losses(asked: bool) -> float:
        """Their sum over an epoch: asked for as a number after each step, or left as a tensor until its end."""
        total = 0.0
        for _ in range(STEPS):
            total += step().item() if asked else step()
        return float(total)

    def epoch(every: int) -> None:
        for number in range(1, STEPS + 1):
            step()
            if number % every == 0:
                _auroc(seen, truth)

    factor = bench.pair(lambda: epoch(1), lambda: epoch(STEPS), of=2)
    alone, metric = bench.time(step, of=6), bench.time(lambda: _auroc(seen, truth), of=6)
    asked = bench.pair(lambda: losses(True), lambda: losses(False), of=6)
    predicted = STEPS * (alone.value + metric.value) / (STEPS * alone.value + metric.value)
    rows = (Row("a step", alone, unit="ns"), Row("the metric", metric, unit="ns"),
            Row("loss.item() each step over once an epoch", asked, None if has_device else 1.0, unit="x"))  # fmt: skip
    return Found(factor, predicted, rows)


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
    why="While Python counts, nothing trains; on a GPU each such metric, and each `.item()`, waits for the device; on "
    "a CPU `.item()` waits for nothing. Collect tensors and count once, with tensor ops, or use a metric that works on "
    "tensors. With ten steps an epoch the gain is at most ten; it is small where the step itself takes long.",
    measure=measure, finding=("python_metric", "BRR302"), seconds=12.0,
)  # fmt: skip
