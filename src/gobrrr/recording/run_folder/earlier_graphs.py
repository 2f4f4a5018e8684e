"""Backward through graphs of earlier steps: a running mean, or a state, that was never detached."""

from __future__ import annotations

from collections.abc import Sequence

from gobrrr.recording.run_folder.dataflow_file import CARRIED, EARLIER
from gobrrr.recording.run_folder.outer_ops import ENGINE, LOADER, OPTIMIZER, Step


def earlier_graphs(before: Sequence[Step], step: Step) -> dict[int, int]:
    """Return EARLIER and CARRIED by op of a step; `before`: those before it.

    A tensor that backward reads belongs to an earlier step where that one made it, not in backward, and no op of this
    step did, and no op of this step's forward reads it, as it does a weight or a queue of features.
    """
    old = set[int]().union(*(each.made_but(ENGINE, OPTIMIZER) for each in before))
    reads: dict[int, set[int]] = {}
    for op in step.every:
        reads[op.id] = op.values & old
        old.difference_update(op.makes)
    forward = [op for op in step.ops if not step.within(op, ENGINE, OPTIMIZER, LOADER)]
    known = set().union(*(reads[op.id] for op in forward))
    earlier = [op for op in step.ops if step.within(op, ENGINE) and reads[op.id] - known]
    carried = [op for op in forward if reads[op.id]] if earlier else []
    return {inside: fate for fated, fate in ((earlier, EARLIER), (carried, CARRIED)) for op in fated
            for inside in step.inside[op.id]}  # fmt: skip
