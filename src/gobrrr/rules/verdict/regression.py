"""Is the step of one report longer than that of an earlier one, surely, and what in it grew? Pure.

Lines move when a file is edited: time is summed by function and op, and the line that takes most is kept.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import PurePath

import msgspec
from msgspec.structs import replace

from gobrrr import units
from gobrrr.ledger.comparison import FEWEST
from gobrrr.ledger.model.ledger import HostGroup, Ledger
from gobrrr.recording.model.facts import Span
from gobrrr.rules.model.finding import Finding
from gobrrr.rules.model.shapes import grouped
from gobrrr.rules.verdict.report import LineTime, Report
from gobrrr.units import share

TOLERANCE = 0.10
"""Share by which a step must surely be longer: two runs of one program differ by what no interval of either knows, up
to 6 % in decision 0023."""
NUM_GROWN = 5
"""Parts of the step that are named as grown (proposed: what a reader takes in; the share of the growth they cover would
settle it)."""
MATTERS = 0.05
"""Share of the step's growth that a part must have to be named."""
CROWDED = "BRR905"
"""The doubt that other processes had the cores: it makes any step longer, and no interval of the steps knows."""
MOST = 40
"""Functions' times that are kept: on the two examples they hold 97 % of the step, and a report stays some thirty
kilobytes."""
USEFUL = ("compute", "bandwidth")
"""Accounts whose share may grow without harm: the floor that the machine sets."""
Key = tuple[str, str, str, str]


class Growth(msgspec.Struct, frozen=True):
    """Growth of a part of the step, ns per step. Without a line it is an account of the ledger."""

    what: str
    phase: str
    before_ns: float
    now_ns: float
    where: Span | None = None

    @property
    def delta_ns(self) -> float:
        """Growth in ns per step."""
        return self.now_ns - self.before_ns


class Held(msgspec.Struct, frozen=True):
    """One report held against another. `verdict`: steady, regression, or unreliable with the reason in its sentence.

    `ratio` is now / before, of the steps; of shares `low` to `high` is its interval too, for the step is what both
    were measured by.
    """

    verdict: str
    sentence: str
    ratio: float = math.nan
    low: float = math.nan
    high: float = math.nan
    before_ns: float = 0.0
    now_ns: float = 0.0
    grown: tuple[Growth, ...] = ()
    notes: tuple[str, ...] = ()


def held_against(
    now: Report, before: Report, tolerance: float = TOLERANCE, *, shares: bool = False, starts: float = 0.0
) -> Held:
    """The step of `now` against that of `before`; with `shares` what its accounts have of it, for figures of two
    computers. `starts`: what two starts differ by, as far as that is known: half of its 95 % interval, a logarithm."""
    if reason := unlike(now, before):
        return Held("unreliable", f"Cannot be compared: {reason}.", notes=notes(now, before))
    ratio, low, high = ratio_interval(now, before, starts)
    found = Held("steady", "", ratio, low, high, float(before.step.plain_wall_ns), float(now.step.plain_wall_ns),
                 notes=notes(now, before))  # fmt: skip
    verdict, sentence, grown = (_of_shares if shares else _of_times)(now, before, tolerance, found)
    return replace(found, verdict=verdict, sentence=sentence, grown=grown)


Judged = tuple[str, str, tuple[Growth, ...]]
"""(verdict, sentence, what grew)."""


def _of_times(now: Report, before: Report, tolerance: float, found: Held) -> Judged:
    ratio, low, high = found.ratio, found.low, found.high
    told = f"{ratio:.2f} times as long as in the baseline (95 % interval {low:.2f} to {high:.2f})"
    if low > 1 + tolerance and (taken := _taken(now, low, tolerance)):
        return "unreliable", f"Unreliable: {taken}; it takes {told}, some of it by that. Run it again alone.", ()
    if low > 1 + tolerance:
        return "regression", f"Regression: a step takes {told}.", _grown(now, before)
    if high < 1:
        return "steady", f"No regression, the step has become shorter: it takes {told}.", ()
    surely = "not surely longer" if low <= 1 else f"longer, and not surely by {100 * tolerance:.3g} %"
    return "steady", f"No regression: a step takes {told}, {surely}.", ()


