"""BRR301: Python loops that issue many tiny ops, and steps that are dispatch all over."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gobrrr.ledger.model.ledger import HostGroup, Ledger, LineGroup, OpGroup
from gobrrr.machine.model.machine import Machine
from gobrrr.recording.model.facts import Span
from gobrrr.rules.bandwidth.updates import by_hand
from gobrrr.rules.model.cores import micro_steps
from gobrrr.rules.model.evidence import count, time, worth_telling
from gobrrr.rules.model.finding import TINY, Cause, Quantity, rule
from gobrrr.rules.model.lines import claimed, loop_line
from gobrrr.rules.model.shapes import CONVOLUTIONS, Key, costliest_line, factors, grouped, inside, key, total
from gobrrr.rules.model.views import stepping
from gobrrr.units import duration, share

SMALL = 100.0
"""Dispatches that an op of a loop may take (0.1 ms where one takes 1 us): above, its own work fills the cores."""
REPEATS = 16
"""Calls of one op with the same shapes from one line and step that make a loop over samples or time steps: layers of a
small model repeat 2 to 12 times, samples and time steps 16 times and more (proposed)."""
ONCE = 0.9
"""Weights, to the products of their shape, from which each is used once: a step that is half seen has some too few."""
MICRO_STEPS = 8.0
"""Micro-steps of an update multiply the calls; more than these are a loop over samples themselves."""
MOSTLY = 0.75
"""Share of a line's op time in small ops that repeat from which it is a loop (proposed: the rest is set-up and work
between them; lines of the zoo known to be loops or not would settle it)."""
SELDOM = 1 / 8
"""Calls of an op, to those of the loop, from which its function is taken to hold the loop and not to be its body."""
NEAR = 3
"""Lines between two lines of one loop: its header and what it binds make no ops."""
BODY = ("forward", "loss", "other")
RECURRENT = ("aten::gru", "aten::lstm", "aten::rnn_")
"""torch's own loops over time: not the user's to vectorize."""


class Loop(NamedTuple):
    """A loop in one function: its busiest line and what everything in it costs per step."""

    where: tuple[Span, ...]
    op: str
    calls: float
    """Calls of the op that does most of the work of the loop's busiest line."""
    num_ops: float
    """All ops of the loop, those of backward too."""
    ns: float
    """All that the loop takes: its lines as sampled in plain steps, its ops in backward and the engine between them."""
    op_ns: float
    """Self time of the ops alone."""
    floor_ns: float
    lines: frozenset[Key]
    layers: bool = False
    """Each call has weights of its own: it goes over layers, experts or members, not over samples or time steps."""


def is_tiny(op: OpGroup, machine: Machine) -> bool:
    """Its time per call is of the order of dispatching it, or its work is worth less than that, whatever it took."""
    dispatch = machine.dispatch.median
    worthless = op.bound is not None and op.floor_ns < dispatch * op.calls
    return op.calls > 0 and (worthless or op.ns < TINY * dispatch * op.calls)


def _is_small(op: OpGroup, machine: Machine) -> bool:
    """In a loop: tiny, or small and mostly above its floor, so that one op on the whole batch does it for less."""
    small = op.bound is not None and op.ns < SMALL * machine.dispatch.median * op.calls
    return is_tiny(op, machine) or (small and op.floor_ns < 0.5 * op.ns)


def loops(ledger: Ledger, machine: Machine) -> list[Loop]:
    """Loops of tiny ops outside loader and optimizer, costliest first."""
    taken = claimed(ledger) | by_hand(ledger).keys()
    ops = [op for op in ledger.ops if op.phase in BODY and op.where and not inside(op, *RECURRENT)]
    by_line = grouped((op for op in ops if key(op.where) not in taken), lambda op: op.where[0].place)
    micro = micro_steps(ledger)
    updates = max([1, *(count for _, count in ledger.step.updates)])  # a critic's five times for a generator's once
    repeats = REPEATS * updates * (micro if micro <= MICRO_STEPS else 1.0)
    found = {place: ops for place, ops in by_line.items() if _is_loop(ops, machine, repeats)}
    # Much of such a line's op time is work, in ops that are not tiny.
    large = {place: total(op for op in ops if not is_tiny(op, machine)) for place, ops in by_line.items()}
    others = by_line.keys() - found.keys()
    working = frozenset(place for place in others if large[place] > (1 - MOSTLY) * total(by_line[place]))
    own = _own_weights(ledger, repeats / REPEATS) if found else frozenset()
    by_function = grouped(found, lambda place: (place[0], found[place][0].where[0].function))
    made: dict[Key | None, Loop] = {}
    for places in by_function.values():
        loop = _loop(ledger, frozenset(places), found, own, working)
        known = made.get(key(loop.where))
        made[key(loop.where)] = _together(known, loop) if known else loop
    whole = [loop._replace(ns=min(loop.ns, ledger.wall)) for loop in made.values()]  # lines and ops are of other steps
    return sorted(whole, key=lambda loop: -loop.ns)


