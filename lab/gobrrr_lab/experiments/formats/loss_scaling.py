"""23: gradients underflow in fp16; scaling saves them; bf16 needs none."""

from __future__ import annotations

from typing import Any

from gobrrr_lab.measure.bench import Bench
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Figure, Found, Row

SCALE = 2.0**14  # factor on the loss; proposed: times SMALL it is 0.16, near 1; other powers would settle it
STEPS, RATE = 300, 0.05
TOLD = (1, 10, 30, 100, 300)
"""Steps of the curves."""
SMALL = 1e-5
"""Factor that makes the loss small, as a mean over many pixels does: gradients come near fp16's end."""


def measure(bench: Bench) -> Found:
    """The same net trained with gradients that pass through a format: its losses, and the last over that in fp32."""
    torch, steps = bench.torch, bench.size(STEPS, 5)
    plain = _trained(torch, steps, None, 1.0)
    ways = {"fp16": (torch.float16, 1.0), "fp16, scaled": (torch.float16, SCALE), "bf16": (torch.bfloat16, 1.0)}
    ways |= {"e5m2, scaled": (torch.float8_e5m2, SCALE), "e4m3, scaled": (torch.float8_e4m3fn, SCALE)}
    ends = {name: _trained(torch, steps, *way) for name, way in ways.items()}
    curves = {"fp32": plain[2], **{name: losses for name, (_, _, losses) in ends.items()}}
    rows = [
        Row(f"{name}, step {step}", Figure.exact(losses[step - 1]), None, step, "", name)
        for name, losses in curves.items()
        for step in TOLD
        if step <= steps
    ]
    rows += [
        Row(f"{name}: last loss over that in fp32", Figure.exact(loss / plain[0]), 1.0)
        for name, (loss, _, _) in ends.items()
    ]
    rows += [
        Row(f"{name}: gradients that became zero", Figure.exact(100 * zeros), unit="%")
        for name, (_, zeros, _) in ends.items()
    ]
    lost = 100 * ends["fp16"][1]
    cause = f"{lost:.0f} % of the gradients became zero, and the loss ends nearly where it does with all of them."
    factor = Figure.exact(ends["fp16"][0] / ends["fp16, scaled"][0])
    return Found(factor, None, tuple(rows), cause if factor.value < 1.05 else "")


def _trained(torch: Any, steps: int, dtype: Any, scale: float) -> tuple[float, float, list[float]]:
    """(last loss, share of gradients that were zero in the format and not before, all losses)."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(256, 16, generator=generator)
    y = torch.sin(x.sum(1, keepdim=True))
    weights = [torch.randn(16, 64, generator=generator) / 4, torch.randn(64, 1, generator=generator) / 8]
    zeros = total = 0
    losses: list[float] = []
    for _ in range(steps):
        held = [weight.requires_grad_() for weight in weights]
        loss = ((x @ held[0]).relu() @ held[1] - y).square().mean()
        losses.append(float(loss.detach()))
        slopes = torch.autograd.grad(SMALL * scale * loss, held)
        kept = [slope if dtype is None else slope.to(dtype).float() for slope in slopes]
        zeros += sum(int(((k == 0) & (s != 0)).sum()) for k, s in zip(kept, slopes, strict=True))
        total += sum(slope.numel() for slope in slopes)
        weights = [(w - RATE / SMALL / scale * k).detach() for w, k in zip(held, kept, strict=True)]
    return losses[-1], zeros / total, losses


EXPERIMENT = Experiment(
    number=23, chapter="formats", title="fp16 gradients vanish, scaling saves them, bf16 needs none",
    claim="Gradients below 6e-8 are zero in fp16, and training stalls; multiplying the loss by a power of two and "
    "dividing the update by it brings them back. bf16 has fp32's range.",
    source="Micikevicius et al., Mixed Precision Training (2018); course EDLS, week 2",
    published="31 % of a detector's activation gradients became zero in fp16; MNIST .66 in pure fp16, .962 with "
    "scaling",
    factor="last loss with fp16 gradients over that with scaled ones",
    reproduced=(1.05, 1e6),
    why="fp16 has 5 bits of exponent: below 6e-8 there is nothing. Gradients are small because a loss is a mean. A "
    "power of two shifts all of them up without changing a digit, and the update shifts back. bf16 gives up digits "
    "for range instead, which gradients hardly miss.",
    measure=measure, axis="steps", seconds=5.0,
)  # fmt: skip
