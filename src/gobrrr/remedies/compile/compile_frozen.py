"""torch.compile of a model that only infers, with its weights as constants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from gobrrr.remedies.compile.compile import Compile, compile_in_place
from gobrrr.remedies.mechanism.changed import counts, mark
from gobrrr.remedies.model import BeforeTraining

if TYPE_CHECKING:
    from gobrrr.remedies.mechanism.seams import Seams


class CompileFrozen(Compile):
    """As `compile`, with torch._inductor.config.freezing: weights are laid out once for the kernels that read them, and
    batch norm is folded. It serves models in eval() mode without gradients only, and from the first change of a weight
    on the model runs as ever."""

    name = "compile_frozen"
    title = "compiles a model that only infers, with its weights folded in as constants"
    saves_memory = False
    codes = ("BRR201", "BRR301", "BRR204", "BRR107", "BRR210")
    conflicts = ("compile", "compile_reduce_overhead", "compile_max_autotune", "int8_dynamic")
    serves = "inference"
    unseen = (
        "weights that are changed later through `.data` do not count; after any other change the model runs as ever"
    )
    by_hand = "torch._inductor.config.freezing = True; model.eval().compile()  # under torch.no_grad()"
    edit: ClassVar[BeforeTraining | None] = None  # a program that only infers has no optimizer to stand before

    def apply(self, seams: Seams) -> None:
        import torch
        import torch._inductor.config as inductor

        from gobrrr.remedies.mechanism.graph_later import insides

        before = inductor.freezing

        def compile_it(module: Any) -> None:
            if module.training or torch.is_grad_enabled() or not any(True for _ in module.parameters()):
                return
            if not all(map(counts, insides(module).tensors)):
                seams.declined(self.name, "weights made under inference_mode() do not say when they are changed")
                return
            inductor.freezing = True
            compile_in_place(module, seams)
            module._compiled_call_impl = _WhileUnchanged(module)
            seams.applied(self.name, type(module).__name__)

        seams.undo(lambda: setattr(inductor, "freezing", before))
        seams.at_model(compile_it)


class _WhileUnchanged:
    """A module's compiled call, as long as its parameters and buffers are those with which it was compiled."""

    def __init__(self, module: Any) -> None:
        from gobrrr.remedies.mechanism.graph_later import insides

        self._module, self._call, self._insides = module, module._compiled_call_impl, insides
        self._tensors = insides(module).tensors  # held: no other may get the identity of one of them
        self._marks = list(map(mark, self._tensors))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._marks == list(map(mark, self._insides(self._module).tensors)):
            return self._call(*args, **kwargs)
        self._module._compiled_call_impl = None
        return self._module._call_impl(*args, **kwargs)
