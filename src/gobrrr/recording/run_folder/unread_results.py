"""Results of a step that nobody reads: rows of a product beside those that are taken, and work that no weight needs.

By the dataflow window's file, in whose middle step it is seen what the step after it still reads. NumPy and Python read
behind torch's back: a result that no op reads counts as read, and a loop that takes in arrays as one that needs all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from gobrrr.recording.run_folder.dataflow_file import FRESH, Op, Tensor
from gobrrr.recording.run_folder.outer_ops import ENGINE, LOADER, OPTIMIZER, Step

MOST_READ = 0.5
"""Share of a result from which it counts as read (proposed): computing less takes an edit, worth it from half on."""
PRODUCTS = frozenset(
    f"aten::{name}" for name in """linear mm addmm bmm baddbmm matmul conv1d conv2d conv3d convolution
    scaled_dot_product_attention""".split()
)  # fmt: skip
"""Ops that compute each row of their result for itself: who reads few needs few."""
ALONG = frozenset(
    f"aten::{name}" for name in """linear addmm mm layer_norm rms_norm gelu relu silu tanh sigmoid dropout add mul to
    clone contiguous""".split()
)  # fmt: skip
"""Ops whose rows need only the same rows of what they read."""
PICKS = ("aten::index", "aten::index_select")
"""Ops that read as many elements of their first tensor as they give."""


def partly_read(step: Step, after: Step) -> dict[int, float]:
    """Return the share of its result that is read, by op of a step, where it is small; `after`: the step that follows.

    Gradients do not count as readers: those of what is not read are zero.
    """
    known: dict[int, tuple[float, bool]] = {}
    readers: dict[int, list[tuple[Op, Tensor]]] = defaultdict(list)
    for each in (after, step):
        for op in reversed(each.ops):
            made = {tensor.storage: tensor for tensor in op.gives if tensor.storage in op.makes and tensor.elements}
            found = [_read(readers.pop(storage), of, known) for storage, of in made.items() if storage in readers]
            if each.within(op, ENGINE):
                continue
            share = max((share for share, _ in found), default=1.0)
            if op.name in PRODUCTS | ALONG and share <= MOST_READ:
                known[op.id] = share, all(rows for _, rows in found)
            if made or op.writes or not op.gives:  # a view reads nothing
                for tensor in op.reads:
                    readers[tensor.storage].append((op, tensor))
    products = (op for op in step.ops if op.id in known and op.name in PRODUCTS)
    return {inside: known[op.id][0] for op in products for inside in step.inside[op.id]}


def _read(
    readers: Sequence[tuple[Op, Tensor]], made: Tensor, known: dict[int, tuple[float, bool]]
) -> tuple[float, bool]:  # fmt: skip
    """Return the share of a result's elements that are read, at most, and whether whole rows are."""
    parts: dict[tuple[int, str], float] = {}
    rows = True
    for op, tensor in readers:
        read, width = float(tensor.elements), tensor.shape[-1:]
        if op.name in PICKS and tensor == op.reads[0] and op.gives:
            read, width = min(read, op.gives[0].elements), op.gives[0].shape[-1:]
        elif op.name in ALONG and op.id in known and known[op.id][1] and tensor in _rows_of(op):
            read *= known[op.id][0]
        parts[tensor.offset, tensor.kind] = max(read, parts.get((tensor.offset, tensor.kind), 0.0))
        rows &= width == made.shape[-1:]
    return min(1.0, sum(parts.values()) / made.elements), rows


def _rows_of(op: Op) -> list[Tensor]:
    """Return the tensors of which a row of the result needs a row: all of a sum, of addmm(bias, rows, weight) one."""
    at = 1 if op.name == "aten::addmm" else 0
    pointwise = op.name in ("aten::add", "aten::mul")
    return [each for each in op.reads if each.shape == op.gives[0].shape] if pointwise else op.reads[at : at + 1]


def for_no_weight(before: Sequence[Step], step: Step, after: Step) -> set[int]:
    """Return the ops of a step on which neither an optimizer's step nor what the step `after` it reads depends; none
    where tensors come in beside a loader and what was made `before`: Python may bring back with them what it read."""
    live, made = after.read_before_made(), set[int]().union(*(each.made_but() for each in before))
    elsewhere = (LOADER, OPTIMIZER, ENGINE)
    fresh = any(op.name in FRESH and not step.within(op, *elsewhere) for op in step.ops)
    updates = any(step.within(op, OPTIMIZER) for op in step.ops)
    if not updates or fresh or step.read_before_made(but=elsewhere) - live - made:
        return set()
    idle: set[int] = set()
    own = set().union(*step.makes.values())
    for op in reversed(step.ops):
        stores = step.makes[op.id] | op.writes
        lasts = not op.is_told or not op.name.startswith("aten::") or op.writes - own  # in a memory of samples, say
        if lasts or live & stores or step.within(op, OPTIMIZER):
            live -= step.makes[op.id]
            live |= op.values
        elif stores:
            idle.update(step.inside[op.id])
    return idle
