"""Parameters that no optimizer updates ask for no gradients."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gobrrr.remedies.model import Remedy

if TYPE_CHECKING:
    from gobrrr.remedies.seams import Seams


class FreezeUnused(Remedy):
    """requires_grad_(False) for all parameters of the program's models that no optimizer holds when the first one makes
    an update: gradients of theirs are computed and thrown away. What an optimizer is given later asks again."""

    name = "freeze_unused"
    title = "computes no gradients for parameters that are never updated"
    safety = "exact"
    place = "optimizer"
    saves_memory = True
    serves = "training"
    codes = ("BRR106",)
    by_hand = "for p in backbone.parameters(): p.requires_grad_(False)"

    def apply(self, seams: Seams) -> None:
        from torch.optim import Optimizer

        found = _Unused()
        plain = Optimizer.add_param_group

        @functools.wraps(plain)
        def add_param_group(optimizer: Any, param_group: Any) -> None:
            plain(optimizer, param_group)
            found.hold(optimizer.param_groups[-1:])

        def steps(optimizer: Any) -> None:
            found.hold(optimizer.param_groups)
            if num := found.freeze():
                seams.applied(self.name, f"{num} parameters")

        seams.undo(found.thaw)
        seams.replace(Optimizer, "add_param_group", add_param_group)
        seams.at_model(found.models.append)
        seams.at_optimizer(steps)


class _Unused:
    """Parameters of models that no optimizer holds."""

    def __init__(self) -> None:
        self.models: list[Any] = []
        self._held: set[int] = set()
        self._frozen: dict[int, Any] | None = None

    def hold(self, groups: Sequence[Mapping[str, Any]]) -> None:
        """An optimizer has these."""
        for parameter in (p for group in groups for p in group["params"]):
            self._held.add(id(parameter))
            if self._frozen and self._frozen.pop(id(parameter), None) is not None:
                parameter.requires_grad_(True)

    def freeze(self) -> int:
        """Once; how many were."""
        if self._frozen is not None:
            return 0
        every = (p for model in self.models for p in model.parameters())
        self._frozen = {id(p): p for p in every if p.requires_grad and id(p) not in self._held}
        for parameter in self._frozen.values():
            parameter.requires_grad_(False)
            parameter.grad = None
        return len(self._frozen)

    def thaw(self) -> None:
        """As they were."""
        for parameter in (self._frozen or {}).values():
            parameter.requires_grad_(True)


REMEDY = FreezeUnused()
