"""Recordings of programs that never ran: a clock that moves by hand writes trace, line log and journal side by side."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gobrrr.ledger.host.gaps import find_gaps, grouped
from gobrrr.ledger.host.host_ops import HostOps
from gobrrr.ledger.host.places import Places
from gobrrr.ledger.model.ledger import HostGroup
from gobrrr.recording.model import event_kinds
from gobrrr.recording.model.steps import find_loops
from gobrrr.recording.run_folder.run import LineLog, Recording, Samples, Start, Window, Worker
from gobrrr.recording.trace_files.kineto import read_trace
from gobrrr.words import BACKWARD, BACKWARD_END, CALL, LINE, MODULE, MODULE_END, RETURN

US, MS = 1_000, 1_000_000
PID = 7
OFFSET = 1_790_000_000_000_000_000
FILE = "train.py"


class Timeline:
    """One process, its main thread, one loop, of updates of optimizer 0 if nothing else is said. Times are steady ns;
    the trace adds OFFSET."""

    def __init__(self, kind: int = 1) -> None:
        self.kind = kind
        self.now = 10 * MS
        self.trace: list[dict[str, Any]] = []
        self.events: list[tuple[int, int, int, int]] = []
        self.codes: list[tuple[str, str, int]] = []
        self.modules: list[str] = []
        self.log: list[tuple[int, int, int, int]] = []
        self.began = self.ended = 0
        self.num_steps = 0
        self._recorded = False
        self._sequence = self._entered = 0

    # journal

    def note(self, kind: int, number: int = 0, value: int = 0) -> None:
        """One event of the journal."""
        self.events.append((self.now, kind, number, value))

    def boundary(self) -> None:
        """A step ends."""
        self.note(event_kinds.BOUNDARY, 0, self.kind)
        self.num_steps += self._recorded

    def plain_steps(self, *walls: int, wait: int = 0) -> None:
        """Steps without instruments, ns each, of which `wait` ns for data."""
        self.boundary()
        for wall in walls:
            self.note(event_kinds.DATA_BEGIN)
            self.now += min(wait, wall)
            self.note(event_kinds.DATA_END)
            self.now += wall - min(wait, wall)
            self.boundary()

    @contextlib.contextmanager
    def window(self) -> Iterator[None]:
        """The profiled window; boundaries inside it end its steps."""
        self.now += MS
        self.began, self._recorded = self.now, True
        self.note(event_kinds.WINDOW_BEGIN, 0, event_kinds.PROFILE)
        yield
        self.ended, self._recorded = self.now, False
        self.note(event_kinds.WINDOW_END, 0, event_kinds.PROFILE)
        self.now += MS

    # what runs

    def run(self, ns: int) -> None:
        """Time passes."""
        self.now += ns

    def line(self, number: int, ns: int = 0, function: str = "main") -> None:
        """The innermost user frame reaches a line and stays on it."""
        self.log.append((self.now, LINE, self._code(function), number))
        self.now += ns

    @contextlib.contextmanager
    def frame(self, function: str, line: int = 1) -> Iterator[None]:
        """A user function runs."""
        self.log.append((self.now, CALL, self._code(function), line))
        yield
        self.log.append((self.now, RETURN, 0, 0))

    @contextlib.contextmanager
    def module(self, name: str) -> Iterator[None]:
        """A module's forward runs."""
        if name not in self.modules:
            self.modules.append(name)
        self.log.append((self.now, MODULE, self.modules.index(name), 0))
        yield
        self.log.append((self.now, MODULE_END, 0, 0))

    @contextlib.contextmanager
    def backward(self) -> Iterator[None]:
        """The autograd engine runs."""
        self.log.append((self.now, BACKWARD, 0, 0))
        yield
        self.log.append((self.now, BACKWARD_END, 0, 0))

    @contextlib.contextmanager
    def op(self, name: str, *shapes: tuple[int, ...], category: str = "cpu_op", **args: Any) -> Iterator[None]:
        """An op around others. `sequence` is the node it makes or runs, `thread` another one than the
        main one, `lost` leaves it out of the trace."""
        self._entered += 1
        begin, args = self.now, {"entered": self._entered, **args}
        yield
        if self._recorded and not args.get("lost"):
            self.trace.append(self._event(name, begin, category, shapes, args))

    def leaf(self, name: str, ns: int, *shapes: tuple[int, ...], **args: Any) -> None:
        """An op that calls no other."""
        with self.op(name, *shapes, **args):
            self.run(ns)

    @contextlib.contextmanager
    def wait(self, loader: int = 0) -> Iterator[None]:
        """The program waits for a batch; what runs inside is done by the waiting process itself."""
        self.note(event_kinds.DATA_BEGIN, loader)
        with self.op("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", category="user_annotation"):
            yield
        self.note(event_kinds.DATA_END, loader)

    @contextlib.contextmanager
    def update(self, lost: bool = False) -> Iterator[None]:
        """The optimizer steps, and ends the step; `lost`: the profiler stops before the annotation ends."""
        with self.op("Optimizer.step#SGD.step", category="user_annotation", lost=lost):
            self.note(event_kinds.UPDATE_BEGIN)
            yield
            self.note(event_kinds.UPDATE_END)
            self.boundary()

    def node(self) -> int:
        """The number of a new autograd node."""
        self._sequence += 1
        return self._sequence

    def _code(self, function: str) -> int:
        code = (FILE, function, 1)
        if code not in self.codes:
            self.codes.append(code)
        return self.codes.index(code)

    def _event(
        self, name: str, begin: int, category: str, shapes: tuple[tuple[int, ...], ...], args: dict[str, Any]
    ) -> dict[str, Any]:
        given: dict[str, Any] = {"External id": args["entered"]}
        if shapes:
            given |= {"Input Dims": [list(s) for s in shapes], "Input type": ["float"] * len(shapes)}
        if "sequence" in args:
            given |= {"Sequence number": args["sequence"], "Fwd thread id": int(args.get("is_backward", False))}
        return {
            "ph": "X", "cat": category, "name": name, "pid": PID, "tid": args.get("thread", PID), "args": given,
            "ts": f"@{begin + OFFSET}@", "dur": f"@{self.now - begin}@",
        }  # fmt: skip

    # what is left behind

    def recording(self, folder: Path, **changes: Any) -> Recording:
        """The Recording, as if read back from `folder`, where its trace is written."""
        events = np.array(self.events, np.int64).reshape(-1, 4)
        path = folder / "trace.json"
        path.write_text(self.document())
        fields: dict[str, Any] = {
            "folder": folder, "start": Start(pid=PID), "events": events, "loops": tuple(find_loops(events)),
            "windows": (self.profiled(),) if self.ended else (), "trace": read_trace(path) if self.ended else None,
            "workers": (), "raw_facts": (), "counted": {}, "ended": "exit", "lookups": 0, "missing": (),
        }  # fmt: skip
        return Recording(**{**fields, **changes})

    def document(self) -> str:
        """The trace, its times as decimal text with three places, so that no double rounds a nanosecond."""
        span = {"ph": "X", "cat": "python_function", "name": "train.py(1): main", "pid": PID, "tid": PID, "args": {}}
        span |= {"ts": f"@{self.began + OFFSET}@", "dur": f"@{self.ended - self.began}@"}
        text = json.dumps({"schemaVersion": 1, "traceEvents": [span, *self.trace]})
        parts = text.split('"@')
        return parts[0] + "".join(_micros(*part.split('@"', 1)) for part in parts[1:])

    def profiled(self) -> Window:
        """The window's record."""
        columns = list(zip(*self.log, strict=True)) or [(), (), (), ()]
        lines = LineLog(tuple(self.codes), tuple(self.modules), *(list(column) for column in columns))
        return Window(
            "profile",
            (self.kind, 0),
            self.num_steps,
            self.began,
            self.ended,
            (OFFSET, 0),
            trace="trace.json",
            lines=lines,
        )


def _micros(ns: str, rest: str) -> str:
    whole, part = divmod(int(ns), 1000)
    return f"{whole}.{part:03d}{rest}"


def sampled(*samples: tuple[int, tuple[int, ...], int], frames: tuple[tuple[str, str, int, bool], ...]) -> Samples:
    """Samples (time, stack of frame numbers, CPU ns)."""
    stacks = tuple(dict.fromkeys(stack for _, stack, _ in samples))
    return Samples(
        frames, stacks, [t for t, _, _ in samples], [stacks.index(s) for _, s, _ in samples], [c for _, _, c in samples]
    )


def worker(samples: Samples, batches: int = 1) -> Worker:
    """A loader worker."""
    return Worker(pid=99, batches=batches, wall_ns=samples.t[-1] - samples.t[0] if samples.t else 0, samples=samples)


def host_groups(host: HostOps, places: Places) -> list[HostGroup]:
    """Per step: the time of all gaps by place and phase, most first."""
    gaps = find_gaps(host, places)
    ns = gaps.end - gaps.start
    return [group for group, _ in grouped(gaps, ns, ns, host, places, lambda pieces, line: ())]
