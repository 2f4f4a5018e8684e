"""A look from outside as blocks: the verdict, where the samples lie, processes, memory and cores."""

from __future__ import annotations

from gobrrr import units
from gobrrr.report.forms.formats import View
from gobrrr.report.told.bars import bar
from gobrrr.report.told.blocks import Groups, Line, Sentence, facts
from gobrrr.rules.model.lines import brief_name
from gobrrr.rules.outside import look
from gobrrr.rules.outside.look import Look, Process
from gobrrr.rules.verdict.place import shown

BAR, LEAST, MOST = 20, 0.01, 8
"""Columns of a bar, share of the samples from which a kind or a line is told, and processes beside the first one."""
NAMES = {
    look.DATA: "loader wait", look.FETCH: "own batches", look.RECEIVE: "taking over", look.DEVICE: "reading",
    look.RANKS: "collectives", look.SAVING: "saving, log", look.WAITS: "waiting",
}  # fmt: skip


def blocks(found: Look, view: View) -> Groups:
    """All of it."""
    main = next((each for each in found.processes if each.role == look.PROGRAM), found.processes[0])
    others = [each for each in found.processes if each is not main]
    more = len(others[MOST:]) + found.more
    told = facts([
        ("program", [((found.program, "bold cut"),), f"{units.several('sample', main.samples)} of pid {main.pid} in "
                     f"{found.seconds:.1f} s{f'; {found.ended}' if found.ended else ''}"]),
        ("work", [f"{NAMES.get(kind, kind):<12}{bar(part, BAR):<{BAR}} {units.share(part):>7}"
                  for kind, part in main.kinds.items() if part >= LEAST]),
        ("lines", _lines(main, view.root)),
        ("beside", [*(_other(each, view.root) for each in others[:MOST]), *found.failed,
                    *([f"{more} more: --format json"] if more else [])]),
        ("cores", _cores(found, main)),
        ("memory", ["" if not found.rss_bytes else
                    f"{units.size(found.rss_bytes)} resident in all{_growing(found.rss_growth)}",
                    "" if found.read_rate is None else f"{units.byte_rate(found.read_rate)} read from disks"]),
        ("unknown", found.unknown), ("next", [found.next]),
    ])  # fmt: skip
    return [[Sentence((((found.verdict, "bold"),),))], told]


def _lines(one: Process, root: str) -> list[Line]:
    found: list[Line] = []
    for line in one.lines:
        if line.share >= LEAST:
            function = f" in {line.where.function}" if line.where and line.where.function != "<module>" else ""
            where = shown(line.where, root) + function if line.where else "no line of the program's own"
            calls = f": {brief_name(line.calls)}" if line.calls else ""
            found.append(f"{units.share(line.share):>7}  {where}  {NAMES.get(line.kind, line.kind)}{calls}")
    return found


def _other(one: Process, root: str) -> Line:
    """One further process in a line."""
    name = f"rank {one.rank}" if one.rank is not None and one.role == look.PROGRAM else one.role
    busy = f", {one.busy_cores:.2f} cores" if one.busy_cores is not None else ""
    at = "" if one.role in (look.LAUNCHER, look.HELPER) else "".join(map(str, _lines(one, root)[:1]))
    return ((f"{name} (pid {one.pid}){busy}{': ' if at else ''}{at.strip()}", "cut"),)


def _growing(growth: float | None) -> str:
    return "" if growth is None else f"; {'-' if growth < 0 else '+'}{units.size(abs(growth))} per second"


def _cores(found: Look, main: Process) -> list[Line]:
    lines: list[Line] = []
    if found.busy_cores is not None:
        lines.append(f"{found.busy_cores:.2f} busy with all of it, of {found.cores} that it may use")
    if main.awake is not None and main.queued is not None:
        queued = f"{units.share(main.queued)} without one that it wanted"
        lines.append(f"pid {main.pid}'s main thread: {units.share(main.awake)} of the time on a core, {queued}")
    if found.switches is not None and found.forced_switches is not None:
        forced = f"{found.switches:,.0f} context switches/s, and {found.forced_switches:,.0f} forced"
        threads = f"{units.several('thread', found.threads)}; " if found.threads else ""
        lines.append(f"{threads}main threads: {forced}")
    return lines
