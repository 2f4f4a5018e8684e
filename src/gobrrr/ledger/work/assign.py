"""Which op of a tree of ops has the work: everything is counted once, at the op that does it.

A wrapper passes its work to the ops inside it. Any other op with a formula owns all that happens inside it: what addmm
copies to lay out its bias is part of addmm. Where an op contains itself (sort calls sort) the inner one counts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from gobrrr.ledger.work.call import parse, table_name
from gobrrr.ledger.work.model import NOTHING, NotCounted, Work
from gobrrr.ledger.work.passes.optimizers import FUSED, list_work
from gobrrr.ledger.work.registry import FORMULAS
from gobrrr.ledger.work.wrappers import is_partly_wrapper, is_wrapper

_INTEGER = re.compile(r"-?\d+")
_IDLE, _LIGHT, _HEAVY = range(3)
HEAVY_KINDS = frozenset(("matmul", "convolution", "attention", "rnn"))
_OPTIMIZER = re.compile(r"Optimizer\.step#(\w+)\.")


class Recorded(Protocol):
    """Record of one call: a trace's Signature, or anything with these fields."""

    @property
    def shapes(self) -> tuple[Any, ...]: ...
    @property
    def dtypes(self) -> tuple[str, ...]: ...
    @property
    def concrete(self) -> tuple[str, ...]: ...
    @property
    def strides(self) -> tuple[Any, ...]: ...


def work_of(
    name: str,
    shapes: Sequence[Any],
    dtypes: Sequence[str],
    concrete: Sequence[str],
    strides: Sequence[Any] = (),
    *,
    list_dtype: str = "float",
    inner: Sequence[tuple[int, ...]] = (),
) -> Work | None:
    """The work of one call, from the fields of a profiler event; None where it is not known ("not counted").

    `name` is the event's name (aten::addmm), `shapes` its "Input Dims" (one per argument, () for scalars, nested for
    lists of tensors), `dtypes` its "Input type", `concrete` its "Concrete Inputs", `strides` its "Input Strides" (an
    expanded argument then costs only what it really holds). torch does not record the dtype of the members of a list:
    `list_dtype` is taken for it. `inner` are the sizes that ops inside this one allocated or viewed (`assign` collects
    them), which tells what indexing and packed weights do not. Never raises on what a file may hold.
    """
    found = FORMULAS.get(table_name(name))
    if found is None:
        return None
    try:
        work = found(parse(name, shapes, dtypes, concrete, strides, list_dtype, inner))
    except (NotCounted, ValueError, TypeError, IndexError, KeyError, ArithmeticError):
        return None
    return work if 0 <= work.flops < float("inf") and 0 <= work.bytes < float("inf") else None


def assign(
    names: Sequence[str],
    parents: Sequence[int],
    recorded: Sequence[Recorded | None],
    updated: Mapping[str, float] | None = None,
) -> list[Work | None]:
    """The work of every op of a tree, each FLOP and byte once: NOTHING for a wrapper, a view and what belongs to the op
    around it, None for an op that works and is not modelled.

    `parents` are indices of the enclosing op or annotation (-1 for none); a parent stands before its children.
    `updated` is the number of parameter elements that one step of an optimizer class updates ({"AdamW": 124e6}): fused
    steps over more than 30 tensors are priced by it, divided by the fused calls within one Optimizer.step.
    """
    works = _works(names, parents, recorded, updated or {})
    passes = _passing(names, parents, works)
    result: list[Work | None] = []
    owned: list[bool] = []
    for i, parent in enumerate(parents):
        inside = parent >= 0 and (owned[parent] or (not passes[parent] and table_name(names[parent]) in FORMULAS))
        owned.append(inside)
        result.append(NOTHING if inside or passes[i] else works[i])
    return result


def owners(names: Sequence[str], parents: Sequence[int], recorded: Sequence[Recorded | None]) -> list[int]:
    """For every op the op that answers for its time: the outermost one that owns it, or itself."""
    passes = _passing(names, parents, _works(names, parents, recorded, {}))
    found: list[int] = []
    for i, parent in enumerate(parents):
        above = found[parent] if parent >= 0 else i
        belongs = parent >= 0 and not passes[above] and table_name(names[above]) in FORMULAS
        found.append(above if belongs else i)
    return found


