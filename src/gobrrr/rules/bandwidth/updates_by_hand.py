"""BRR209: weights that the program updates by hand, tensor by tensor and op by op."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterator
from math import prod

from gobrrr.ledger.model.ledger import HostGroup, Ledger, OpGroup
from gobrrr.machine.model.machine import Machine
from gobrrr.rules.bandwidth.updates import ACCUMULATE, FUSED_PER_TENSOR, STEP
from gobrrr.rules.model.evidence import count, time, worth_telling
from gobrrr.rules.model.finding import Finding, finding, rule
from gobrrr.rules.model.shapes import FLOATS, Key, costliest_line, factors, float_dtype, inside, key, kind, total
from gobrrr.rules.model.views import host_side
from gobrrr.units import duration, share

ZEROING = ("aten::zero_", "aten::fill_", "aten::detach_", "aten::requires_grad_")
"""Ops in place that are no update."""
MOST = 0.8
"""Share of the gradients' elements that a function passes over to be the one that updates the weights: some may have no
gradient this time, or a rule of their own."""
FEWEST = 3
"""Ops per tensor from which a fused update is worth its name: p -= lr * grad are two."""
STATE = 3.0
"""Tensors that a fused update writes for each weight, where it is not known: the weight and two moments."""
Shape = tuple[int, ...]


def _form(shape: Shape) -> Shape:
    """A shape and its transpose are one weight's: a layer multiplies by the transpose of what is updated."""
    return tuple(sorted(shape))


def by_hand(ledger: Ledger) -> dict[Key, list[OpGroup]]:
    """Ops by line of the function that updates the weights, where no optimizer of torch's does: outside the backward it
    computes, in place or not, with tensors of the gradients' shapes, with most of them, FEWEST times each."""
    weights = _weights(ledger)
    steps = any(inside(op, STEP) or op.name.startswith(STEP) for op in ledger.ops)
    through = {
        key(op.where) for op in ledger.ops if op.phase == "backward"
    }  # differentiated: an inner loop, of MAML say
    functions: dict[tuple[str, str], list[OpGroup]] = defaultdict(list)
    for op in ledger.ops:
        if (
            op.where
            and key(op.where) not in through
            and weights.keys() & set(map(_form, op.shapes))
            and (_in_written_step(ledger, op) if steps else op.phase == "other")
        ):
            functions[(op.where[0].file, op.where[0].function)].append(op)
    updating = [ops for ops in functions.values() if _updates(ops, weights)]
    lines: dict[Key, list[OpGroup]] = {}
    for op in max(updating, key=total, default=[]):
        if (place := key(op.where)) is not None:
            lines.setdefault(place, []).append(op)
    return lines


def _weights(ledger: Ledger) -> Counter[Shape]:
    """Tensors that get a gradient, by form: those that torch accumulates, else (torch.autograd.grad) those that
    forward products multiply by."""
    found: Counter[Shape] = Counter()
    for op in ledger.named(ACCUMULATE):
        if op.shapes and op.shapes[0]:
            found[_form(op.shapes[0])] += round(op.calls)
    if found or not any(op.phase == "backward" for op in ledger.ops):
        return found
    for op in ledger.ops:
        pair = factors(op) if op.phase != "backward" else None
        if pair is not None and len(pair[1]) == 2:
            found[_form(pair[1])] += round(op.calls)
    return found


def _in_written_step(ledger: Ledger, op: OpGroup) -> bool:
    """It runs in an optimizer's step that the program itself has written: torch's own have no line of the user's below
    the one that calls step()."""
    called = {each.span.place for each in ledger.facts.optimizers if each.span is not None}
    own = op.phase == "optimizer" and op.where[0].place not in called
    return own and any(span.place in called for span in op.where[1:])


