"""Remedies of precision: bf16 and float16 autocast, float32."""

from __future__ import annotations

from typing import Any

from gobrrr.capture.hooks.lookup import Patches
from gobrrr.remedies.edits.forms import BeforeTraining
from gobrrr.remedies.mechanism.forwards import replaced
from gobrrr.remedies.mechanism.seams import Seams
from gobrrr.remedies.model import Remedy
from gobrrr.rules.model.finding import Saving
from gobrrr.rules.verdict.report import Report

HELPER = """import functools
import types

from torch.utils._pytree import tree_map


def in_bfloat16(model):
    \"\"\"Matrix products in bfloat16, results in float32, of this model, its copies, and one saved whole.\"\"\"
    kind, before = type(model), model.forward
    plain = isinstance(kind.forward, types.FunctionType) and "forward" not in vars(model)
    model.computes_in_bfloat16 = True
    if plain and hasattr(kind.forward, "lowers"):  # of another model of this class
        return
    forward = kind.forward if plain else lambda self, *args, **kwargs: before(*args, **kwargs)

    @functools.wraps(forward)
    def lowered(self, *args, **kwargs):
        if not getattr(self, "computes_in_bfloat16", False):
            return forward(self, *args, **kwargs)
        device = next((p.device.type for p in self.parameters()), "cpu")
        with torch.autocast(device, torch.bfloat16):
            result = forward(self, *args, **kwargs)
        return tree_map(lambda x: x.float() if getattr(x, "dtype", None) == torch.bfloat16 else x, result)

    lowered.__name__ = "forward"
    if plain and not kind.__module__.startswith("torch."):  # a method of its own would be saved with it
        kind.forward, lowered.lowers = lowered, True
    else:
        model.forward = types.MethodType(lowered, model)"""
"""As autocast_forward does it, for the user's own file."""

FLOAT_BYTES = 4  # bytes of a float32


class Bf16Autocast(Remedy):
    """torch.autocast around the model's forward; floating outputs come back in float32, so that losses stay there."""

    name = "bf16_autocast"
    title = "computes matrix products in bfloat16 (twice as fast or more where the chip has units for it)"
    safety = "tolerance"
    place = "model"
    precision = "bfloat16"
    saves_memory = True
    conflicts = ("float32", "float16_autocast")
    by_hand = 'with torch.autocast("cpu", torch.bfloat16):  # or "cuda"'
    unseen = (
        "whole numbers above 256 are rounded: positions that a forward multiplies, where inputs become longer after "
        "the steps that were checked"
    )
    edit = BeforeTraining("in_bfloat16({model})", HELPER)

    def is_pointless(self, report: Report) -> bool:
        """Return True where most of the work is done in half precision already."""
        return super().is_pointless(report) or report.roofline.dtype in ("bf16", "fp16")

    def probe(self) -> str:
        import torch

        if torch.cuda.is_available() and not torch.cuda.is_bf16_supported():
            return "this GPU has no bfloat16"
        return ""

    def apply(self, seams: Seams) -> None:
        def wrap(module: Any) -> None:
            sizes = {p.dtype.itemsize for p in module.parameters() if p.is_floating_point()}
            if not sizes:  # a loss's module stays as it is
                return
            if min(sizes) < FLOAT_BYTES:  # what comes after it takes what it gives
                seams.declined(self.name, "part of the model is in half precision already")
                return
            autocast_forward(module, seams, "bfloat16")
            seams.applied(self.name, type(module).__name__)

        seams.at_model(wrap)


def autocast_forward(module: Any, seams: Seams, dtype: str) -> None:
    """Run a module's forward under autocast of a dtype, with outputs in float32."""
    import torch
    from torch.utils._pytree import tree_map

    device = next((p.device.type for p in module.parameters()), "cpu")

    def widened(value: Any) -> Any:
        return value.float() if isinstance(value, torch.Tensor) and value.dtype == getattr(torch, dtype) else value

    def lowered(_: Any, forward: Any, *args: Any, **kwargs: Any) -> Any:
        with torch.autocast(device, getattr(torch, dtype)):
            result = forward(*args, **kwargs)
        return tree_map(widened, result)

    seams.replace(module, "forward", replaced(module, lowered))


