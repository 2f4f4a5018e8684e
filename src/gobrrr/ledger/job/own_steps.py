"""How long was one rank at its own work in each step, by phase, without what it waited for other ranks?

Between two marks of a phase the main thread is at its own work, except where a collective may lie: in the backward pass
(DistributedDataParallel sums gradients there) and behind a call of a collective. There its CPU time stands for its own
work, for a thread that waits for other ranks takes none. So no clock of one rank is held against another's.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec
import numpy as np
import numpy.typing as npt

from gobrrr.ledger.steps.step_windows import step_spans
from gobrrr.recording.model import event_kinds as ev
from gobrrr.recording.model.phases import BACKWARD, BEGINS, FORWARD, NAMES
from gobrrr.recording.run_folder.run import Recording
from gobrrr.recording.trace_files.categories import is_communication
from gobrrr.spans import Ints, elapsed, union

MOST_STEPS = 4096
"""Steps that a rank hands back, the first ones: 28 bytes each (proposed: bounds a job of a thousand ranks)."""
FIELDS = (*NAMES, "gc", "wall")


class OwnSteps(msgspec.Struct, frozen=True):
    """Steps of one rank in order, from the first that it made, or since a look that was asked for. `rows`: float32 of
    ns by FIELDS, NaN where a window was open that does more than take samples, where hooks rested, or no mark is
    there."""

    rows: bytes
    first: int = 0
    """Steps that it had made before."""

    def table(self) -> npt.NDArray[np.float32]:
        """(steps, FIELDS) in ns."""
        return np.frombuffer(self.rows, np.float32).reshape(-1, len(FIELDS))


def own_steps(recording: Recording, waits_in: Collection[str] = (BACKWARD,)) -> OwnSteps | None:
    """Return the own time of each step of the main loop; None where an accelerator works, whose work takes the host no
    CPU time, or where no CPU time was noted: a process without other ranks. `waits_in`: phases in which CPU time stands
    for own time, the same for all ranks."""
    loop, marks = recording.main, _marks(recording.events)
    if loop is None or recording.start.device is not None or len(marks) < 2:
        return None
    times, kinds, cpu = marks.T
    wall, spent = np.diff(times), np.diff(cpu)
    phase = _phases(kinds[:-1])
    waits = np.isin(phase, [NAMES.index(name) for name in waits_in]) | (kinds[:-1] == ev.COLLECTIVE)
    own = np.where(waits, np.clip(spent, 0, wall), wall)  # another thread's clock may be behind
    edges = step_ends(recording.events, loop.key)
    first = int(np.searchsorted(edges, recording.look))
    edges = edges[first : first + MOST_STEPS + 1]
    if len(edges) < 2:
        return None
    starts, ends = edges[:-1], edges[1:]
    found = np.zeros((len(starts), len(FIELDS)), np.float32)
    at = np.searchsorted(edges, times[:-1], "right") - 1
    inside = (at >= 0) & (at < len(starts))
    np.add.at(found, (at[inside], phase[inside]), own[inside])
    runs = recording.events[recording.events[:, 1] == ev.GC]
    ran = np.searchsorted(edges, runs[:, 0], "left") - 1
    inside = (ran >= 0) & (ran < len(starts))
    np.add.at(found[:, FIELDS.index("gc")], ran[inside], runs[inside, 3])
    found[:, FIELDS.index("wall")] = ends - starts
    hidden = elapsed(edges, _not_watched(recording.events, int(edges[-1])))
    found[(np.diff(hidden) > 0) | ~found[:, : len(NAMES)].any(axis=1)] = np.nan
    return OwnSteps(found.tobytes(), first)


def alone(recording: Recording) -> tuple[npt.NDArray[np.float64], float]:
    """(ns of each step of the main loop that no window and no rest lay in, ns of backward per step) of a process
    without other ranks."""
    events, loop = recording.events, recording.main
    edges = step_ends(events, loop.key)[: MOST_STEPS + 1] if loop is not None else events[:0, 0]
    if len(edges) < 2:
        return np.zeros(0), 0.0
    plain = np.diff(elapsed(edges, _not_watched(events, int(edges[-1])))) == 0
    marks = events[np.isin(events[:, 1], list(BEGINS))]
    times, backward = marks[:, 0], _phases(marks[:-1, 1]) == NAMES.index(BACKWARD)
    spans = np.stack((times[:-1][backward], times[1:][backward]), axis=1)
    inside = np.diff(elapsed(edges, union(spans)))
    walls, inside = np.diff(edges)[plain].astype(float), inside[plain]
    first = int(np.argmax(walls <= 2 * np.median(walls))) if len(walls) else 0  # a start's are longer
    return walls[first:], float(inside[first:].mean()) if len(walls) else 0.0


def threads_ns(recording: Recording) -> float:
    """Return the CPU ns per step of a rank's threads beside the watched one; 0 where too little was noted."""
    events, marks = recording.events, _marks(recording.events)[:, [0, 2]]
    whole = events[events[:, 1] == ev.CPU][:, [0, 3]]
    ends = step_ends(events, recording.main.key) if recording.main is not None else events[:0, 0]
    if len(whole) < 2 or len(marks) < 2:
        return 0.0
    span = np.array([max(whole[0, 0], marks[0, 0]), min(whole[-1, 0], marks[-1, 0])])
    steps = int(((ends > span[0]) & (ends <= span[1])).sum())
    spent, own = (float(np.diff(np.interp(span, *told.T))[0]) for told in (whole, marks))
    return max(0.0, spent - own) / steps if steps else 0.0


