"""What stands out in a look from outside, in one sentence, and what cannot be said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gobrrr.rules.outside.look import (
    BACKWARD,
    COLLATE,
    COMPILE,
    DATA,
    DEVICE,
    FETCH,
    FORWARD,
    OPTIMIZER,
    OTHER,
    PROGRAM,
    RANKS,
    RECEIVE,
    SAVING,
    WAITS,
    WORKER,
    Line,
    Look,
    Process,
)  # fmt: skip
from gobrrr.rules.verdict.place import short
from gobrrr.units import several, share

UNKNOWN = ("the step's time, shapes and memory by tensor need gobrrr run",
           "C++ and device code has no frame here: time inside one torch call is not split up")  # fmt: skip
WHOLE = 0.9
"""Share of a kind's samples from which a line has it all."""
FEW_SAMPLES = 50
"""Samples below which a share is off by 14 points and more, two standard deviations."""
APART = 0.15
"""Difference of two ranks' waits from which one is said to wait for the other (proposed)."""
STILL, MOVES, WAKES = 0.995, 0.005, 1.0
"""Share of samples at one line from which, and cores and context switches per second up to which nothing moves
(proposed): a loader's wait for a dead worker wakes every five seconds to look."""


class Standing(NamedTuple):
    """A kind that stands out from a share of the samples on, and what is then said of it."""

    kind: str
    least: float
    says: str


OUT = (
    Standing(DATA, 0.15, "wait for the loader"),
    Standing(FETCH, 0.15, "make batches in the main process"),
    Standing(RECEIVE, 0.35, "take batches over from workers"),
    Standing(WAITS, 0.15, "sleep, or wait for another thread, process or machine"),
    Standing(RANKS, 0.15, "wait in collectives"),
    Standing(SAVING, 0.10, "save, print or log"),
    Standing(DEVICE, 0.15, "read values of tensors, and wait for them"),
    Standing(COMPILE, 0.20, "compile"),
    Standing(OPTIMIZER, 0.35, "update weights"),
    Standing(OTHER, 0.40, "run code outside the model, its backward pass and the optimizer"),
)
"""Least shares are proposed: none of the healthy programs of benchmarks/results/attach-2026-11-30.md reaches one."""


def verdict(look: Look) -> str:
    """The sentence."""
    programs = [each for each in look.processes if each.role == PROGRAM and each.samples]
    if not programs:
        return "Nothing of it could be seen that trains: its processes wait, start others, or help."
    main = programs[0]
    few = f" These are {several('sample', main.samples)} alone." if main.samples < FEW_SAMPLES else ""
    return _found(look, programs) + few


def _found(look: Look, programs: Sequence[Process]) -> str:
    if _stands_still(look, programs):
        where = "; ".join(f"{_name(each, programs)} at {_at(each.lines[:1])}" for each in programs)
        return f"Nothing moves: all samples have {where}; no process of it is busy."
    if len(programs) > 1 and (apart := _apart(programs, look.device)):
        return apart
    main = programs[0]
    out = max((row for row in OUT if main.kinds.get(row.kind, 0.0) >= row.least),
              key=lambda row: main.kinds[row.kind] / row.least, default=None)  # fmt: skip
    if out is not None:
        said = f"{share(main.kinds[out.kind])} of the samples {out.says}, {_most(main, out.kind)}"
        if out.kind == OTHER:
            return f"No wait stands out; {said}."
        return said + (_workers(look.processes) if out.kind == DATA else "") + "."
    parts = [f"{kind} {share(main.kinds[kind])}" for kind in (FORWARD, BACKWARD, OPTIMIZER) if kind in main.kinds]
    return f"Nothing stands out: {', '.join(parts) or 'no sample of training'}."


def _stands_still(look: Look, programs: Sequence[Process]) -> bool:
    one_line = all(each.lines and each.lines[0].share >= STILL for each in programs)
    still = look.busy_cores is not None and look.busy_cores <= MOVES
    return one_line and still and (look.switches or 0.0) <= WAKES * len(look.processes)


def waited(one: Process, device: bool) -> float:
    """Share of a rank's samples in collectives, and asleep in the backward pass, which is where gradients are waited
    for; with a device that may be the device."""
    hidden = 0.0 if device else min(one.slept, one.kinds.get(BACKWARD, 0.0))
    return one.kinds.get(RANKS, 0.0) + hidden


def _apart(programs: Sequence[Process], device: bool) -> str:
    """One rank waits, another one does not: it is the one that is slow."""
    waits = sorted(programs, key=lambda each: waited(each, device))
    slow, fast = waits[0], waits[-1]
    if slow.rank is None or waited(fast, device) - waited(slow, device) < APART:
        return ""
    less = {(line.where, line.kind): line.share for line in fast.lines}
    more = max(slow.lines, key=lambda line: line.share - less.get((line.where, line.kind), 0.0), default=None)
    own = f", which is at {_at([more])} in {share(more.share)} of its samples" if more else ""
    return f"R{_name(fast, programs)[1:]} waits for other ranks in {share(waited(fast, device))} of its samples, " \
           f"least does {_name(slow, programs)} ({share(waited(slow, device))}){own}."  # fmt: skip


def _workers(processes: Sequence[Process]) -> str:
    """Where the loader's workers are meanwhile."""
    workers = [each for each in processes if each.role == WORKER and each.samples]
    if not workers:
        return ""
    total = sum(each.samples for each in workers)
    busy: Counter[tuple[str, str]] = Counter()
    lines: dict[tuple[str, str], list[Line]] = {}
    for each in workers:
        for line in each.lines:
            if line.kind in (FETCH, COLLATE):
                name = (line.where.file, line.where.function) if line.where else ("", line.calls)
                busy[name] += round(line.share * each.samples)
                lines.setdefault(name, []).append(line)
    if not busy:
        return "; its workers wait for work themselves"
    name, count = busy.most_common(1)[0]
    return f"; its workers are at {_at(sorted(lines[name], key=lambda line: -line.share))} " \
           f"({share(count / total)} of their samples)"  # fmt: skip


def _most(one: Process, kind: str) -> str:
    """Lines with most samples of a kind: the first one, and the next where that has no more than a part of it."""
    lines = [line for line in one.lines if line.kind == kind]
    if not lines or lines[0].share > WHOLE * one.kinds[kind]:
        return f"at {_at(lines)}"
    return f"most at {' and '.join(f'{_at([line])} ({share(line.share)})' for line in lines[:2])}"


def _at(lines: Iterable[Line]) -> str:
    line = next(iter(lines), None)
    if line is None:
        return "many lines"
    if line.where is None:
        return line.calls or "a place without a frame"
    return short(line.where)


def _name(one: Process, programs: Sequence[Process]) -> str:
    return f"rank {one.rank}" if one.rank is not None else f"pid {one.pid}" if len(programs) > 1 else "it"


def unknown(look: Look) -> tuple[str, ...]:
    """What cannot be said."""
    asleep = [each for each in look.processes if each.role == PROGRAM and each.slept > APART]
    slept = (f"pid {each.pid} slept {share(each.slept)} of the time in calls that have no frame" for each in asleep)
    return (*slept, *UNKNOWN)