class Float16Autocast(Remedy):
    """torch.autocast around the model's forward, and what torch.amp.GradScaler does around backward and step: gradients
    are computed of the scaled loss, divided before they are accumulated (so that clipping and accumulation see them as
    ever), and an update of gradients that overflowed is passed over, with half the scale from then on."""

    name = "float16_autocast"
    title = "computes matrix products in float16 with scaled gradients (GPUs without bfloat16)"
    safety = "tolerance"
    place = "model"
    precision = "float16"
    saves_memory = True
    conflicts = ("float32", "bf16_autocast")
    by_hand = 'scaler = torch.amp.GradScaler("cuda")\nwith torch.autocast("cuda", torch.float16):'

    def predicts(self, report: Report) -> Saving:
        """Return nothing without an accelerator: CPUs compute float16 more slowly than float32."""
        return super().predicts(report) if report.device is not None else Saving()

    def apply(self, seams: Seams) -> None:
        scaling = GradientScaling()
        scaling.install()
        seams.undo(scaling.remove)

        def wrap(module: Any) -> None:
            import torch

            device = next((p.device.type for p in module.parameters()), "")
            if not device or torch.is_autocast_enabled(device):  # a loss's module; a program that sees to it itself
                return
            autocast_forward(module, seams, "float16")
            scaling.divide_gradients(module)
            seams.applied(self.name, type(module).__name__)

        seams.at_model(wrap)
        seams.at_optimizer(scaling.watch)


FIRST_SCALE, GROWTH, DECAY, GROW_AFTER = 2.0**16, 2.0, 0.5, 2000
"""Defaults of torch.amp.GradScaler."""


class GradientScaling:
    """Backward of a scaled loss in an unmodified program, so that small gradients survive float16: the scale goes in as
    the gradient of the loss (no node joins the graph) and out again in a hook on every parameter, before its gradient
    is accumulated. Growth and decay are those of torch.amp.GradScaler.

    One scale for the process. Only scalar losses that reach torch.autograd.backward without a gradient of their own
    are scaled; torch.autograd.grad is left alone."""

    def __init__(self) -> None:
        self.scale = FIRST_SCALE
        self._good = 0
        self._running = 0.0
        """The scale of the backward that runs now; 0 outside of one."""
        self._patches = Patches()
        self._divided: set[int] = set()

    def install(self) -> None:
        """From now on losses are scaled, once there are parameters whose gradients are divided."""
        import torch

        plain = torch.autograd.backward

        def backward(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> Any:
            loss = tensors if isinstance(tensors, torch.Tensor) else None
            if loss is None or grad_tensors is not None or loss.numel() != 1 or not self._divided or self._running:
                return plain(tensors, grad_tensors, *args, **kwargs)
            first = torch.full_like(loss, self.scale)
            self._running = self.scale
            try:
                return plain(loss, first, *args, **kwargs)
            finally:
                self._running = 0.0

        self._patches.replace(torch.autograd, "backward", backward)

    def remove(self) -> None:
        """Losses are what they were."""
        self._patches.take_out()
        self._divided.clear()  # somebody may have wrapped our backward: it scales nothing that nobody divides

    def divide_gradients(self, module: Any) -> None:
        """Hooks on the parameters of a model."""
        for parameter in module.parameters():
            if parameter.requires_grad and id(parameter) not in self._divided:
                self._divided.add(id(parameter))
                self._patches.append(parameter.register_hook(self._divide).remove)

    def _divide(self, gradient: Any) -> Any:
        return gradient / self._running if self._running else None

    def watch(self, optimizer: Any) -> None:
        """Pass over updates of gradients that overflowed. An optimizer without gradients updates nothing."""
        self._patches.append(optimizer.register_step_pre_hook(self._before_step).remove)

    def _before_step(self, optimizer: Any, *_: Any) -> None:
        import torch

        parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        norms = torch._foreach_norm([p.grad for p in parameters]) if parameters else []
        if norms and not bool(torch.isfinite(torch.stack([n.float() for n in norms])).all()):
            for parameter in parameters:
                parameter.grad = None
            self.scale, self._good = self.scale * DECAY, 0
            return
        self._good += 1
        if self._good == GROW_AFTER:
            self.scale, self._good = self.scale * GROWTH, 0


class Float32(Remedy):
    """model.float(), and float64 inputs cast: half the bytes, twice the products, another precision."""

    name = "float32"
    title = "computes in float32 what came as float64"
    safety = "semantic"
    place = "model"
    saves_memory = True
    conflicts = ("bf16_autocast",)
    by_hand = "model.float(); x = torch.from_numpy(array).float()"

    def apply(self, seams: Seams) -> None:
        import torch
        from torch.utils._pytree import tree_map

        def single(value: Any) -> Any:
            return value.float() if isinstance(value, torch.Tensor) and value.dtype == torch.float64 else value

        def computed(_: Any, forward: Any, *args: Any, **kwargs: Any) -> Any:
            return forward(*tree_map(single, args), **tree_map(single, kwargs))

        def cast(module: Any) -> None:
            wide = [p for p in (*module.parameters(), *module.buffers()) if p.dtype == torch.float64]
            for each in wide:
                each.data = each.data.float()
                if each.grad is not None:
                    each.grad = each.grad.float()
            seams.replace(module, "forward", replaced(module, computed))
            if wide:
                seams.applied(self.name, f"{type(module).__name__}, {len(wide)} tensors")

        seams.at_model(cast)
