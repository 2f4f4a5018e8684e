"""The Recording of a live run: its folder read back, one Recording per rank, with a note of what is missing."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt

from gobrrr.errors import GobrrrError, TraceError
from gobrrr.recording.model.event_kinds import ASIDE, BOUNDARY, BUSY, CPU, NO_WINDOW, TRAINS
from gobrrr.recording.model.facts import Number, Span
from gobrrr.recording.model.serving import Iteration
from gobrrr.recording.model.steps import CUT_SHORT, LoopSteps, find_loops
from gobrrr.recording.model.trace import Trace
from gobrrr.recording.model.warmup import doubted
from gobrrr.recording.run_folder.fates import Fates, fates
from gobrrr.recording.run_folder.gauges_file import Gauges, read_gauges
from gobrrr.recording.run_folder.journal import read_journal
from gobrrr.recording.trace_files.kineto import read_trace
from gobrrr.recording.trace_files.limits import DEFAULT, Limits
from gobrrr.system import files
from gobrrr.words import NO_LOOK

Ints = npt.NDArray[np.int64]
MAX_READINGS = 1024  # of a worker's memory; proposed: bounds a foreign file; a sampled window with more settles it


class Start(msgspec.Struct, frozen=True):
    """The process as it was when its first step came."""

    clock: tuple[int, int] = (0, 0)
    """(unix ns, steady ns) of one moment."""
    pid: int = 0
    began: int | None = None
    """When it was started, in the kernel's ticks (machine.processes): a pid alone may be another's by now."""
    rank: int | None = None
    world_size: int | None = None
    spawned: bool = False
    """multiprocessing has started it: a rank, or a helper of the program's."""
    python: str = ""
    torch: str = ""
    libraries: dict[str, str] = {}
    """Versions of other libraries that it had imported."""
    threads: int = 1
    device: str | None = None
    costs: dict[str, float] = {}
    from_step: int = 0
    """Steps that the main loop was to make before the first closer look; 0 where that was not asked for."""
    on_signal: int = 0
    """Signal that asks for closer looks; 0 where none does."""

    def known_by(self, facts: Iterable[dict[str, Any]]) -> Start:
        """With the device and the rank that the program told only later: a spawned rank has no variable for its own."""
        facts = list(facts)
        device = next((name for record in facts if isinstance(name := record.get("device"), str)), None)
        noted = next((ranks for record in facts if isinstance(ranks := record.get("ranks"), dict) and ranks), {})
        rank, world = (value if type(value := noted.get(name)) is int else None for name in ("rank", "world_size"))
        own = (self.device or device, self.rank if rank is None else rank, world or self.world_size)
        return msgspec.structs.replace(self, device=own[0], rank=own[1], world_size=own[2])


class LineLog(msgspec.Struct, frozen=True):
    """Columns of the line log: times on the steady clock, what happened (words.CALL to BACKWARD_END), in which code or
    module, at which line."""

    codes: tuple[tuple[str, str, int], ...] = ()
    modules: tuple[str, ...] = ()
    t: list[int] = []
    op: list[int] = []
    number: list[int] = []
    line: list[int] = []
    types: tuple[str, ...] = ()
    """Classes of `modules`; empty in recordings of before, and in files."""


class Samples(msgspec.Struct, frozen=True):
    """Stacks of one thread, sampled. `frames`: (file, function, line, is_user); `cpu`: its CPU ns, -1 unknown."""

    frames: tuple[tuple[str, str, int, bool], ...] = ()
    stacks: tuple[tuple[int, ...], ...] = ()
    t: list[int] = []
    stack: list[int] = []
    cpu: list[int] = []
    held: list[int] = []
    """State that it was in: marks.RUNS and the others. Empty where nobody looked."""
    wrote: list[int] = []
    """Bytes that it had handed to calls that write, -1 unknown."""
    index: list[int] = []
    """Index of the loader's sample that it was making, -1 where it made none or nobody knows."""
    cost_ns: int = 0
    interval: float = 0.0


class Saved(msgspec.Struct, frozen=True):
    """Bytes that one line's ops saved for backward."""

    span: Span
    num_bytes: int
    count: int


