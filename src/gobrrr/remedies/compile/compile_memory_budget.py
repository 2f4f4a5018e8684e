"""torch.compile that keeps half the activations and computes the cheapest of the rest again."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gobrrr.remedies.compile.compile import NEEDS, SETTINGS, Compile
from gobrrr.remedies.model import BeforeTraining

if TYPE_CHECKING:
    from gobrrr.remedies.mechanism.seams import Seams

BUDGET = 0.5
"""Share of the bytes backward needs that are kept: 1 keeps all, 0 computes everything again that can be."""


class CompileMemoryBudget(Compile):
    """As `compile`, with torch._functorch.config.activation_memory_budget: the partitioner chooses what to keep."""

    name = "compile_memory_budget"
    title = "compiles the model with half the activations kept, the cheapest rest computed again"
    serves = "training"
    codes = ("BRR602",)
    conflicts = ("compile", "compile_reduce_overhead", "compile_max_autotune", "compile_frozen",
                 "activation_checkpointing", "chunked_loss", "pad_vocabulary")  # fmt: skip
    by_hand = "torch._functorch.config.activation_memory_budget = 0.5\nmodel.compile()"
    edit = BeforeTraining(
        f"{SETTINGS}\ntorch._functorch.config.activation_memory_budget = {BUDGET}\n{{model}}.compile()",
        f"{NEEDS}\nimport torch._functorch.config",
    )

    def apply(self, seams: Seams) -> None:
        import torch._functorch.config as functorch

        before = functorch.activation_memory_budget
        functorch.activation_memory_budget = BUDGET
        seams.undo(partial(setattr, functorch, "activation_memory_budget", before))
        super().apply(seams)
