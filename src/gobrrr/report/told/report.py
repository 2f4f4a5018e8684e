"""The sentences of a report: headline, length of a step, device, doubts, missing parts, and what to type next."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import PurePath

from gobrrr import units
from gobrrr.ledger.device.kernel_names import readable
from gobrrr.ledger.model.since import Since
from gobrrr.ledger.steps.decoding import Decoding
from gobrrr.ledger.steps.serving import ServingClass
from gobrrr.report.forms.formats import View
from gobrrr.report.told import findings, ops, resources
from gobrrr.report.told.bars import finite
from gobrrr.report.told.blocks import CUT, Fact, Groups, Line, Sentence, clipped, facts
from gobrrr.report.told.money import sentences
from gobrrr.rules.verdict.report import Device, Report
from gobrrr.rules.verdict.sentence import is_doubt
from gobrrr.system.escape import cleaned_command, is_plain
from gobrrr.trial.arm.ranks import launcher

UNDERFILLED = 0.2
"""Share of kernel time in kernels too small for the device from which it is said."""
AWAITED = 0.01
"""Share of the step in which the host waits for the device from which it is said."""
MISSES = "BRR904"
IDIOM = "BRR320"
"""Code whose findings are explained by their names: its own page is a table."""
KERNEL = 54  # characters of a kernel's name; proposed: its line fits 100 columns; settled by names cut alike
DONE = (None, 0, 130, -2)
"""Exit codes of programs that did not fail: unknown, the end, Ctrl-C."""
NUM_SKIPPED = 3
"""Rules skipped for one reason that are named."""
SLOW_STEPS = 0.01
"""Rare slow steps are mentioned where they add a percent to the step."""
UNTIMED = "none was timed: {} seen ({}), of which the first do not count"
"""Words for a program that ended before a step was timed."""


def blocks(report: Report, view: View) -> Groups:
    """Return what fits a pull-request comment: no source is quoted, since it leaves the machine."""
    device = report.device
    peaks = facts([("peaks", [report.roofline.ceiling])]) if device and device.work else []
    return [
        [verdict(report)], [step(report), *program(report)], findings.table(report, view.root),
        [*resources.accounts(report), *resources.phases(report)], [*ops.costliest(report), *peaks],
        [fact for fact in limits(report) if fact.label != "skipped"],
    ]  # fmt: skip


def verdict(report: Report) -> Sentence:
    """The headline, its bound coloured, and how far to rely on it."""
    head, colon, rest = report.verdict.sentence.partition(":")
    worst = report.findings[0].severity if report.findings else ""
    certain = {"balanced": "bold green", "unreliable": "bold magenta"}
    style = certain.get(report.verdict.bound, findings.COLORS.get(worst, "bold green"))
    sure = (report.confidence_line,) if report.confidence_line else ()
    return Sentence((((head + colon, style), (rest, "bold")), *sure))


def step(report: Report, brief: bool = False) -> Fact:
    """How long a step is, how surely, and what watching cost."""
    step = report.step
    interval = f" (95 %: {units.interval(step.low_ns, step.high_ns)})" if step.low_ns else ""
    whole = f" of {step.count}" if report.offline and step.count > step.plain_count else ""  # the others are longer
    steps = f" {'mean' if step.averaged else 'median'} of {step.plain_count}{whole} {step.kind} steps"
    steps = f", one {step.kind} step" if step.plain_count == 1 else steps
    steps = ", all of it: the file does not say where a step ends" if step.unmarked else steps
    warm = f", {units.several('warm-up step', step.warmup_count)} dropped" if step.warmup_count and not brief else ""
    lines: list[Line] = [((units.duration(step.plain_wall_ns), "bold"), f"{steps}{interval}{warm}")]
    if not step.plain_wall_ns:
        lines = [UNTIMED.format(step.count, step.kind)]
    lines += [pace_of(report), *map(serving, report.serving), *decoding(report.decoding)]
    lines += [f"a step is {', '.join(units.several(*part) for part in step.holds)}"] if step.holds else []
    if not brief and step.outlier_ns > SLOW_STEPS * step.plain_wall_ns:
        lines.append(f"rare slow steps raise the mean step to {units.duration(step.plain_wall_ns + step.outlier_ns)}")
    if report.offline or not brief:
        lines.append(((watching(report), "dim"),))
    return Fact("step", [line for line in lines if line])


def pace_of(report: Report) -> str:
    """Slow steps, samples and tokens per second of a report."""
    step, tokens = report.step, report.tokens.per_s if report.tokens else None
    return pace(step.p95_ns, step.p99_ns, step.samples_per_s, tokens)


def pace(p95_ns: float | None, p99_ns: float | None, samples_per_s: float | None, tokens_per_s: float | None) -> str:
    """'p95 312 ms, p99 330 ms; 57.8 samples/s, 14,812 tokens/s'; what is not known is left out."""
    slow = [f"{name} {units.duration(ns)}" for name, ns in (("p95", p95_ns), ("p99", p99_ns)) if ns]
    known = [(what, rate) for what, rate in (("samples", samples_per_s), ("tokens", tokens_per_s)) if rate]
    rates = [f"{rate:,.0f} {what}/s" if rate >= 100 else f"{rate:.3g} {what}/s" for what, rate in known]
    return "; ".join(", ".join(part) for part in (slow, rates) if part)


def serving(each: ServingClass) -> str:
    """'24 decode steps of 5.13 ms: 37 sequences, 37 tokens, 7,212 tokens/s'."""
    parts = [(each.prompts, "prompt"), (each.sequences, "sequence")]
    holds = [f"{_amount(number)} {what}{'' if number == 1 else 's'}" for number, what in parts if number]
    if each.tokens is not None and each.tokens_per_s is not None:
        holds.append(f"{_amount(each.tokens)} tokens, {each.tokens_per_s:,.0f} tokens/s")
    steps = f"{each.count:,} {each.kind} step{'' if each.count == 1 else 's'}"
    return f"{steps} of {units.duration(each.step_ns)}{': ' if holds else ''}{', '.join(holds)}"


def decoding(found: Decoding | None) -> list[str]:
    """'generate(): 60.2 tokens/s; first token 21 ms (p99 30 ms), then 17 ms per token (p99 43 ms)'; nothing without."""
    if found is None:
        return []
    times = [f"{before}{units.duration(usual)}{behind}{f' (p99 {units.duration(worst)})' if worst else ''}"
             for before, usual, worst, behind in (("first token ", found.first_p50_ns, found.first_p99_ns, ""),
                                                  ("then ", found.token_p50_ns, found.token_p99_ns, " per token"))
             if usual]  # fmt: skip
    rows = f" in {_amount(found.rows)} rows at once" if found.rows > 1 else ""
    return [f"generate(): {_amount(found.tokens_per_s)} tokens/s{rows}; {', '.join(times)}"]


def _amount(number: float) -> str:
    return f"{number:,.0f}" if number >= 1000 else f"{number:.4g}"


def watching(report: Report) -> str:
    """Say what the hooks cost, measured against steps without them or else a lower bound, and what the profiler did."""
    if report.offline:
        return "every step ran under the profiler, which makes the host's side of it longer"
    shares = (report.overhead_share, report.overhead_low, report.overhead_high)
    cost, low, high = (100 * finite(share or 0.0) for share in shares)
    told = f"watching is at least {cost:.2f} % of that step"
    if report.overhead_high is not None:
        told = f"watching cost {cost:.2f} % of the step (95 %: {low:.2f} to {high:.2f} %)"
    if not report.step.profiled_count:
        return f"{told}; no step was profiled"
    ratio = 1 + finite(report.profiler_overhead_share)
    slower = f"{ratio:.2f}x slower" if ratio > 1 else "no slower"
    return f"{told}; the profiled window ({units.several('step', report.step.profiled_count)}) ran {slower}"


def program(report: Report, brief: bool = False) -> list[Fact]:
    """Money, rank, a failed exit and the accelerator: only where there is something to say."""
    command = cleaned_command(report.command) or "the program"
    failed: list[Line] = [((str(report.exit_code), "bold red"), f" from {command}")] if report.exit_code else []
    device: list[Line] = []
    if report.device:
        busy, span = units.share(report.device.busy_share), units.share(report.device.span.busy_share)
        awaited = report.device.awaited_share
        held = f"; the host waits for it {units.share(awaited)}" if awaited >= AWAITED else ""
        device = [f"{report.device.name}: busy {busy} of the step ({span} from first to last kernel){held}"]
    kernels = [*_kernels(report.device)] if report.device and report.device.longest and not brief else []
    gauges = list(resources.gauges(report, brief))
    money = sentences(report.money) if report.money else []
    grown = list(since(report.since)) if report.since else []
    ran: list[tuple[str, Sequence[Line]]] = [("money", money), ("rank", [rank(report)]), ("exit", failed)]
    return facts([*ran, ("since", grown), ("device", device), ("kernels", kernels), ("gauges", gauges)])


def since(found: Since) -> Iterator[Line]:
    """Say what became of the steps: 'step 200: 41.2 to 55.0 ms a step (+33 %, 95 %: +30 to +36 %), memory +1.2 GiB'."""
    begin = f"{'the look at ' if found.looked else ''}step {found.step:,}"
    then, now = units.bare(found.then_ns, found.now_ns), units.duration(found.now_ns)
    change, low, high = (round(100 * finite(part)) for part in (found.change, found.low, found.high))
    by = f"{change:+d} %, 95 %: {low:+d} to {high:+d} %"
    same = f"{'about ' if found.low * found.high > 0 else ''}as long as then"
    step = f"{then} to {now} a step ({by})" if found.changed else f"steps are {same} ({by})"
    sizes = (("memory", found.memory), ("device memory", found.device_memory))
    more = [f"{name} {'+' if grew > 0 else '-'}{units.size(abs(grew))}" for name, grew in sizes if grew]
    yield f"{begin}: {', '.join([step, *more])}"
    yield "; ".join(f"{name} holds {units.several('tensor', length)} now" for name, length in found.kept)
    yield "; ".join(f"clock of {name}: {then:,.0f} to {now:,.0f} MHz" for name, then, now in found.clocks)
    ops = (f"{name.removeprefix('aten::')} {units.bare(a, b)} to {units.duration(b)}" for name, a, b in found.ops)
    yield ((", ".join(ops), CUT),) if found.ops else ""


def rank(report: Report) -> str:
    """'2 of 8', of a job of several."""
    return f"{report.rank} of {report.world_size}" if report.rank is not None and (report.world_size or 0) > 1 else ""


def _kernels(device: Device) -> Iterator[Line]:
    """Kinds of the device's work and its longest kernel."""
    yield " · ".join(f"{kind} {units.share(share)}" for kind, share in device.classes if share >= 0.005)
    if len(device.phases) > 1:
        yield f"launched in {' · '.join(f'{name} {units.duration(ns)}' for name, ns in device.phases)}"
    (name, calls, share), *_ = device.longest
    name = clipped(readable(name), KERNEL)
    yield ((f"longest: {name}, {units.calls(calls)} a step, {units.share(share)}", "dim"),)
    if device.underfilled_share is not None and device.underfilled_share >= UNDERFILLED:
        part = units.share(device.underfilled_share)
        yield ((f"{part} of their time with less than one block per multiprocessor", "dim"),)