class Window(msgspec.Struct, frozen=True):
    """One closer look. `began` and `ended` are on the steady clock, `clock` ties it to the trace's."""

    kind: str
    loop: tuple[int, int]
    steps: int
    began: int
    ended: int
    clock: tuple[int, int]
    complete: bool = True
    trace: str | None = None
    stop_ns: int = 0
    lines: LineLog | None = None
    samples: Samples | None = None
    denormals: list[dict[str, Any]] = []
    unchanged: tuple[str, ...] = ()
    """Shapes, strides and bytes of an element of the tensors that nobody wrote while a dataflow window was open."""
    own: tuple[str, ...] = ()
    """The same of parameters and buffers alone."""
    saved: tuple[Saved, ...] | None = None
    peak_grew: int = 0
    """Bytes by which the process's resident peak grew while it was open: the profiler's events, mostly."""

    @property
    def offset(self) -> int:
        """Add it to a steady time to get Unix ns."""
        return self.clock[0] - self.clock[1]


class Worker(msgspec.Struct, frozen=True):
    """A loader worker, sampled while the main process was."""

    pid: int
    batches: int
    wall_ns: int
    samples: Samples
    sent_cpu_ns: int | None = None
    """CPU time meanwhile of the threads that hand its batches over; null where the system does not tell."""
    memory: Annotated[tuple[tuple[Number, Number], ...], msgspec.Meta(max_length=MAX_READINGS)] = ()
    """(batches that it had made by then, bytes that it shares with no other process), in order."""


@dataclass(frozen=True)
class Recording:
    """Everything one process left behind."""

    folder: Path
    start: Start
    events: Ints
    loops: tuple[LoopSteps, ...]
    windows: tuple[Window, ...]
    trace: Trace | None
    """The profiled window of the main loop."""
    workers: tuple[Worker, ...]
    raw_facts: tuple[dict[str, Any], ...]
    counted: dict[str, Any]
    ended: str | None
    lookups: int
    missing: tuple[str, ...]
    offline: bool = False
    """A trace alone: every step ran under the profiler, and nobody watched beside it."""
    unmarked: bool = False
    """Nothing in that trace says where a step ends: all of it is one."""
    earlier: tuple[Window, Trace] | None = None
    """Profiled window of the look before the one that counts."""
    serving: tuple[Iteration, ...] = ()
    """Work of each step of the main loop, where a serving engine has marked them."""
    outside_ns: float = 0.0
    """Part of a step outside of the range that marks it: from its end to the begin of the next."""
    fates: Fates = field(default_factory=dict)
    """By op and shapes: which of its calls in a step, in order, compute what was computed before (CONSTANT, TWICE)."""
    gauges: Gauges | None = None
    """The computer's, beside all ranks; null where nobody sampled them."""

    @property
    def main(self) -> LoopSteps | None:
        """The loop that takes the time."""
        return self.loops[0] if self.loops else None

    def window(self, kind: str) -> Window | None:
        """The main loop's window of this kind, the last complete one."""
        return next(reversed(self.complete(kind)), None)

    def complete(self, kind: str) -> list[Window]:
        """The main loop's complete windows of this kind."""
        main = self.main
        return [w for w in self.windows if main is not None and w.kind == kind and w.loop == main.key and w.complete]

    @cached_property
    def look(self) -> int:
        """When the look that counts began, of those asked for (--from-step, --on-signal); 0 where none was."""
        begins = self.events[(self.events[:, 1] == ASIDE) & (self.events[:, 3] == 1), 0]
        window = self.window("profile")
        answered = begins[begins <= window.began] if window is not None else begins
        return int(answered.max(initial=0))


def load_run(folder: Path, limits: Limits = DEFAULT) -> list[Recording]:
    """One Recording per rank, rank 0 first; of processes that multiprocessing has started those that are ranks.

    Raises GobrrrError where there is none, TraceError where a journal exceeds the limits. A trace that cannot be read
    is missing.
    """
    journals = sorted(folder.glob("rank*.journal"))
    if not journals:
        raise GobrrrError(f"{folder} holds no recording", "name a folder that gobrrr run has written")
    found = sorted((_load(path, limits) for path in journals), key=lambda r: (r.start.rank or 0, -len(r.events)))
    meant = [recording for recording in found if not recording.start.spawned or recording.start.world_size] or found
    spent = [each.events[each.events[:, 1] == CPU][:, [0, 3]] for each in meant]
    gauges = read_gauges(folder)
    return [_with(_without_others(recording, meant, spent), gauges=gauges) for recording in meant]


