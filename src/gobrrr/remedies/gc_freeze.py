"""What lives as long as the program is no longer searched for garbage."""

from __future__ import annotations

import atexit
import functools
import gc
import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gobrrr.remedies.model import BeforeTraining, Remedy

if TYPE_CHECKING:
    from gobrrr.remedies.seams import Seams


class GcFreeze(Remedy):
    """gc.freeze() before the first forward, and a full collection only after a hundred times as many young ones. What
    the program collects itself, and the interpreter in its end, is all that there is: finalizers speak there."""

    name = "gc_freeze"
    title = "keeps Python's garbage collector away from objects that stay"
    codes = ("BRR306",)
    by_hand = "gc.collect(); gc.freeze(); gc.set_threshold(100_000, 50, 100); atexit.register(gc.unfreeze)"
    unseen = (
        "objects that are there before the first step, in cycles, go (with what their finalizers do) when the program "
        "calls gc.collect(), or ends, not in between"
    )
    edit = BeforeTraining(
        "gc.collect()\ngc.freeze()\natexit.register(gc.unfreeze)\ngc.set_threshold(100_000, 50, 100)",
        "import atexit\nimport gc",
    )

    def apply(self, seams: Seams) -> None:
        before, frozen = gc.get_threshold(), list[bool]()  # whether it still is; nothing before the first forward

        def thaw() -> None:
            if frozen[0]:  # else what is frozen now is the program's own
                frozen[0] = False
                gc.unfreeze()

        def freeze(model: Any) -> None:
            if frozen:
                return
            if gc.get_freeze_count():
                seams.declined(self.name, "the program has frozen its objects itself")
                return
            gc.collect()
            gc.freeze()
            gc.set_threshold(100_000, 50, 100)
            frozen.append(True)
            atexit.register(thaw)
            seams.undo(lambda: atexit.unregister(thaw))
            seams.undo(thaw)
            seams.undo(lambda: gc.set_threshold(*before))
            collect = _thawing(gc.collect, thaw)
            for module, name in _holders(gc.collect):
                seams.replace(module, name, collect)
            seams.applied(self.name, f"{gc.get_freeze_count():,} objects")

        seams.at_model(freeze)


def _holders(collect: Any) -> list[tuple[Any, str]]:
    """gc itself, and who has taken it by name: `from gc import collect`."""
    modules: list[Any] = list(sys.modules.values())  # whoever is a module by more than its name
    known = [each for each in modules if isinstance(each, types.ModuleType)]
    return [(each, name) for each in known for name, held in list(vars(each).items()) if held is collect]


def _thawing(collect: Callable[..., int], thaw: Callable[[], None]) -> Callable[..., int]:
    """Before a full collection; one of young objects alone would not have looked at what stays."""

    @functools.wraps(collect)
    def collected(generation: int = 2) -> int:
        if generation == 2:
            thaw()
        return collect(generation)

    return collected


REMEDY = GcFreeze()
