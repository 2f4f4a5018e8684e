"""Ledger and findings become the one frozen Report that every renderer shows. Pure: the same input, the same bytes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from gobrrr import units
from gobrrr.ledger.model.ledger import Account, Ledger, OpGroup
from gobrrr.machine.model.machine import Machine
from gobrrr.recording.model.facts import OptimizerFacts
from gobrrr.rules.model.finding import REGISTRY, Finding, is_compiled
from gobrrr.rules.model.shapes import grouped, line, total
from gobrrr.rules.model.views import hot
from gobrrr.rules.verdict.place import short
from gobrrr.rules.verdict.regression import line_times
from gobrrr.rules.verdict.report import Confidence, Device, OpShare, Report, Span, Step, Tokens, Verdict
from gobrrr.rules.verdict.sentence import confidence, costliest, fatal_doubts, is_doubt, judge
from gobrrr.units import shape_text

MAX_SHAPES = 120
"""Characters of an op's shapes that are shown (proposed: the width of a line of text; pages that cut them would settle
it)."""
NUM_KERNELS = NUM_OPS = 10
"""Kernels and ops that are listed (proposed: what a page has room for; the share of the step they cover would settle
it)."""
NUM_WORK = 200
"""Ops of a device: for tables that people make of them (CSV), of which pages show the first."""
NUM_SAVED = 10
"""Savers of activations that the report keeps: the rest is in the recording."""
SHORT = 5_000
"""ns of a call up to which it has no rate: its time is the clock's, the profiler's and torch's own."""


def build(
    ledger: Ledger,
    machine: Machine | None,
    findings: Sequence[Finding],
    *,
    skipped: Sequence[tuple[str, str]] = (),
    portability: bool = False,
    **told: Any,
) -> Report:
    """The report of one run.

    `skipped` are (code, why it could not be judged). Findings of rules that only matter on another device are left out
    unless `portability`. `told` goes into the report as it is.
    """
    elsewhere = {code for code, rule in REGISTRY.items() if rule.portability and not portability}
    ranked, step = rank_findings([f for f in findings if f.code not in elsewhere], ledger), ledger.step
    verdict = judge(ledger, ranked)
    sure: Confidence | None = confidence(ledger, ranked, verdict.bound)
    impossible = any(f.code == "BRR910" and f.severity == "critical" for f in ranked)
    if verdict.bound == "unreliable" and ("offline" in ledger.signals or impossible):
        # Nothing is claimed loudly of a file, which cannot be looked at again, or of figures that cannot be.
        ranked = tuple(f if is_doubt(f) else msgspec.structs.replace(f, severity="note") for f in ranked)
    if (died := told.get("out_of_memory")) is not None:  # whatever else was slow, this ended it
        verdict, sure = Verdict("memory", died.sentence), None
    slower = step.wall_ns / step.plain_wall_ns - 1 if step.wall_ns and step.plain_wall_ns else 0.0
    return Report(
        verdict=verdict,
        confidence=sure,
        step=_step(ledger),
        device=_device(ledger),
        ledger=_accounts(ledger),
        findings=ranked,
        phases=ledger.phases,
        ops=_ops(ledger),
        tables=ledger.tables,
        lines=line_times(ledger),
        loops=tuple(sorted(ledger.loops, key=lambda loop: (-loop.share, loop.name))),
        serving=ledger.serving,
        decoding=ledger.decoding,
        memory=ledger.memory,
        saved=tuple(sorted(ledger.facts.saved, key=lambda s: (-s.num_bytes, s.module, s.op))[:NUM_SAVED]),
        roofline=ledger.roofline,
        tokens=_tokens(ledger),
        gauged=ledger.gauged,
        since=ledger.since,
        overhead_share=step.overhead_share,
        overhead_low=step.overhead_low,
        overhead_high=step.overhead_high,
        profiler_overhead_share=slower,
        missing=ledger.missing,
        skipped_rules=tuple(sorted((code, why) for code, why in skipped)),
        threads=ledger.threads,
        wrappers=ledger.facts.ranks.wrappers if ledger.facts.ranks is not None else (),
        fusable=_fusable(ledger),
        compiled=is_compiled(ledger),
        machine=describe(machine) if machine else "",
        offline="offline" in ledger.signals,
        **told,
    )


def _fusable(ledger: Ledger) -> bool | None:
    """Whether an optimizer could be fused and is not: none could where a watched program has none of torch's; None
    where nobody watched."""
    optimizers = ledger.facts.optimizers
    watched = "facts" in ledger.signals and "offline" not in ledger.signals
    return any(o.supports_fused and not o.fused for o in optimizers) if optimizers or watched else None


def rank_findings(findings: Sequence[Finding], ledger: Ledger) -> tuple[Finding, ...]:
    """Return the finding that the verdict names, then the others by expected saving, the largest first. Doubts come
    last, but those that make the run unreliable before all, the worst first."""

    def cost(finding: Finding) -> tuple[float, float, str, str]:
        where = f"{finding.where[0].file}:{finding.where[0].line:09d}" if finding.where else ""
        return -_real(finding.saving.expected_ns), -_real(finding.saving.ceiling_ns), finding.code, where

    by_cost = sorted(findings, key=cost)
    worst, first = fatal_doubts(ledger, by_cost), costliest(ledger, by_cost)
    rest = [f for f in by_cost if f not in worst]
    return (*worst, *sorted(rest, key=lambda f: (is_doubt(f), f is not first)))


