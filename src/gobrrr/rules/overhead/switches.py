"""BRR307 to BRR310 and BRR316: settings of the process that make torch cost more than it must."""

from __future__ import annotations

from collections.abc import Iterator
from math import log2, prod

from gobrrr.ledger.model.ledger import Ledger, OpGroup
from gobrrr.machine.model.machine import Machine
from gobrrr.recording.model.facts import DenormalFacts, Span
from gobrrr.rules.model.cores import STARVED, crowded, first_span, free_cores, left_by_others, starved
from gobrrr.rules.model.evidence import count, per_step, ratio, time, worth_telling
from gobrrr.rules.model.finding import Cause, Quantity, rule, whole
from gobrrr.rules.model.lines import (
    SAMPLING,
    TRACEBACKS,
    Functions,
    averaged,
    below,
    body,
    loop_line,
    mostly_rare,
    spent,
)
from gobrrr.rules.model.shapes import CEILINGS, costliest_line, float_dtype, key, total
from gobrrr.rules.model.views import everything
from gobrrr.rules.overhead.small_op_loops import is_tiny
from gobrrr.rules.sync.waits_for_host import launches
from gobrrr.units import duration, share

NAN_CHECKS = ("aten::isnan", "aten::ne", "aten::_is_any_true", "aten::any", "aten::item", "aten::_local_scalar_dense")
PROFILING = (Functions(("torch.autograd.profiler", "torch.profiler.")),)
PROFILED_OP = (1_500.0, 62_000.0)
"""ns that torch.profiler adds per op: in the step alone, and with shapes, stacks, memory and its parsing."""