def versions(found: Mapping[str, str]) -> str:
    """'python 3.11.7, torch 2.13.0'."""
    return ", ".join(f"{name} {version}" for name, version in sorted(found.items()))


def limits(report: Report) -> list[Fact]:
    """Facts of the measurement: its findings, what the recording lacks, and which rules could not judge."""
    doubts: list[Line] = [((f.code, findings.COLORS.get(f.severity, "")), f" {f.message.rstrip('.')}. ",
                           (f.advice, "dim")) for f in report.findings if is_doubt(f)]  # fmt: skip
    left_out = "; ".join(f"{codes} ({reason})" for reason, codes in skipped(report, NUM_SKIPPED))
    return facts([("measuring", doubts), ("missing", ["; ".join(report.missing)]),
                  ("skipped", [((left_out, "dim"),)] if left_out else [])])  # fmt: skip


def skipped(report: Report, most: int = 1 << 30) -> list[tuple[str, str]]:
    """Rules by the reason why they could not judge; more than `most` of one reason are counted, the JSON names them."""
    by_reason = sorted(report.skipped_rules, key=lambda rule: (rule[1], rule[0]))
    grouped = [(reason, [code for code, _ in rules]) for reason, rules in groupby(by_reason, key=lambda rule: rule[1])]
    return [(reason, ", ".join(codes) if len(codes) <= most else f"{len(codes)} rules") for reason, codes in grouped]


