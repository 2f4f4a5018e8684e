"""BRR801 to BRR803: torch.compile in the steady state: compiling again, breaking graphs, giving up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gobrrr.ledger.model.ledger import Ledger, OpGroup
from gobrrr.machine.model.machine import Machine
from gobrrr.recording.model.facts import Span
from gobrrr.rules.model.evidence import count, time, worth_telling
from gobrrr.rules.model.finding import Cause, Quantity, fitting, off_the_step, rule
from gobrrr.rules.model.shapes import costliest_line, inside, kind, total
from gobrrr.rules.model.views import hot
from gobrrr.units import duration, share

# Entering a compiled graph (guards, prologue, hand-over of tensors) took 18 small ops' time without gradients and 73
# with them (torch 2.13, aot_eager, one thread).
ENTRY_IN_DISPATCHES = 30
# What a compiler makes of passes over memory: 2 to 29 of them became one; the first and the last stay.
FUSED_AWAY = 0.6
EAGER = ("forward", "loss", "backward", "other")
"""Phases that a compiled function may be part of."""
COMPILED = ("Torch-Compiled Region", "CompiledFunction", "autograd::engine::evaluate_function: CompiledFunction")
FUSIBLE = ("elementwise", "reduction", "softmax")


@rule("BRR801", "compile", needs={"facts"})
def recompilations(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Graphs that are compiled again after the first step that was measured as steady."""
    facts = ledger.facts.compile
    steps = max(ledger.step.count - ledger.step.warmup_count, 1)
    cost = max(ledger.account("compile"), facts.recompile_ns / steps)
    if not facts.recompiles or not worth_telling(ledger, 0.9 * cost):
        return
    reason = f": {facts.reasons[0]}" if facts.reasons else ""
    yield Cause(
        saving=(0.4 * cost, 0.9 * cost, 1.2 * cost + ledger.step.outlier_ns),
        message=fitting(
            f"{facts.recompiles} recompilations after warm-up, {duration(facts.recompile_ns)} in all, {duration(cost)} "
            "per step",
            reason,
        ),
        advice="Mark the size that changes with torch._dynamo.mark_dynamic, pad to a few sizes, or keep numbers that "
        "change out of the compiled function.",
        where=_place(ledger),
        evidence={
            "recompilations": count(facts.recompiles),
            "compile_time": time(facts.recompile_ns),
            "steps": count(steps),
        }
        | ({"reason": Quantity(facts.reasons[0])} if facts.reasons else {}),
        confidence="measured",
        rare=True,
    )


@rule("BRR802", "compile", needs={"ops", "facts"})
def graph_breaks(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Places where a compiled graph ends early, or is given up: Python runs between, and nothing is fused across."""
    facts = ledger.facts.compile
    eager = left_eager(ledger)
    if facts.limit_hit or not (facts.graph_breaks or eager):
        return
    places = {span.place for span in facts.break_spans}
    python = sum(group.ns for group in ledger.host if any(span.place in places for span in group.where[:1]))
    entries = facts.graph_breaks * ENTRY_IN_DISPATCHES * machine.dispatch.median
    if ledger.device is not None:
        entries = min(entries, ledger.device.starved_ns)
    passes, dispatch = _passes(left_eager(ledger, hot(ledger))), sum(op.dispatch_ns for op in eager)
    expected = python + entries + 0.5 * dispatch + _fused_away(ledger, passes)
    if not worth_telling(ledger, expected):
        return
    eager_cost = ledger.account("dispatch") + ledger.account("host")
    reason = f": {facts.break_reasons[0]}" if facts.break_reasons else ""
    broken = f"{facts.graph_breaks} graph breaks cut the compiled code into {max(facts.num_graphs, 2)}"
    if not facts.num_graphs:
        broken = "torch.compile made no graph at all of this call"
    yield Cause(
        saving=(0.2 * expected, expected, python + entries + eager_cost + passes),
        message=fitting(broken, reason, f"; {duration(passes)} per step of passes over memory run eagerly there"),
        advice="Take the print, the .item() or the unsupported call out of the compiled function; "
        "fullgraph=True makes a break an error.",
        where=facts.break_spans[:1] or _place(ledger),
        evidence={
            "graph_breaks": count(facts.graph_breaks),
            "python_at_breaks": time(python),
            "entries": time(entries),
            "eager_passes": time(passes),
            "graphs": count(facts.num_graphs),
        }
        | ({"reason": Quantity(facts.break_reasons[0])} if facts.break_reasons else {}),
        confidence="inferred",
    )


def left_eager(ledger: Ledger, ops: Iterable[OpGroup] | None = None) -> list[OpGroup]:
    """Ops, the ledger's or others of it, that run one by one though their function was to be compiled: it holds a
    break, or no graph came of it."""
    broken = {(span.file, span.function) for span in ledger.facts.compile.break_spans}
    given_up = set()
    if not ledger.facts.compile.num_graphs:
        given_up = {(m.span.file, m.span.line) for m in ledger.facts.modules if m.compiled and m.span}
    return [
        op
        for op in (ledger.ops if ops is None else ops)
        if op.phase in ("forward", "backward")
        and not inside(op, *COMPILED)
        and any((span.file, span.function) in broken or span.place in given_up for span in op.where)
    ]


@rule("BRR803", "compile", needs={"ops", "facts"})
def recompile_limit(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """The recompile limit was hit: torch warns once and runs that code eagerly from then on."""
    facts = ledger.facts.compile
    if not facts.limit_hit:
        return
    model = [op for op in ledger.ops if op.phase in EAGER]
    dispatch = sum(op.dispatch_ns for op in model)
    working = [op for op in hot(ledger) if op.phase in EAGER]
    passes, inefficiency = _passes(working), sum(max(0.0, op.ns - op.floor_ns - op.dispatch_ns) for op in working)
    host = ledger.account("host")
    # What a compiled step would not pay: half of dispatch and of Python, and most passes over memory.
    expected = 0.5 * dispatch + 0.4 * host + _fused_away(ledger, passes)
    yield Cause(
        saving=(0.0, expected, dispatch + passes + host + inefficiency),
        message=f"torch.compile hit its recompile limit and runs this code eagerly; dispatch and passes over "
        f"memory that it would spare take {share((dispatch + passes) / ledger.wall if ledger.wall else 0)} of the step",
        advice="Give the compiled function fewer kinds of inputs (dynamic=True, padded sizes), or raise "
        "torch._dynamo.config.recompile_limit.",
        where=_place(ledger),
        evidence={"dispatch": time(dispatch), "passes": time(passes), "recompilations": count(facts.recompiles)},
        confidence="inferred",
        level="warning" if expected < 0.2 * ledger.wall else None,
    )


def _place(ledger: Ledger) -> tuple[Span, ...]:
    """Where the compiled code is called, as far as it is known; else the line that costs most."""
    called = [module.span for module in ledger.facts.modules if module.compiled and module.span]
    found = ledger.facts.compile.span or next(iter(called), None)
    return (found,) if found else costliest_line(ledger.ops)


def _fused_away(ledger: Ledger, passes: float) -> float:
    return FUSED_AWAY * passes if ledger.device is None else off_the_step(ledger, FUSED_AWAY * passes)


def _passes(ops: list[OpGroup]) -> float:
    return total(op for op in ops if kind(op) in FUSIBLE)
