"""25: linear layers in 8 bits."""

from __future__ import annotations

import warnings
from typing import Any

from gobrrr.errors import GobrrrError
from gobrrr.lab.bench import Bench
from gobrrr.lab.model import Experiment, Figure, Found, Row


def measure(bench: Bench) -> Found:
    """Dynamic int8 against fp32 at batch 1 and 64; and how many answers change, with a bootstrap interval."""
    torch = bench.torch
    nn, width = torch.nn, bench.size(1024, 16)
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
    ).eval()
    low = _quantised(torch, net)
    rows, found = [], {}
    with torch.no_grad():
        for batch in (1, 64):
            x = torch.randn(batch, width)
            found[batch] = bench.pair(lambda x=x: net(x), lambda x=x: low(x), of=2)  # type: ignore[misc]
            rows.append(Row(f"batch {batch}", found[batch], unit="x"))
        x = torch.randn(bench.size(2000, 20), width)
        same = (net(x).argmax(1) == low(x).argmax(1)).double()
    rows.append(Row("answers that stay", _bootstrapped(torch, same), unit="%"))
    weights = 4.0 * width * width * 2
    predicted = (4 * bench.machine.dispatch.median + 1e9 * weights / bench.byte_rate(weights)) / (
        4 * bench.machine.dispatch.median + 1e9 * weights / 4 / bench.byte_rate(weights / 4)
    )
    return Found(found[1], predicted, tuple(rows))


def _quantised(torch: Any, net: Any) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.ao.quantization.quantize_dynamic(net, {torch.nn.Linear}, dtype=torch.qint8)
    except (RuntimeError, AttributeError) as error:
        raise GobrrrError(f"this torch has no int8 layers here: {error}") from None


def _bootstrapped(torch: Any, same: Any) -> Figure:
    """Mean of zeros and ones in per cent."""
    means = 100 * same[torch.randint(0, len(same), (1000, len(same)))].mean(1)
    low, high = (float(torch.quantile(means, q)) for q in (0.025, 0.975))
    return Figure(100 * float(same.mean()), low, high)


EXPERIMENT = Experiment(
    number=25, chapter="formats", title="Linear layers in 8 bits: time and answers",
    claim="int8 weights are a quarter of the bytes and their products faster: at batch 1 a net runs some two times "
    "as fast, with nearly the same answers.",
    source="course Efficient-DL-Models (2024): ResNet-18 in int8 on a CPU",
    published="8.7 to 3.7 ms (2.35x), accuracy 81.72 to 81.19 % (a trained net; ours has random weights)",
    factor="time in fp32 over dynamic int8, three linear layers of width 1024, batch 1",
    reproduced=(1.3, 4.0),
    why="One sample reads every weight once, so time follows the bytes. With a batch the arithmetic counts, and "
    "int8 wins only where the processor has units for it (VNNI, AMX, tensor cores). Activations are quantised on "
    "the fly: small layers lose what that costs. Random weights change more answers than trained ones do, which are "
    "further apart.",
    measure=measure, seconds=10.0,
)  # fmt: skip
