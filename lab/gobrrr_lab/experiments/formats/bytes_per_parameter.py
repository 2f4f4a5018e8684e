"""24: what training holds for each parameter."""

from __future__ import annotations

from typing import Any

from gobrrr_lab.measure.bench import Bench
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Figure, Found, Row


def measure(bench: Bench) -> Found:
    """Tensors of a real Adam over fp32 copies of 16-bit weights, counted; plain fp32 Adam beside."""
    torch = bench.torch
    size = bench.size(512, 8)
    mixed, plain = _held(torch, size, True), _held(torch, size, False)
    rows = [Row(name, Figure.exact(held), unit="B") for name, held in mixed.items()]
    rows.append(Row("all of it in fp32 alone", Figure.exact(sum(plain.values())), 16.0, unit="B"))
    return Found(Figure.exact(sum(mixed.values())), 16.0, tuple(rows))


def _held(torch: Any, size: int, mixed: bool) -> dict[str, float]:
    """Bytes per parameter by role."""
    low = torch.bfloat16 if mixed else torch.float32
    weight = torch.rand(size, size).to(low).requires_grad_()
    master = weight.detach().float().requires_grad_() if mixed else weight
    optimizer = torch.optim.Adam([master])
    (weight.sum() * 2).backward()
    if mixed:
        master.grad = weight.grad.float()
    optimizer.step()
    master.grad = master.grad if not mixed else None
    state = sum(t.numel() * t.element_size() for t in optimizer.state[master].values() if t.dim())
    count = float(weight.numel())
    held = {"weights": weight, "gradients": weight.grad} | ({"fp32 copy": master} if mixed else {})
    return {name: t.numel() * t.element_size() / count for name, t in held.items()} | {"Adam's moments": state / count}


EXPERIMENT = Experiment(
    number=24, chapter="formats", title="Bytes that training holds per parameter",
    claim="Mixed precision with Adam holds 2 bytes of weight, 2 to 4 of gradient, 4 of fp32 copy and 8 of moments: "
    "16 to 18 per parameter.",
    source="Rajbhandari et al., ZeRO (2020); course on efficient deep learning",
    published="2 + 4 + 8 + 2 or 4 = 16 to 18 bytes",
    factor="bytes per parameter held between steps, Adam over fp32 copies of bf16 weights",
    reproduced=(15.9, 18.1), unit="B",
    why="The optimizer's two moments and its fp32 copy are 12 of the 16 bytes, which is why sharding them over "
    "ranks (ZeRO), keeping them in 8 bits, or an optimizer with one moment saves the most. Training in fp32 alone "
    "holds 16 as well: mixed precision saves activations and time, not weights.",
    measure=measure, seconds=5.0,
)  # fmt: skip
