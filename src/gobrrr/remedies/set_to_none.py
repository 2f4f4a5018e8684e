"""zero_grad() drops gradients instead of writing zeros over them."""

from __future__ import annotations

import functools
import weakref
from typing import TYPE_CHECKING, Any

from gobrrr.remedies.model import Remedy, SetKeyword

if TYPE_CHECKING:
    from gobrrr.remedies.seams import Seams


class SetToNone(Remedy):
    """optimizer.zero_grad(set_to_none=True) whatever the program asks for. A parameter that has no gradient when an
    optimizer steps gets the zeros that it would have had: momentum and weight decay move it, where None would not."""

    name = "set_to_none"
    title = "drops gradients instead of filling them with zeros"
    safety = "exact"
    place = "optimizer"
    saves_memory = True
    serves = "training"
    codes = ("BRR207",)
    by_hand = "optimizer.zero_grad(set_to_none=True)"
    edit = SetKeyword(("zero_grad",), "set_to_none", "True", only_if="set_to_none")

    def apply(self, seams: Seams) -> None:
        from torch.nn import Module
        from torch.optim import Optimizer

        dropped = _Dropped()
        for kind in (Optimizer, Module):
            self._replace(kind, seams, dropped)
        seams.at_step(dropped.fill)

    def _replace(self, kind: Any, seams: Seams, dropped: _Dropped) -> None:
        plain = kind.zero_grad

        @functools.wraps(plain)
        def drops(holder: Any, set_to_none: bool = True) -> None:
            if not set_to_none:
                dropped.note(holder)
                seams.applied(self.name, type(holder).__name__)
            plain(holder, set_to_none=True)

        seams.replace(kind, "zero_grad", drops)


class _Dropped:
    """Parameters whose gradients were dropped where the program wanted zeros."""

    def __init__(self) -> None:
        self._known: dict[int, weakref.ref[Any]] = {}

    def note(self, holder: Any) -> None:
        """Those of an optimizer or a module that have a gradient now; a sparse one would be left with nothing in it."""
        groups = getattr(holder, "param_groups", None)
        every = holder.parameters() if groups is None else (p for group in groups for p in group["params"])
        self._known.update((id(p), weakref.ref(p)) for p in every if p.grad is not None and not p.grad.is_sparse)

    def fill(self) -> None:
        """Before an update."""
        import torch

        known, self._known = self._known, {}
        for parameter in (ref() for ref in known.values()):
            if parameter is not None and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)


REMEDY = SetToNone()