def stood(recording: Recording) -> tuple[int, str]:
    """(steps of the main loop that were made, phase that the last mark began)."""
    events = recording.events
    marks = events[np.isin(events[:, 1], list(BEGINS)), 1]
    made = len(step_ends(events, recording.main.key)) if recording.main is not None else 0
    return made, BEGINS[int(marks[-1])] if len(marks) else NAMES[-1]


def step_ends(events: Ints, loop: tuple[int, int]) -> Ints:
    """Ends of all steps of a loop, those with other loops' steps inside as well: all ranks count alike."""
    kind, number = loop
    found: Ints = events[(events[:, 1] == ev.BOUNDARY) & (events[:, 2] == number) & (events[:, 3] == kind), 0]
    return found


def _not_watched(events: Ints, end: int) -> Ints:
    """(n, 2) begin and end of windows and rests, but for windows that only take samples: those cost a step little."""
    found = []
    for begin, over in ((ev.WINDOW_BEGIN, ev.WINDOW_END), (ev.REST_BEGIN, ev.REST_END)):
        begins, ends = events[events[:, 1] == begin], events[events[:, 1] == over, 0]
        ends = np.append(ends, [end] * len(begins))[: len(begins)]
        kept = (begins[:, 3] != ev.SAMPLE) | (begin != ev.WINDOW_BEGIN)
        found.append(np.stack((begins[kept, 0], ends[kept]), axis=1))
    return union(np.concatenate(found))


def _marks(events: Ints) -> Ints:
    """(n, 3) time, kind and CPU time of the marks of phases: what follows each is its thread's CPU time."""
    kinds = events[:, 1]
    told = np.isin(kinds, [*BEGINS, ev.COLLECTIVE])
    rows = np.flatnonzero(told[:-1] & (kinds[1:] == ev.THREAD))
    return np.stack((events[rows, 0], kinds[rows], events[rows + 1, 3]), axis=1)


def _phases(kinds: Ints) -> npt.NDArray[np.intp]:
    """Number of the phase, as in NAMES, that each mark begins; a collective goes on with the one before it."""
    code = {kind: NAMES.index(name) for kind, name in BEGINS.items()}
    found = np.array([code.get(kind, -1) for kind in kinds.tolist()], np.intp)
    last = np.maximum.accumulate(np.where(found >= 0, np.arange(len(found)), 0))
    return np.maximum(found[last], 0)


def waits_in(recording: Recording) -> tuple[str, ...]:
    """Return the phases in which a rank may wait for others: backward, and forward where the profiled window has a
    collective in one, which a wrapper calls from C++."""
    window, trace = recording.window("profile"), recording.trace
    if window is None or trace is None or not window.steps:
        return (BACKWARD,)
    spans = step_spans(recording, window) + window.offset
    calls = trace.ops.take(np.array([is_communication(name) for name in trace.names], bool)[trace.ops.name])
    begun = calls.start[(calls.start >= spans[0, 0]) & (calls.start < spans[-1, 1])] - window.offset
    marks = recording.events[np.isin(recording.events[:, 1], list(BEGINS))]
    before = np.searchsorted(marks[:, 0], begun, "right") - 1
    found = {BEGINS[kind] for kind in marks[before[before >= 0], 1].tolist()}
    return tuple(name for name in (FORWARD, BACKWARD) if name in found or name == BACKWARD)
