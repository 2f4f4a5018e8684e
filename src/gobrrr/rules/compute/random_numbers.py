"""BRR112: random numbers that one thread draws while the others wait."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from gobrrr.ledger.model.ledger import Ledger, OpGroup
from gobrrr.machine.model.machine import Machine
from gobrrr.rules.model.evidence import count, time, worth_telling
from gobrrr.rules.model.finding import Cause, rule
from gobrrr.rules.model.shapes import costliest_line, float_dtype, num_elements, total
from gobrrr.units import duration

MASK = "aten::bernoulli_"
RARE = 0.01
"""Least chance of a one, or of a zero: at 1 % a 16-bit threshold is off by at most 0.08 % of it."""
LEAST = 16_384
"""Elements of a mask from which packing wins threefold: its kernel in Python costs some 15 us per call."""
SPARED = 0.75
"""Measured: 5.8 ns per element become 0.9 to 1.3 (fp32, one thread, 16 thousand to 4 million elements, AMD Zen 4)."""


@rule("BRR112", "compute", needs={"ops", "shapes"}, remedies=("packed_masks",))
def masks_drawn_one_by_one(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Dropout on the CPU: each element of a mask takes a number of one generator, in one thread."""
    found = masks(ledger)
    spent = total(found)
    if not worth_telling(ledger, SPARED * spent):
        return
    elements = sum(op.calls * num_elements(op) for op in found)
    yield Cause(
        saving=(0.5 * spent, SPARED * spent, spent),
        message=f"Masks of {elements:,.0f} elements per step (dropout) are drawn one number after the other, in a "
        f"single thread: {duration(spent)} per step",
        advice="Compile the model (its code draws in parallel), or draw four elements from each 64-bit number, as the "
        "remedy packed_masks does.",
        where=costliest_line(found),
        evidence={"time_in_masks": time(spent), "elements": count(elements)},
    )


def masks(ledger: Ledger) -> list[OpGroup]:
    """Return the ops that draw masks on the CPU in the model of a training step and can be drawn otherwise:
    bernoulli_(p) of enough contiguous floats."""
    if ledger.device is not None or ledger.step.kind != "training":
        return []
    return [op for op in ledger.ops if op.name == MASK and op.phase != "data" and _can_be_packed(op)]


def _can_be_packed(op: OpGroup) -> bool:
    shape, given = op.shapes[0] if op.shapes else (), op.shapes[1:2]
    if given != ((),) or float_dtype(op) is None or num_elements(op) < LEAST:
        return False
    dense = [prod(shape[at:]) for at in range(1, len(shape) + 1)]
    lies = not op.strides or all(s == d or n == 1 for n, s, d in zip(shape, op.strides[0], dense, strict=False))
    return lies and RARE <= chance_of_one(op) <= 1 - RARE


def chance_of_one(op: OpGroup) -> float:
    """Return the probability given to bernoulli_; 0.5 where it was not written down."""
    try:
        return float(op.concrete[1]) if op.concrete[1:] else 0.5
    except ValueError:
        return 0.5
