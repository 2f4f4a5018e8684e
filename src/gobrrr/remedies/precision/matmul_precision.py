"""fp32 matrix products on the fast path of this chip."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gobrrr.machine.probe.matmul_precision import matmul_precision, setting_back
from gobrrr.remedies.model import AddStatement, Remedy

if TYPE_CHECKING:
    from gobrrr.remedies.mechanism.seams import Seams


class MatmulPrecision(Remedy):
    """torch.set_float32_matmul_precision("medium"). On chips with bf16 units it is bf16: the guard decides. On NVIDIA's
    GPUs it is TF32, as "high" is."""

    name = "matmul_precision"
    title = "lets fp32 matrix products take the library's fast path (the guard says at what accuracy)"
    safety = "tolerance"
    precision = "bfloat16"
    codes = ("BRR104", "BRR102", "BRR110")
    overlaps = ("bf16_autocast", "float16_autocast")
    by_hand = 'torch.set_float32_matmul_precision("medium")'
    edit = AddStatement('torch.set_float32_matmul_precision("medium")')

    def apply(self, seams: Seams) -> None:
        import torch

        before = matmul_precision(torch)
        seams.undo(setting_back(torch))
        torch.set_float32_matmul_precision("medium")
        seams.applied(self.name, f"{before} before")
