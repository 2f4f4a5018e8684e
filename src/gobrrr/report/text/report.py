"""The report in a terminal: all of it, or at most 30 lines: verdict, where the time is, three findings, what next."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TextIO

from rich.console import RenderableType
from rich.text import Text

from gobrrr import units
from gobrrr.report.forms.formats import View
from gobrrr.report.text import findings, ops
from gobrrr.report.text.ops import FIRST
from gobrrr.report.text.page import GUTTER, MIN_WIDTH, WIDTH, Page, laid_out, size, suited
from gobrrr.report.told import report as told
from gobrrr.report.told.bars import bar, tenths
from gobrrr.report.told.blocks import Block, Line
from gobrrr.report.told.findings import costly
from gobrrr.report.told.resources import ACCOUNTS, device_memory, gloss, loops, memory_notes, phases, resources
from gobrrr.rules.verdict.place import reader
from gobrrr.rules.verdict.report import Report
from gobrrr.rules.verdict.sentence import is_doubt

MEMORY = ("parameters", "gradients", "optimizer_state", "activations", "inputs", "runtime", "workspace", "peak")
LINES = 30  # lines of the short report at most; proposed: one screen; settled by the usual terminal height
NUM_FINDINGS = 3  # findings at most; proposed: their advice still fits; settled by whether readers act on the third
NUM_ACCOUNTS = 4  # accounts at most; proposed: hold most of a step; settled by the rest's share in recordings
FEW = 2
"""Findings, and accounts, where more do not fit."""
CUT_SHORT = "BRR906"
LONGEST, SHORTEST, GLOSS, BESIDE = 20, 5, 30, 45
"""Columns of a bar, of the longest gloss, and of what else is in a line: where it is narrow the bars give way."""
SMALL = 0.005
"""Accounts below half a percent share one line."""
Parts = list[RenderableType]
Row = tuple[str, float, float, str]
"""(account, ns, share, gloss)."""
Room = tuple[int, int]
"""Lines of a finding's message, and of its advice."""
ROOMS: tuple[tuple[Room, Room], ...] = (
    ((4, 4), (4, 4)), ((3, 3), (3, 3)), ((3, 3), (2, 2)), ((2, 3), (2, 2)), ((3, 3), (1, 1)), ((2, 2), (1, 1)),
    ((1, 2), (1, 1)), ((1, 1), (1, 1)),
)  # fmt: skip
"""Room of the first finding and of each other: what costs most is cut last, as its point comes late."""
NARROW = 4
"""Index in ROOMS from which layouts with fewer findings and accounts are tried, too."""


def show(
    report: Report, stream: TextIO, root: str | None = None, anywhere: bool = False, *, verbose: bool = False,
    ops: bool = False, mask: Callable[[str], str] = str,
) -> None:  # fmt: skip
    """Write the report to `stream` as suits it: at most 30 lines, or all of it where `verbose`. Source lines and
    relative paths start at `root` (working directory); of a program that has just run, lines may come from `anywhere`.
    `mask` masks what --redact finds in them.
    """
    root = str(root or os.getcwd())  # noqa: PTH109 - a string is wanted
    width, color, ascii_only = suited(stream)
    rows = size(stream)[1] if stream.isatty() else 0
    how: dict[str, Any] = {
        "width": width, "ascii_only": ascii_only, "root": root, "source": reader(root, anywhere, mask),
    }  # fmt: skip
    stream.write(render(report, rows, color, **how) if verbose else brief(report, ops, color, **how))


def whole(report: Report, view: View) -> str:
    """All of it, for a file."""
    return render(report, root=view.root, source=reader(view.root, view.anywhere, view.mask))


def render(report: Report, rows: int = 0, color: bool = False, width: int = WIDTH, **how: Any) -> str:
    """The report as text that ends with a newline; `how`: as of Page. Pure but for its `source`, which reads the lines
    that are quoted. On a terminal of `rows` rows that the report would scroll out of, the verdict is said again at the
    end."""
    page = Page(max(width, MIN_WIDTH), **how)
    text = laid_out(_all(report, page), page.width, color)
    if 0 < rows <= text.count("\n"):
        text += "\n" + laid_out([page.block(told.verdict(report))], page.width, color)
    return text


def brief(report: Report, ops: bool = False, color: bool = False, width: int = WIDTH, **how: Any) -> str:
    """The report in at most 30 lines; `ops`: its ten costliest ops on top of that. As pure as render()."""
    page = Page(max(width, MIN_WIDTH), **how)
    num, text = len(report.ops) if ops else FIRST, ""
    fewer = [(rooms, FEW, FEW) for rooms in ROOMS[NARROW:]]
    for rooms, accounts, shown in [*((rooms, NUM_ACCOUNTS, NUM_FINDINGS) for rooms in ROOMS), *fewer]:
        text = laid_out(_groups(report, page, rooms, accounts, shown, num), page.width, color)
        if text.count("\n") <= LINES + num - FIRST:
            break
    return text


def _shown(page: Page, *blocks: Block) -> Parts:
    return [part for block in blocks for part in page.block(block)]


