"""A look from outside as blocks: the verdict, where the samples lie, processes, memory and cores."""

from __future__ import annotations

from collections.abc import Iterable

from gobrrr import units
from gobrrr.report.forms.formats import View
from gobrrr.report.told.bars import bar
from gobrrr.report.told.blocks import Groups, Line, Sentence, facts
from gobrrr.rules.model.lines import brief_name
from gobrrr.rules.outside import look
from gobrrr.rules.outside.look import Look, Process
from gobrrr.rules.verdict.place import shown

BAR = 20
"""Columns of a bar."""
LEAST = 0.01
"""Share of the samples from which a kind or a line is told."""
MOST = 8
"""Processes that are told, beside the first one."""
NAMES = {
    look.DATA: "loader wait", look.FETCH: "own batches", look.RECEIVE: "taking over", look.COLLATE: "collate",
    look.DEVICE: "reading", look.RANKS: "collectives", look.SAVING: "saving, log", look.COMPILE: "compile",
    look.WAITS: "waiting",
}  # fmt: skip


def blocks(found: Look, view: View) -> Groups:
    """All of it."""
    programs = [each for each in found.processes if each.role == look.PROGRAM]
    main = next(iter(programs or found.processes), None)
    told = facts([("program", _program(found, main))])
    if main is not None:
        told += facts([("work", _work(main)), ("lines", _lines(main, view.root))])
    others = [each for each in found.processes if each is not main]
    more = [f"{len(others) - MOST} more with --format json"] if len(others) > MOST else []
    more += [f"{found.more_processes} more were not sampled"] if found.more_processes else []
    told += facts([
        ("beside", [*(_other(each, view.root) for each in others[:MOST]), *more, *found.failed]),
        ("cores", _cores(found, main)), ("memory", _memory(found)), ("unknown", found.unknown), ("next", [found.next]),
    ])  # fmt: skip
    return [[Sentence(((((found.verdict, "bold"),)),))], told]


def _program(found: Look, main: Process | None) -> list[Line]:
    samples = f"{units.several('sample', main.samples)} of pid {main.pid}" if main is not None else "no samples"
    early = f"; {found.ended}" if found.ended else ""
    return [((found.program, "bold cut"),), f"{samples} in {found.seconds:.1f} s{early}"]


def _work(one: Process) -> list[Line]:
    """Kinds of work as bars."""
    return [
        f"{NAMES.get(kind, kind):<12}{bar(part, BAR):<{BAR}} {units.share(part):>7}"
        for kind, part in one.kinds.items()
        if part >= LEAST
    ]


def _lines(one: Process, root: str) -> list[Line]:
    return [
        ((f"{units.share(line.share):>7}  {where}", ""), (f"  {NAMES.get(line.kind, line.kind)}{calls}", "cut"))
        for line, where, calls in _told(one, root)
    ]  # fmt: skip


def _told(one: Process, root: str) -> Iterable[tuple[look.Line, str, str]]:
    for line in one.lines:
        if line.share >= LEAST:
            function = f" in {line.where.function}" if line.where and line.where.function != "<module>" else ""
            where = shown(line.where, root) + function if line.where else "no line of the program's own"
            yield line, where, f": {brief_name(line.calls)}" if line.calls else ""


def _other(one: Process, root: str) -> Line:
    """One further process in a line."""
    first = next(iter(_told(one, root)), None)
    at = f": {units.share(first[0].share)} at {first[1]}" if first is not None else ""
    if one.role in (look.LAUNCHER, look.HELPER) or not one.samples:
        at = ""
    name = f"rank {one.rank}" if one.rank is not None and one.role == look.PROGRAM else one.role
    busy = f", {one.busy_cores:.2f} cores" if one.busy_cores is not None else ""
    return ((f"{name} (pid {one.pid}){busy}{at}", "cut"),)


def _cores(found: Look, main: Process | None) -> list[Line]:
    if found.busy_cores is None:
        return []
    lines: list[Line] = [f"{found.busy_cores:.2f} busy with all of it, of {found.cores} that it may use"]
    if main is not None and main.awake is not None:
        queued = f", {units.share(main.queued)} without a core that it wanted" if main.queued is not None else ""
        lines.append(f"pid {main.pid}'s main thread: {units.share(main.awake)} of the time on a core{queued}")
    if found.switches is not None and found.forced_switches is not None:
        forced = f"{found.switches:,.0f} context switches/s, and {found.forced_switches:,.0f} forced"
        lines.append(f"{found.threads} threads; main threads: {forced}")
    return lines


def _memory(found: Look) -> list[Line]:
    if found.rss_bytes is None:
        return []
    growth = ""
    if found.rss_growth is not None:
        growth = f"; {'-' if found.rss_growth < 0 else '+'}{units.size(abs(found.rss_growth))} per second"
    read = [f"{units.byte_rate(found.read_rate)} read from disks"] if found.read_rate is not None else []
    return [f"{units.size(found.rss_bytes)} resident in all{growth}", *read]
