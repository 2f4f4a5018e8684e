"""One sentence on what stands out in a look from outside, and what cannot be said."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from gobrrr.rules.model.cores import STARVED
from gobrrr.rules.outside import look as seen
from gobrrr.rules.outside.look import Line, Look, Process
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
IDLE = 0.25
"""Share of the workers' samples up to which making samples is not what they do (proposed)."""
OUT = (
    (seen.IMPORTS, 0.15, "import modules: it still starts"),
    (seen.DATA, 0.15, "wait for the loader"),
    (seen.FETCH, 0.15, "make batches in the main process"),
    (seen.RECEIVE, 0.50, "take batches over from workers"),
    (seen.WAITS, 0.15, "sleep, or wait for another thread, process or machine"),
    (seen.RANKS, 0.15, "wait in collectives"),
    (seen.SAVING, 0.10, "save, print or log"),
    (seen.LOADING, 0.10, "read files"),
    (seen.DEVICE, 0.15, "are at lines that read values of tensors: they compute them, or wait for a device"),
    (seen.COMPILE, 0.20, "compile"),
    (seen.OPTIMIZER, 0.35, "update weights"),
    (seen.OTHER, 0.40, "run code outside the model, its backward pass and the optimizer"),
)
"""Kinds that stand out, from which share of the samples on (proposed: one healthy program of 13 in
benchmarks/results/attach-2026-11-30.md reaches one, on crowded cores), and what is then said."""

Place = tuple[str, str, str]
"""File, function and kind of some lines."""


def verdict(look: Look) -> str:
    """The sentence."""
    programs = [each for each in look.processes if each.role == seen.PROGRAM and each.samples]
    if not programs:
        return "Nothing of it could be seen that trains: its processes wait, start others, or help."
    main, found = programs[0], _ranks(programs)
    still = all(each.lines[0].share >= STILL for each in programs) and look.busy_cores is not None
    if still and (look.busy_cores or 0.0) <= MOVES and (look.switches or 0.0) <= WAKES * len(look.processes):
        where = ", ".join(f"{_name(each)} is at {_at(each.lines[0])}" for each in programs)
        found = f"Nothing moves: in all samples {where}, and no process is busy."
    few = f" These are {several('sample', main.samples)} alone." if main.samples < FEW_SAMPLES else ""
    crowded = ""
    if main.queued is not None and main.queued > STARVED:
        crowded = f" The cores are crowded: its main thread lacked one for {share(main.queued)} of the time."
    return (found or _kinds(main, look.processes)) + crowded + few


def _kinds(main: Process, processes: Sequence[Process]) -> str:
    """By the kind that is furthest above its least share."""
    out = [row for row in OUT if main.kinds.get(row[0], 0.0) >= row[1]]
    if not out:
        parts = [f"{kind} {share(main.kinds[kind])}" for kind in (seen.FORWARD, seen.BACKWARD, seen.OPTIMIZER)
                 if kind in main.kinds]  # fmt: skip
        return f"Nothing stands out: {', '.join(parts) or 'no sample of training'}."
    kind, _, says = max(out, key=lambda row: main.kinds[row[0]] / row[1])
    lines = [line for line in main.lines if line.kind == kind]
    most = f"at {_at(lines[0])}" if lines else "at many lines"
    if lines and lines[0].share < WHOLE * main.kinds[kind]:
        most = f"most at {' and '.join(f'{_at(line)} ({share(line.share)})' for line in lines[:2])}"
    slept = f"It slept {share(main.slept)} of the time in calls that have no frame; "
    head = "" if kind != seen.OTHER else slept if main.slept > APART else "No wait stands out; "
    return f"{head}{share(main.kinds[kind])} of the samples {says}, {most}{_workers(kind, processes)}."


def waited(one: Process) -> float:
    """Share of a rank's samples in collectives, and asleep in the backward pass, where gradients are waited for."""
    return one.kinds.get(seen.RANKS, 0.0) + min(one.slept, one.kinds.get(seen.BACKWARD, 0.0))


def _trains(one: Process) -> float:
    return sum(one.kinds.get(kind, 0.0) for kind in (*seen.TRAINS, seen.RANKS))


def _ranks(programs: Sequence[Process]) -> str:
    """One rank waits, another one does not: it is the one that is slow."""
    ranks: dict[int, Process] = {}
    for each in programs:  # a rank's helpers have its RANK too
        if each.rank is not None:
            ranks[each.rank] = max(ranks.get(each.rank, each), each, key=_trains)
    slow, fast = min(ranks.values(), key=waited, default=None), max(ranks.values(), key=waited, default=None)
    if slow is None or fast is None or not slow.lines or waited(fast) - waited(slow) < APART:
        return ""
    more = defaultdict[Place, float](float)
    for line in slow.lines:
        more[_place(line)] += line.share
    for line in fast.lines:
        more[_place(line)] -= line.share
    line = max(slow.lines, key=lambda line: more[_place(line)])
    return f"R{_name(fast)[1:]} waits for other ranks in {share(waited(fast))} of its samples, least does " \
           f"{_name(slow)} ({share(waited(slow))}), which is more often at {_at(line)}."  # fmt: skip


def _workers(kind: str, processes: Sequence[Process]) -> str:
    """Where the loader's workers are meanwhile: the function with most samples, at the first of its lines."""
    workers = [each for each in processes if each.role == seen.WORKER and each.samples]
    if kind != seen.DATA or not workers:
        return ""
    busy, first = Counter[Place](), dict[Place, Line]()
    for each in workers:
        for line in each.lines:
            if line.kind in (seen.FETCH, seen.COLLATE):
                busy[_place(line)] += round(line.share * each.samples)
                first.setdefault(_place(line), line)
    total = sum(each.samples for each in workers)
    if (made := sum(busy.values()) / total) < IDLE:
        return f"; its workers make samples in {share(made)} of theirs: they wait, or hand batches over"
    place, count = busy.most_common(1)[0]
    return f"; its workers are at {_at(first[place])} ({share(count / total)} of their samples)"


def _place(line: Line) -> Place:
    return (line.where.file, line.where.function, line.kind) if line.where else ("", line.calls, line.kind)


def _at(line: Line) -> str:
    return short(line.where) if line.where is not None else line.calls or "a place without a frame"


def _name(one: Process) -> str:
    return f"rank {one.rank}" if one.rank is not None else f"pid {one.pid}"


def unknown(look: Look) -> tuple[str, ...]:
    """Name what cannot be said."""
    asleep = [each for each in look.processes if each.role == seen.PROGRAM and each.slept > APART]
    slept = (f"pid {each.pid} slept {share(each.slept)} of the time in calls that have no frame" for each in asleep)
    return (*slept, *UNKNOWN)
