"""torch.compile in the mode reduce-overhead."""

from __future__ import annotations

from gobrrr.remedies.compile.compile import NEEDS, SETTINGS, Compile
from gobrrr.remedies.model import BeforeTraining


class CompileReduceOverhead(Compile):
    """As `compile`, in this mode; needs a CUDA device."""

    name = "compile_reduce_overhead"
    title = "compiles the model into CUDA graphs: launches cost almost nothing"
    saves_memory = False
    codes = ("BRR301", "BRR504")
    conflicts = ("compile", "compile_max_autotune")
    by_hand = 'model.compile(mode="reduce-overhead")'
    edit = BeforeTraining(f'{SETTINGS}\n{{model}}.compile(mode="reduce-overhead")', NEEDS)
    mode = "reduce-overhead"

    def probe(self) -> str:
        import torch

        return "" if torch.cuda.is_available() else "the mode reduce-overhead serves CUDA devices only"
