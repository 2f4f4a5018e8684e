"""26: a product in fp8, real or emulated."""

from __future__ import annotations

from typing import Any

from gobrrr.errors import GobrrrError
from gobrrr_lab.measure.bench import Bench
from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Figure, Found, Row


def measure(bench: Bench) -> Found:
    """Numbers rounded to e4m3 and back before a product in fp32: its error, and its time beside plain fp32."""
    torch = bench.torch
    low = getattr(torch, "float8_e4m3fn", None)
    if low is None:
        raise GobrrrError("this torch has no fp8")
    size = bench.size(1024, 16)
    a, b = torch.randn(size, size), torch.randn(size, size)

    def emulated(dtype: Any) -> Any:
        return a.to(dtype).float() @ b.to(dtype).float()

    exact = a.double() @ b.double()
    kinds = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp8 e4m3": low, "fp8 e5m2": torch.float8_e5m2}
    rows = [
        Row(f"error of the product, {name}", Figure.exact(float((emulated(d).double() - exact).norm() / exact.norm())))
        for name, d in kinds.items()
    ]
    return Found(bench.pair(lambda: a @ b, lambda: emulated(low)), None, tuple(rows))


EXPERIMENT = Experiment(
    number=26, chapter="formats", title="fp8 without units for it: error and time",
    claim="fp8 doubles the rate of bf16 on hardware that has it; elsewhere it can only be emulated, which is "
    "slower than fp32.",
    source="Micikevicius et al., FP8 Formats for Deep Learning (2022); data sheets of H100 and MI300X",
    published="1,979 against 989 TFLOP/s on an H100",
    factor="time of an fp32 product over one whose factors are rounded to e4m3 first, 1024 x 1024",
    reproduced=(0.2, 0.98),
    why="Emulation rounds and widens each number again, on top of the same product: it tells what fp8 does to the "
    "error, not to the time. With 3 bits behind the point a number is off by up to 6 %, a product of many by some 4 "
    "%: enough for forward and backward of large nets with a scale per tensor or block.",
    measure=measure, finding=("fp8_emulated", "BRR205"), seconds=6.0,
)  # fmt: skip