@rule("BRR307", "overhead", needs={"plain", "facts"}, remedies=("anomaly_off",))
def anomaly_mode(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
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
    yield Cause(
        saving=(0.6 * seen, expected, max(expected, checks + max(1.3 * stacks, forward) + between)),
        message=f"anomaly detection is on: it records a stack per op and searches every gradient for NaN, "
        f"{duration(expected)} ({share(expected / ledger.wall)}) per step",
        advice="Switch it off (torch.autograd.set_detect_anomaly(False)) once the NaN is found.",
        where=_place(ledger, settings.anomaly_span),
        evidence={"nan_checks": time(checks), "stack_recording": time(stacks), "between_ops": time(between)},
        confidence="derived" if seen else "inferred",
    )


@rule("BRR308", "overhead", needs={"plain", "facts"}, remedies=("deterministic_off",))
def debug_switches_on(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Deterministic mode that fills fresh memory, or a profiler of the program's own that never ends."""
    yield from _deterministic(ledger)
    yield from _profiled(ledger)


def _deterministic(ledger: Ledger) -> Iterator[Cause]:
    settings = ledger.facts.settings
    every = (op for op in everything(ledger) if isinstance(op, OpGroup) and op.name == "aten::fill_")
    fills = [op for op in every if _fills_fresh_memory(op)]
    cost, calls = total(fills), sum(op.calls for op in ledger.named("aten::fill_") if _fills_fresh_memory(op))
    if not settings.deterministic or not worth_telling(ledger, 0.9 * cost):
        return
    # A fill also faults the pages in, which the op that writes them then no longer does: not all of it comes back.
    yield Cause(
        saving=(0.3 * cost, 0.9 * cost, cost),
        message=f"deterministic mode fills every fresh tensor with NaN before it is written: {duration(cost)} "
        f"({share(cost / ledger.wall)}) per step in {calls:.0f} fills",
        advice="Set torch.utils.deterministic.fill_uninitialized_memory = False, or leave deterministic mode.",
        where=_place(ledger, settings.deterministic_span),
        evidence={"fill_time": time(cost), "fills_per_step": count(calls)},
        both=True,
    )


def _fills_fresh_memory(op: OpGroup) -> bool:
    return bool(op.parents) and op.parents[-1].startswith(("aten::empty", "aten::new_empty", "aten::resize"))


def _profiled(ledger: Ledger) -> Iterator[Cause]:
    """A profiler that the program itself started; gobrrr's own is gone before the steps that are timed here."""
    if not ledger.facts.settings.profiler_on:
        return
    calls = sum(op.calls for op in ledger.ops)
    lines, switches = spent(ledger, PROFILING), ledger.facts.settings.debug_env
    parsing = sum(line.ns for line in lines)
    in_step, with_all = (calls * ns for ns in PROFILED_OP)
    if not worth_telling(ledger, in_step + parsing):
        return
    yield Cause(
        saving=(0.5 * parsing, in_step + parsing, with_all + (1 + SAMPLING) * parsing),
        message=f"the program's own torch profiler is on in every step: {duration(in_step + parsing)} for "
        f"{calls:.0f} ops",
        advice="Profile a few steps (torch.profiler.schedule) and close the profiler.",
        where=lines[0].where if lines else loop_line(ledger),
        evidence={"ops_per_step": count(calls), "parsing": time(parsing)}
        | ({"environment": Quantity(" ".join(switches))} if switches else {}),
        confidence="inferred",
    )


def _place(ledger: Ledger, span: Span | None) -> tuple[Span, ...]:
    return first_span(span) or loop_line(ledger)


TOO_FEW = 0.6
"""Threads per free core below which they are too few. SageMaker calls a processor underused below 0.7; the rest is for
the error of measuring effective cores (proposed: that error on more machines would settle it)."""
TOO_MANY = 1.5
"""Threads per effective core above which they are too many. The tuning guide asks for no more threads than cores; the
rest is for the same error (proposed, likewise)."""
COSTS_PER_DOUBLING = 0.13
"""Share of op time lost per doubling of threads over cores. Measured on 2 cores: a training step of 5.4 ms takes
6.7 ms with 8 threads, 8.8 with 16 and 15.7 with 32; published with 13 to 39 % for 4 and 8."""
REALISED = 0.7
"""Part of the speed-up of the ceilings that whole steps reach: some of their ops do not divide."""


@rule("BRR309", "overhead", needs={"plain", "ops", "facts"}, remedies=("intraop_threads",))
def wrong_number_of_threads(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Intra-op threads against the cores that were free: idle ones, or threads that wait for each other."""
    threads = ledger.facts.settings.threads or ledger.threads
    cores, free = machine.effective_cores.median, free_cores(ledger, machine)
    # A program that sets no threads has as many as torch takes, unless a quota grants fewer.
    default = min(machine.threads, TOO_MANY * machine.quota) if machine.quota else machine.threads
    if cores <= 0 or ledger.device is not None:  # there the host's ops only launch
        return
    if threads < TOO_FEW * free:
        yield from _too_few(ledger, machine, threads, free)
    elif threads > TOO_MANY * cores and threads > default:
        yield from _too_many(ledger, machine, threads, cores)


def _too_few(ledger: Ledger, machine: Machine, threads: int, cores: float) -> Iterator[Cause]:
    busy = ledger.facts.process_load
    if busy is not None and busy > 0.8 * cores:
        return  # loader workers or other threads of the program have the cores already
    heavy = [op for op in ledger.ops if op.phase != "data" and not is_tiny(op, machine)]
    # Effective cores are a median of a bad and a good moment; at most all threads get what other processes left.
    most = max(1.0, min(max(cores, machine.threads), left_by_others(ledger, machine)) / threads)
    gain = sum(op.ns * (1 - 1 / min(most, _speed_up(op, machine, threads))) for op in heavy)
    if not worth_telling(ledger, REALISED * gain):
        return
    sure = (starved(ledger) or 0.0) <= STARVED
    left = left_by_others(ledger, machine) < machine.effective_cores.median
    of = f"{cores:.1f} cores{' that other processes left it' if left else ''}"
    yield Cause(
        saving=(0.4 * gain if sure else 0.0, REALISED * gain, total(heavy) * (1 - 1 / most)),
        message=f"ops run on {threads} of {of}, and {duration(total(heavy))} "
        f"({share(total(heavy) / ledger.wall)}) of the step is work that divides",
        advice=f"Remove what limits the threads (torch.set_num_threads, OMP_NUM_THREADS), or set "
        f"{max(1, round(cores))}.",
        where=_place(ledger, ledger.facts.settings.threads_span),
        evidence=_evidence(ledger, threads, cores, heavy),
        of=heavy,
        bound="compute",
        level=None if sure else "note",  # more threads wait for each other where the ones that there are get no core
    )


def _too_many(ledger: Ledger, machine: Machine, threads: int, cores: float) -> Iterator[Cause]:
    ops = [op for op in ledger.ops if op.phase != "data"]
    lost = sum(op.ns - op.floor_ns for op in ops)
    expected = min(lost, COSTS_PER_DOUBLING * log2(threads / cores) * total(ops))
    if not worth_telling(ledger, expected):
        return
    yield Cause(
        saving=(0.25 * expected, expected, lost),
        message=f"{threads} threads share {cores:.1f} effective cores, and every parallel op waits for its slowest "
        f"thread: about {share(expected / ledger.wall)} of the step",
        advice=f"Call torch.set_num_threads({max(1, round(cores))}), or set OMP_NUM_THREADS before the program starts.",
        where=_place(ledger, ledger.facts.settings.threads_span),
        evidence=_evidence(ledger, threads, cores, ops),
        of=ops,
        confidence="inferred",
        bound="compute",
    )


def _speed_up(op: OpGroup, machine: Machine, threads: int) -> float:
    """Return the speed-up of this op on all threads over `threads`, by the ceilings measured here; 1 where it is not
    modelled."""
    now = then = None
    if op.bound == "compute":
        dtype = CEILINGS.get(float_dtype(op) or "", "fp32")
        now, then = machine.flop_rate(dtype, threads), machine.flop_rate(dtype, machine.threads)
    elif op.bound == "bandwidth" and op.bytes and op.calls:
        size = op.bytes / op.calls
        now, then = machine.byte_rate(size, threads), machine.byte_rate(size, machine.threads)
    return max(1.0, then / now) if now and then else 1.0


def _evidence(ledger: Ledger, threads: int, cores: float, ops: list[OpGroup]) -> dict[str, Quantity]:
    load = ledger.facts.process_load
    found = {"threads": count(threads), "effective_cores": count(cores), "op_time": time(total(ops))}
    return found | ({"cores_busy": ratio(load)} if load is not None else {})


DENORMAL_SHARE = 0.01
"""Below it healthy nets have some (tails of a softmax). A subnormal costs 10 to 100 normal ones where the processor is
slow with them, so that one in a hundred can double an op (proposed)."""
SLOWED = 3.0
"""Ratio of an op's time to floor and dispatch from which it counts as slowed (proposed)."""

FLOOR_DOUBT = 0.5
"""Share of an op's floor that it may stay below: ceilings are measured at one moment, and swing by a factor of two and
more with a shared machine's neighbours (docs/decisions/0005)."""


KEPT = "optimizer's "
"""How the names of tensors begin that an optimizer keeps: momenta of rows that are used no more decay."""


@rule("BRR310", "overhead", needs={"plain", "ops", "facts"}, remedies=("flush_denormal",))
def denormals(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Subnormal values, and ops on them that run far above their floor. On a busy machine all ops do; an
    accelerator's units take them as they come."""
    seen = [each for each in ledger.facts.denormals if each.share >= DENORMAL_SHARE]
    if not seen or ledger.device is not None or ledger.facts.settings.flush_denormal or crowded(ledger, machine):
        return
    touched = [op for op in ledger.ops if any(_touches(ledger, op, each) for each in seen)]
    large = (op for op in touched if op.floor_ns > 0 and not is_tiny(op, machine))
    slow = [op for op in large if op.ns > SLOWED * (op.floor_ns + op.dispatch_ns)]
    # Tiny ops are slowed too, though it cannot be shown.
    above = sum(max(0.0, op.ns - FLOOR_DOUBT * op.floor_ns) for op in touched)
    lost = sum(op.ns - op.floor_ns - op.dispatch_ns for op in slow)
    if any(each.name.startswith(KEPT) for each in seen):  # they come late, and with them the steps grow
        lost = max(lost, ledger.step.grown_ns)
    if not worth_telling(ledger, 0.8 * lost):
        return
    worst = max(seen, key=lambda each: each.share)
    times = total(slow) / max(1.0, sum(op.floor_ns for op in slow))
    cost = f"take {times:.0f} times their floor" if slow else "take longer with every step"
    yield Cause(
        saving=(0.3 * lost, 0.8 * lost, max(lost, above, ledger.account("inefficiency"))),
        message=f"{share(worst.share)} of the values of {worst.name or 'a tensor'} are denormal, and ops on them "
        f"{cost}: {duration(lost)} lost",
        advice="Call torch.set_flush_denormal(True) at the start, and see why values shrink below 1e-38.",
        where=costliest_line(slow) or first_span(worst.span) or costliest_line(touched),
        evidence={"denormal_share": ratio(worst.share), "slow_ops": time(total(slow)), "lost": time(lost)},
        confidence="inferred",
    )


def _touches(ledger: Ledger, op: OpGroup, seen: DenormalFacts) -> bool:
    """Inputs are known by their shape, activations by the line that saved them; of the rest any op may be one."""
    if seen.name == "input":
        inputs = [given.shape for given in ledger.facts.inputs if given.span == seen.span and given.shape]
        return any(prod(s) == prod(i) and s[-1] == i[-1] for i in inputs for s in op.shapes if s)
    if seen.name == "activation" and seen.span is not None:
        return key(op.where) == (seen.span.file, seen.span.line)
    return op.phase == "optimizer" or not seen.name.startswith(KEPT)


_BASE = ("torch.distributions.distribution.",)
MADE = (Functions(_BASE, frozenset({"__init__"})),)
ASKED = (Functions(_BASE, frozenset({"_validate_sample"})),)
"""The two places where torch checks. They do not nest, so that their times add up."""
ANSWER = "aten::_is_all_true"
"""The op that both end with: without it nothing was checked, and what was sampled is the rest of __init__."""
CHECKS = 0.9
"""Share of the sampled time that goes with the checks (proposed): the rest of __init__ sets two attributes."""


@rule("BRR316", "overhead", needs={"plain", "ops"}, remedies=("unchecked_distributions",))
def arguments_checked_again(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """torch.distributions with its checks on, in a step of small ops."""
    checks = list(ledger.named(ANSWER))
    found = sorted(averaged(ledger, spent(ledger, MADE) + spent(ledger, ASKED)), key=lambda line: -line.ns)
    rare = mostly_rare(found)
    step = whole(ledger, rare)
    cost = min(step, sum(line.ns for line in found))
    if not checks or not worth_telling(ledger, CHECKS * cost):
        return
    calls = sum(op.calls for op in checks)
    often = "in some steps" if rare else f"{calls:.0f} times per step"
    waits = ", and each waits for the device" if ledger.device is not None and launches(ledger) else ""
    yield Cause(
        # where validate_args=True is given, the switch does nothing
        saving=(0.0, CHECKS * cost, min(step, (1 + SAMPLING) * cost)),
        message=f"torch.distributions checks its arguments {often}: {per_step(ledger, cost, rare)}{waits}",
        advice="torch.distributions.Distribution.set_default_validate_args(False) at the start, once it all works.",
        where=found[0].where,
        evidence={"checking": time(cost), "checks": count(calls)},
        confidence="measured",
        rare=rare,
    )