SAME_CLOCK_NS = 10**9
"""ns by which Unix time less the steady clock may differ between processes of one machine (proposed)."""


def _without_others(recording: Recording, ranks: list[Recording], cpu: list[Ints]) -> Recording:
    """The recording with its cores' busy time less what the other ranks took: they are no strangers. `cpu`: (n, 2) time
    and CPU time of each rank."""
    busy = np.flatnonzero(recording.events[:, 1] == BUSY)
    here = recording.start.clock[0] - recording.start.clock[1]
    others = [
        told
        for other, told in zip(ranks, cpu, strict=True)
        if other is not recording and abs(other.start.clock[0] - other.start.clock[1] - here) < SAME_CLOCK_NS
    ]
    events = recording.events.copy() if len(busy) and any(map(len, others)) else recording.events
    for times, spent in (told.T for told in others if len(told)):
        events[busy, 3] -= np.interp(events[busy, 0], times, spent).astype(np.int64)
    return _with(recording, events=events)


def _load(path: Path, limits: Limits) -> Recording:
    journal = read_journal(path, limits)
    records = journal.records
    missing = [journal.note] if journal.note else []
    start = _first(records, "start", Start) or Start()
    ended = next((str(r.get("reason")) for r in records if r.get("type") == "end"), None)
    missing += unwritable(path.parent, path.name) + _complaints(records, ended)
    windows = _windows(records, missing)
    facts = tuple(r for r in records if r.get("type") == "facts")
    loops = tuple(find_loops(journal.events, doubted(facts), cut_short=ended in CUT_SHORT))
    recording = Recording(
        path.parent, start.known_by(facts), journal.events, loops, windows, None,
        _workers(path.parent, missing, limits), facts, _counted(records, loops), ended,
        int(next((r.get("lookups") or 0 for r in records if r.get("type") == "end"), 0)), (),
    )  # fmt: skip
    trace, told = _trace(recording, limits, missing), _fates(recording, limits, missing)
    found = {"trace": trace, "fates": told, "earlier": _earlier(recording, limits, missing)}
    return _with(recording, missing=tuple(missing), **found)


def _earlier(recording: Recording, limits: Limits, missing: list[str]) -> tuple[Window, Trace] | None:
    before = next((w for w in reversed(recording.complete("profile")) if w.began < recording.look), None)
    trace = _trace_of(recording, before, before.trace, limits, missing) if before and before.trace else None
    return (before, trace) if before is not None and trace is not None else None


def _with(recording: Recording, **changes: Any) -> Recording:
    return Recording(**{**{name: getattr(recording, name) for name in Recording.__dataclass_fields__}, **changes})


def _windows(records: tuple[dict[str, Any], ...], missing: list[str]) -> tuple[Window, ...]:
    """The windows whose columns fit together."""
    found = (_typed(r, Window, missing) for r in records if r.get("type") == "window")
    windows = [window for window in found if window is not None]
    missing += [f"a {w.kind} window could not be read: its columns are torn" for w in windows if not _whole(w)]
    return tuple(window for window in windows if _whole(window))


def _whole(window: Window) -> bool:
    log, samples = window.lines or LineLog(), window.samples or Samples()
    one_length = len(log.t) == len(log.op) == len(log.number) == len(log.line)
    return one_length and whole_samples(samples) and window.ended >= window.began


def whole_samples(samples: Samples) -> bool:
    """Its columns are of one length; those that older recordings lack may be empty."""
    length = len(samples.t)
    looked = all(len(column) in (0, length) for column in (samples.held, samples.wrote, samples.index))
    return length == len(samples.stack) == len(samples.cpu) and looked


def _first(records: tuple[dict[str, Any], ...], kind: str, shape: Any) -> Any:
    for record in records:
        if record.get("type") == kind:
            return _typed(record, shape, [])
    return None


def _typed(record: dict[str, Any], shape: Any, missing: list[str]) -> Any:
    try:
        return msgspec.convert(record, shape)
    except msgspec.ValidationError as error:
        missing.append(f"a {record.get('type', 'record')} could not be read: {error}")
        return None


