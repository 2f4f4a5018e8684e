"""One closer look at some steps of a loop: what all three kinds share. The instruments of each are in its own file."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

from gobrrr.capture.hooks import module_parts
from gobrrr.capture.hooks.transform_guard import unseen
from gobrrr.capture.windows.late_windows import Overdue
from gobrrr.capture.windows.line_log import module_names
from gobrrr.recording.model import event_kinds as ev

if TYPE_CHECKING:
    from gobrrr.capture.session.session import Session
    from gobrrr.capture.windows.counted import Counted


LATE_STEPS = 20  # usual steps; proposed: a pause is not an end; the longest steps within loops would settle it


class Window:
    """One closer look. A kind says how many steps it wants, starts its instruments, and tells what they saw."""

    kind = 0
    late_ns = 2_000_000_000
    """Its loop is over, or something else goes on, where a step takes LATE_STEPS usual ones and so much more."""

    def __init__(self, session: Session, loop: tuple[int, int], step_ns: float) -> None:
        self.session, self.loop, self.step_ns = session, loop, step_ns
        self.steps = 0
        self.limit_ns = session.config.budget_ns / 3 + 20 * step_ns
        self.began = self._last = 0
        self._overdue = Overdue(self, session.overdue)

    # what a kind fills in

    @property
    def goal(self) -> int:
        """Steps that it wants."""
        raise NotImplementedError

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
        """Return the error of an instrument, which then saw less than it should have."""
        return ""

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
            self.session.recorder.is_looked_at = True
            self._overdue.start()
        return opened

    def step_over(self) -> None:
        """A step of its loop has ended."""
        self.steps += 1
        self._last = time.perf_counter_ns()

    def exhausted(self, now: int) -> bool:
        """Whether its budget is spent."""
        return now - self.began > self.limit_ns

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
        self.session.recorder.is_looked_at = False
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
        self.session.recorder.journal.json(note)

    # for the kinds

    def say(self, text: str) -> None:
        """A note in the recording."""
        self.session.recorder.journal.json({"type": "note", "text": text})

    def names(self) -> dict[int, str]:
        """id -> qualified name of every module of the models that the program calls."""
        return module_names([module for _, module in self.session.recorder.modules.alive()])

    def look_at_states(self, counted: Counted) -> None:
        """Parameters and buffers of the modules that the program calls, for denormal values."""
        for _, module in self.session.recorder.modules.alive():
            for kind, named in (
                ("parameter", module_parts.parameters(module)),
                ("buffer", module_parts.buffers(module)),
            ):
                for name, tensor in list(named)[:64]:
                    if is_plain(tensor):
                        counted.denormal(f"{kind} {name}", tensor, {})


def is_plain(tensor: Any) -> bool:
    """A tensor of torch's own with a storage and one shape; one that stands for others in a transform of torch.func has
    no storage, a nested one no shape."""
    import torch

    stands_for_others = torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    own = not stands_for_others and type(tensor).__module__.startswith("torch")
    return own and tensor.layout == torch.strided and not tensor.is_nested


def worst(counted: Counted) -> list[dict[str, Any]]:
    """The largest shares of denormal values."""
    return sorted(counted.denormals, key=lambda d: -d["share"])[:16]
