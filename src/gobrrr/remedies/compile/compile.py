"""torch.compile of every model that the program calls."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, ClassVar

from gobrrr.remedies.model import BeforeTraining, Remedy

if TYPE_CHECKING:
    from gobrrr.remedies.mechanism.seams import Seams
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
    codes: ClassVar[tuple[str, ...]] = ("BRR201", "BRR301", "BRR105", "BRR203", "BRR504")
    conflicts: ClassVar[tuple[str, ...]] = ("compile_reduce_overhead", "compile_max_autotune", "compile_memory_budget")
    unseen = (
        "what a model calls is compiled as it was then: a method that is replaced on a class later, hooks for all "
        "modules (register_module_forward_hook) and a random.Random of the model's own go unseen"
    )
    by_hand = "model.compile()  # or model = torch.compile(model)"
    edit: ClassVar[BeforeTraining | None] = BeforeTraining(f"{SETTINGS}\n{{model}}.compile()", NEEDS)
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
        def compile_it(module: Any) -> None:
            # A module without parameters is a loss or an activation: too little to be worth a compilation.
            if not any(True for _ in module.parameters()) or getattr(module, "_compiled_call_impl", None):
                return
            if hasattr(module, "_orig_mod") or type(module).__module__.startswith("torch.jit."):
                return
            compile_in_place(module, seams, self.mode)
            seams.applied(self.name, type(module).__name__)

        draws_as_in_eager(seams)
        seams.at_model(compile_it)


def draws_as_in_eager(seams: Seams) -> None:
    """Compiled code draws random numbers of its own kind; with this it draws those of eager mode. In trials, under the
    guard and in a recipe alike: what was guarded is what runs."""
    import torch._dynamo.config as dynamo
    import torch._inductor.config as inductor

    _configure(seams, inductor, "fallback_random", True)
    _configure(seams, dynamo, "use_numpy_random_stream", True)


def _configure(seams: Seams, config: Any, name: str, value: bool) -> None:
    before = getattr(config, name)
    setattr(config, name, value)
    seams.undo(lambda: setattr(config, name, before))


def compile_in_place(module: Any, seams: Seams, mode: str | None = None, backend: Any = "inductor") -> None:
    """module.compile(), also for torch's own containers: dynamo passes over their frames, so that an nn.Sequential
    that a program calls would silently stay as it is (torch 2.13). Hooks that are put on later are seen, which by
    default they are not; looking costs half a microsecond per module."""
    import torch
    import torch._dynamo.config as dynamo

    _configure(seams, dynamo, "skip_nnmodule_hook_guards", False)
    seams.undo(lambda: setattr(module, "_compiled_call_impl", None))
    if not type(module).__module__.startswith("torch.nn."):
        torch.nn.Module.compile(module, mode=mode, backend=backend)  # a class may have a compile() of its own, as Keras
    else:
        call = module._call_impl

        def called(*args: Any, **kwargs: Any) -> Any:
            return call(*args, **kwargs)

        module._compiled_call_impl = torch.compile(called, mode=mode, backend=backend)
    module._compiled_call_impl = _unless_traced(module._call_impl, module._compiled_call_impl)


def _unless_traced(plain: Any, compiled: Any) -> Any:
    """A module's compiled call; torch.jit.trace, which takes no compiled code, gets its own. A function: of another
    object in a module torch.jit asks the type."""

    def called(*args: Any, **kwargs: Any) -> Any:
        return (plain if _is_traced() else compiled)(*args, **kwargs)

    return called


def _is_traced() -> bool:
    """Say whether torch.jit.trace is at work."""
    from torch import jit

    return bool(jit.is_tracing())  # type: ignore[attr-defined,no-untyped-call]