def unwritable(folder: Path, journal: str = "rank*.journal") -> list[str]:
    """Why the watched program could not go on writing: the errno in the name of a file beside its journal."""
    codes = [mark.name.rpartition("-")[2] for mark in sorted(folder.glob(f"{journal}.error-*"))]
    known = [int(code) for code in codes if code.isdecimal() and len(code) < 5]  # else nobody of ours named it
    return [f"the recording could not be written to its end: {os.strerror(code)}" for code in known]


def _complaints(records: tuple[dict[str, Any], ...], ended: str | None) -> list[str]:
    found = [
        f"watching failed inside gobrrr: {r.get('error')} ({r.get('at')})" for r in records if r.get("type") == "failed"
    ]
    found += [str(r.get("text")) for r in records if r.get("type") == "note"]
    found += [
        f"the {r.get('kind')} window: {r['error']}" for r in records if r.get("type") == "window" and r.get("error")
    ]
    for errors in (r.get("errors") for r in records if r.get("type") == "facts"):
        found += [f"{name} could not be noted: {error}" for name, error in (errors or {}).items()]
    if ended is None:
        found.append("the program was cut short: its last moments are not in the recording")
    return found


def _counted(records: tuple[dict[str, Any], ...], loops: tuple[LoopSteps, ...]) -> dict[str, Any]:
    main = [loops[0].kind, loops[0].number] if loops else None
    fitting = [r for r in records if r.get("type") == "window" and r.get("kind") == "count" and r.get("loop") == main]
    return fitting[-1] if fitting else {}


def _workers(folder: Path, missing: list[str], limits: Limits) -> tuple[Worker, ...]:
    read = (_worker(path, missing, limits) for path in sorted(folder.glob("worker-*.json")))
    return tuple(worker for worker in read if worker is not None)


def _worker(path: Path, missing: list[str], limits: Limits) -> Worker | None:
    try:
        worker = msgspec.json.decode(files.read(path, limits.journal_frame_bytes), type=Worker)
    except (msgspec.DecodeError, OSError, UnicodeDecodeError, RecursionError) as error:
        missing.append(f"{path.name} could not be read: {error}")
        return None
    if not whole_samples(worker.samples):
        missing.append(f"{path.name} could not be read: its columns are torn")
        return None
    return worker


def _trace(recording: Recording, limits: Limits, missing: list[str]) -> Trace | None:
    window = recording.window("profile")
    if window is None or window.trace is None:
        if recording.loops and not any(text.startswith(NO_WINDOW) for text in missing):
            missing.append(f"{NO_WINDOW}: {_why_none(recording, missing)}")
        return None
    missing[:] = [text for text in missing if not text.startswith(NO_WINDOW)]  # it came later, between its own
    return _trace_of(recording, window, window.trace, limits, missing)


def _why_none(recording: Recording, missing: list[str]) -> str:
    start, main = recording.start, recording.main
    if main is None or recording.look or not (start.from_step or start.on_signal):
        return "the program ended, or was too short, before its steps were steady"
    events = recording.events
    made = ((events[:, 1] == BOUNDARY) & (events[:, 2] == main.number) & (events[:, 3] == main.kind)).sum()
    if start.on_signal:
        if unheard := next((text for text in missing if NO_LOOK in text), ""):
            return unheard
        return f"no signal came in {made:,} steps: nothing was looked at closely"
    return f"the program made {made:,} steps, fewer than --from-step {start.from_step:,}: nothing was looked at closely"


def _trace_of(recording: Recording, window: Window, name: str, limits: Limits, missing: list[str]) -> Trace | None:
    path = recording.folder / Path(name).name
    if not path.exists():
        missing.append(f"the trace {name} is gone")
        return None
    try:
        trace = read_trace(path, limits)
    except TraceError as error:
        missing.append(str(error))  # the steps' own times are good without it
        return None
    if trace.note:
        missing.append(f"{path.name}: {trace.note}")
    return trace


def _fates(recording: Recording, limits: Limits, missing: list[str]) -> Fates:
    window = recording.window("flow")
    if window is None or window.trace is None:
        return {}
    name = Path(window.trace).name
    try:
        infers = window.loop[0] not in TRAINS
        return fates(recording.folder / name, window.unchanged, limits, window.own if infers else ())
    except (msgspec.DecodeError, OSError, UnicodeDecodeError, RecursionError) as error:
        missing.append(f"{name} could not be read: {error}")
        return {}
