"""What lives as long as the program is no longer searched for garbage."""

from __future__ import annotations

import atexit
import gc
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gobrrr.remedies.model import BeforeTraining, Remedy

if TYPE_CHECKING:
    from gobrrr.remedies.seams import Seams

WHOLE = {"generation": 2}
"""Of a full collection, as gc.callbacks has it."""


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
        before, frozen = gc.get_threshold(), False

        def thaw(phase: str = "start", info: Mapping[str, int] = WHOLE) -> None:
            """Before a full collection: one of young objects alone would not have looked at what stays."""
            nonlocal frozen
            if frozen and phase == "start" and info["generation"] == WHOLE["generation"]:
                frozen = False  # what is frozen from now on is the program's own
                gc.unfreeze()

        def freeze(model: Any) -> None:
            nonlocal frozen
            if thaw in gc.callbacks:
                return
            if gc.get_freeze_count():
                seams.declined(self.name, "the program has frozen its objects itself")
                return
            gc.collect()
            gc.freeze()
            gc.set_threshold(100_000, 50, 100)
            frozen = True
            gc.callbacks.append(thaw)
            atexit.register(thaw)  # no callback is called in the interpreter's end
            seams.undo(lambda: atexit.unregister(thaw))
            seams.undo(lambda: gc.callbacks.remove(thaw))
            seams.undo(thaw)
            seams.undo(lambda: gc.set_threshold(*before))
            seams.applied(self.name, f"{gc.get_freeze_count():,} objects")

        seams.at_model(freeze)


REMEDY = GcFreeze()
