"""One closer look at some steps of a loop: what all three kinds share. The instruments of each are in its own file."""

from __future__ import annotations

import contextlib
import ctypes
import sys
import time
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from gobrrr.capture.facts.tensors import is_plain
from gobrrr.capture.hooks import module_parts
from gobrrr.capture.hooks.transform_guard import unseen
from gobrrr.capture.process.config import Config
from gobrrr.capture.process.unlisted_thread import Unlisted
from gobrrr.capture.session import window_plan
from gobrrr.capture.session.recorder import Recorder
from gobrrr.capture.source.user_code import UserFiles
from gobrrr.capture.windows.counted import Counted
from gobrrr.capture.windows.line_log import module_names
from gobrrr.capture.windows.workers import WorkerSampling
from gobrrr.recording.model import event_kinds as ev

LATE_STEPS = 20  # usual steps; proposed: a pause is not an end; the longest steps within loops would settle it
LOOK = 0.1  # s between looks; proposed: short beside late_ns; measured cost of looking would settle it
_HERE = str(Path(__file__).parents[1])
"""Folder of what runs inside the program."""


class _Bell:
    """The interpreter asks whether this is true where it would call a signal's handler: in the main thread, between two
    instructions. What is raised there reaches the program."""

    close: Callable[[], object] | None = None

    def __bool__(self) -> bool:
        close = self.close
        if close is not None and not _is_in_a_hook(sys._getframe(1)):
            close()
        return False

    def ring(self) -> None:
        """Have it asked."""
        api = ctypes.pythonapi
        api.Py_AddPendingCall(ctypes.cast(api.PyObject_IsTrue, ctypes.c_void_p), ctypes.py_object(self))


_bell = _Bell()  # for good: a call that is pending holds no reference


def _is_in_a_hook(frame: FrameType | None) -> bool:
    """Whether the program is inside a hook of ours, which must not find another world where it goes on."""
    while frame is not None:
        if frame.f_code.co_filename.startswith(_HERE):
            return True
        frame = frame.f_back
    return False


ENOUGH = 1 / 8
"""Share of the time for all close looks after which one ends with the steps that it has (proposed: 124,000 ops a step
took 90 s to look at twice, where the program took 11)."""


class Overdue:
    """Looks now and then whether the loop of an open window has made no step for long: `close` is called then, in the
    program's own thread between two of its lines, where the profiler and the tracer can be taken off."""

    def __init__(self, is_late: Callable[[int], bool], close: Callable[[], object]) -> None:
        self._is_late, self._close = is_late, close
        self._thread = Unlisted(self._look)
        self.error = ""

    def start(self) -> None:
        """Begin."""
        _bell.close = self._close
        self._thread.start()

    def stop(self) -> None:
        """End; may be called twice, and in a forked child."""
        _bell.close = None
        self._thread.stop()

    def _look(self) -> None:
        try:
            while not self._thread.over(LOOK):
                if self._is_late(time.perf_counter_ns()):
                    _bell.ring()
        except BaseException as error:  # the interpreter would print it among the program's own words
            self.error = repr(error)


class Host(Protocol):
    """Interface to the session that opens windows: what they read of the program, and where they write."""

    config: Config
    user: UserFiles
    recorder: Recorder
    workers: WorkerSampling

    def trace_file(self) -> Path:
        """Return the file that the next profile is written to."""

    def overdue(self) -> None:
        """Close the window whose loop has made no step for long."""

    def look_for_tensors(self) -> None:
        """Note which containers hold graphs now, for growth()."""

    def growth(self, frame: FrameType) -> list[dict[str, Any]]:
        """Return the containers that hold graphs and grew."""


