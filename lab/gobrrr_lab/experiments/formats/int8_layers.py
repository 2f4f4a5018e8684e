"""25: linear and convolutional nets in 8 bits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from gobrrr.errors import GobrrrError
from gobrrr_lab.measure.bench import Bench
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Figure, Found, Row
from gobrrr_lab.nets.int8 import dynamic, static, weight_only

SIDE, CLASSES, FAR = 32, 10, 2000
EPOCHS, BATCH = 6, 64
NOISE = 3.0  # beside patterns of deviation 1: so that some answers stay wrong


def measure(bench: Bench) -> Found:
    """Two nets trained here on drawn patterns, in 8 bits three ways: time at batch 1 and 64, and points of accuracy on
    held-out pictures less those in fp32, with a bootstrap interval."""
    torch = bench.torch
    x, y = patterns(torch, bench.size(2000, 100), 1)
    far, truth = patterns(torch, bench.size(FAR, 40), 2)
    rows, missing, judged = [], [], {}
    for kind, net in nets(torch, bench.size(1024, 16)).items():
        fitted(torch, net, x, y, bench.size(EPOCHS, 1))
        with torch.no_grad():
            right = (net(far).argmax(1) == truth).double()
            rows.append(Row(f"{kind}, fp32: held-out accuracy", bootstrapped(torch, right), unit="%"))
            ways: dict[str, Callable[[], Any]] = {
                "static": partial(static, torch, net, x[:256]),
                "weight-only": partial(weight_only, torch, net),
            }
            if kind == "linear":
                ways = {"dynamic": partial(dynamic, torch, net), **ways}
            for way, make in ways.items():
                try:
                    low = make()
                    lost = (low(far).argmax(1) == truth).double() - right
                except (GobrrrError, RuntimeError, NotImplementedError) as error:
                    missing.append(f"{kind}, {way}: {str(error).splitlines()[0]}")
                    continue
                for batch in (1, 64):
                    figure = bench.pair(lambda b=batch: net(far[:b]), lambda b=batch: low(far[:b]), of=10)  # type: ignore[misc]  # noqa: B023
                    judged[kind, way, batch] = figure
                    rows.append(Row(f"{kind}, {way}, batch {batch}", figure, unit="x"))
                rows.append(Row(f"{kind}, {way}: points of accuracy", bootstrapped(torch, lost), unit="%"))
    if ("linear", "dynamic", 1) not in judged:
        raise GobrrrError(missing[0])
    return Found(judged["linear", "dynamic", 1], _predicted(bench), tuple(rows), "; ".join(missing))


def nets(torch: Any, width: int) -> dict[str, Any]:
    """Three linear layers; and three convolutions with norms, each halving the picture."""
    nn = torch.nn
    torch.manual_seed(0)
    pixels = nn.Flatten(), nn.Linear(SIDE * SIDE, width), nn.ReLU()
    linear = nn.Sequential(*pixels, nn.Linear(width, width), nn.ReLU(), nn.Linear(width, CLASSES))
    parts, before = [], 1
    for channels in (32, 64, 128):
        parts += [nn.Conv2d(before, channels, 3, stride=2, padding=1), nn.BatchNorm2d(channels), nn.ReLU()]
        before = channels
    return {
        "linear": linear,
        "conv": nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, CLASSES)),
    }


def patterns(torch: Any, count: int, seed: int) -> tuple[Any, Any]:
    """Pictures: one of ten coarse patterns, shifted by some pixels, under noise; and which it is."""
    coarse = torch.randn(CLASSES, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    whole = torch.nn.functional.interpolate(coarse, size=SIDE, mode="bilinear")
    generator = torch.Generator().manual_seed(seed)
    label = torch.randint(0, CLASSES, (count,), generator=generator)
    shifts = torch.randint(-2, 3, (count, 2), generator=generator).tolist()
    moved = torch.stack([whole[k].roll(by, (1, 2)) for k, by in zip(label.tolist(), shifts, strict=True)])
    return moved + NOISE * torch.randn(moved.shape, generator=generator), label


def fitted(torch: Any, net: Any, x: Any, y: Any, epochs: int) -> None:
    """By Adam, in place; for evaluation afterwards."""
    optimizer = torch.optim.Adam(net.parameters(), 1e-3, fused=True)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(BATCH):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(x[rows]), y[rows]).backward()
            optimizer.step()
    net.eval()


def bootstrapped(torch: Any, each: Any) -> Figure:
    """Mean in per cent, with the interval of means of resamples."""
    means = 100 * each[torch.randint(0, len(each), (1000, len(each)))].mean(1)
    low, high = (float(torch.quantile(means, q)) for q in (0.025, 0.975))
    return Figure(100 * float(each.mean()), low, high)


def _predicted(bench: Bench) -> float:
    """At batch 1 every weight is read once, in 4 bytes or in 1; calls on top."""
    weights, calls = 4.0 * 2 * 1024**2, 5 * bench.machine.dispatch.median
    whole, low = (calls + 1e9 * held / bench.byte_rate(held) for held in (weights, weights / 4))
    return whole / low


EXPERIMENT = Experiment(
    number=25, chapter="formats", title="Linear and convolutional nets in 8 bits: time and accuracy",
    claim="int8 weights are a quarter of the bytes and their products faster: at batch 1 a net runs some two times "
    "as fast, with nearly the same accuracy.",
    source="course Efficient-DL-Models (2024): ResNet-18 in int8 on a CPU",
    published="8.7 to 3.7 ms (2.35x), accuracy 81.72 to 81.19 %",
    factor="time in fp32 over dynamic int8, three linear layers of width 1024, batch 1",
    reproduced=(1.3, 4.0),
    why="One sample reads every weight once, so time follows the bytes. With a batch the arithmetic counts, and int8 "
    "wins only where the processor has units for it (VNNI, AMX, tensor cores). Dynamic: activations are quantised in "
    "each call, linear layers only. Static: ranges are known beforehand, convolutions as well. Weight-only in ops of "
    "torch makes fp32 weights in each call: it saves memory and loses time; one kernel for both (torchao's) does not.",
    measure=measure, seconds=20.0,
)  # fmt: skip