def next_steps(report: Report, brief: bool = False) -> list[Fact]:
    """The commands that lead on from here, and the one that shows this report again, whole where this is a brief."""
    folder = report.recording if "/" in report.recording else f"./{report.recording}"  # no word, seen at once
    again = f"gobrrr report {'-v ' if brief else ''}{cleaned_command([folder])}" if report.recording else ""
    top = report.findings[0] if report.findings else None
    first = f"gobrrr explain {cleaned_command([top.name if top.code == IDIOM else top.code])}" if top else again
    rest = f"   {'all of it' if brief else 'this report again'}: {again}" if again and report.findings else ""
    program = tunable(report)
    told: list[tuple[str, str]] = [
        (first, rest), (f"gobrrr tune {program}" if program else "", "   tries remedies and checks the numbers"),
        (settles(report), "   when it is recorded again"),
    ]  # fmt: skip
    return facts([("next", [((command, "bold"), (why, "dim")) for command, why in told if command])])


def settles(report: Report) -> str:
    """Return, for a trace, the call of torch.profiler that would record what it lacks: without it lines stay open."""
    told = (finding.evidence.get("command") for finding in report.findings if finding.code == MISSES)
    return next((str(command.value) for command in told if command), "")


EDITS = frozenset((
    "assistant_model", "batched_prompts", "channels_last", "chunked_loss", "compile_frozen", "compiled_optimizer",
    "draft_decoding", "float16_autocast", "float32", "fold_batch_norm", "foreach_optimizer", "freeze_unused",
    "fused_attention", "fused_norm", "gc_freeze", "identity", "int8_draft", "int8_dynamic", "key_value_cache",
    "no_grad_evaluation", "no_sync", "packing", "pad_vocabulary", "prefetch", "preloaded_allocator",
    "products_together", "prompt_lookup", "set_to_none", "sparse_gradient", "summed_together", "thread_affinity",
    "unchecked_distributions",
))  # fmt: skip
"""Edits, which findings name and a running program is not given; tests/report holds it to remedies.registry."""


def tunable(report: Report) -> str:
    """Return the command line to give to gobrrr tune, where findings name remedies and the program ended by itself or
    by Ctrl-C: a script or a module as it is, any other behind two dashes. Empty where a word does not print, and for
    several ranks that torchrun has not started."""
    python, *program = report.command or ("",)
    several = (report.world_size or 1) > 1
    remedies = any({*finding.remedies} - (frozenset() if several else EDITS) for finding in report.findings)
    if not (program and remedies) or report.verdict.bound == "unreliable" or report.exit_code not in DONE:
        return ""
    if several:
        return shlex.join(["--", *report.command]) if launcher(report.command) and all(map(is_plain, program)) else ""
    if not PurePath(python).name.startswith("python") or not all(map(is_plain, program)):
        return ""
    plainly = program[0] == "-m" or not program[0].startswith("-")
    return shlex.join(program if plainly else ["--", python, *program])
