"""BRR301, BRR307 to BRR310: what torch itself costs, and the switches that make it cost more."""

from __future__ import annotations

from collections.abc import Iterator

from gobrrr.ledger.model.ledger import Ledger, OpGroup
from gobrrr.machine.model.machine import Machine
from gobrrr.recording.model.facts import Span
from gobrrr.rules.model.evidence import count, time, worth_telling
from gobrrr.rules.model.finding import Finding, Quantity, finding, rule
from gobrrr.rules.model.lines import SAMPLING, TRACEBACKS, Functions, below, body, loop_line, spent
from gobrrr.rules.model.shapes import costliest_line, total
from gobrrr.rules.model.views import everything
from gobrrr.rules.overhead.small_op_loops import Loop, is_tiny, loops
from gobrrr.units import duration, share

OVERHEAD_BOUND = 0.5
"""Share of the step in tiny ops that makes a small model overhead-bound (proposed in diagnosis C1)."""
COMPILED_GAIN = 0.12
"""Share that torch.compile saved of an overhead-bound step of 982 ops: 3.7 ms to 3.3 ms."""
NAN_CHECKS = ("aten::isnan", "aten::ne", "aten::_is_any_true", "aten::any", "aten::item", "aten::_local_scalar_dense")
PROFILING = (Functions(("torch.autograd.profiler", "torch.profiler.")),)
PROFILED_OP = (1_500.0, 62_000.0)
"""ns that torch.profiler adds per op: in the step alone, and with shapes, stacks, memory and its parsing."""


@rule(
    "BRR301",
    "many-tiny-ops",
    "overhead",
    needs={"plain", "ops"},
    remedies=("compile", "compile_reduce_overhead", "compile_frozen"),
)
def many_tiny_ops(ledger: Ledger, machine: Machine) -> Iterator[Finding]:
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


def _vectorize(ledger: Ledger, machine: Machine, loop: Loop) -> Finding:
    gain = _gain(loop)
    return finding(
        "BRR301",
        ledger,
        low=0.3 * gain,
        expected=0.7 * gain,
        ceiling=gain,
        message=f"{loop.num_ops:.0f} tiny ops of a loop take {duration(loop.ns)} "
        f"({share(loop.ns / ledger.wall)} of the step): this line alone calls {loop.op} "
        f"{loop.calls:.0f} times per step",
        advice="Replace the loop over samples or time steps by ops on the whole batch.",
        where=loop.where,
        evidence=_evidence(machine, loop),
    )


