"""BRR206 to BRR209: gradients and updates that pass over more memory, or more often, than they need."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterator
from math import prod

from gobrrr.ledger.model.ledger import HostGroup, Ledger, OpGroup
from gobrrr.machine.model.machine import Machine
from gobrrr.rules.model.evidence import count, ratio, size, time, worth_telling
from gobrrr.rules.model.finding import Cause, rule
from gobrrr.rules.model.lines import made_at
from gobrrr.rules.model.shapes import (
    FLOATS,
    MATMULS,
    Key,
    costliest_line,
    factors,
    float_dtype,
    grouped,
    inside,
    key,
    kind,
    total,
)  # fmt: skip
from gobrrr.rules.model.views import everything, host_side, num_updated, of_phase, stepping
from gobrrr.units import duration, share
from gobrrr.words import OPTIMIZER, UPDATE

# A gradient that touches more than one row in eight is dense for all practical purposes.
SPARSE_ENOUGH = 1 / 8
# One tensor in a fused optimizer took 4.3 us where a small op took 1.2 us.
FUSED_PER_TENSOR = 3.5
STEP = UPDATE.removesuffix("#")
DENSE = {"aten::embedding_dense_backward": 2, "aten::_embedding_bag_dense_backward": 5}
"""Ops that make the gradient of a whole table, and which of their inputs is its number of rows."""
ACCUMULATE = "torch::autograd::AccumulateGrad"


@rule("BRR206", "bandwidth", needs={"ops", "shapes"}, remedies=("sparse_gradient",), on_device=True)
def dense_embedding_gradient(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """A gradient as large as the whole embedding table for the few rows that a batch looks up."""
    ill = [
        (op, table)
        for op in ledger.named(*DENSE)
        if (table := _table(op)) and not _has_head_of(ledger, table) and _touched(op, table) <= SPARSE_ENOUGH
    ]
    tables = {table for _, table in ill}
    places, update = {op.where for op, _ in ill}, _update_cost(ledger, tables)
    # The ops and what runs inside them: making zeros as large as the table.
    inner = (op for op in ledger.ops if op.where in places and inside(op, *DENSE))
    gradient = total(op for op, _ in ill) + total(inner)
    touched = max((_touched(op, table) for op, table in ill), default=0.0)
    cost = (gradient + update) * (1 - touched)
    if not ill or not worth_telling(ledger, 0.8 * cost):
        return
    largest, (rows, _) = max(ill, key=lambda each: prod(each[1]))
    yield Cause(
        saving=(0.35 * cost, 0.8 * cost, 1.4 * (gradient + update)),  # and the cache that passes over the table empty
        message=f"A batch looks up at most {share(touched)} of {rows:,} rows; the whole table's gradient is written "
        f"({duration(gradient)}) and updated ({duration(update)}) every step",
        advice="Make the embedding with sparse=True and give it an optimizer of its own, SparseAdam or SGD.",
        where=(*made_at(ledger, largest.where, r"^{name} = .*Embedding\w*\("), *largest.where),
        evidence={
            "rows": count(rows),
            "rows_touched": ratio(touched),
            "gradient": time(gradient),
            "update": time(update),
            "tables": count(len(tables)),
        },
        cost_bytes=sum(prod(table) * FLOATS.get(op.dtypes[0], 4) for op, table in ill),
    )


def _touched(op: OpGroup, table: tuple[int, int]) -> float:
    """Share of the table's rows that a batch can touch at most."""
    return min(1.0, prod(op.shapes[1]) / table[0])


def _table(op: OpGroup) -> tuple[int, int] | None:
    """(rows, dim) of an op of DENSE: its gradient's last dimension is the table's."""
    at = DENSE[op.name]
    if len(op.shapes) < 2 or not op.shapes[0] or len(op.concrete) <= at or not op.concrete[at].isdigit():
        return None
    return int(op.concrete[at]), op.shapes[0][-1]


def _has_head_of(ledger: Ledger, table: tuple[int, int]) -> bool:
    """A product with a matrix of the table's size: weights tied to a head get a dense gradient anyway."""
    sides = {table, table[::-1]}
    return any(op.name in MATMULS and any(shape in sides for shape in op.shapes) for op in ledger.ops)


