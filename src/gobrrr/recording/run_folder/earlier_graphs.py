"""Backward through graphs of earlier steps: a running mean, or a state, that was never detached."""

from __future__ import annotations

from collections.abc import Sequence

from gobrrr.recording.run_folder.dataflow_file import NO_TENSOR, NUMBER, Op
from gobrrr.recording.run_folder.outer_ops import ENGINE, LOADER, OPTIMIZER, Step

EARLIER, CARRIED = 4, 5
"""A backward op that reads what an earlier step made, its batch too; a forward op that reads such a thing beside it."""


def earlier_graphs(before: Sequence[Op], ops: Sequence[Op]) -> dict[int, int]:
    """Return EARLIER and CARRIED by op of a step; `before`: the ops of the steps before it.

    A tensor that backward reads belongs to an earlier step where that one made it, not in backward, and no op of this
    step did, and no op of this step's forward reads it, as it does a weight or a queue of features.
    """
    step, old = Step(ops), Step(before).made_but(ENGINE, OPTIMIZER)
    reads: dict[int, set[int]] = {}
    for op in ops:
        if op.id in step.inside:
            reads[op.id] = {each.storage for each in op.reads if each.kind not in (NUMBER, NO_TENSOR)} & old
        old.difference_update(op.makes)
    forward = [op for op in step.ops if not step.within(op, ENGINE, OPTIMIZER, LOADER)]
    known = set().union(*(reads[op.id] for op in forward))
    earlier = [op for op in step.ops if step.within(op, ENGINE) and reads[op.id] - known]
    carried = [op for op in forward if reads[op.id]] if earlier else []
    return {inside: fate for fated, fate in ((earlier, EARLIER), (carried, CARRIED)) for op in fated
            for inside in step.inside[op.id]}  # fmt: skip