def _taken(now: Report, low: float, tolerance: float) -> str:
    """Return the message that other processes may have made the step longer; empty where it is longer all the same: a
    process that gets no core for a share of the time that it wants one takes up to 1 / (1 - share) times as long."""
    doubt = _crowded(now)
    lost = doubt.evidence["starved"].value if doubt and "starved" in doubt.evidence else 0.0
    if doubt is None or not isinstance(lost, (int, float)):
        return ""
    is_longer = doubt.severity == "note" and low * (1 - lost) > 1 + tolerance
    return "" if is_longer else doubt.message.rstrip(".")


def _crowded(report: Report) -> Finding | None:
    return next((finding for finding in report.findings if finding.code == CROWDED), None)


def ratio_interval(now: Report, before: Report, starts: float = 0.0) -> tuple[float, float, float]:
    """now / before of the median steps with its 95 % interval, from the interval of each, and of `starts`.

    The limits' distances from the two medians, on a log scale, added as squares: MOVER for a ratio of independent
    quantities (Zou and Donner, Statistics in Medicine 27, 2008; Donner and Zou, 2012).
    """
    a, b = now.step, before.step
    middle = math.log(a.plain_wall_ns / b.plain_wall_ns)
    below = math.hypot(math.log(a.plain_wall_ns / a.low_ns), math.log(b.high_ns / b.plain_wall_ns), starts)
    above = math.hypot(math.log(a.high_ns / a.plain_wall_ns), math.log(b.plain_wall_ns / b.low_ns), starts)
    return math.exp(middle), math.exp(middle - below), math.exp(middle + above)


def unlike(now: Report, before: Report) -> str:
    """Why a ratio of the two steps would say nothing; empty where it says something."""
    for name, each in (("this run", now), ("the baseline", before)):
        if reason := unsure(each):
            return f"{name} {reason}"
    if taken := crowded(before):
        return f"when the baseline was recorded {taken}; record it again"
    if now.step.kind != before.step.kind:
        return f"a step of the baseline is one of {before.step.kind}, of this run one of {now.step.kind}"
    if now.offline != before.offline:
        return "one of the two ran under a profiler in every step, the other did not"
    return ""


def unsure(report: Report) -> str:
    """Why a report does not say how long a step surely is; empty where it does."""
    step = report.step
    if report.verdict.bound == "unreliable":
        return f"is unreliable itself: {report.verdict.sentence.rstrip('.')}"
    if step.plain_count < FEWEST:
        has = units.several("step" if report.offline else "plain step", step.plain_count)
        return f"has {has}, too few to tell from noise: record at least {FEWEST}"
    if not 0 < step.low_ns <= step.plain_wall_ns <= step.high_ns:
        return "has no interval of its step: record more steps"
    return ""


def crowded(report: Report) -> str:
    """Why other processes may have made its step longer; empty where they have not."""
    doubt = _crowded(report)
    return doubt.message.rstrip(".") if doubt is not None and doubt.severity != "note" else ""


def elsewhere(before: Report, host: str, device: str | None) -> str:
    """Why times of this computer cannot be held against the baseline's; empty where they can, as far as is known."""
    theirs = before.device.name if before.device else None
    if before.host and host and before.host != host:
        return f"the baseline was recorded on another computer ({before.machine or before.host})"
    if device is not None and theirs is not None and theirs != device:
        return f"the baseline was recorded on {theirs}, this on {device}"
    return ""


