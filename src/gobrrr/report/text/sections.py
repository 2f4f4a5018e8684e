"""The text report around its tables: verdict, step, limits of what is known, the next command."""

from __future__ import annotations

import shlex
from itertools import groupby
from pathlib import PurePath

from rich.console import RenderableType
from rich.text import Text

from gobrrr import units
from gobrrr.ledger.device.kernel_names import readable
from gobrrr.ledger.model.device import DeviceOp
from gobrrr.ledger.steps.serving import ServingClass
from gobrrr.report.text.bars import finite
from gobrrr.report.text.page import COLORS, Page, phrase
from gobrrr.report.told.money import sentences
from gobrrr.report.told.overhead_text import watching_cost
from gobrrr.rules.model.finding import Finding
from gobrrr.rules.verdict.report import Device, Report
from gobrrr.rules.verdict.sentence import is_doubt
from gobrrr.system.escape import cleaned_command, is_plain

UNDERFILLED = 0.2
"""Share of kernel time in kernels too small for the device from which it is said."""
AWAITED = 0.01
"""Share of the step in which the host waits for the device from which it is said."""
MISSES = "BRR904"
NUM_OPS, NUM_SHAPES, OP_WIDTH, SHAPE_WIDTH = 4, 8, 28, 24
DONE = (None, 0, 130, -2)
"""Exit codes of programs that did not fail: unknown, the end, Ctrl-C."""
NUM_SKIPPED = 3
"""Rules skipped for one reason that are named."""
SLOW_STEPS = 0.01
"""Rare slow steps are mentioned where they add a percent to the step."""


UNTIMED = "none was timed: {} seen ({}), of which the first do not count"
"""Words for a program that ended before a step was timed."""


def verdict(report: Report, page: Page) -> list[RenderableType]:
    """The sentence, its bound coloured."""
    sentence = page.clean(report.verdict.sentence)
    head, colon, rest = sentence.partition(":")
    worst = report.findings[0].severity if report.findings else ""
    certain = {"balanced": "bold green", "unreliable": "bold magenta"}
    style = certain.get(report.verdict.bound, COLORS.get(worst, "bold green"))
    return [phrase((head + colon, style), (rest, "bold"))]


def step(report: Report, page: Page, brief: bool = False) -> list[RenderableType]:
    """Return what was measured, how surely, and what watching cost."""
    step = report.step
    interval = f" (95 %: {units.interval(step.low_ns, step.high_ns)})" if step.low_ns else ""
    usual = f"{'mean' if step.averaged else 'median'} of {step.plain_count} {page.clean(step.kind)} steps"
    steps = f", one {page.clean(step.kind)} step" if step.plain_count == 1 else f" {usual}"
    steps = ", all of the file: it does not say where a step ends" if step.unmarked else steps
    warm = f", {step.warmup_count} warm-up steps dropped" if step.warmup_count else ""
    lines = [phrase((units.duration(step.plain_wall_ns), "bold"), f"{steps}{interval}{'' if brief else warm}")]
    if not step.plain_wall_ns:
        lines = [Text(UNTIMED.format(step.count, page.clean(step.kind)))]
    lines += [Text(told)] if (told := pace_of(report)) else []
    lines += [Text(serving(each)) for each in report.serving]
    if step.holds:
        parts = ", ".join(several(page.clean(what), count) for what, count in step.holds)
        lines.append(phrase(f"a step is {parts}"))
    if brief:
        lines += [phrase((watching(report), "dim"))] if report.offline else []
        return [page.row("step", *lines), *_money(report, page), *_program(report, page, brief)]
    if step.outlier_ns > SLOW_STEPS * step.plain_wall_ns:
        lines.append(phrase(f"rare slow steps add {units.duration(step.outlier_ns)} to each step on average"))
    lines.append(phrase((watching(report), "dim")))
    return [page.row("step", *lines), *_money(report, page), *_program(report, page)]


def pace_of(report: Report) -> str:
    """The same of a report."""
    step, tokens = report.step, report.tokens.per_s if report.tokens else None
    return pace(step.p95_ns, step.p99_ns, step.samples_per_s, tokens)


def pace(p95_ns: float | None, p99_ns: float | None, samples_per_s: float | None, tokens_per_s: float | None) -> str:
    """'p95 312 ms, p99 330 ms; 57.8 samples/s, 14,812 tokens/s'; what is not known is left out."""
    slow = [f"{name} {units.duration(ns)}" for name, ns in (("p95", p95_ns), ("p99", p99_ns)) if ns]
    known = [(what, rate) for what, rate in (("samples", samples_per_s), ("tokens", tokens_per_s)) if rate]
    rates = [f"{rate:,.0f} {what}/s" if rate >= 100 else f"{rate:.3g} {what}/s" for what, rate in known]
    return "; ".join(", ".join(part) for part in (slow, rates) if part)


