"""zero_grad() drops gradients instead of writing zeros over them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from gobrrr.remedies.model import Remedy, SetKeyword

if TYPE_CHECKING:
    from gobrrr.remedies.seams import Seams


class SetToNone(Remedy):
    """optimizer.zero_grad(set_to_none=True) whatever the program asks for."""

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

        for kind in (Optimizer, Module):
            self._replace(kind, seams)

    def _replace(self, kind: Any, seams: Seams) -> None:
        plain = kind.zero_grad

        @functools.wraps(plain)
        def dropped(holder: Any, set_to_none: bool = True) -> None:
            if not set_to_none:
                seams.applied(self.name, type(holder).__name__)
            plain(holder, set_to_none=True)

        kind.zero_grad = dropped
        seams.undo(functools.partial(setattr, kind, "zero_grad", plain))


REMEDY = SetToNone()
