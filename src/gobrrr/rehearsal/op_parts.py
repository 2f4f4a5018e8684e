"""Op groups of a ledger become parts: as recorded, and with other dtypes, strides or settings. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from gobrrr.ledger.model.ledger import Ledger, OpGroup
from gobrrr.rehearsal.callables import DTYPES, KNOWN, PRODUCTS
from gobrrr.rehearsal.script import Part, Side
from gobrrr.rules.model.shapes import product_dims
from gobrrr.rules.model.views import hot

MOST_PARTS = 32  # parts played at most; proposed: rounds must fit the time; time left out of scenes would settle it
COVERED = 0.97
"""Share of the time of a scene's parts that is played; the rest are many and short."""
SELDOM, FEW = 2, 32
"""Calls in all recorded steps up to which a shape is new, and shapes from which on a program is one that makes them."""
NEAR = 1.25
"""How many times as large one batch may be for an op of it to be played for that of another."""
ALIKE = 1.02
"""How many times as far apart one of its sizes may be as another: labels are a token shorter than inputs."""


def side(op: OpGroup) -> Side:
    """The op as it was recorded."""
    return {
        "make": "op", "name": op.name, "shapes": list(map(list, op.shapes)), "dtypes": list(op.dtypes),
        "strides": list(map(list, op.strides)), "concrete": list(op.concrete),
    }  # fmt: skip


def part(op: OpGroup, **changes: Any) -> Part:
    """The op as it is against the same with `changes` to its description."""
    return Part(side(op), {**side(op), **changes}, op.calls, op.ns)


def with_dtype(op: OpGroup, source: str, target: str) -> list[str]:
    """Return an op's dtypes with tensors of `source` in `target`; 0-d ones are numbers in disguise."""
    return [target if shape and dtype == source else dtype for shape, dtype in zip(op.shapes, op.dtypes, strict=True)]


def fresh(ledger: Ledger, changed: Iterable[OpGroup], how: Side) -> list[Part]:
    """The kernels that a CPU's library makes anew for products of shapes that hardly ever come again: of an expert that
    is given other tokens in each step. A mixture of four was promised 25 % of bf16, with warm kernels, and lost 34."""
    steps = ledger.step.profiled_count
    calls: defaultdict[tuple[object, ...], float] = defaultdict(float)
    largest: dict[tuple[object, ...], OpGroup] = {}
    for op in changed if ledger.device is None else ():
        if op.name in PRODUCTS:
            key = op.name, op.shapes, op.strides
            calls[key] += op.calls * steps
            largest[key] = max(largest.get(key, op), op, key=lambda each: each.ns)
    new = [op for key, op in largest.items() if 0 < calls[key] <= SELDOM]
    if len(new) < FEW:
        return []
    first = max(new, key=lambda op: op.ns)
    made = {"make": "fresh", "dims": list(product_dims(first) or ()), "torch_dtype": DTYPES[how["dtype"]][0], **how}
    return [Part(None, made, len(new) / steps)] if made["dims"] else []


def playable(ledger: Ledger, wanted: Callable[[OpGroup], bool] = lambda op: True) -> list[OpGroup]:
    """The model's ops that can be played again and that are wanted, in the order in which they ran."""
    model = [op for op in hot(ledger) if op.phase not in ("data", "optimizer") and op.name in KNOWN]
    return sorted((op for op in model if op.shapes and wanted(op)), key=lambda op: op.order)


def chosen(parts: Iterable[Part]) -> tuple[tuple[Part, ...], float]:
    """Return the parts to play, those the remedy adds first, then the longest: the stage plays as many as fit its time;
    and the ns per step of those left out."""
    ranked = sorted(_merged(parts), key=lambda p: -p.ns)
    known = [p for p in ranked if p.ns]
    total, took, picked = sum(p.ns for p in known), 0.0, 0
    for each in known[:MOST_PARTS]:
        if took >= COVERED * total:
            break
        took, picked = took + each.ns, picked + 1
    return (*(p for p in ranked if not p.ns), *known[:picked]), total - took


def _merged(parts: Iterable[Part]) -> list[Part]:
    """Layers of one shape are played once (a UNet's thirty-two costliest parts were eleven), and so are batches of like
    length: where five lengths had been recorded of a Trainer's, the ops that lose were left out for want of room."""
    same: dict[bytes, Part] = {}
    for each in parts:
        key = msgspec.json.encode((each.today, each.then))
        same[key] = _both(same[key], each) if key in same else each
    alike: dict[bytes, list[Part]] = {}
    for each in sorted(same.values(), key=lambda p: -p.ns):
        others = alike.setdefault(_kind(each), [])
        near = next((i for i, other in enumerate(others) if _is_near(each, other)), None)
        if near is None:
            others.append(each)
        else:
            others[near] = _both(others[near], each, _weight(each, others[near]))
    return [part for family in alike.values() for part in family]


def _both(one: Part, other: Part, weight: float = 1.0) -> Part:
    calls = one.calls + weight * other.calls
    return replace(one, calls=calls, ns=one.ns + other.ns, most_ns=one.most_ns + other.most_ns)


def _kind(part: Part) -> bytes:
    """Encode all of it but how large it is: how many dimensions each tensor has, and which of them is dense."""

    def laid_out(side: Side) -> Side:
        dense = [[n == 1 for n in strides] for strides in side.get("strides", ())]
        ranks = list(map(len, side.get("shapes", ())))
        return {**side, "shapes": ranks, "strides": dense, "elements": 0, "dims": len(side.get("dims", ()))}

    return msgspec.json.encode([side and laid_out(side) for side in (part.today, part.then)])


def _sizes(part: Part) -> list[int]:
    side = part.today or part.then or {}
    return [*(n for shape in side.get("shapes", ()) for n in shape), *side.get("dims", ()), side.get("elements", 0)]


def _is_near(one: Part, other: Part) -> bool:
    """Say whether both take about as long: all sizes that differ do so by about one factor."""
    ratios = [a / b for a, b in zip(_sizes(one), _sizes(other), strict=True) if a != b and b]
    return bool(ratios) and 1 / NEAR <= min(ratios) <= max(ratios) <= min(NEAR, ALIKE * min(ratios))


def _weight(one: Part, other: Part) -> float:
    """Return how many calls of the other part one call of this is worth."""
    if one.ns and other.ns and one.calls:
        return one.ns / one.calls * other.calls / other.ns
    return math.prod(filter(None, _sizes(one))) / math.prod(filter(None, _sizes(other)))


def trains(ledger: Ledger) -> bool:
    """Whether it has a backward pass."""
    return any(op.phase == "backward" for op in hot(ledger))