def _is_loop(ops: list[OpGroup], machine: Machine, repeats: float) -> bool:
    """Most of the line's op time is small ops that repeat with the same shapes or ever new ones (a growing cat)."""
    calls: dict[tuple[object, ...], float] = defaultdict(float)
    shapes: dict[str, set[object]] = defaultdict(set)
    for op in ops:
        calls[(op.name, op.shapes)] += op.calls
        calls[(op.name,)] += op.calls
        shapes[op.name].add(op.shapes)

    def repeats_itself(op: OpGroup) -> bool:
        ever_new = calls[(op.name,)] >= repeats and len(shapes[op.name]) >= calls[(op.name,)] / 2
        return calls[(op.name, op.shapes)] >= repeats or ever_new

    repeated = total(op for op in ops if _is_small(op, machine) and repeats_itself(op))
    return repeated > 0 and repeated >= MOSTLY * total(ops)


def _own_weights(ledger: Ledger, passes: float) -> frozenset[tuple[int, ...]]:
    """Shapes of weights that a product or convolution takes once each: in the whole step no more of these than there
    are weights of the shape, in so many forwards."""
    weights = Counter[tuple[int, ...]]()
    for optimizer in stepping(ledger):
        weights.update(dict(optimizer.shapes))
    calls = _weighted(op for op in ledger.ops if op.phase in BODY and not op.recomputed)
    return frozenset(
        shape for shape, num in calls.items() if max(weights[shape], weights[shape[::-1]]) * passes >= ONCE * num
    )


def _weighted(ops: Iterable[OpGroup]) -> dict[tuple[int, ...], float]:
    """Calls of products and convolutions by the shape of their second factor, which is the weight of a layer."""
    found: dict[tuple[int, ...], float] = defaultdict(float)
    for op in ops:
        pair = factors(op) or (op.shapes[:2] if op.name in CONVOLUTIONS else ())
        if len(pair) == 2:
            found[pair[1]] += op.calls
    return found


def _loop(
    ledger: Ledger, lines: frozenset[Key], by_line: dict[Key, list[OpGroup]], own: frozenset[tuple[int, ...]],
    working: frozenset[Key],
) -> Loop:  # fmt: skip
    ops = [op for op in ledger.ops if key(op.where) in lines and op.phase not in ("optimizer", "data")]
    busiest = max(sorted(lines), key=lambda place: sum(op.calls for op in by_line[place]))
    name, calls = _costliest(by_line[busiest])
    forward = sum(op.ns for op in ops if op.phase != "backward")
    backward = sum(op.ns for op in ops if op.phase == "backward")
    return Loop(
        _where(ledger, max(by_line[busiest], key=lambda op: op.ns).where, calls),
        name,
        calls,
        sum(op.calls for op in ops),
        max(forward, _at_lines(ledger, lines, ops, forward, working)) + _backward(ledger, ops),
        forward + backward,
        sum(op.floor_ns for op in ops),
        lines,
        _are_layers(by_line[busiest], own),
    )


def _are_layers(ops: list[OpGroup], own: frozenset[tuple[int, ...]]) -> bool:
    """Most of the line's products have weights of their own."""
    calls = _weighted(op for op in ops if op.phase in BODY)
    return sum(num for shape, num in calls.items() if shape in own) > 0.5 * sum(calls.values())


def _together(one: Loop, other: Loop) -> Loop:
    """A loop and the function that it calls."""
    top = max(one, other, key=lambda loop: loop.ns)
    return top._replace(
        num_ops=one.num_ops + other.num_ops,
        ns=one.ns + other.ns,
        op_ns=one.op_ns + other.op_ns,
        floor_ns=one.floor_ns + other.floor_ns,
        lines=one.lines | other.lines,
        layers=one.layers and other.layers,
    )


