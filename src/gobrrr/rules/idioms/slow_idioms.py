"""BRR320: a line that is written in a way known to be slow."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from math import prod
from typing import NamedTuple

from gobrrr.ledger.model.ledger import HostGroup, Ledger, LineGroup, OpGroup, Statement, WorkerGroup
from gobrrr.machine.model.machine import Machine
from gobrrr.recording.model.facts import Span
from gobrrr.rules.idioms.table import CODE, Idiom, Seen, idioms
from gobrrr.rules.model.cores import making
from gobrrr.rules.model.evidence import ratio, time, worth_telling
from gobrrr.rules.model.finding import Cause, Quantity, rule
from gobrrr.rules.model.lines import below, body, is_rare, made_at
from gobrrr.rules.model.shapes import Key, factors, grouped, key, result_elements
from gobrrr.rules.model.views import everything, idle_at
from gobrrr.units import duration, share

SURE = 0.5
"""Share of the expected saving that is promised at least: a pair is another program (proposed: savings of programs in
the wild beside those of the pairs would settle it)."""


class Found(NamedTuple):
    """An idiom at the line where it takes most, with its time at all lines, ns per step."""

    idiom: Idiom
    where: tuple[Span, ...]
    ns: float
    lines: frozenset[Key]
    """Places of all lines that show it."""
    rare: bool
    loads: bool
    """Most of it is the loader's."""

    @property
    def bound(self) -> str:
        """The stage that it binds: an idiom of loaders may stand in the loop."""
        return "data" if self.loads else "host" if self.idiom.bound == "data" else self.idiom.bound


