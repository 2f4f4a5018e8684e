"""22: range and precision of the floating formats, by sums that fail."""

from __future__ import annotations

from typing import Any

from gobrrr_lab.measure.bench import Bench
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Figure, Found, Row

FORMATS = {"float32": 24, "tf32": 11, "bfloat16": 8, "float16": 11, "float8_e4m3fn": 4, "float8_e5m2": 3}
"""Bits of the significand with the hidden one."""
LARGEST = {
    "float32": (2 - 2.0**-23) * 2.0**127, "tf32": (2 - 2.0**-10) * 2.0**127, "bfloat16": (2 - 2.0**-7) * 2.0**127,
    "float16": 65504.0, "float8_e4m3fn": 448.0, "float8_e5m2": 57344.0,
}  # fmt: skip
LEAST = {
    "float32": 2.0**-126, "tf32": 2.0**-126, "bfloat16": 2.0**-126, "float16": 2.0**-14, "float8_e4m3fn": 2.0**-6,
    "float8_e5m2": 2.0**-14,
}  # fmt: skip
"""Both as the formats' papers and IEEE 754 have them."""


def measure(bench: Bench) -> Found:
    """The first whole number that cannot be counted up, the largest and the least normal number, of each format."""
    torch = bench.torch
    rows, worst = [], 1.0
    for name, bits in FORMATS.items():
        dtype = getattr(torch, name, None)
        if dtype is None and name != "tf32":
            continue
        stuck, expected = _stuck(torch, dtype), float(2**bits)
        worst = max(worst, stuck / expected, expected / stuck)
        rows.append(Row(f"{name}: n where n + 1 is n", Figure.exact(stuck), expected))
        rows.append(Row(f"{name}: largest", Figure.exact(_largest(torch, dtype)), LARGEST[name]))
        rows.append(Row(f"{name}: least normal", Figure.exact(_least(torch, dtype)), LEAST[name]))
    ones = torch.ones(4096, dtype=torch.bfloat16)
    total = torch.zeros((), dtype=torch.bfloat16)
    for one in ones:
        total = total + one
    rows.append(Row("4,096 ones added up one by one in bf16", Figure.exact(float(total)), 256.0))
    rows.append(Row("the same by torch.sum, which adds in fp32", Figure.exact(float(ones.sum())), 4096.0))
    return Found(Figure.exact(worst), 1.0, tuple(rows))


def _stuck(torch: Any, dtype: Any) -> float:
    """Powers of two until adding one is lost."""
    number = 1.0
    while float(_rounded(torch, torch.tensor(number + 1), dtype)) == number + 1:
        number *= 2
    return number


def _rounded(torch: Any, x: Any, dtype: Any) -> Any:
    """Through a format and back; none is tf32, which only matrix units have: fp32 of which 13 bits are rounded
    away, to the even one of two as near."""
    if dtype is not None:
        return x.to(dtype).float()
    bits = x.float().view(torch.int32)
    return ((bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)


def _largest(torch: Any, dtype: Any) -> float:
    return (
        float(torch.finfo(dtype).max)
        if dtype
        else float(torch.tensor(0x7F7FE000, dtype=torch.int32).view(torch.float32))
    )


def _least(torch: Any, dtype: Any) -> float:
    return float(torch.finfo(dtype or torch.float32).tiny)


EXPERIMENT = Experiment(
    number=22, chapter="formats", title="Where do sums fail: fp32, tf32, bf16, fp16, fp8",
    claim="A format with p bits of significand counts to 2^p and no further: 256 in bf16, 2048 in fp16, 16 in fp8 "
    "(e4m3).",
    source="IEEE 754; course on efficient deep learning, table of formats",
    published="8 bits of significand in bf16, 11 in fp16 and tf32, 24 in fp32; e4m3 reaches 448, e5m2 57,344",
    factor="first power of two that cannot be counted past, over or under 2^bits, worst format",
    reproduced=(1.0, 1.0001),
    why="Above 2^p neighbours are two apart, so one more is rounded away: an average over 1,000 numbers summed in "
    "bf16 stops growing at 256. That is why products sum in fp32 whatever they multiply, why optimizers keep fp32 "
    "weights, and why a loss is computed in fp32. Range is another matter: bf16 has fp32's, fp16 ends at 65,504.",
    measure=measure, seconds=5.0,
)  # fmt: skip
