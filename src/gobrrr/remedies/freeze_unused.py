"""Parameters that no optimizer updates ask for no gradients."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from gobrrr.remedies.model import Remedy

if TYPE_CHECKING:
    from gobrrr.remedies.seams import Seams


class FreezeUnused(Remedy):
    """requires_grad_(False) for all parameters of the program's models that no optimizer holds, once each optimizer
    has made an update: gradients of theirs are computed and thrown away."""

    name = "freeze_unused"
    title = "computes no gradients for parameters that are never updated"
    safety = "exact"
    place = "optimizer"
    saves_memory = True
    serves = "training"
    codes = ("BRR106",)
    by_hand = "for p in backbone.parameters(): p.requires_grad_(False)"

    def apply(self, seams: Seams) -> None:
        models: list[Any] = []
        held: set[int] = set()

        def step(optimizer: Any) -> None:
            first = not held
            held.update(id(p) for group in optimizer.param_groups for p in group["params"])
            if not first:  # a second optimizer: what it holds is trained
                return
            frozen = [p for m in models for p in m.parameters() if p.requires_grad and id(p) not in held]
            for parameter in frozen:
                parameter.requires_grad_(False)
                parameter.grad = None
                seams.undo(partial(parameter.requires_grad_, True))
            if frozen:
                seams.applied(self.name, f"{len(frozen)} parameters")

        seams.at_model(models.append)
        seams.at_optimizer(step)


REMEDY = FreezeUnused()