def _works(
    names: Sequence[str], parents: Sequence[int], recorded: Sequence[Recorded | None], updated: Mapping[str, float]
) -> list[Work | None]:
    """Each op's own price, as if it stood alone; equal calls are priced once."""
    inner = _inner_sizes(names, parents, recorded)
    known: dict[Any, Work | None] = {}
    works: list[Work | None] = []
    for i, name in enumerate(names):
        call, sizes = recorded[i], tuple(inner.get(i, ()))
        key = (name, id(call), sizes)
        if key not in known:
            known[key] = (
                work_of(name, call.shapes, call.dtypes, call.concrete, call.strides, inner=sizes) if call else None
            )
        works.append(known[key])
    for i, work in _fused_steps(names, parents, works, updated):
        works[i] = work
    return works


def _inner_sizes(
    names: Sequence[str], parents: Sequence[int], recorded: Sequence[Recorded | None]
) -> dict[int, list[tuple[int, ...]]]:
    """Return shapes that ops allocate (packed weights) or view (indexing) directly inside those that need them."""
    wanted = dict.fromkeys(("aten::index", "aten::_index_put_impl_"), ("aten::as_strided", 1))
    found: dict[int, list[tuple[int, ...]]] = {}
    for i, parent in enumerate(parents):
        above = names[parent] if parent >= 0 else ""
        if above not in wanted and not above.startswith("quantized::"):
            continue
        child, at = wanted.get(above, ("aten::empty", 0))
        call = recorded[i]
        if names[i] == child and call is not None and len(call.concrete) > at:
            found.setdefault(parent, []).append(tuple(int(n) for n in _INTEGER.findall(call.concrete[at])))
    return found


def _fused_steps(
    names: Sequence[str], parents: Sequence[int], works: Sequence[Work | None], updated: Mapping[str, float]
) -> list[tuple[int, Work | None]]:
    """Fused optimizer calls whose lists were not recorded, priced by what their optimizer is known to update."""
    steps: dict[int, tuple[int, float]] = {}
    for i, name in enumerate(names):
        if works[i] is None and table_name(name) in FUSED:
            above = parents[i]
            while above >= 0 and not (step := _OPTIMIZER.match(names[above])):
                above = parents[above]
            if above >= 0 and step and step.group(1) in updated:
                steps[i] = (above, updated[step.group(1)])
    calls = Counter(step for step, _ in steps.values())
    return [(i, list_work(names[i], int(elements / calls[step]))) for i, (step, elements) in steps.items()]


def _passing(names: Sequence[str], parents: Sequence[int], works: Sequence[Work | None]) -> list[bool]:
    """Mark ops that leave their work to others: wrappers, and partial ones inside which something works. A product or a
    convolution is left only to another of that weight: what it copies on the way is not its work."""
    num = len(names)
    below, has_child, repeats, passes = [_IDLE] * num, [False] * num, [False] * num, [False] * num
    for i in range(num - 1, -1, -1):
        name, parent, work = names[i], parents[i], works[i]
        if table_name(name) not in FORMULAS:
            passes[i] = has_child[i] or is_wrapper(name)
        elif repeats[i] or is_wrapper(name) or is_partly_wrapper(name):
            passes[i] = below[i] >= (_HEAVY if work is not None and work.kind in HEAVY_KINDS else _LIGHT)
        if parent >= 0:
            below[parent] = max(below[parent], below[i], _IDLE if passes[i] else _weight(work))
            has_child[parent] = True
            repeats[parent] |= table_name(names[parent]) == table_name(name)
    return passes


def _weight(work: Work | None) -> int:
    """Whether an op works, and whether its work is of the kind that FLOPs bound; an unknown op may be anything."""
    if work is None or (work.kind in HEAVY_KINDS and work.flops > 0):
        return _HEAVY
    return _LIGHT if work.bytes > 0 else _IDLE
