"""torch.compile of a model that only infers, with its weights as constants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from gobrrr.remedies.compile import Compile, compile_in_place
from gobrrr.remedies.model import BeforeTraining

if TYPE_CHECKING:
    from gobrrr.remedies.seams import Seams


class CompileFrozen(Compile):
    """As `compile`, with torch._inductor.config.freezing: weights are laid out once for the kernels that read them, and
    batch norm is folded. Later changes of the weights are not seen, so it serves models in eval() mode without
    gradients only."""

    name = "compile_frozen"
    title = "compiles a model that only infers, with its weights folded in as constants"
    saves_memory = False
    codes = ("BRR201", "BRR301", "BRR204", "BRR107", "BRR210")
    conflicts = ("compile", "compile_reduce_overhead", "compile_max_autotune", "int8_dynamic")
    serves = "inference"
    by_hand = "torch._inductor.config.freezing = True; model.eval().compile()  # under torch.no_grad()"
    edit: ClassVar[BeforeTraining | None] = None  # a program that only infers has no optimizer to stand before

    def apply(self, seams: Seams) -> None:
        import torch
        import torch._inductor.config as inductor

        before = inductor.freezing

        def compile_it(module: Any) -> None:
            if module.training or torch.is_grad_enabled() or not any(True for _ in module.parameters()):
                return
            inductor.freezing = True
            compile_in_place(module)
            seams.undo(lambda: setattr(module, "_compiled_call_impl", None))
            seams.applied(self.name, type(module).__name__)

        seams.undo(lambda: setattr(inductor, "freezing", before))
        seams.at_model(compile_it)


REMEDY = CompileFrozen()