class Window:
    """One closer look. A kind says how many steps it wants, starts its instruments, and tells what they saw."""

    kind = 0
    instruments: tuple[Any, ...] = ()
    """Each has an `error`, empty where it saw all that it should have."""
    late_ns = 2_000_000_000
    """Its loop is over, or something else goes on, where a step takes LATE_STEPS usual ones and so much more."""

    def __init__(self, host: Host, loop: tuple[int, int], step_ns: float) -> None:
        self.host, self.loop, self.step_ns = host, loop, step_ns
        self.steps = 0
        self.limit_ns = host.config.budget_ns / 3 + 20 * step_ns
        self.began = self._last = 0
        self._overdue = Overdue(self.is_late, host.overdue)

    # what a kind fills in

    @property
    def goal(self) -> int:
        """Steps that it wants."""
        return window_plan.count_steps(self.step_ns)

    def start(self) -> bool:
        """Start the instruments; False where they cannot run."""
        raise NotImplementedError

    def found(self) -> dict[str, Any]:
        """Stop the instruments and tell what they saw."""
        raise NotImplementedError

    def off(self) -> None:
        """Take every instrument off, in whatever state it is. May be called twice, and raise."""
        raise NotImplementedError

    def error(self) -> str:
        """Return the error of an instrument; empty where there is none."""
        return next((each.error for each in self.instruments if each.error), "")

    def owns(self, profile: Any) -> bool:
        """Whether a profiler object is this window's own."""
        return False

    # what the session calls

    def open(self) -> bool:
        """Start the instruments; False where they cannot run."""
        self.began = time.perf_counter_ns()
        with unseen():
            opened = self.start()
        self.began = self._last = time.perf_counter_ns()
        if opened:
            self.host.recorder.is_looked_at = True
            self._overdue.start()
        return opened

    def step_over(self) -> None:
        """A step of its loop has ended."""
        self.steps += 1
        self._last = time.perf_counter_ns()

    def exhausted(self, now: int) -> bool:
        """Whether its budget is spent."""
        return now - self.began > self.limit_ns

    def is_enough(self, now: int) -> bool:
        """Whether it has all its steps, or has looked at some for so long that no more are waited for."""
        return self.steps >= self.goal or now - self.began > self.host.config.budget_ns * ENOUGH

    def is_late(self, now: int) -> bool:
        """Whether its loop has made no step for so long that it may have ended."""
        return now - self._last > LATE_STEPS * self.step_ns + self.late_ns

    def close(self, complete: bool) -> None:
        """Stop the instruments and write what they saw; whatever fails, no instrument stays on."""
        try:
            with unseen():
                self._write(complete)
        finally:
            self.release()

    def release(self) -> None:
        """Take every instrument off; never raises."""
        with contextlib.suppress(Exception):
            self._overdue.stop()
        self.host.recorder.is_looked_at = False
        with contextlib.suppress(Exception):
            self.off()

    def _write(self, complete: bool) -> None:
        note: dict[str, Any] = {
            "type": "window",
            "kind": ev.WINDOW_NAMES[self.kind],
            "loop": list(self.loop),
            "steps": self.steps,
            "complete": complete,
            "began": self.began,
            "ended": time.perf_counter_ns(),
            "clock": [time.time_ns(), time.perf_counter_ns()],
        }
        note |= self.found()
        if error := self.error() or self._overdue.error:
            note["error"] = error
        self.host.recorder.journal.json(note)

    # for the kinds

    def say(self, text: str) -> None:
        """A note in the recording."""
        self.host.recorder.journal.json({"type": "note", "text": text})

    def names(self) -> dict[int, str]:
        """id -> qualified name of every module of the models that the program calls."""
        return module_names([module for _, module in self.host.recorder.modules.alive()])

    def look_at_states(self, counted: Counted) -> None:
        """Parameters and buffers of the modules that the program calls, and what optimizers keep of some parameters,
        for denormal values."""
        for kind, named in chain(self.states(), self._optimizer_states()):
            for name, tensor in named[:64]:
                if is_plain(tensor):
                    counted.denormal(f"{kind} {name}", tensor, {})

    def _optimizer_states(self) -> Iterator[tuple[str, list[tuple[str, Any]]]]:
        """Yield ("optimizer's", what it keeps of a parameter by name), of some parameters of each optimizer."""
        for _, optimizer in self.host.recorder.optimizers.alive():
            kept = getattr(optimizer, "state", None)
            for state in list(kept.values())[:64] if isinstance(kept, dict) else ():
                if isinstance(state, dict):
                    yield "optimizer's", list(state.items())

    def states(self) -> Iterator[tuple[str, list[tuple[str, Any]]]]:
        """Yield ("parameter", its parameters by name), then ("buffer", its buffers), of each model that is called."""
        for _, module in self.host.recorder.modules.alive():
            yield "parameter", list(module_parts.parameters(module))
            yield "buffer", list(module_parts.buffers(module))


def worst(counted: Counted) -> list[dict[str, Any]]:
    """The largest shares of denormal values."""
    return sorted(counted.denormals, key=lambda d: -d["share"])[:16]