def describe(machine: Machine) -> str:
    """One line: the processor, its cores as counted and as measured, its memory, the accelerator."""
    cores = f"{machine.logical_cores} cores ({machine.effective_cores.median:.1f} effective)"
    device = (machine.device.name,) if machine.device else ()
    return ", ".join((machine.cpu, cores, units.size(machine.memory_bytes), *device))


def _real(value: float) -> float:
    return value if math.isfinite(value) else 0.0


def _step(ledger: Ledger) -> Step:
    step = ledger.step

    def ns(value: float) -> int:
        return round(_real(value))

    return Step(
        count=step.count,
        wall_ns=ns(step.wall_ns),
        plain_wall_ns=ns(step.plain_wall_ns),
        low_ns=ns(step.low_ns),
        high_ns=ns(step.high_ns),
        kind=step.kind,
        loop=step.loop,
        averaged=step.averaged,
        unmarked="unmarked" in ledger.signals,
        profiled_count=step.profiled_count,
        warmup_count=step.warmup_count,
        plain_count=step.plain_count,
        p95_ns=None if step.p95_ns is None else ns(step.p95_ns),
        p99_ns=None if step.p99_ns is None else ns(step.p99_ns),
        samples=ledger.samples_per_step,
        samples_per_s=1e9 * ledger.samples_per_step / step.average_ns
        if ledger.samples_per_step and ledger.wall
        else None,
        epoch_steps=ledger.steps_per_epoch,
        outlier_ns=ns(step.average_ns - step.plain_wall_ns),
        holds=_holds(ledger),
    )


def _holds(ledger: Ledger) -> tuple[tuple[str, int], ...]:
    """Return the parts of a step, where it is not one batch and one update."""
    step, known = ledger.step, {optimizer.id: optimizer for optimizer in ledger.facts.optimizers}
    updates: Counter[str] = Counter()
    for number, count in step.updates:
        optimizer = known.get(number, OptimizerFacts(number))
        place = f" at {short(optimizer.span)}" if optimizer.span and len(step.updates) > 1 else ""
        updates[f"update of {optimizer.kind or 'an optimizer'}{place}"] += count
    parts = [("batch", step.batches), *updates.items(), ("backward pass", step.backwards)]
    several = max(step.batches, step.backwards, updates.total()) > 1
    return tuple(part for part in parts if part[1]) if several else ()


def _device(ledger: Ledger) -> Device | None:
    device = ledger.device
    if device is None:
        return None
    total = sum(ns for _, _, ns, _ in device.kernels) or 1.0
    classes: dict[str, float] = {}
    for _, _, ns, kind in device.kernels:
        classes[kind] = classes.get(kind, 0.0) + ns / total
    return Device(
        device.name, min(1.0, device.busy_ns / ledger.wall) if ledger.wall else 0.0, Span(device.span_busy_share),
        tuple(sorted(classes.items(), key=lambda item: -item[1])),
        tuple((name, calls, ns / total) for name, calls, ns, _ in device.kernels[:NUM_KERNELS]),
        ledger.device_phases, device.underfilled_share,
        min(1.0, device.awaited_ns / ledger.wall) if ledger.wall else 0.0, device.memory,
        device.work.ops[:NUM_WORK] if device.work else (), device.work.by_shape if device.work else (),
    )  # fmt: skip


def _ops(ledger: Ledger) -> tuple[OpShare, ...]:
    """The costliest ops by name, phase and line; of the device, where one works."""
    every = hot(ledger) if ledger.wall > 0 else ()
    groups = grouped((op for op in every if op.phase != "data"), lambda op: (op.name, op.phase, *op.where[:1]))
    ranked = sorted(groups.values(), key=lambda ops: -total(ops))[:NUM_OPS]
    return tuple(_op(ops, ledger.wall) for ops in ranked if total(ops) > 0)


def _op(ops: list[OpGroup], wall: float) -> OpShare:
    first, ns, calls = ops[0], total(ops), sum(op.calls for op in ops)
    costliest = max(ops, key=lambda op: op.ns)
    counted = all(op.flops is not None for op in ops) and ns > SHORT * calls
    flops, moved = sum(op.flops or 0.0 for op in ops), sum(op.bytes or 0.0 for op in ops)
    return OpShare(
        first.name, calls, ns, ns / wall, first.phase,
        1e9 * flops / ns if counted else None, 1e9 * moved / ns if counted else None, first.bound,
        line(first), ", ".join(shape_text(shape) for shape in costliest.shapes if shape)[:MAX_SHAPES],
    )  # fmt: skip


def _tokens(ledger: Ledger) -> Tokens | None:
    found, mfu = ledger.sequences, ledger.roofline.mfu
    if found is None:
        return None
    useful = mfu * found.real_share if mfu is not None else None
    return Tokens(found.real_share, found.batches, found.tokens_per_s, useful)


def _accounts(ledger: Ledger) -> tuple[Account, ...]:
    """The ledger's accounts; what they leave of the step is `unattributed`, said even where the ledger does not."""
    if any(account.account == "unattributed" for account in ledger.accounts) or ledger.wall <= 0:
        return ledger.accounts
    rest = max(0.0, ledger.wall - sum(account.ns for account in ledger.accounts))
    return (*ledger.accounts, Account("unattributed", rest, rest / ledger.wall))