def _money(report: Report, page: Page) -> list[RenderableType]:
    return [page.row("money", *map(Text, map(page.clean, sentences(report.money))))] if report.money else []


def _amount(number: float) -> str:
    return f"{number:,.0f}" if number >= 1000 else f"{number:.4g}"


def serving(each: ServingClass) -> str:
    """'24 decode steps of 5.13 ms: 37 sequences, 37 tokens, 7,212 tokens/s'."""
    parts = [(each.prompts, "prompt"), (each.sequences, "sequence")]
    holds = [f"{_amount(number)} {what}{'' if number == 1 else 's'}" for number, what in parts if number]
    if each.tokens is not None and each.tokens_per_s is not None:
        holds.append(f"{_amount(each.tokens)} tokens, {each.tokens_per_s:,.0f} tokens/s")
    steps = f"{each.count:,} {each.kind} step{'' if each.count == 1 else 's'}"
    return f"{steps} of {units.duration(each.step_ns)}{': ' if holds else ''}{', '.join(holds)}"


def several(what: str, count: int) -> str:
    """'5 batches', '2 updates of Adam at a.py:3'."""
    head, _, rest = what.partition(" of ")
    ending = "" if count == 1 else "es" if head.endswith(("ch", "ss")) else "s"
    return f"{count} {head}{ending}{f' of {rest}' if rest else ''}"


def watching(report: Report) -> str:
    if report.offline:
        return "every step ran under the profiler, which makes the host's side of it longer"
    cost = watching_cost(report)
    if not report.step.profiled_count:
        return f"{cost}; no step was profiled"
    ratio = 1 + finite(report.profiler_overhead_share)
    window = f"the profiled window ({report.step.profiled_count} steps)"
    return f"{cost}; {window} ran {ratio:.2f}x slower" if ratio > 1 else f"{cost}; {window} ran no slower"


def _program(report: Report, page: Page, brief: bool = False) -> list[RenderableType]:
    """Rank, a failed exit and the accelerator: only where there is something to say."""
    block: list[RenderableType] = []
    if report.rank is not None and (report.world_size or 0) > 1:
        block.append(page.row("rank", Text(f"{report.rank} of {report.world_size}")))
    if report.exit_code:
        command = page.clean(cleaned_command(report.command)) or "the program"
        block.append(page.row("exit", phrase((str(report.exit_code), "bold red"), f" from {command}")))
    if report.device:
        busy, span = units.share(report.device.busy_share), units.share(report.device.span.busy_share)
        name = page.clean(report.device.name)
        waits = units.share(report.device.awaited_share)
        held = f"; the host waits for it {waits}" if report.device.awaited_share >= AWAITED else ""
        said = f"{name}: busy {busy} of the step ({span} from first to last event){held}"
        block.append(page.row("device", Text(said)))
        block += [] if brief else _kernels(report.device, page)
    return block


def _kernels(device: Device, page: Page) -> list[RenderableType]:
    """Return the kinds of the device's work and its longest kernel."""
    if not device.longest:
        return []
    dot = " | " if page.ascii_only else " · "
    kinds = dot.join(f"{page.clean(kind)} {units.share(share)}" for kind, share in device.classes if share >= 0.005)
    name, calls, share = device.longest[0]
    longest = f"longest: {page.clip(readable(name), page.body - 36)}, {calls:.3g} a step, {units.share(share)}"
    lines = [Text(kinds), Text(longest, style="dim")]
    if len(device.phases) > 1:
        parts = dot.join(f"{name} {units.duration(ns)}" for name, ns in device.phases)
        lines.insert(1, Text(f"launched in {parts}"))
    if device.underfilled_share is not None and device.underfilled_share >= UNDERFILLED:
        part = units.share(device.underfilled_share)
        lines.append(Text(f"{part} of their time with less than one block per multiprocessor", style="dim"))
    block: list[RenderableType] = [page.row("kernels", *lines)]
    if device.work:
        block += [page.row("ops", *work(device, page)), *shapes(device, page)]
    return block


def work(device: Device, page: Page, num: int = NUM_OPS) -> list[Text]:
    """The ops whose kernels take most, with how near each comes to its ceiling."""
    most = device.work[:num]
    names = [f"{page.clip(op.name.removeprefix('aten::'), OP_WIDTH)} {op.dtype}" for op in most]
    longest = max(map(len, names))
    return [Text(f"{name:<{longest}}  {_reached(op)}") for name, op in zip(names, most, strict=True)]