def _where(ledger: Ledger, where: tuple[Span, ...], calls: float) -> tuple[Span, ...]:
    """From the loop outwards: a line that repeats inside a function which does nothing else is called by the loop."""
    rarest: dict[tuple[str, str], float] = {}
    for op in ledger.ops:
        if op.where and op.phase in BODY:
            function = (op.where[0].file, op.where[0].function)
            rarest[function] = min(op.calls, rarest.get(function, op.calls))
    for depth, span in enumerate(where):
        if rarest.get((span.file, span.function), calls) <= SELDOM * calls:
            return where[depth:]
    return where


def _costliest(ops: list[OpGroup]) -> tuple[str, float]:
    """Name and calls of the op with most of the line's work, of those that it calls often."""
    calls: dict[str, float] = defaultdict(float)
    work: dict[str, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    for op in ops:
        calls[op.name] += op.calls
        work[op.name] = (work[op.name][0] + op.floor_ns, work[op.name][1] + op.ns)
    name = max(calls, key=lambda name: (calls[name] >= REPEATS, work[name], name))
    return name, calls[name]


def _at_lines(
    ledger: Ledger, lines: frozenset[Key], ops: list[OpGroup], forward: float, working: frozenset[Key]
) -> float:
    """Ops and Python at the loop's lines and beside them, but for lines that work: as sampled, else ops and host time
    as profiled: where a device works its idle time, of which samples know nothing."""
    functions = {(op.where[0].file, op.where[0].function) for op in ops if op.phase in BODY}

    def of_loop(group: LineGroup | HostGroup) -> bool:
        at = group.where[0] if group.where else None
        if at is None or group.phase not in BODY or (at.file, at.function) not in functions or at.place in working:
            return False
        return any(abs(at.line - line) <= NEAR for file, line in lines if file == at.file)

    sampled = sum(line.ns for line in ledger.lines if of_loop(line)) if ledger.device is None else 0.0
    return sampled or forward + sum(host.ns for host in ledger.host if of_loop(host))


def _backward(ledger: Ledger, ops: list[OpGroup]) -> float:
    """The loop's ops in backward, with their part of what the engine does between ops, or of backward as sampled."""
    every = [op for op in ledger.ops if op.phase == "backward"]
    own = [op for op in ops if op.phase == "backward"]
    if not own:
        return 0.0
    engine = sum(group.ns for group in ledger.host if group.phase == "backward")
    lines = ledger.lines if ledger.device is None else ()
    sampled = sum(line.ns for line in lines if line.phase == "backward")
    profiled = total(own) + engine * sum(op.calls for op in own) / sum(op.calls for op in every)
    return max(profiled, sampled * total(own) / total(every)) if total(every) else profiled


OVERHEAD_BOUND = 0.5
"""Share of the step in tiny ops that makes a small model overhead-bound (proposed: steps of small models with larger
batches would settle it)."""
COMPILED_GAIN = 0.12
"""Share that torch.compile saved of an overhead-bound step of 982 ops: 3.7 ms to 3.3 ms."""


@rule("BRR301", "overhead", needs={"plain", "ops"}, remedies=("compile", "compile_reduce_overhead", "compile_frozen"))
def many_tiny_ops(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """A Python loop over samples or time steps; else, as a note, a step that is dispatch all over."""
    every = loops(ledger, machine)
    found = [loop for loop in every if not loop.layers and worth_telling(ledger, 0.7 * _gain(loop))]
    layers = [loop for loop in every if loop.layers and worth_telling(ledger, COMPILED_GAIN * _gain(loop))]
    for loop in found:
        yield _vectorize(ledger, machine, loop)
    for loop in layers:
        yield _join(ledger, machine, loop)
    if not found and not layers and ledger.device is None:  # else BRR504 says it
        yield from _overhead_bound(ledger, machine)


def _gain(loop: Loop) -> float:
    return loop.ns - loop.floor_ns


def _vectorize(ledger: Ledger, machine: Machine, loop: Loop) -> Cause:
    gain, turns = _gain(loop), _turns(ledger, loop)
    return Cause(
        saving=(0.0, 0.3 * gain, gain) if turns == NO_LOOP else (0.3 * gain, 0.7 * gain, gain),
        message=f"{loop.num_ops:.0f} tiny ops {turns[0]} take {duration(loop.ns)} ({share(loop.ns / ledger.wall)} of "
        f"the step): this line alone calls {loop.op} {loop.calls:.0f} times per step",
        advice=turns[1],
        where=loop.where,
        evidence=_evidence(machine, loop),
    )


APART = "of a loop", "Replace the loop over samples or time steps by ops on the whole batch."
IN_TURN = (
    "of a loop",
    "Each turn needs the one before. Compute before the loop, for all turns at once, what does not. Use nn.LSTM or "
    "nn.GRU where it is one, else try torch.compile.",
)
NO_LOOP = (
    "below one line",
    "No loop of the program's makes them, but what this line calls. Look for its batched form or a cheaper "
    "setting, or try torch.compile.",
)
"""(where tiny ops are, advice): of turns that need not wait for each other, that must, and of no loop of the user's."""


def _turns(ledger: Ledger, loop: Loop) -> tuple[str, str]:
    """Return what the source says of the loop; the loop that makes the steps is none of it."""
    statements = {each.span.place: each for each in ledger.statements}
    chain = [statements[span.place] for span in loop.where if span.place in statements]
    steps = {header for span in loop_line(ledger) if (at := statements.get(span.place)) for header in at.around}
    inside = [each for each in chain if {*filter(_is_loop_header, each.around)} - steps or " for " in each.text]
    if not inside:
        return NO_LOOP if len(chain) == len(loop.where) and steps else APART
    body = [each for place, each in statements.items() if place in loop.lines]
    return IN_TURN if any(_feeds_itself(each.text) for each in (*inside, *body)) else APART


def _is_loop_header(header: str) -> bool:
    return header.startswith(("for ", "while ", "async for "))


def _feeds_itself(text: str) -> bool:
    """Whether a statement gives a call what the last turn has given the same name: h = cell(x, h). A sum is none."""
    try:
        (statement,) = ast.parse(text).body
    except (SyntaxError, ValueError):
        return False  # the first line of a compound one
    if not isinstance(statement, ast.Assign):
        return False
    given = {ast.unparse(node) for target in statement.targets for node in getattr(target, "elts", [target])}
    calls = [node for node in ast.walk(statement.value) if isinstance(node, ast.Call)]
    taken = [node for call in calls for each in (*call.args, *call.keywords) for node in ast.walk(each)]
    return any(isinstance(node, (ast.Name, ast.Attribute)) and ast.unparse(node) in given for node in taken)


def _join(ledger: Ledger, machine: Machine, loop: Loop) -> Cause:
    """Whether its layers lie side by side, which joins them, or follow each other, the recording does not say."""
    gain = _gain(loop)
    return Cause(
        saving=(0.0, COMPILED_GAIN * gain, gain),
        level="note",
        message=f"{loop.num_ops:.0f} tiny ops of a loop over layers, each with its own weights, take "
        f"{duration(loop.ns)} ({share(loop.ns / ledger.wall)}): this line calls {loop.op} {loop.calls:.0f} times",
        advice="Where they lie side by side (experts, heads, an ensemble), stack their weights for one product "
        "(torch.bmm, torch.func.vmap). Where they follow each other, make the batch larger or try torch.compile.",
        where=loop.where,
        evidence=_evidence(machine, loop),
    )


def _evidence(machine: Machine, loop: Loop) -> dict[str, Quantity]:
    return {
        "calls_per_step": count(loop.calls),
        "ops_per_step": count(loop.num_ops),
        "op_time": time(loop.op_ns),
        "python_time": time(loop.ns - loop.op_ns),
        "floor": time(loop.floor_ns),
        "dispatch": time(machine.dispatch.median),
    }


def _overhead_bound(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    tiny = [op for op in ledger.ops if op.phase not in ("optimizer", "data") and is_tiny(op, machine)]
    spare = sum(op.ns - op.floor_ns for op in tiny)
    expected = COMPILED_GAIN * spare
    if total(tiny) < OVERHEAD_BOUND * ledger.wall or not worth_telling(ledger, expected):
        return
    calls = sum(op.calls for op in tiny)
    yield Cause(
        saving=(0.0, expected, spare),
        level="note",
        message=f"{calls:.0f} tiny ops take {share(total(tiny) / ledger.wall)} of the step, spread over the whole "
        "model: the step is overhead-bound",
        advice="Make the batch larger (the step hardly grows), or try torch.compile.",
        where=costliest_line(tiny),
        evidence={
            "ops_per_step": count(calls),
            "op_time": time(total(tiny)),
            "dispatch": time(machine.dispatch.median),
        },
    )
