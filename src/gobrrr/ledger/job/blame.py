"""Which line makes a rank late, and has it more work or the same work more slowly? The ranks' own tables say it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePath
from statistics import median
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from gobrrr import units
from gobrrr.ledger.job.culprits import ALWAYS, AT_TIMES, Culprit
from gobrrr.ledger.model.ledger import Ledger
from gobrrr.recording.model.facts import Span
from gobrrr.recording.model.phases import WORDS
from gobrrr.recording.trace_files.categories import is_communication

KEPT = 40
"""Lines that a rank hands back, those with most time."""
AROUND = 6
"""Lines of a stack that are kept."""
MOST = 0.5
"""Share of the surplus that a line must have to be named."""
NEARLY = 0.8
"""Part of the most, from which a line further in says more (proposed)."""
RARE = 0.7
"""Part of its usual time that a line has at most in usual steps, to be one of the longer steps (as the samples say)."""
THREADS = "its other threads"
"""Beginning of a reason that no line is to blame for."""
NAMED = 4
"""Ranks that a sentence names."""
MORE_WORK = 1.1
"""FLOPs over the other ranks' from which a rank has more work."""


class LineTime(msgspec.Struct, frozen=True):
    """Mean ns per step of a user's line on one rank. `around`: the lines that called it, the innermost first;
    `usual_share`: as of LineGroup; `collects`: it calls gc.collect(), and `ns` is not known; `meets`: a collective lies
    in it."""

    span: Span
    ns: float
    usual_share: float | None = None
    collects: bool = False
    meets: bool = False
    around: tuple[Span, ...] = ()

    @property
    def places(self) -> tuple[Span, ...]:
        """Itself and the lines around it."""
        return self.span, *self.around


class Work(NamedTuple):
    """Work of one rank in a step: FLOPs of its ops, CPU ns of threads beside the one that trains."""

    flops: float = 0.0
    threads_ns: float = 0.0


def lines_of(ledger: Ledger) -> tuple[LineTime, ...]:
    """Return the lines with most time in unprofiled steps."""
    most = sorted((line for line in ledger.lines if line.where), key=lambda line: -line.ns)[:KEPT]
    meeting = {op.where[0] for op in ledger.ops if op.where and is_communication(op.name)}
    found = [
        LineTime(line.where[0], line.ns, line.usual_share, meets=line.where[0] in meeting, around=line.where[1:AROUND])
        for line in most
    ]
    by_hand = ledger.facts.gc_span
    return (*found, LineTime(by_hand, 0.0, collects=True)) if by_hand is not None else tuple(found)


def blame(
    culprit: Culprit, numbers: Sequence[int], lines: Sequence[Sequence[LineTime]], work: Sequence[Work]
) -> Culprit:
    """Return the culprit by rank numbers, with its line. All by position: numbers, lines and work of each rank."""
    others = [at for at in range(len(numbers)) if at not in culprit.ranks]
    where, why = None, ""
    if culprit.when == ALWAYS:
        least = MOST * culprit.surplus_ns
        here, there = ([work[at] for at in group] for group in (culprit.ranks, others))
        beside = _middle(each.threads_ns for each in here) - _middle(each.threads_ns for each in there)
        if beside >= least > 0:  # then any line takes longer
            why = f"{THREADS} work {units.duration(beside)} longer in each step: they take the interpreter or a core"
        else:
            where = _longer([lines[at] for at in culprit.ranks], [lines[at] for at in others], least)
            why = "" if where else _why(here, there)
    elif culprit.phase == "gc":
        where = next((line.span for at in culprit.ranks for line in lines[at] if line.collects), None)
    else:
        every = [line for at in culprit.ranks for line in lines[at]]
        # Where now one, now another is late, all of them wait in longer steps too.
        where = _rare([line for line in every if not line.meets or culprit.when == AT_TIMES])
    return replace(culprit, ranks=tuple(numbers[at] for at in culprit.ranks), where=where, why=why)


def _longer(slow: Sequence[Sequence[LineTime]], others: Sequence[Sequence[LineTime]], least: float) -> Span | None:
    """The line that takes most more on the slow ranks than on the others, by `least` at least."""
    here, there = [_sums(each) for each in slow], [_sums(each) for each in others]
    more = {
        span: _middle(each.get(span, 0.0) for each in here) - _middle(each.get(span, 0.0) for each in there)
        for span in {span for each in here for span in each}
    }
    enough = {span: ns for span, ns in more.items() if ns >= least}
    return _innermost(enough, [line for each in slow for line in each], NEARLY * max(enough.values(), default=0.0))


def _rare(lines: Iterable[LineTime]) -> Span | None:
    """The line with most time in longer steps alone."""
    rare = [line for line in lines if line.usual_share is not None and line.usual_share < RARE]
    weights = [replace(line, ns=line.ns * (1 - (line.usual_share or 0.0))) for line in rare]
    sums = _sums(weights)
    return _innermost(sums, rare, NEARLY * max(sums.values(), default=0.0))


def _sums(lines: Iterable[LineTime]) -> dict[Span, float]:
    """ns of each line, with what lies below it."""
    found: dict[Span, float] = {}
    for line in lines:
        for span in dict.fromkeys(line.places):
            found[span] = found.get(span, 0.0) + line.ns
    return found


def _innermost(sums: dict[Span, float], lines: Iterable[LineTime], least: float) -> Span | None:
    """The innermost of the lines with nearly as much as the one that has most."""
    depth = {span: at for line in lines for at, span in enumerate(reversed(line.places))}
    enough = [span for span, ns in sums.items() if ns >= least > 0]
    return max(enough, key=lambda span: (depth.get(span, 0), sums[span]), default=None)


def _why(here: Sequence[Work], there: Sequence[Work]) -> str:
    """Return whether it is more work, where FLOPs are known, or the same more slowly."""
    own, others = (_middle(each.flops for each in group) for group in (here, there))
    if not own or not others:
        return ""
    if own > MORE_WORK * others:
        return f"its ops have {own / others:.2g} times the FLOPs of the other ranks'"
    return "its ops have the FLOPs of the other ranks', and take longer: another core, or a busy one"


def _middle(values: Iterable[float]) -> float:
    found = list(values)
    return median(found) if found else 0.0


def told(one: Culprit, step_ns: float) -> str:
    """Say it in a sentence: who, how much, where, and what a step would be without."""
    more = f" and {len(one.ranks) - NAMED} more" if len(one.ranks) > NAMED else ""
    who = f"rank{'s' * (len(one.ranks) > 1)} {', '.join(map(str, one.ranks[:NAMED]))}{more}"
    much, left = units.duration(one.surplus_ns), units.duration(one.cost_ns)
    at = f"{PurePath(one.where.file).name}:{one.where.line}" if one.where else ""
    place = f" at {at}" if at else f" in {WORDS.get(one.phase, one.phase)}" if one.phase else ""
    costs = f"that costs {left} of each {units.duration(step_ns)} step."
    if one.when == ALWAYS:
        return (
            f"Straggler: {who} {'works' if len(one.ranks) == 1 else 'work'} {much} longer in each step{place}; {costs}"
        )
    steps = (
        f"every {one.every:.0f} steps"
        if one.every and one.every > 1
        else f"in {units.share(one.share_of_steps)} of steps"
    )
    if one.when == AT_TIMES:
        return f"Straggler at times: {who} works {much} longer {steps}{place}; {costs}"
    return f"Uneven steps: {steps} one rank or another works {much} longer{place}; {costs}"
