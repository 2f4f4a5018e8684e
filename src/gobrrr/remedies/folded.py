"""How do a layer and its batch norm compute as one, and stay what they are? By their forward alone.

Their parameters stay in their places: a checkpoint is loaded and saved as before, and what is loaded counts from the
next call on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gobrrr.remedies.changed import mark

MARK = "_gobrrr_folded"
"""Attribute of an output in which the norm is already: who holds it says for which."""


class Folded:
    """Weights of both, computed when first asked for and again when one of theirs was written to."""

    def __init__(self, layer: Any, norm: Any) -> None:
        self.layer, self.norm = layer, norm
        self._plain = (type(layer).forward, type(norm).forward)
        self._weights: tuple[Any, Any] = (None, None)
        self._versions: tuple[Any, ...] | None = None

    def install(self, replace: Callable[[Any, str, Any], object]) -> None:
        """Give both another forward, by whoever can take it back."""
        replace(self.layer, "forward", Forward(self.layer, self._forward))
        replace(self.norm, "forward", Forward(self.norm, self._passed))

    def _forward(self, x: Any) -> Any:
        import torch
        from torch.nn import functional

        if torch.is_grad_enabled() or self.norm.training or x.dim() != self._dims():
            return self._plain[0](self.layer, x)
        weight, bias = self._current()
        if isinstance(self.layer, torch.nn.Linear):
            out = functional.linear(x, weight, bias)
        else:
            out = self.layer._conv_forward(x, weight, bias)
        setattr(out, MARK, self)
        return out

    def _passed(self, x: Any) -> Any:
        return x if getattr(x, MARK, None) is self else self._plain[1](self.norm, x)

    def _dims(self) -> int:
        """Of an input whose channels are where the layer puts them; the norm takes no fewer, a Linear's no more."""
        return int(self.layer.weight.dim())

    def _current(self) -> tuple[Any, Any]:
        from torch.nn.utils.fusion import fuse_conv_bn_weights, fuse_linear_bn_weights

        layer, norm = self.layer, self.norm
        theirs = (layer.weight, layer.bias, norm.running_mean, norm.running_var, norm.weight, norm.bias)
        versions = tuple(map(mark, theirs))
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
