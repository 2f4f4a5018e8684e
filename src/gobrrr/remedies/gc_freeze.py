"""What lives as long as the program is no longer searched for garbage."""

from __future__ import annotations

import atexit
import functools
import gc
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
        before, done = gc.get_threshold(), list[bool]()

        def freeze(module: Any) -> None:
            if gc.get_freeze_count() or done:
                return
            done.append(True)
            gc.collect()
            gc.freeze()
            gc.set_threshold(100_000, 50, 100)
            seams.undo(gc.unfreeze)
            atexit.register(gc.unfreeze)
            seams.replace(gc, "collect", _of_all(gc.collect))
            seams.undo(lambda: gc.set_threshold(*before))
            seams.applied(self.name, f"{gc.get_freeze_count():,} objects")

        seams.at_model(freeze)


def _of_all(collect: Any) -> Any:
    @functools.wraps(collect)
    def collected(*args: Any, **kwargs: Any) -> Any:
        gc.unfreeze()
        return collect(*args, **kwargs)

    return collected


REMEDY = GcFreeze()
