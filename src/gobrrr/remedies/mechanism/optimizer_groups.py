"""How are settings of an optimizer's groups changed for a run, and for that run alone?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gobrrr.remedies.mechanism.seams import Seams

Group = dict[str, Any]


def parameters_of(holder: Any) -> list[Any]:
    """Return the parameters of an optimizer or a module."""
    groups = getattr(holder, "param_groups", None)
    return list(holder.parameters()) if groups is None else [p for group in groups for p in group["params"]]


class Switched:
    """A group with other settings until they are put back."""

    def __init__(self, group: Group, settings: Group) -> None:
        self.group = group
        self.before = {key: group.get(key) for key in settings}
        self.is_on = True
        group.update(settings)

    def back(self) -> None:
        """Put the settings back as they were; safe to call twice."""
        if self.is_on:
            self.group.update(self.before)
        self.is_on = False


class Groups:
    """Groups of an optimizer that can be switched. A checkpoint has the settings of before: loaded without gobrrr it
    would go on with ours, and nobody would say so. (A file of the whole optimizer has ours.)"""

    def __init__(self, optimizer: Any, can: Callable[[Group], bool], **settings: Any) -> None:
        self.optimizer, self._can, self._settings = optimizer, can, settings
        self.switched: list[Switched] = []
        self.on()

    def on(self, *_: Any) -> None:
        """Switch on, at first and when a checkpoint was loaded, whose groups are others."""
        groups = [group for group in self.optimizer.param_groups if self._can(group)]
        self.switched = [Switched(group, self._settings) for group in groups]

    def off(self) -> None:
        """Put all settings back."""
        for each in self.switched:
            each.back()

    def keep(self, seams: Seams) -> None:
        """Keep them switched until the remedies are taken away."""
        seams.undo(self.off)
        seams.undo(self.optimizer.register_state_dict_post_hook(self._as_before).remove)
        seams.undo(self.optimizer.register_load_state_dict_post_hook(self.on).remove)

    def _as_before(self, _: Any, state: dict[str, Any]) -> None:
        for told, mine in zip(state["param_groups"], self.optimizer.param_groups, strict=True):
            told.update(next((each.before for each in self.switched if each.is_on and each.group is mine), {}))
