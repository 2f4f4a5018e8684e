"""Time of the program's functions, op by op: two reports are compared by it.

Lines move when a file is edited, so that time is summed by function and the line that takes most is kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import PurePath

from gobrrr.ledger.model.ledger import HostGroup, Ledger
from gobrrr.recording.model.facts import Span
from gobrrr.rules.verdict.report import LineTime

MOST = 40
"""Kept: on the two examples they hold 97 % of the step, and a report stays some thirty kilobytes."""
Key = tuple[str, str, str, str]


def key(line: LineTime) -> Key:
    """Return what makes two lines the same: op, phase, file (its name: checkouts lie in different folders),
    function."""
    return line.name, line.phase, PurePath(line.where.file).name, line.where.function


def line_times(ledger: Ledger) -> tuple[LineTime, ...]:
    """The largest of them, the largest first; what has no line of the user's is in none."""
    groups: dict[Key, list[LineTime]] = defaultdict(list)
    for line in _all(ledger):
        groups[key(line)].append(line)
    summed = (_sum(lines) for lines in groups.values())
    return tuple(sorted(summed, key=lambda line: (-line.ns, key(line)))[:MOST])


def _all(ledger: Ledger) -> Iterator[LineTime]:
    """On a device its kernels: what the host does beside them costs nothing by itself."""
    if ledger.wall <= 0:
        return
    groups = ledger.groups if ledger.device is None else iter(ledger.device_ops)
    for group in groups:
        if group.phase != "data" and group.where and group.ns > 0:
            name = (group.library or "Python") if isinstance(group, HostGroup) else group.name
            yield LineTime(name, group.phase, group.ns, group.where[0])
    for line in ledger.lines:
        if line.phase == "data" and line.where and line.ns > 0:
            yield LineTime("data wait", "data", line.ns, line.where[0])


def _sum(lines: list[LineTime]) -> LineTime:
    by_line: dict[Span, float] = defaultdict(float)
    for line in lines:
        by_line[line.where] += line.ns
    most = max(by_line, key=lambda where: (by_line[where], -where.line))
    return LineTime(lines[0].name, lines[0].phase, sum(by_line.values()), most)