def _join(ledger: Ledger, machine: Machine, loop: Loop) -> Finding:
    """Whether its layers lie side by side, which joins them, or follow each other, the recording does not say."""
    gain = _gain(loop)
    return finding(
        "BRR301",
        ledger,
        low=0.0,
        expected=COMPILED_GAIN * gain,
        ceiling=gain,
        level="note",
        message=f"{loop.num_ops:.0f} tiny ops of a loop over layers take {duration(loop.ns)} "
        f"({share(loop.ns / ledger.wall)} of the step): this line alone calls {loop.op} {loop.calls:.0f} times per "
        "step, and each of its products has weights of its own",
        advice="Where they lie side by side (experts, heads, an ensemble), stack their weights for one product "
        "(torch.bmm, torch.func.vmap); where they follow each other, make the batch larger or try torch.compile.",
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


def _overhead_bound(ledger: Ledger, machine: Machine) -> Iterator[Finding]:
    tiny = [op for op in ledger.ops if op.phase not in ("optimizer", "data") and is_tiny(op, machine)]
    spare = sum(op.ns - op.floor_ns for op in tiny)
    expected = COMPILED_GAIN * spare
    if total(tiny) < OVERHEAD_BOUND * ledger.wall or not worth_telling(ledger, expected):
        return
    calls = sum(op.calls for op in tiny)
    yield finding(
        "BRR301",
        ledger,
        low=0.0,
        expected=expected,
        ceiling=spare,
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


@rule("BRR307", "anomaly-mode", "overhead", needs={"plain", "facts"}, remedies=("anomaly_off",))
def anomaly_mode(ledger: Ledger, machine: Machine) -> Iterator[Finding]:
    """autograd.set_detect_anomaly left on: a stack per forward op, a search for NaN after each backward op."""
    settings = ledger.facts.settings
    if not settings.anomaly:
        return
    checks = total(op for op in ledger.named(*NAN_CHECKS) if op.phase == "backward")
    stacks = sum(below(line, TRACEBACKS)[0] for line in body(ledger))
    between = sum(host.ns for host in ledger.host if host.phase in ("forward", "loss", "backward"))
    # The stack is taken inside the op and the search between ops: both also show as op time above its floor.
    forward = sum(op.ns - op.floor_ns for op in ledger.ops if op.phase in ("forward", "loss"))
    if ledger.device is not None:
        stacks = min(stacks, forward + between)  # the rest of it is beside kernels
    seen = checks + stacks
    expected = max(seen, 0.3 * (forward + between))
    if not worth_telling(ledger, expected):
        return
    yield finding(
        "BRR307",
        ledger,
        low=0.6 * seen,
        expected=expected,
        ceiling=max(expected, checks + max(1.3 * stacks, forward) + between),
        message=f"anomaly detection is on: it records a stack per op and searches every gradient for NaN, "
        f"{duration(expected)} ({share(expected / ledger.wall)}) per step",
        advice="Switch it off (torch.autograd.set_detect_anomaly(False)) once the NaN is found.",
        where=_place(ledger, settings.anomaly_span),
        evidence={"nan_checks": time(checks), "stack_recording": time(stacks), "between_ops": time(between)},
        confidence="derived" if seen else "inferred",
    )


@rule("BRR308", "debug-switches-on", "overhead", needs={"plain", "facts"}, remedies=("deterministic_off",))
def debug_switches_on(ledger: Ledger, machine: Machine) -> Iterator[Finding]:
    """Deterministic mode that fills fresh memory, or a profiler of the program's own that never ends."""
    yield from _deterministic(ledger)
    yield from _profiled(ledger)


def _deterministic(ledger: Ledger) -> Iterator[Finding]:
    settings = ledger.facts.settings
    every = (op for op in everything(ledger) if isinstance(op, OpGroup) and op.name == "aten::fill_")
    fills = [op for op in every if _fills_fresh_memory(op)]
    cost, calls = total(fills), sum(op.calls for op in ledger.named("aten::fill_") if _fills_fresh_memory(op))
    if not settings.deterministic or not worth_telling(ledger, 0.9 * cost):
        return
    # A fill also faults the pages in, which the op that writes them then no longer does: not all of it comes back.
    yield finding(
        "BRR308",
        ledger,
        low=0.3 * cost,
        expected=0.9 * cost,
        ceiling=cost,
        message=f"deterministic mode fills every fresh tensor with NaN before it is written: {duration(cost)} "
        f"({share(cost / ledger.wall)}) per step in {calls:.0f} fills",
        advice="Set torch.utils.deterministic.fill_uninitialized_memory = False, or leave deterministic mode.",
        where=_place(ledger, settings.deterministic_span),
        evidence={"fill_time": time(cost), "fills_per_step": count(calls)},
        both=True,
    )


def _fills_fresh_memory(op: OpGroup) -> bool:
    return bool(op.parents) and op.parents[-1].startswith(("aten::empty", "aten::new_empty", "aten::resize"))


def _profiled(ledger: Ledger) -> Iterator[Finding]:
    """A profiler that the program itself started; gobrrr's own is gone before the steps that are timed here."""
    if not ledger.facts.settings.profiler_on:
        return
    calls = sum(op.calls for op in ledger.ops)
    lines = spent(ledger, PROFILING)
    parsing = sum(line.ns for line in lines)
    in_step, with_all = (calls * ns for ns in PROFILED_OP)
    if not worth_telling(ledger, in_step + parsing):
        return
    yield finding(
        "BRR308",
        ledger,
        low=0.5 * parsing,
        expected=in_step + parsing,
        ceiling=with_all + (1 + SAMPLING) * parsing,
        message=f"the program's own torch profiler is on in every step: {duration(in_step + parsing)} for "
        f"{calls:.0f} ops",
        advice="Profile a few steps (torch.profiler.schedule) and close the profiler.",
        where=lines[0].where if lines else loop_line(ledger),
        evidence={"ops_per_step": count(calls), "parsing": time(parsing)} | _environment(ledger),
        confidence="inferred",
    )


def _environment(ledger: Ledger) -> dict[str, Quantity]:
    names = ledger.facts.settings.debug_env
    return {"environment": Quantity(" ".join(names))} if names else {}


def _place(ledger: Ledger, span: Span | None) -> tuple[Span, ...]:
    return (span,) if span else loop_line(ledger)
