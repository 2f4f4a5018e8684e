"""The text report around its findings: verdict, step, time, machine and memory, limits, next commands."""

from __future__ import annotations

import shlex
from itertools import groupby

from rich.console import RenderableType
from rich.text import Text

from gobrrr import units
from gobrrr.ledger.model import MemoryLedger, Roofline
from gobrrr.report.bars import bar, finite, tenths
from gobrrr.report.model import Report
from gobrrr.report.page import COLORS, GUTTER, Page, phrase
from gobrrr.report.verdict import is_doubt

Block = list[RenderableType]

BOUND_STYLE = {"balanced": "bold green", "compute": "bold green", "unreliable": "bold magenta"}
# account -> (style, gloss): green is work at the ceiling, yellow torch's loss, red time that no op ran
ACCOUNTS = {
    "data_wait": ("red", "waiting for the next batch"),
    "compute": ("green", "FLOPs at the ceiling measured here"),
    "bandwidth": ("green", "bytes at the ceiling measured here"),
    "inefficiency": ("yellow", "ops above that floor"),
    "uncounted": ("yellow", "ops whose work is not modelled"),
    "dispatch": ("yellow", "what torch itself costs per op"),
    "host": ("red", "Python and native code between ops"),
    "communication": ("red", "waiting for other ranks"),
    "sync": ("red", "idle that synchronisation causes"),
    "copy": ("red", "copies that nothing hides"),
    "compile": ("red", "compilation in the steady state"),
    "gc": ("red", "Python's garbage collection"),
    "unattributed": ("dim", "claimed by no account"),
}
SMALL = 0.005
"""Accounts below half a percent share one line."""
NUM_SKIPPED = 3
"""Rules skipped for one reason that are named."""
MEMORY = ("parameters", "gradients", "optimizer_state", "activations", "inputs", "workspace", "peak")


def verdict(report: Report, page: Page) -> Block:
    """The sentence, its bound coloured."""
    sentence = page.clean(report.verdict.sentence)
    head, colon, rest = sentence.partition(":")
    style = BOUND_STYLE.get(report.verdict.bound, "bold red")
    return [phrase((head + colon, style), (rest, "bold"))]


def step(report: Report, page: Page) -> Block:
    """What was measured, how surely, and what watching cost."""
    step = report.step
    interval = f" (95 %: {units.interval(step.low_ns, step.high_ns)})" if step.low_ns else ""
    steps = f" median of {step.plain_count} {page.clean(step.kind)} steps"
    warm = f", {step.warmup_count} warm-up steps dropped" if step.warmup_count else ""
    lines = [phrase((units.duration(step.plain_wall_ns), "bold"), f"{steps}{interval}{warm}")]
    if step.outlier_ns > SMALL * step.plain_wall_ns:
        lines.append(phrase(f"rare slow steps add {units.duration(step.outlier_ns)} to each step on average"))
    lines.append(phrase((_watching(report), "dim")))
    return [page.row("step", *lines), *_program(report, page)]


def _watching(report: Report) -> str:
    cost = f"watching cost {100 * finite(report.overhead_share):.2f} % of the step"
    if not report.step.profiled_count:
        return f"{cost}; no step was profiled"
    ratio = 1 + finite(report.profiler_overhead_share)
    window = f"the profiled window ({report.step.profiled_count} steps)"
    return f"{cost}; {window} ran {ratio:.2f}x slower" if ratio > 1 else f"{cost}; {window} ran no slower"


def _program(report: Report, page: Page) -> Block:
    """Rank, a failed exit and the accelerator: only where there is something to say."""
    block: Block = []
    if report.rank is not None and (report.world_size or 0) > 1:
        block.append(page.row("rank", Text(f"{report.rank} of {report.world_size}")))
    if report.exit_code:
        command = page.clean(shlex.join(report.command)) or "the program"
        block.append(page.row("exit", phrase((str(report.exit_code), "bold red"), f" from {command}")))
    if report.device:
        busy, span = units.share(report.device.busy_share), units.share(report.device.span.busy_share)
        name = page.clean(report.device.name)
        block.append(page.row("device", Text(f"{name}: busy {busy} of the step ({span} from first to last event)")))
    return block


