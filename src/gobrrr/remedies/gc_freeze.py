"""What lives as long as the program is no longer searched for garbage."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

from gobrrr.remedies.model import BeforeTraining, Remedy

if TYPE_CHECKING:
    from gobrrr.remedies.seams import Seams


class GcFreeze(Remedy):
    """gc.freeze() before the first forward, and a full collection only after a hundred times as many young ones."""

    name = "gc_freeze"
    title = "keeps Python's garbage collector away from objects that stay"
    codes = ("BRR306",)
    by_hand = "gc.collect(); gc.freeze(); gc.set_threshold(100_000, 50, 100)"
    edit = BeforeTraining("gc.collect()\ngc.freeze()\ngc.set_threshold(100_000, 50, 100)", "import gc")

    def apply(self, seams: Seams) -> None:
        before = gc.get_threshold()

        def freeze(module: Any) -> None:
            if gc.get_freeze_count():
                return
            gc.collect()
            gc.freeze()
            gc.set_threshold(100_000, 50, 100)
            seams.undo(gc.unfreeze)
            seams.undo(lambda: gc.set_threshold(*before))
            seams.applied(self.name, f"{gc.get_freeze_count():,} objects")

        seams.at_model(freeze)


REMEDY = GcFreeze()
