"""BRR209: weights that the program updates by hand, tensor by tensor and op by op."""

from __future__ import annotations

from collections.abc import Container, Iterator
from math import prod

from gobrrr.ledger.model import HostGroup, Ledger, OpGroup
from gobrrr.machine.model import Machine
from gobrrr.rules.bandwidth_updates import ACCUMULATE, FUSED_PER_TENSOR, STEP
from gobrrr.rules.evidence import count, time, worth_telling
from gobrrr.rules.lines import Key, key
from gobrrr.rules.model import Finding, finding, rule
from gobrrr.rules.shapes import FLOATS, costliest_line, float_dtype, inside, total
from gobrrr.units import duration, share

ZEROING = ("aten::zero_", "aten::fill_", "aten::detach_", "aten::requires_grad_")
"""In place, and no update."""
MOST = 0.8
"""Share of the gradients' elements that a function writes in place to be the one that updates the weights: some may
have no gradient this time, or a rule of their own."""
FEWEST = 3
"""Ops per tensor from which a fused update is worth its name: p -= lr * grad are two."""


def by_hand(ledger: Ledger) -> dict[Key, list[OpGroup]]:
    """Ops by line of the function that updates the weights, where no optimizer of torch's does: outside the backward it
    writes in place to tensors of the gradients' shapes, to most of them."""
    gradients = [op for op in ledger.named(ACCUMULATE) if op.shapes and op.shapes[0]]
    elements = sum(op.calls * prod(op.shapes[0]) for op in gradients)
    if not elements or any(inside(op, STEP) or op.name.startswith(STEP) for op in ledger.ops):
        return {}
    shapes = {op.shapes[0] for op in gradients}
    functions: dict[tuple[str, str], list[OpGroup]] = {}
    for op in ledger.ops:
        if op.phase == "other" and op.where and shapes & set(op.shapes):
            functions.setdefault((op.where[0].file, op.where[0].function), []).append(op)
    for ops in functions.values():
        written: dict[tuple[int, ...], float] = {}  # an update writes to one tensor more than once: by its busiest op
        for op in ops:
            if _writes(op, shapes):
                written[op.shapes[0]] = max(written.get(op.shapes[0], 0.0), op.calls)
        if sum(calls * prod(shape) for shape, calls in written.items()) >= MOST * elements:
            lines: dict[Key, list[OpGroup]] = {}
            for op in ops:
                if (place := key(op.where)) is not None:
                    lines.setdefault(place, []).append(op)
            return lines
    return {}


def _writes(op: OpGroup, shapes: Container[tuple[int, ...]]) -> bool:
    """In place to a tensor of such a shape, called by the program itself."""
    in_place = op.name.endswith("_") and not op.name.endswith("__") and op.name not in ZEROING
    own = not any(parent.startswith("aten::") for parent in op.parents)
    return in_place and own and bool(op.shapes) and op.shapes[0] in shapes


@rule("BRR209", "update-by-hand", "bandwidth", needs={"plain", "ops", "shapes"})
def update_by_hand(ledger: Ledger, machine: Machine) -> Iterator[Finding]:
    """An optimizer written out: each op passes over a weight or its state, and is dispatched, by itself."""
    lines = by_hand(ledger)
    ops = [op for at_line in lines.values() for op in at_line]
    gradients = [op for op in ledger.named(ACCUMULATE) if op.shapes and op.shapes[0]]
    tensors = sum(op.calls for op in gradients)
    calls = sum(op.calls for op in ops if not any(parent.startswith("aten::") for parent in op.parents))
    if not ops or calls < FEWEST * tensors:
        return
    host = [group for group in ledger.host if key(group.where) in lines and group.phase == "other"]
    spent = total(ops) + sum(group.ns for group in host)
    fused = _fused(ledger, machine, gradients, ops) + tensors * FUSED_PER_TENSOR * machine.dispatch.median
    saved = spent - fused
    if not worth_telling(ledger, 0.8 * saved):
        return
    everything: list[OpGroup | HostGroup] = [*ops, *host]
    yield finding(
        "BRR209",
        ledger,
        low=0.35 * saved,
        expected=0.8 * saved,
        ceiling=spent,
        message=f"The weights are updated by hand: {calls:.0f} ops on {tensors:.0f} tensors take {duration(spent)} per "
        f"step ({share(spent / ledger.wall)}); one fused pass takes about {duration(fused)}",
        advice="Use an optimizer of torch.optim with fused=True (AdamW, Adam, SGD); for a rule of your own, torch's "
        "_foreach_ ops on lists of all weights, or torch.compile around the update.",
        where=costliest_line(ops),
        evidence={"update": time(spent), "one_pass": time(fused), "tensors": count(tensors), "ops": count(calls)},
        of=everything,
    )


def _fused(ledger: Ledger, machine: Machine, gradients: list[OpGroup], ops: list[OpGroup]) -> float:
    """One pass: what is written in place is read and written once, gradients are read once."""
    size = sum(op.calls * prod(op.shapes[0]) * FLOATS.get(float_dtype(op) or "", 4) for op in gradients)
    elements = sum(op.calls * prod(op.shapes[0]) for op in gradients)
    shapes = {op.shapes[0] for op in gradients}
    written = sum(op.calls * prod(op.shapes[0]) for op in ops if _writes(op, shapes)) / elements
    moved = (2 * max(1.0, written) + 1) * size
    return moved / machine.byte_rate(moved, ledger.threads) * 1e9