def time(report: Report, page: Page) -> Block:
    """The time ledger as bars that sum to the step, and the phases."""
    if not report.ledger:
        return []
    rows = _rows(report)
    percents = tenths([share for _, _, share, _ in rows])
    lines = [_account(page, row, percent) for row, percent in zip(rows, percents, strict=True)]
    total = f"\n{units.duration(sum(ns for _, ns, _, _ in rows))}\n{sum(percents):.1f} %"
    label = phrase(("time", "bold"), (total if len(rows) > 2 else "", "dim"))
    return [page.indented(label, lines, GUTTER), *_phases(report, page)]


def _phases(report: Report, page: Page) -> Block:
    """All in the step's unit, so that they compare at a glance."""
    wall = report.step.plain_wall_ns
    unit = units.duration(wall).split(" ")[1]
    parts = [f"{page.clean(name)} {units.bare(ns, wall)}" for name, ns in report.phases if ns > 0]
    dot = " | " if page.ascii_only else " · "
    return [page.row("phases", Text(f"{dot.join(parts)} {unit}"))] if parts else []


Row = tuple[str, float, float, str]
"""(account, ns, share, gloss)."""


def _rows(report: Report) -> list[Row]:
    """Accounts of size in the ledger's order, the small ones as one, and always what nobody owns."""
    last = "unattributed"
    large = [a for a in report.ledger if a.share >= SMALL and a.account != last]
    small = [a for a in report.ledger if a.share < SMALL and a.account != last and a.ns > 0]
    rows = [(a.account, a.ns, a.share, ACCOUNTS.get(a.account, ("", ""))[1]) for a in large]
    if small:
        names = ", ".join(a.account.replace("_", " ") for a in small)
        rows.append(("smaller", sum(a.ns for a in small), sum(a.share for a in small), names))
    rest = [a for a in report.ledger if a.account == last]
    rows.append((last, sum(a.ns for a in rest), sum(a.share for a in rest), ACCOUNTS[last][1]))
    return rows


def _account(page: Page, row: Row, percent: float) -> Text:
    name, ns, share, gloss = row
    style = ACCOUNTS.get(name, ("dim", ""))[0]
    length = 20 if page.width >= 96 else max(8, page.width - 46)
    drawn = bar(share, length, ascii_only=page.ascii_only)
    room = page.width - 44 - length
    label = page.clip(name.replace("_", " "), 13)
    return phrase(
        f"{label:<13} {percent:>5.1f} % {units.duration(ns):>9}  ", (f"{drawn:<{length}}", style),
        (f"  {page.clip(gloss, room)}" if room > 12 else "", "dim"),
    )  # fmt: skip


def resources(report: Report, page: Page) -> Block:
    """The step against the machine's ceilings, the bytes, and the loops that were seen beside this one."""
    block: Block = []
    if report.roofline.floor_ns or report.roofline.flops:
        block.append(page.row("roofline", *_roofline(report.roofline, report, page)))
    memory = _memory(report, page)
    if memory:
        block.append(page.row("memory", *memory))
    if report.loops:
        seen = (f"{page.clean(o.name)} {units.share(o.share)} ({o.count} steps)" for o in report.loops[:4])
        more = f", and {len(report.loops) - 4} more" if len(report.loops) > 4 else ""
        block.append(page.row("loops", Text(f"also seen: {', '.join(seen)}{more}")))
    return block


def _roofline(roof: Roofline, report: Report, page: Page) -> list[Text]:
    wall = report.step.plain_wall_ns
    achieved = units.flop_rate(1e9 * roof.flops / wall) if wall else "?"
    first = f"{achieved} achieved"
    if roof.ceiling_flop_rate and roof.mfu is not None:
        ceiling = units.flop_rate(roof.ceiling_flop_rate)
        same = achieved.split(" ")[-1] == ceiling.split(" ")[-1]
        threads = f"{report.threads} thread{'s' if report.threads != 1 else ''}"
        first = f"{achieved.split(' ')[0] if same else achieved} of {ceiling} measured in {page.clean(roof.dtype)}"
        first += f" ({threads}): MFU {units.share(roof.mfu)}"
    light = f", speed of light {units.share(roof.speed_of_light)}" if roof.speed_of_light is not None else ""
    convention = "MFU: a multiply-add is 2 FLOPs, causal attention not halved, recomputation not subtracted"
    holes = ", ".join(page.clean(name.removeprefix("aten::")) for name, _ in roof.not_counted[:3])
    hole = f"not counted: {units.share(roof.not_counted_share)} of the step{f' ({holes})' if holes else ''}"
    return [phrase(first, (light, "bold")), phrase((convention, "dim")), phrase((page.clip(hole, page.body), "dim"))]