def _update_cost(ledger: Ledger, tables: set[tuple[int, int]]) -> float:
    """Return the ns per step that optimizer, zero_grad and clipping spend on the tables; where shapes hide, by the
    tables' share of the elements."""
    late = (op for op in ledger.ops if op.phase in ("backward", "optimizer", "other") and not inside(op, *DENSE))
    after = [op for op in late if tables & set(op.shapes)]
    if any(inside(op, STEP) for op in after):
        return total(after)
    elements = num_updated(ledger)
    part = min(1.0, sum(map(prod, tables)) / elements) if elements else 0.0
    return total(after) + ledger.phase("optimizer") * part


@rule("BRR207", "bandwidth", needs={"ops"}, remedies=("set_to_none",), on_device=True)
def gradients_zeroed_by_writing(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """zero_grad that writes zeros: one pass to write them, and one to add to them what could have been put there."""
    zeros = [op for op in ledger.ops if inside(op, f"{OPTIMIZER}zero_grad")] or _zeroed_by_hand(ledger)
    added = [op for op in ledger.ops if inside(op, ACCUMULATE) and op.name == "aten::add_"]
    micro_steps = max((o.micro_steps for o in stepping(ledger)), default=1.0)
    adds = total(added) / max(micro_steps, 1.0)
    cost = total(zeros) + adds
    if not zeros or not worth_telling(ledger, 0.75 * cost):
        return
    yield Cause(
        # whose gradients are then fresh in the cache
        saving=(0.3 * cost, 0.75 * cost, 1.2 * cost + 0.4 * ledger.phase("optimizer")),
        message=f"Zeros are written into the gradients ({duration(total(zeros))} per step), so that backward must add "
        f"to them ({duration(adds)})",
        advice="Call zero_grad() as it is by default, with set_to_none=True.",
        where=costliest_line(zeros),
        evidence={"zeroing": time(total(zeros)), "adding": time(adds), "micro_steps": count(micro_steps)},
        of=[*zeros, *added],
    )


def _zeroed_by_hand(ledger: Ledger) -> list[OpGroup]:
    """zero_() on the user's own line, over at least half of the parameters."""
    every = (op for op in ledger.named("aten::zero_", "aten::_foreach_zero_") if op.phase in ("optimizer", "other"))
    zeros = [op for op in every if _own(op)]
    written = sum(op.calls * prod(op.shapes[0]) for op in zeros if op.shapes)
    elements = num_updated(ledger)
    return zeros if elements and written >= 0.5 * elements else []


COMPILABLE = ("RAdam", "NAdam", "Adamax", "RMSprop", "Adadelta", "ASGD", "Rprop")
"""Optimizers of torch.optim without a fused kernel, whose step torch.compile makes few kernels of."""


@rule(
    "BRR208",
    "bandwidth",
    needs={"ops", "facts"},
    remedies=("fused_optimizer", "compiled_optimizer", "foreach_optimizer"),
    on_device=True,
)
def unfused_optimizer(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """An optimizer that passes over parameters, gradients and state once per op, though one kernel could do all."""
    every = [o for o in stepping(ledger) if o.num_elements]
    ill = [o for o in every if not o.fused and (o.supports_fused or o.kind in COMPILABLE)]
    if not ill:
        return
    ops = _of_updates(ledger)
    tensors = sum(o.num_tensors for o in ill)
    if sum(op.calls for op in ops if op.parents[-1].startswith(STEP)) < 2 * tensors:
        return  # one op per tensor, or lists of tensors already: nothing to fuse
    part = sum(o.num_elements for o in ill) / sum(o.num_elements for o in every)
    spent = part * updating(ledger)[0]
    # One pass is no slower than this very run's bytes per second; it reads and writes parameters and state once, and
    # reads gradients once.
    counted = [op for op in ops if op.bytes and op.ns > op.dispatch_ns]
    own_rate = sum(op.bytes or 0.0 for op in counted) / max(total(counted), 1.0) * 1e9
    floor = 0.0
    for each in ill:
        held = each.param_bytes + each.state_bytes + each.grad_bytes
        moved = 2 * held - each.grad_bytes
        floor += moved / max(own_rate, machine.byte_rate(held, ledger.threads)) * 1e9
    fused = 1.1 * floor + tensors * FUSED_PER_TENSOR * machine.dispatch.median
    saved = spent - fused
    main = max(ill, key=lambda o: o.num_elements)
    expected = (0.9 if main.supports_fused else 0.6) * saved
    if not worth_telling(ledger, expected):
        return
    how = "in lists, op by op (foreach)" if main.foreach else "one by one, op by op"
    yield Cause(
        saving=(0.35 * saved, expected, spent - 0.5 * floor),
        message=f"{main.kind}.step updates {tensors} tensors {how} in {duration(spent)} per step "
        f"({share(spent / ledger.wall)})" + (", though it has a fused kernel" if main.supports_fused else ""),
        advice=f"Make it with {main.kind}(..., fused=True)."
        if main.supports_fused
        else "Compile its step once, step = torch.compile(optimizer.step), and call that.",
        where=(main.span,) if main.span else costliest_line(ops),
        evidence={
            "optimizer_step": time(spent),
            "one_pass": time(floor),
            "tensors": count(tensors),
            "state": size(sum(o.param_bytes + o.grad_bytes + o.state_bytes for o in ill)),
        },
        of=[group for group in everything(ledger) if group.phase == "optimizer"]
        if ledger.of_device
        else [*ops, *(host for host in ledger.host if host.phase == "optimizer")],
        holds=spent,
        both=True,
    )


def _of_updates(ledger: Ledger) -> list[OpGroup]:
    """Ops of optimizers' steps, without what their closures run."""
    return [op for op in ledger.ops if inside(op, STEP) and op.phase == "optimizer"]


def updating(ledger: Ledger) -> tuple[float, float]:
    """ns per step in updates, at least and at most: as profiled, and as the plain steps that were sampled had it. Ops
    by the hundred lose too much with the instruments (2.2 of 3.5 ms of a forecasting model). Where a device works, its
    kernels and its idle time there."""
    if ledger.device is not None:
        spent = of_phase(ledger, "optimizer")
        return spent, spent
    sampled = sum(line.ns for line in ledger.lines if line.phase == "optimizer")
    profiled = ledger.phase("optimizer") or total(_of_updates(ledger))
    seen = (profiled, sampled) if "samples" in ledger.signals and ledger.lines else (profiled,)
    return min(seen), max(seen)


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
    # What is differentiated is an inner loop, of MAML say.
    through = {key(op.where) for op in ledger.ops if op.phase == "backward"}
    late = [
        op
        for op in ledger.ops
        if op.where
        and key(op.where) not in through
        and weights.keys() & set(map(_form, op.shapes))
        and (_in_written_step(ledger, op) if steps else op.phase == "other")
    ]
    functions = grouped(late, lambda op: (op.where[0].file, op.where[0].function))
    updating = [ops for ops in functions.values() if _updates(ops, weights)]
    return grouped(max(updating, key=total, default=[]), lambda op: op.where[0].place)


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
    busiest: dict[Shape, float] = defaultdict(float)
    for op in passes:
        busiest[op.shapes[0]] = max(busiest[op.shapes[0]], op.calls)
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
    return not inside(op, "aten::")


def _passes(op: OpGroup, weights: Container[Shape]) -> bool:
    """Arithmetic on a tensor of such a shape."""
    works = op.name not in ZEROING and not op.name.endswith("__") and kind(op) == "elementwise"
    return works and _own(op) and bool(op.shapes) and _form(op.shapes[0]) in weights


@rule("BRR209", "bandwidth", needs={"plain", "ops", "shapes"}, on_device=True)
def update_by_hand(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
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
    sure = any(op.phase == "optimizer" or (op.name.endswith("_") and _passes(op, weights)) for op in ops)
    what = "The weights are updated by hand" if sure else "What looks like a weight update by hand"
    yield Cause(
        saving=(0.35 * saved if sure else 0.0, 0.8 * saved, spent),
        message=f"{what}: {calls:.0f} ops on {tensors:.0f} tensors take {duration(spent)} per "
        f"step ({share(spent / ledger.wall)}); one fused pass {duration(fused)}",
        advice="Use an optimizer of torch.optim with fused=True (AdamW, Adam, SGD). For a rule of your own use torch's "
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
    written = sum(op.calls * prod(op.shapes[0]) for op in passes if op.name.endswith("_")) / _elements(weights)
    moved = (2 * (written if written >= 1 else STATE) + 1) * size
    return moved / machine.byte_rate(moved, ledger.threads) * 1e9