@rule(CODE, "overhead", needs={"plain"})
def slow_idiom(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """A line that costs what another way to write the same does not."""
    for found in found_in(ledger):
        idiom, freed = found.idiom, found.ns * (1 - found.idiom.pair.left)
        yield Cause(
            saving=(SURE * freed, freed, max(found.ns, min(ledger.wall, _whole(ledger, found)))),
            message=f"{duration(found.ns)} ({share(found.ns / ledger.wall)}) per step: {idiom.says}",
            advice=idiom.advice,
            where=(*(made_at(ledger, found.where, idiom.place) if idiom.place else ()), *found.where),
            evidence={
                "time": time(found.ns),
                "lines": Quantity(len(found.lines), "1"),
                "pair": ratio(idiom.pair.times),
                "source": Quantity(idiom.sources[0]),
            },
            holds=found.ns,
            rare=found.rare,
            bound=found.bound,
            both=True,
            name=idiom.name.replace("_", "-"),
            remedies=(idiom.name,) if idiom.rewrite else tuple(filter(None, [idiom.edit])),
        )


def found_in(ledger: Ledger) -> list[Found]:
    """Idioms that are worth telling; of several at one line the one that says most of its time."""
    statements, kind = by_place(ledger), ledger.step.kind
    asked = (idiom for idiom in idioms() if not idiom.seen.kinds or kind in idiom.seen.kinds)
    asked = (idiom for idiom in asked if ledger.device is None or not idiom.seen.cpu)
    every = [one for idiom in asked if (one := at_lines(ledger, idiom, statements))]
    worth = (one for one in every if worth_telling(ledger, one.ns * (1 - one.idiom.pair.left)))
    by_line = grouped(worth, lambda one: one.where[0].place).values()
    # What the source shows is surer than what ops and functions do.
    best = [max(same, key=lambda one: (bool(one.idiom.seen.source), one.ns)) for same in by_line]
    return sorted(best, key=lambda one: -one.ns)


def _whole(ledger: Ledger, found: Found) -> float:
    """Return all time of its lines, ns per step: with the signs goes what the mended form does not call either."""
    return sum(group.ns for group in everything(ledger) if group.where and group.where[0].place in found.lines)


def by_place(ledger: Ledger) -> dict[Key, Statement]:
    """Return the statements of the lines that take time, by file and line."""
    return {statement.span.place: statement for statement in ledger.statements}


def at_lines(ledger: Ledger, idiom: Idiom, statements: dict[Key, Statement]) -> Found | None:
    """Return where a program uses an idiom, worth telling or not; None where it does not."""
    seen = idiom.seen
    lines: dict[Key, float] = defaultdict(float)
    spans: dict[Key, tuple[Span, ...]] = {}
    loading = 0.0
    written = cache(lambda place: _is_written(seen, statements.get(place)))  # many ops lie at one line
    for where, ns, phase in (*_of_ops(ledger, seen), *_of_lines(ledger, idiom)):
        for depth, span in enumerate(where if seen.inside else where[:1]):
            if written(span.place):
                lines[span.place] += ns
                loading += ns * (phase == "data")
                spans.setdefault(span.place, where[depth:])
                break
    if len(lines) < seen.lines:
        return None
    top, total = max(lines, key=lambda place: lines[place]), sum(lines.values())
    if seen.grows:
        total = max(total, ledger.step.grown_ns)
    sampled = [line for line in body(ledger) if key(line.where) in lines]
    rare = not seen.ops and is_rare(ledger, sampled)
    return Found(idiom, spans[top], min(total, ledger.wall), frozenset(lines), rare, loading > 0.5 * total)


def _is_written(seen: Seen, statement: Statement | None) -> bool:
    """Whether the statement is as the idiom's is; of one that nobody has read, whether the idiom asks nothing of it."""
    if not (seen.source or seen.around or seen.made):
        return True
    return statement is not None and any(
        (not seen.around or any(re.search(_filled(seen.around, match), header) for header in statement.around))
        and (not seen.made or re.search(_filled(seen.made, match), statement.module, re.MULTILINE) is not None)
        for match in re.finditer(seen.source, statement.text)
    )


def _filled(pattern: str, match: re.Match[str]) -> str:
    """Return the pattern with what the groups of `match` found in place of their names."""
    for name, text in match.groupdict(default="").items():
        pattern = pattern.replace(f"{{{name}}}", re.escape(text))
    return pattern


Time = tuple[tuple[Span, ...], float, str]
"""User lines, innermost first, ns per step, phase."""


def _of_ops(ledger: Ledger, seen: Seen) -> Iterator[Time]:
    """Lines with the time of the ops that show it, where they are called often and are slow enough."""
    names = frozenset(seen.ops)
    every = (op for op in everything(ledger) if isinstance(op, OpGroup)) if names else ()
    shows = (op for op in every if op.name in names or not names.isdisjoint(op.parents))
    shows = (op for op in shows if not seen.phases or op.phase in seen.phases)
    shows = (op for op in shows if op.name not in names or _fits(op, seen))
    for ops in grouped(shows, lambda op: key(op.where)).values():
        if seen.swells and not any(_swelling(op) >= seen.swells for op in ops):
            continue
        if (seen.dtypes or seen.aspect) and not any(op.name in names for op in ops):
            continue  # the op has others, whatever the ops that it calls have
        ns, floor = sum(op.ns for op in ops), sum(op.floor_ns for op in ops)
        if sum(op.calls for op in ops if op.name in names) >= seen.calls and ns >= seen.factor * floor and ns > 0:
            yield from ((op.where, op.ns, op.phase) for op in ops)


def _fits(op: OpGroup, seen: Seen) -> bool:
    """Whether the first tensor is as the idiom's is."""
    ends = op.shapes[0][-2:] if op.shapes else ()
    aspect = max(ends) / max(1, min(ends)) if len(ends) == 2 else 1.0
    return (not seen.dtypes or op.dtypes[:1] in [*zip(seen.dtypes)]) and aspect >= seen.aspect


def _swelling(op: OpGroup) -> float:
    """Return the elements of a product over those of its larger factor; 0 for other ops."""
    pair = factors(op)
    return result_elements(op) / max(1, *map(prod, pair)) if pair is not None else 0.0


def _of_lines(ledger: Ledger, idiom: Idiom) -> Iterator[Time]:
    """Lines with the time of the functions that show it; with all of their time where no op and no function does."""
    seen = idiom.seen
    if seen.ops and not seen.functions:
        return
    for line, part, phase in _sampled(ledger):
        if not seen.phases or phase in seen.phases:
            yield line.where, part * (below(line, idiom.functions)[0] if seen.functions else line.ns), phase
    if seen.functions:
        return
    for op in everything(ledger):  # samples know nothing of the lines that backward runs for
        if isinstance(op, OpGroup) and (op.phase == "backward" or not ledger.lines):
            if not seen.phases or op.phase in seen.phases:
                yield op.where, op.ns, op.phase


def _sampled(ledger: Ledger) -> Iterator[tuple[LineGroup | HostGroup | WorkerGroup, float, str]]:
    """Lines with the part of their time that the step has of it, and their phase: of workers what the loop waits for
    them, and where an accelerator works how much of it that idles."""
    for line in ledger.lines or ledger.host:
        idle = idle_at(ledger, line.where[0].place) if ledger.device is not None and line.where else line.ns
        yield line, min(1.0, (idle or 0.0) / line.ns) if line.ns > 0 else 0.0, line.phase
    wait = ledger.account("data_wait")
    for loader in ledger.facts.loaders:
        groups = making(ledger, loader) if loader.num_workers else []
        total = sum(group.ns for group in groups)
        yield from ((group, wait / total, "data") for group in groups if total > 0)