def _all(report: Report, page: Page) -> list[Parts]:
    """The verdict is the first thing that the eye meets. Of a device's kernels the step's own rows tell more than the
    ops of the host."""
    device = report.device
    work = ops.launched(device, page) if device and device.longest and device.work else []
    listed = [] if device and device.work else ops.ops(report, page, len(report.ops))
    return [
        _shown(page, told.verdict(report)),
        [*_shown(page, told.step(report), *told.program(report)), *work],
        [*time(report, page), *listed],
        findings.costs(report, page),
        [*_shown(page, *resources(report)), *_memory(report, page),
         *_shown(page, *loops(report), *told.limits(report))],
        _shown(page, *told.next_steps(report)),
    ]  # fmt: skip


def _memory(report: Report, page: Page) -> Parts:
    """Two lines of a table, then what stands out; of a device its own."""
    if report.device and report.device.memory:
        return [page.row("memory", *device_memory(report.device.memory))]
    sizes = [(name.split("_")[0], getattr(report.memory, name)) for name in MEMORY]
    cells = [(name, units.size(value)) for name, value in sizes if value is not None]
    if not cells:
        return []
    widths = [max(len(name), len(value)) for name, value in cells]
    while sum(widths) + len(widths) > page.body and len(cells) > 2:  # the peak stays
        least = min(range(len(cells) - 1), key=lambda i: dict(sizes).get(cells[i][0]) or 0)
        del cells[least], widths[least]
    gap = "  " if sum(widths) + 2 * len(widths) <= page.body else " "
    names = gap.join(f"{name:>{width}}" for (name, _), width in zip(cells, widths, strict=True))
    values = gap.join(f"{value:>{width}}" for (_, value), width in zip(cells, widths, strict=True))
    return [page.row("memory", ((names, "dim"),), values, *memory_notes(report))]


def _groups(
    report: Report, page: Page, rooms: tuple[Room, Room], accounts: int, shown: int, num_ops: int
) -> list[Parts]:
    """`rooms`: of the first finding, and of each other."""
    found = costly(report)
    first = [part for num, f in enumerate(found[:shown]) for part in findings.in_brief(f, page, *rooms[min(num, 1)])]
    step = [told.step(report, brief=True), *told.program(report, brief=True)]
    return [
        _shown(page, told.verdict(report)),
        [*_shown(page, *step), *time(report, page, accounts), *ops.ops(report, page, num_ops)],
        first,
        [*_rest(report, page, len(found) - shown), *_shown(page, *told.next_steps(report, brief=True))],
    ]


def _rest(report: Report, page: Page, more: int) -> Parts:
    """Say what is not shown, and how to see it."""
    doubts = sum(map(is_doubt, report.findings))
    every = (("more finding", more), ("note on the measurement", doubts), ("other loop", len(report.loops)))
    hidden = [(name, num) for name, num in every if num > 0]
    cut = [page.row("cut short", f.message) for f in report.findings if f.code == CUT_SHORT]
    verb, what = "diagnose" if report.offline else "report", ", ".join(units.several(*each) for each in hidden)
    line: Line = ((f"{what}: gobrrr {verb} -v shows {'it' if sum(n for _, n in hidden) == 1 else 'them'}", "dim cut"),)
    return [*cut, *([page.row("more", line)] if hidden else [])]


def time(report: Report, page: Page, most: int = len(ACCOUNTS)) -> list[RenderableType]:
    """The time ledger as bars that sum to the step, the `most` largest accounts and the rest as one, and the phases."""
    if not report.ledger:
        return []
    rows = _rows(report, most)
    if not any(ns for _, ns, _, _ in rows):
        return []
    percents = tenths([share for _, _, share, _ in rows])
    lines = [_account(page, row, percent) for row, percent in zip(rows, percents, strict=True)]
    total = f"\n{units.duration(sum(ns for _, ns, _, _ in rows))}\n{sum(percents):.1f} %"
    label = Text.assemble(("time", "bold"), (total if len(rows) > 2 else "", "dim"))
    return [page.indented(label, lines, GUTTER), *(_shown(page, *phases(report)) if most == len(ACCOUNTS) else [])]


def _rows(report: Report, most: int) -> list[Row]:
    """Accounts of size in the ledger's order, the small ones as one, what nobody owns last."""
    last = "unattributed" if most == len(ACCOUNTS) else ""
    ranked = sorted((a for a in report.ledger if a.account != last), key=lambda a: -a.ns)
    kept = {a.account for a in ranked[:most] if a.share >= SMALL}
    large = [a for a in report.ledger if a.account in kept]
    small = [a for a in report.ledger if a.account not in kept and a.account != last and a.ns > 0]
    rows = [(a.account, a.ns, a.share, gloss(a.account, report)) for a in large]
    if small:
        names = ", ".join(a.account.replace("_", " ") for a in small)
        rows.append(("other", sum(a.ns for a in small), sum(a.share for a in small), names))
    rest = [a for a in report.ledger if a.account == last]
    if last:
        rows.append((last, sum(a.ns for a in rest), sum(a.share for a in rest), gloss(last, report)))
    return rows


def _account(page: Page, row: Row, percent: float) -> Text:
    name, ns, share, means = row
    style = ACCOUNTS.get(name, ("dim", ""))[0]
    length = max(SHORTEST, min(LONGEST, page.width - BESIDE - GLOSS))
    drawn = page.clean(bar(share, length))
    room = page.width - BESIDE - length
    label = page.clip(name.replace("_", " "), 13)
    return Text.assemble(
        f"{label:<13} {percent:>5.1f} % {units.duration(ns):>9}  ", (f"{drawn:<{length}}", style),
        (f"  {page.clip(means, room)}" if room > 12 else "", "dim"),
    )  # fmt: skip