def _updates(ops: list[OpGroup], weights: Counter[Shape]) -> bool:
    """It passes over most of the weights' elements, by the busiest op of each shape, and FEWEST times over each."""
    passes = [op for op in ops if _passes(op, weights)]
    busiest: dict[Shape, float] = {}
    for op in passes:
        busiest[op.shapes[0]] = max(busiest.get(op.shapes[0], 0.0), op.calls)
    calls: Counter[Shape] = Counter()
    for shape, most in busiest.items():
        calls[_form(shape)] += round(most)
    tensors = sum(min(number, weights[form]) for form, number in calls.items())
    reached = sum(min(number, weights[form]) * prod(form) for form, number in calls.items())
    return reached >= MOST * _elements(weights) > 0 and sum(op.calls for op in passes) >= FEWEST * tensors


def _elements(weights: Counter[Shape]) -> float:
    return sum(number * prod(shape) for shape, number in weights.items())


def _own(op: OpGroup) -> bool:
    """The program itself calls it."""
    return not any(parent.startswith("aten::") for parent in op.parents)


def _passes(op: OpGroup, weights: Container[Shape]) -> bool:
    """Arithmetic on a tensor of such a shape."""
    works = op.name not in ZEROING and not op.name.endswith("__") and kind(op) == "elementwise"
    return works and _own(op) and bool(op.shapes) and _form(op.shapes[0]) in weights


def _in_place(op: OpGroup) -> bool:
    return op.name.endswith("_")


@rule("BRR209", "update-by-hand", "bandwidth", needs={"plain", "ops", "shapes"}, on_device=True)
def update_by_hand(ledger: Ledger, machine: Machine) -> Iterator[Finding]:
    """An optimizer written out: each op passes over a weight or its state, and is dispatched, by itself."""
    whole = host_side(ledger)  # which knows all ops, those without a kernel too
    lines = by_hand(whole)
    ops = [op for at_line in lines.values() for op in at_line]
    if not ops:
        return
    weights = _weights(whole)
    tensors, calls = weights.total(), sum(op.calls for op in ops if _own(op))
    host = [group for group in ledger.host if key(group.where) in lines and group.phase in ("other", "optimizer")]
    kernels = [op for op in ledger.ops if key(op.where) in lines] if ledger.of_device else []
    spent = total(ops) + total(kernels) + sum(group.ns for group in host)
    fused = _fused(ledger, machine, weights, ops) + tensors * FUSED_PER_TENSOR * machine.dispatch.median
    saved = spent - fused
    if not worth_telling(ledger, 0.8 * saved):
        return
    everything: list[OpGroup | HostGroup] = [*kernels, *ops, *host]
    sure = any(_in_place(op) and _passes(op, weights) for op in ops) or any(op.phase == "optimizer" for op in ops)
    what = "The weights are updated by hand" if sure else "What looks like an update of the weights by hand"
    yield finding(
        "BRR209",
        ledger,
        low=0.35 * saved if sure else 0.0,
        expected=0.8 * saved,
        ceiling=spent,
        message=f"{what}: {calls:.0f} ops on {tensors:.0f} tensors take {duration(spent)} per "
        f"step ({share(spent / ledger.wall)}); one fused pass takes about {duration(fused)}",
        advice="Use an optimizer of torch.optim with fused=True (AdamW, Adam, SGD); for a rule of your own, torch's "
        "_foreach_ ops on lists of all weights, or torch.compile around the update.",
        where=costliest_line(ops),
        evidence={"update": time(spent), "one_pass": time(fused), "tensors": count(tensors), "ops": count(calls)},
        of=everything,
        both=True,
        level=None if sure else "note",  # statistics of gradients look alike, and nothing was seen to be written
        confidence="derived" if sure else "inferred",
    )


def _fused(ledger: Ledger, machine: Machine, weights: Counter[Shape], ops: list[OpGroup]) -> float:
    """One pass: what is written is read and written once, gradients are read once."""
    size = sum(number * prod(shape) for shape, number in weights.items()) * FLOATS.get(float_dtype(ops[0]) or "", 4)
    passes = [op for op in ops if _passes(op, weights)]
    written = sum(op.calls * prod(op.shapes[0]) for op in passes if _in_place(op)) / _elements(weights)
    moved = (2 * (written if written >= 1 else STATE) + 1) * size
    return moved / machine.byte_rate(moved, ledger.threads) * 1e9
