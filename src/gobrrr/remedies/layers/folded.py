"""How do a layer and its batch norm compute as one, and stay what they are? By their forward alone.

Their parameters stay in their places: a checkpoint is loaded and saved as before, and what is loaded counts from the
next call on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_weights, fuse_linear_bn_weights

from gobrrr.capture.hooks.transform_guard import UNFINISHED
from gobrrr.remedies.mechanism.changed import mark
from gobrrr.remedies.mechanism.forwards import replaced
from gobrrr.remedies.mechanism.graph_later import are_hooked, modules_of

Replace = Callable[[Any, str, Any], object]
KINDS: dict[Any, Any] = {
    nn.Conv1d: nn.BatchNorm1d, nn.Conv2d: nn.BatchNorm2d, nn.Conv3d: nn.BatchNorm3d, nn.Linear: nn.BatchNorm1d,
}  # fmt: skip


class Followed:
    """The forward that was followed. Its layers fold while it runs, in the thread where it does, and as long as its
    parts are those of then."""

    def __init__(self, module: Any) -> None:
        self._module, self._parts = module, modules_of(module)
        self._here = threading.local()

    def install(self, replace: Replace) -> None:
        replace(self._module, "forward", replaced(self._module, self._forward))

    def _forward(self, module: Any, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or module is not self._module:  # a copy of it
            return forward(*args, **kwargs)
        before, self._here.runs = self.runs, modules_of(module) == self._parts
        try:
            return forward(*args, **kwargs)
        finally:
            self._here.runs = before

    @property
    def runs(self) -> bool:
        return getattr(self._here, "runs", False)

    def between(self, layer: Any, norm: Any) -> list[Any]:
        """The parts that are given or give what the layer makes: each holds one of the two alone, or is it."""
        inside = ((part, set(map(id, modules_of(part)))) for part in self._parts)
        return [part for part, its in inside if (id(layer) in its) != (id(norm) in its)]


class Folded:
    """Weights of both, computed when first asked for and again when one of theirs was written to."""

    def __init__(self, followed: Followed, layer: Any, norm: Any) -> None:
        self.layer, self.norm = layer, norm
        self._followed, self._between = followed, followed.between(layer, norm)
        self._plain = (type(layer).forward, type(norm).forward)
        self._weights: tuple[Any, Any] = (None, None)
        self._versions: tuple[Any, ...] | None = None

    def install(self, replace: Replace) -> None:
        """Give both another forward, by whoever can take it back."""
        replace(self.layer, "forward", Forward(self.layer, self._forward))
        replace(self.norm, "forward", Forward(self.norm, self._passed))

    def fits(self) -> bool:
        """Whether the two are one affine map: of torch's own kind (a parametrized one is of another), with statistics,
        and nobody listens between."""
        layer, norm = self.layer, self.norm
        alike = type(norm) is KINDS.get(type(layer)) and not norm.training and norm.running_mean is not None
        return alike and not are_hooked(self._between)

    def _forward(self, x: Any) -> Any:
        plain = torch.compiler.is_compiling() or torch.is_grad_enabled() or x.dim() != self._dims()
        if plain or not self._followed.runs or not self.fits():
            return self._plain[0](self.layer, x)
        weight, bias = self._current()
        if isinstance(self.layer, nn.Linear):
            out = functional.linear(x, weight, bias)
        else:
            out = self.layer._conv_forward(x, weight, bias)
        setattr(out, UNFINISHED, self)
        return out

    def _passed(self, x: Any) -> Any:
        if getattr(x, UNFINISHED, None) is not self:
            return self._plain[1](self.norm, x)
        delattr(x, UNFINISHED)
        return x

    def _dims(self) -> int:
        """Return the dimensions of an input whose channels are where the layer puts them; the norm takes no fewer, a
        Linear's no more."""
        return int(self.layer.weight.dim())

    def _current(self) -> tuple[Any, Any]:
        layer, norm = self.layer, self.norm
        theirs = (layer.weight, layer.bias, norm.running_mean, norm.running_var, norm.weight, norm.bias)
        versions = (norm.eps, *map(mark, theirs))
        if versions != self._versions:
            fuse = fuse_linear_bn_weights if type(layer).__name__ == "Linear" else fuse_conv_bn_weights
            weight, bias, mean, var, scale, shift = theirs
            fused = fuse(weight, bias, mean, var, norm.eps, scale, shift)
            self._weights, self._versions = (fused[0].detach(), fused[1].detach()), versions
        return self._weights


class Forward:
    """A module's forward while it is folded. A copy of the module, pickled or not, has its own again."""

    def __init__(self, module: Any, call: Callable[[Any], Any]) -> None:
        self._module, self._call = module, call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs:
            return self._call(args[0])
        return type(self._module).forward(self._module, *args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self._module, "forward")
