"""Keep the garbage collector from searching objects that live as long as the program."""

from __future__ import annotations

import atexit
import gc
from collections.abc import Mapping
from typing import Any

from gobrrr.remedies.mechanism.seams import Seams
from gobrrr.remedies.model import BeforeTraining, Remedy

WHOLE = {"generation": 2}
"""Mark of a full collection, as gc.callbacks gets it."""


class GcFreeze(Remedy):
    """gc.freeze() before the first forward, and collections far more seldom. A full one, the program's own or the next
    that comes by itself, and the interpreter in its end find all that there is: finalizers speak there, and we freeze
    nothing from then on."""

    name = "gc_freeze"
    title = "keeps Python's garbage collector away from objects that stay"
    by_hand = "gc.collect(); gc.freeze(); gc.set_threshold(100_000, 50, 100); atexit.register(gc.unfreeze)"
    unseen = (
        "objects that are there before the first step, in cycles, go (with what their finalizers do) at a full "
        "collection, which comes by itself far later than it would, when the program calls gc.collect(), or ends"
    )
    edit = BeforeTraining(
        "gc.collect()\ngc.freeze()\natexit.register(gc.unfreeze)\ngc.set_threshold(100_000, 50, 100)",
        "import atexit\nimport gc",
    )

    def apply(self, seams: Seams) -> None:
        frozen: bool | None = None  # none is before the first model

        def thaw(phase: str = "start", info: Mapping[str, int] = WHOLE) -> None:
            """Before a full collection: one of young objects alone would not have looked at what stays."""
            nonlocal frozen
            if frozen and phase == "start" and info["generation"] == WHOLE["generation"]:
                frozen = False  # what is frozen from now on is the program's own
                gc.unfreeze()

        def forget() -> None:
            if thaw in gc.callbacks:  # the program may have emptied it
                gc.callbacks.remove(thaw)

        def freeze(model: Any) -> None:
            nonlocal frozen
            if frozen is not None:
                return
            if gc.get_freeze_count():
                seams.declined(self.name, "the program has frozen its objects itself")
                return
            gc.collect()
            gc.freeze()
            _collect_rarely(seams)
            frozen = True
            gc.callbacks.append(thaw)
            atexit.register(thaw)  # no callback is called in the interpreter's end
            seams.undo(lambda: atexit.unregister(thaw))
            seams.undo(forget)
            seams.undo(thaw)
            seams.applied(self.name, f"{gc.get_freeze_count():,} objects")

        seams.at_model(freeze)


def _collect_rarely(seams: Seams) -> None:
    """Thresholds that the program sets later stay."""
    before = gc.get_threshold()
    gc.set_threshold(100_000, 50, 100)
    ours = gc.get_threshold()  # some interpreters keep two of the three

    def back() -> None:
        if gc.get_threshold() == ours:
            gc.set_threshold(*before)

    seams.undo(back)