def _memory(report: Report, page: Page) -> list[Text]:
    """Two lines of a table, then what stands out."""
    memory = report.memory
    sizes = [(name.split("_")[0], getattr(memory, name)) for name in MEMORY]
    cells = [(name, units.size(value)) for name, value in sizes if value is not None]
    if not cells:
        return []
    widths = [max(len(name), len(value)) for name, value in cells]
    gap = "  " if sum(widths) + 2 * len(widths) <= page.body else " "
    names = gap.join(f"{name:>{width}}" for (name, _), width in zip(cells, widths, strict=True))
    values = gap.join(f"{value:>{width}}" for (_, value), width in zip(cells, widths, strict=True))
    return [phrase((names, "dim")), Text(values), *_memory_notes(memory, report, page)]


def _memory_notes(memory: MemoryLedger, report: Report, page: Page) -> list[Text]:
    notes = []
    if memory.bytes_per_parameter is not None:
        notes.append(f"{memory.bytes_per_parameter:.1f} bytes per parameter (mixed-precision Adam: 16 to 18)")
    if memory.growth_per_step is not None and memory.growth_per_step >= 1:
        notes.append(f"grows {units.size(memory.growth_per_step)} per step")
    savers = ((s.op.removeprefix("aten::"), s.module or "?", s.num_bytes) for s in report.saved[:3])
    saved = ", ".join(f"{page.clean(op)} in {page.clean(module)} {units.size(size)}" for op, module, size in savers)
    alive = ", ".join(f"{page.clean(name)} {units.size(size)}" for name, size in memory.alive_at_peak[:3])
    lines = ["; ".join(notes), saved and f"saved most: {saved}", alive and f"alive at the peak: {alive}"]
    return [phrase((page.clip(line, page.body), "dim")) for line in lines if line]


def limits(report: Report, page: Page) -> Block:
    """What makes the figures doubtful, what the recording lacks, and which rules could not judge."""
    told = 1 if report.verdict.bound == "unreliable" else 0  # the verdict says the first one already
    doubts = [f for f in report.findings if is_doubt(f)][told:]
    lines = [
        phrase((f.code, COLORS.get(f.severity, "")), f" {page.clean(f.message)} ", (page.clean(f.advice), "dim"))
        for f in doubts
    ]
    block: Block = [page.row("doubts", *lines)] if lines else []
    if report.missing:
        block.append(page.row("missing", Text("; ".join(map(page.clean, report.missing)))))
    if report.skipped_rules:
        block.append(page.row("skipped", phrase((_skipped(report, page), "dim"))))
    return block


def _skipped(report: Report, page: Page) -> str:
    """Rules by the reason why they could not judge; many of one reason are counted, the JSON names them."""
    by_reason = sorted(report.skipped_rules, key=lambda rule: (rule[1], rule[0]))
    parts = []
    for reason, rules in groupby(by_reason, key=lambda rule: rule[1]):
        codes = [page.clean(code) for code, _ in rules]
        named = ", ".join(codes) if len(codes) <= NUM_SKIPPED else f"{len(codes)} rules"
        parts.append(f"{named} ({page.clean(reason)})")
    return "; ".join(parts)


def next_steps(report: Report, page: Page) -> Block:
    """The command that leads on from here, and the one that shows this report again."""
    again = f"gobrrr report {page.clean(shlex.quote(report.recording))}" if report.recording else ""
    first = f"gobrrr explain {page.clean(report.findings[0].code)}" if report.findings else again
    rest = f"   this report again: {again}" if again and report.findings else ""
    return [page.row("next", phrase((first, "bold"), (rest, "dim")))] if first else []


