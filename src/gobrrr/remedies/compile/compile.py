"""Remedies with torch.compile for every called model: plain, CUDA graphs, autotune, memory budget."""

from __future__ import annotations

import os
from typing import Any, ClassVar

from gobrrr.remedies.edits.forms import BeforeTraining
from gobrrr.remedies.mechanism.seams import Seams
from gobrrr.remedies.model import Remedy
from gobrrr.rules.verdict.report import Report

SETTINGS = """\
torch._inductor.config.fallback_random = True  # the random numbers of eager mode
torch._dynamo.config.use_numpy_random_stream = True  # and NumPy's
torch._dynamo.config.skip_nnmodule_hook_guards = False  # hooks that are put on later are called"""
NEEDS = "import torch._inductor.config"


class Compile(Remedy):
    """module.compile() in place, before the first call: names, hooks and state_dict stay what they are."""

    name = "compile"
    title = "compiles the model: elementwise chains become single kernels, Python falls away"
    safety = "tolerance"
    place = "model"
    saves_memory = True
    conflicts: ClassVar[tuple[str, ...]] = ("compile_reduce_overhead", "compile_max_autotune", "compile_memory_budget")
    unseen = (
        "a model is compiled as it is at its first call; not seen are methods that a class gets later, hooks for all "
        "modules (register_module_forward_hook), and a random.Random of its own"
    )
    by_hand = "model.compile()  # or model = torch.compile(model)"
    edit = BeforeTraining(f"{SETTINGS}\n{{model}}.compile()", NEEDS)
    mode: str | None = None

    def probe(self) -> str:
        import shutil
        import sys

        import torch

        if sys.version_info >= (3, 14) and torch.__version__ < "2.10":
            return "this torch cannot compile on this Python"
        if not torch.cuda.is_available() and not any(map(shutil.which, (os.environ.get("CXX", ""), "g++", "clang++"))):
            return "no C++ compiler is installed (g++ or clang++)"
        return ""

    def is_pointless(self, report: Report) -> bool:
        return super().is_pointless(report) or report.compiled

    def apply(self, seams: Seams) -> None:
        import torch._dynamo.config as dynamo
        import torch._inductor.config as inductor

        def compile_it(module: Any) -> None:
            # A module without parameters is a loss or an activation: too little to be worth a compilation.
            if not any(True for _ in module.parameters()) or getattr(module, "_compiled_call_impl", None):
                return
            if hasattr(module, "_orig_mod") or type(module).__module__.startswith("torch.jit."):
                return
            compile_in_place(module, seams, self.mode)
            seams.applied(self.name, type(module).__name__)

        # Compiled code draws random numbers of its own kind; with this it draws those of eager mode. In trials, under
        # the guard and in a recipe alike: what was guarded is what runs.
        _configure(seams, inductor, "fallback_random", True)
        _configure(seams, dynamo, "use_numpy_random_stream", True)
        seams.at_model(compile_it)


def _configure(seams: Seams, config: Any, name: str, value: bool | float) -> None:
    before = getattr(config, name)
    setattr(config, name, value)
    seams.undo(lambda: setattr(config, name, before))


def compile_in_place(module: Any, seams: Seams, mode: str | None = None) -> None:
    """module.compile(), also for torch's own containers, whose frames dynamo passes over: a Sequential would stay as it
    is (torch 2.13). Hooks that are put on later are seen, unlike by default, for half a microsecond per module."""
    import torch
    import torch._dynamo.config as dynamo

    _configure(seams, dynamo, "skip_nnmodule_hook_guards", False)
    seams.undo(lambda: setattr(module, "_compiled_call_impl", None))
    if not type(module).__module__.startswith("torch.nn."):
        torch.nn.Module.compile(module, mode=mode)  # a class may have a compile() of its own, as Keras
    else:
        call = module._call_impl

        def called(*args: Any, **kwargs: Any) -> Any:
            return call(*args, **kwargs)

        module._compiled_call_impl = torch.compile(called, mode=mode)
    module._compiled_call_impl = _unless_traced(module._call_impl, module._compiled_call_impl)


def _unless_traced(plain: Any, compiled: Any) -> Any:
    """A module's compiled call; torch.jit.trace, which takes no compiled code, gets its own. A function: of another
    object in a module torch.jit asks the type."""
    from torch import jit

    def called(*args: Any, **kwargs: Any) -> Any:
        return (plain if jit.is_tracing() else compiled)(*args, **kwargs)  # type: ignore[attr-defined,no-untyped-call]

    return called


class InMode(Compile):
    """As `compile`, in a mode that needs a CUDA device."""

    saves_memory = False

    def __init__(self, mode: str, title: str, other: str) -> None:
        self.mode, code = mode, f'compile(mode="{mode}")'
        edit = BeforeTraining(f"{SETTINGS}\n{{model}}.{code}", NEEDS)
        vars(self).update(name=_named(mode), title=title, conflicts=("compile", _named(other)), edit=edit,
                          by_hand=f"model.{code}")  # fmt: skip

    def probe(self) -> str:
        import torch

        return "" if torch.cuda.is_available() else f"the mode {self.mode} serves CUDA devices only"


def _named(mode: str) -> str:
    return f"compile_{mode.replace('-', '_')}"


GRAPHS, TEMPLATES = "reduce-overhead", "max-autotune"
ROWS = (
    InMode(GRAPHS, "compiles the model into CUDA graphs: launches cost almost nothing", TEMPLATES),
    InMode(TEMPLATES, "compiles the model and tries out templates for its matrix products", GRAPHS),
)
"""Modes that have a remedy."""


BUDGET = 0.5
"""Share of the bytes backward needs that are kept: 1 keeps all, 0 computes everything again that can be."""


class CompileMemoryBudget(Compile):
    """As `compile`, with torch._functorch.config.activation_memory_budget: the partitioner chooses what to keep."""

    name = "compile_memory_budget"
    title = "compiles the model with half the activations kept, the cheapest rest computed again"
    serves = "training"
    conflicts = ("compile", "compile_reduce_overhead", "compile_max_autotune",
                 "activation_checkpointing")  # fmt: skip
    by_hand = "torch._functorch.config.activation_memory_budget = 0.5\nmodel.compile()"
    edit = BeforeTraining(
        f"{SETTINGS}\ntorch._functorch.config.activation_memory_budget = {BUDGET}\n{{model}}.compile()",
        f"{NEEDS}\nimport torch._functorch.config",
    )

    def apply(self, seams: Seams) -> None:
        import torch._functorch.config as functorch

        _configure(seams, functorch, "activation_memory_budget", BUDGET)
        super().apply(seams)
