"""How are settings of an optimizer's groups changed for a run, and for that run alone?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


class Switched:
    """A group with other settings until they are put back."""

    def __init__(self, group: dict[str, Any], **settings: Any) -> None:
        self.group = group
        self.before = {key: group.get(key) for key in settings}
        self.is_on = True
        group.update(settings)

    def back(self) -> None:
        """As it was; safe to call twice."""
        if self.is_on:
            self.group.update(self.before)
        self.is_on = False


def kept_from_files(optimizer: Any, switched: Sequence[Switched]) -> Callable[[], None]:
    """A checkpoint has the settings of before: loaded without gobrrr it would go on with ours, and nobody would say so.
    Gives what takes it away again."""

    def as_before(_: Any, state: dict[str, Any]) -> None:
        for told, mine in zip(state["param_groups"], optimizer.param_groups, strict=False):
            told.update(next((s.before for s in switched if s.is_on and s.group is mine), {}))

    remove: Callable[[], None] = optimizer.register_state_dict_post_hook(as_before).remove
    return remove
