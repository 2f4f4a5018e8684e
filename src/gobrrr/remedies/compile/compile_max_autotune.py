"""torch.compile in the mode max-autotune."""

from __future__ import annotations

from gobrrr.remedies.compile.compile import NEEDS, SETTINGS, Compile
from gobrrr.remedies.model import BeforeTraining


class CompileMaxAutotune(Compile):
    """As `compile`, in this mode; needs a CUDA device."""

    name = "compile_max_autotune"
    title = "compiles the model and tries out templates for its matrix products"
    saves_memory = False
    codes = ("BRR201", "BRR105")
    conflicts = ("compile", "compile_reduce_overhead")
    by_hand = 'model.compile(mode="max-autotune")'
    edit = BeforeTraining(f'{SETTINGS}\n{{model}}.compile(mode="max-autotune")', NEEDS)
    mode = "max-autotune"

    def probe(self) -> str:
        import torch

        return "" if torch.cuda.is_available() else "the mode max-autotune serves CUDA devices only"