def shapes(device: Device, page: Page) -> list[RenderableType]:
    """Products, convolutions and attention by the shapes of their tensors: calls, time, rate, share of the peak."""
    most = device.by_shape[:NUM_SHAPES]
    if not most:
        return []
    names = [page.clip(f"{op.name.removeprefix('aten::')} {op.dtype}", OP_WIDTH) for op in most]
    figures = [f"x{op.calls:<4.3g} {units.duration(op.ns):>7}  {_of_peak(op)}" for op in most]
    width = max(map(len, names))
    room = page.body - width - max(map(len, figures)) - 4
    beside, room = ("  ", room) if room >= SHAPE_WIDTH else ("\n  ", page.body - 2)
    lines = [
        Text(f"{name:<{width}}  {numbers}{beside}{page.clip(op.shapes, room)}")
        for name, numbers, op in zip(names, figures, most, strict=True)
    ]
    return [page.row("by shape", Text("calls, time and rate per step, share of the peak", style="dim"), *lines)]


def _of_peak(op: DeviceOp) -> str:
    """Rate and share, in columns."""
    if not op.believed:
        return f"{'at peak':>12} {'':>7}"
    return f"{_rate(op):>12} {units.share(op.reached):>7}"


def _reached(op: DeviceOp) -> str:
    if not op.believed:
        return f"{units.duration(op.ns):>7}  {'':>13}  at peak {op.bound}, or its work is counted too high"
    return f"{units.duration(op.ns):>7}  {_rate(op):>13}, {units.share(op.reached)} of peak {op.bound}"


def _rate(op: DeviceOp) -> str:
    return units.flop_rate(op.rate) if op.bound == "compute" else units.byte_rate(op.rate)


def limits(report: Report, page: Page) -> list[RenderableType]:
    """Return what makes the figures doubtful, what the recording lacks, and which rules could not judge."""
    told = 1 if report.verdict.bound == "unreliable" else 0  # the verdict says the first one already
    lines = [_doubt(f, page) for f in [f for f in report.findings if is_doubt(f)][told:]]
    block: list[RenderableType] = [page.row("doubts", *lines)] if lines else []
    if report.missing:
        block.append(page.row("missing", Text("; ".join(map(page.clean, report.missing)))))
    if report.skipped_rules:
        block.append(page.row("skipped", phrase((_skipped(report, page), "dim"))))
    return block


def _doubt(doubt: Finding, page: Page) -> Text:
    code, message, advice = map(page.clean, (doubt.code, doubt.message, doubt.advice))
    return phrase((code, COLORS.get(doubt.severity, "")), f" {message}. ", (advice, "dim"))


def _skipped(report: Report, page: Page) -> str:
    """Rules by the reason why they could not judge; many of one reason are counted, the JSON names them."""
    by_reason = sorted(report.skipped_rules, key=lambda rule: (rule[1], rule[0]))
    parts = []
    for reason, rules in groupby(by_reason, key=lambda rule: rule[1]):
        codes = [page.clean(code) for code, _ in rules]
        named = ", ".join(codes) if len(codes) <= NUM_SKIPPED else f"{len(codes)} rules"
        parts.append(f"{named} ({page.clean(reason)})")
    return "; ".join(parts)


def next_steps(report: Report, page: Page, brief: bool = False) -> list[RenderableType]:
    """The commands that lead on from here, and the one that shows this report again, whole where this is a brief."""
    folder = page.clean(cleaned_command([report.recording]))
    again = f"gobrrr report {'-v ' if brief else ''}{folder}" if report.recording else ""
    first = f"gobrrr explain {page.clean(cleaned_command([report.findings[0].code]))}" if report.findings else again
    rest = f"   {'all of it' if brief else 'this report again'}: {again}" if again and report.findings else ""
    lines = [phrase((first, "bold"), (rest, "dim"))] if first else []
    if command := page.clean(tunable(report)):
        lines.append(phrase((f"gobrrr tune {command}", "bold"), ("   tries remedies and checks the numbers", "dim")))
    if told := page.clean(settles(report)):
        lines.append(phrase((told, "bold"), ("   when it is recorded again", "dim")))
    return [page.row("next", *lines)] if lines else []


def settles(report: Report) -> str:
    """Return, for a trace, the call of torch.profiler that would record what it lacks: without it lines stay open."""
    told = (finding.evidence.get("command") for finding in report.findings if finding.code == MISSES)
    return next((str(command.value) for command in told if command), "")


def tunable(report: Report) -> str:
    """Return the command line to give to gobrrr tune, where findings name remedies and the program ended by itself or
    by Ctrl-C: a script or a module as it is, any other behind two dashes. Empty where a word does not print, and for a
    job of several ranks, which tune refuses."""
    python, *program = report.command or ("",)
    remedies = any(finding.remedies for finding in report.findings) and (report.world_size or 1) == 1
    if not (program and remedies) or report.verdict.bound == "unreliable" or report.exit_code not in DONE:
        return ""
    if not PurePath(python).name.startswith("python") or not all(map(is_plain, program)):
        return ""
    plainly = program[0] == "-m" or not program[0].startswith("-")
    return shlex.join(program if plainly else ["--", python, *program])