def notes(now: Report, before: Report) -> tuple[str, ...]:
    """Return the differences between the two reports that may be the reason or the point of the growth."""
    here, then = now.versions, before.versions
    both: list[tuple[str, object, object]] = [(units.several("thread", now.threads), now.threads, before.threads)]
    if now.setup and before.setup:
        new, old = ({"remedies": " ".join(each.remedies), **each.variables} for each in (now.setup, before.setup))
        both += [(f"{name} {new.get(name) or 'none'}", new.get(name) or "none", old.get(name) or "none")
                 for name in sorted(new.keys() | old.keys())]  # fmt: skip
    both += [(f"{name} {here[name]}", here[name], then[name]) for name in sorted(here.keys() & then.keys())]
    found = [f"also different: {what} in this run, {b} in the baseline" for what, a, b in both if a != b]
    if not before.host and not before.offline:
        found.append("the baseline does not say which computer it is from: an older gobrrr has written it")
    return tuple(found)


def _grown(now: Report, before: Report) -> tuple[Growth, ...]:
    """Functions' ops first, by how much longer they take; where no line grew, accounts."""
    least = MATTERS * (now.step.plain_wall_ns - before.step.plain_wall_ns)
    return _largest(_by_line(now.lines, before.lines), least) or _largest(_by_account(now, before), least)


def _largest(found: Iterable[Growth], least: float) -> tuple[Growth, ...]:
    ranked = sorted(found, key=lambda growth: (-growth.delta_ns, growth.what))
    return tuple(growth for growth in ranked if growth.delta_ns >= max(least, 1.0))[:NUM_GROWN]


def _by_line(now: tuple[LineTime, ...], before: tuple[LineTime, ...]) -> Iterable[Growth]:
    """Yield the growth of each line. A line that the baseline does not list took at most as long there as the last of
    its list."""
    known = {key(line): line.ns for line in before}
    unlisted = before[-1].ns if len(before) >= MOST else 0.0
    for line in now if before else ():
        yield Growth(line.name, line.phase, min(known.get(key(line), unlisted), line.ns), line.ns, line.where)


def _by_account(now: Report, before: Report) -> Iterable[Growth]:
    known = {account.account: account.ns for account in before.ledger}
    for account in now.ledger:
        yield Growth(account.account.replace("_", " "), "", known.get(account.account, 0.0), account.ns)


def _of_shares(now: Report, before: Report, tolerance: float, found: Held) -> Judged:
    """Judge the accounts that waste a larger share of the step than they did, by more than `tolerance` of the step. A
    share is as sure as the step that it is a part of: of each the unfavourable end of that interval is taken."""
    known = {account.account: account.share for account in before.ledger}
    loose_now, loose_before = now.step.high_ns / now.step.plain_wall_ns, before.step.plain_wall_ns / before.step.low_ns
    grown: list[Growth] = []
    for account in now.ledger:
        was = known.get(account.account, 0.0)
        surely = account.share / loose_now - was * loose_before
        if account.account not in USEFUL and surely > tolerance:
            grown.append(Growth(account.account.replace("_", " "), "", was * found.now_ns, account.ns))
    if not grown:
        told = f"No regression: no account surely has {100 * tolerance:.3g} % more of the step than it had."
        return "steady", told, ()
    grown.sort(key=lambda growth: -growth.delta_ns)
    here, then = (share(ns / found.now_ns) for ns in (grown[0].now_ns, grown[0].before_ns))
    told = f"Regression in shares: {grown[0].what} has {here} of the step, {then} in the baseline."
    return "regression", told, (*grown, *_lines_of(now, before))


def _lines_of(now: Report, before: Report) -> tuple[Growth, ...]:
    """Lines whose share grew, as if the baseline's step had been as long as this one."""
    factor = now.step.plain_wall_ns / before.step.plain_wall_ns
    scaled = tuple(replace(line, ns=line.ns * factor) for line in before.lines)
    return _largest(_by_line(now.lines, scaled), MATTERS * now.step.plain_wall_ns)


def key(line: LineTime) -> Key:
    """Return what makes two lines the same: op, phase, file (its name: checkouts lie in different folders),
    function."""
    return line.name, line.phase, PurePath(line.where.file).name, line.where.function


def line_times(ledger: Ledger) -> tuple[LineTime, ...]:
    """The largest of them, the largest first; what has no line of the user's is in none."""
    summed = (_sum(lines) for lines in grouped(_all(ledger), key).values())
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
