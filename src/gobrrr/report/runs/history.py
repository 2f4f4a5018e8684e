"""The runs of each program as blocks: a line for each, since when a step is longer, and what changed between them."""

from __future__ import annotations

import time
from collections.abc import Iterator

from gobrrr import units
from gobrrr.report.forms.formats import PLAIN, View
from gobrrr.report.told.blocks import Block, Cell, Groups, Line, Sentence, Table, clipped, facts
from gobrrr.rules.verdict.history import Change, Difference, History, Program, Run

NOTHING = "nothing that was noted"
MOST = 60
"""Characters of a value that is told."""


def blocks(found: History, view: View = PLAIN) -> Groups:
    """Return a group for each program, and what could not be read."""
    unread: list[Line] = [f"{folder}: {clipped(why, 2 * MOST)}" for folder, why in found.unread]
    return [*([*_program(each)] for each in found.programs), facts([("not read", unread)])]


def _program(found: Program) -> Iterator[Block]:
    num = units.several("run", len(found.runs))
    yield Sentence((((clipped(found.name, 2 * MOST), "bold"), f": {num}; {headline(found)}"),))
    yield table(found)
    yield from facts([("changed", [line for run in found.runs if (line := changed(run))])])


def headline(found: Program) -> str:
    """'a step is 1.32x slower (95 %: 1.28 to 1.36) since run 3; between runs 2 and 3: commit a1b2c3d → d4e5f6a'."""
    told = {run.number: f"{' and '.join(filter(None, (step_since(run), peak_since(run))))} {_since(run)}; "
                        f"between runs {run.before} and {run.number}: {between(run) or NOTHING}"
            for run in found.levels}  # fmt: skip
    if not told and not any(run.state == "sound" for run in found.runs):
        return "none of them can be relied on"
    compared = sum(run.step_change is not None for run in found.runs)
    same = f"neither step nor peak has surely changed in the {compared + 1} that could be compared"
    return "; ".join(told.values()) or (same if compared else "no two of them could be compared")


def _since(run: Run) -> str:
    """Say whether one more run has to show it."""
    is_last = any(change is not None and change.is_last for change in (run.step_since, run.peak_since))
    return f"in run {run.number}, the newest: one more run settles it" if is_last else f"since run {run.number}"


def step_since(run: Run) -> str:
    """'a step is 1.32x slower (95 %: 1.28 to 1.36)', where that begins with the run; else empty."""
    if (change := run.step_since) is None:
        return ""
    slower = change.ratio > 1
    low, ratio, high = sorted(x if slower else 1 / x for x in (change.low, change.ratio, change.high))
    return f"a step is {ratio:.2f}x {'slower' if slower else 'faster'} (95 %: {low:.2f} to {high:.2f})"


def peak_since(run: Run) -> str:
    """'the peak is 21.0 % larger', where that begins with the run; else empty."""
    if (change := run.peak_since) is None:
        return ""
    return f"the peak is {units.share(abs(change.ratio - 1))} {'larger' if change.ratio > 1 else 'smaller'}"


def between(run: Run) -> str:
    """'commit a1b2c3d → d4e5f6a, torch 2.12 → 2.13'."""
    return ", ".join(map(_difference, run.differences))


def _difference(found: Difference) -> str:
    if found.what == "script":
        return "the script was edited"
    old, new = (clipped(value, MOST) or "none" for value in (found.before, found.now))
    return f"{found.what} {old} → {new}"


def changed(run: Run) -> Line:
    """'3: the step is ...; commit a1b2c3d → d4e5f6a; BRR401 came'; empty where nothing did."""
    found = [step_since(run), peak_since(run), between(run),
             *(f"{', '.join(codes)} {did}" for codes, did in ((run.came, "came"), (run.went, "went")) if codes),
             "on another computer, so times are not compared" if run.is_elsewhere else "",
             run.why and f"{run.state}: {clipped(run.why, 2 * MOST)}"]  # fmt: skip
    told = "; ".join(filter(None, found))
    return (f"{run.number}: {told}", (f" ({run.folder})", "dim")) if told else ""


def table(found: Program, is_page: bool = False) -> Table:
    """A line for each run; a page has room for folders, and its strips say which findings there are."""
    heads = (("run", True), ("when", True), ("step", True), ("95 %", True), ("change", True), ("peak", True),
             ("change", True), ("bound", True), ("findings", is_page), ("folder", False))  # fmt: skip
    year = when(max(run.began_ns for run in found.runs))[:4]
    return Table("", heads, tuple(_row(run, is_page, year) for run in found.runs), on_page=("folder",))


def _row(run: Run, is_page: bool, year: str) -> tuple[Cell, ...]:
    timed, began = run.step_ns > 0, when(run.began_ns)
    short = began[5:] if began.startswith(year) else began[:10]
    return (
        Cell(str(run.number), run.number), Cell(began if is_page else short, run.began_ns),
        Cell(units.duration(run.step_ns) if timed else "", run.step_ns),
        Cell(units.interval(run.low_ns, run.high_ns) if timed and run.low_ns else "", run.low_ns),
        _change(run.step_change),
        Cell(units.size(run.peak_bytes) if run.peak_bytes else "", run.peak_bytes or 0), _change(run.peak_change),
        Cell(run.bound if run.state == "sound" else run.state),
        Cell(str(len(run.findings)), len(run.findings)) if is_page else Cell(" ".join(run.findings)), Cell(run.folder),
    )  # fmt: skip


def _change(change: Change | None) -> Cell:
    """'+32 %'; '~' where the interval holds no change, or there is none to be told."""
    if change is None:
        return Cell("", 0.0)
    percent = round(100 * (change.ratio - 1))
    return Cell("~" if change.low <= 1 <= change.high or not percent else f"{percent:+,} %", change.ratio)


def when(began_ns: int) -> str:
    """The local time at which a run began; a report may say anything."""
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(began_ns / 1e9))
    except (OverflowError, ValueError, OSError):
        return "?"
