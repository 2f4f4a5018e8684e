"""One closer look at some steps of a loop: profiled, sampled or counted, each with its own instruments."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gobrrr.capture import facts, plan, source
from gobrrr.capture.counted import Counted
from gobrrr.capture.linelog import LineLog, module_names
from gobrrr.capture.profiled import Profiled
from gobrrr.capture.recorder import vitals
from gobrrr.capture.sampler import Sampler
from gobrrr.capture.unseen import unseen
from gobrrr.recording import marks as ev

if TYPE_CHECKING:
    from gobrrr.capture.session import Session


# Three: a batch that is put through the model again after its update shows across two boundaries.
COUNTED_STEPS = 3
SAMPLED_LONGEST = 2
"""Times the wanted length after which a sampled window closes, whatever its number of steps."""


class Window:
    """One closer look at some steps of a loop."""

    def __init__(self, session: Session, kind: int, loop: tuple[int, int], step_ns: float) -> None:
        self.session, self.kind, self.loop = session, kind, loop
        self.steps = 0
        config = session.config
        budget = config.budget_ns
        self.goal = {
            ev.PROFILE: config.steps or plan.profile_steps(step_ns, budget),
            ev.SAMPLE: plan.sample_steps(step_ns, budget, config.sample_ns),
            ev.COUNT: COUNTED_STEPS,
        }[kind]
        self._limit = budget / 3 + 20 * step_ns
        if kind == ev.SAMPLE:  # steps that turn ten times as long must not all end up in the window
            self._limit = min(self._limit, SAMPLED_LONGEST * config.sample_ns + 20 * step_ns)
        self._step_ns = step_ns
        self._began = 0
        self._rss = 0
        self._lines: LineLog | None = None
        self._profiled: Profiled | None = None
        self._sampler: Sampler | None = None
        self._counted: Counted | None = None
        self._saved: Any = None
        self._hooked = False

    def open(self) -> bool:
        """Start the instruments; False where they cannot run."""
        self._began = time.perf_counter_ns()
        self._rss = dict(vitals()).get(ev.RSS, 0)
        with unseen():
            opened = {
                ev.PROFILE: self._open_profile,
                ev.SAMPLE: self._open_sample,
                ev.COUNT: self._open_count,
            }[self.kind]()
        self._began = time.perf_counter_ns()
        return opened

    def exhausted(self, now: int) -> bool:
        """Whether time or bytes of the budget are spent."""
        grown = dict(vitals()).get(ev.RSS, 0) - self._rss if self.kind == ev.PROFILE else 0
        return now - self._began > self._limit or grown > self.session.config.budget_bytes

    def is_ours(self, profile: Any) -> bool:
        """Whether a profiler object is this window's own."""
        return self._profiled is not None and self._profiled.owns(profile)

    @property
    def profiles(self) -> bool:
        """Whether torch's one profiler is taken by this window."""
        return self.kind == ev.PROFILE

    def close(self, complete: bool) -> None:
        """Stop the instruments and write what they saw; whatever fails, no instrument stays on."""
        try:
            with unseen():
                self._write(complete)
        finally:
            self.release()

    def release(self) -> None:
        """Take every instrument off, in whatever state it is; never raises."""
        for off in (self._stop_lines, self._stop_profiler, self._stop_sampler, self.unhook):
            with contextlib.suppress(Exception):
                off()

    def _stop_lines(self) -> None:
        if self._lines is not None:
            self._lines.stop(sys._getframe())

    def _stop_profiler(self) -> None:
        if self._profiled is not None:
            self._profiled.abandon()

    def _stop_sampler(self) -> None:
        if self._sampler is not None:
            self._sampler.stop()
            self.session.workers.switch(False, 0.0)

    def unhook(self) -> bool:
        """Take the saved-tensor hooks off; False where the program has put its own on top of them since."""
        if self._counted is not None and self._saved is not None:
            if _innermost() != (self._counted.pack, self._counted.unpack):
                return False
            saved, self._saved = self._saved, None
            saved.__exit__(None, None, None)
        return True

    def _write(self, complete: bool) -> None:
        ended = time.perf_counter_ns()
        note: dict[str, Any] = {
            "type": "window",
            "kind": ev.WINDOW_NAMES[self.kind],
            "loop": list(self.loop),
            "steps": self.steps,
        }
        note |= {
            "complete": complete,
            "began": self._began,
            "ended": ended,
            "clock": [time.time_ns(), time.perf_counter_ns()],
        }
        self._stop_lines()
        closing = {ev.PROFILE: self._close_profile, ev.SAMPLE: self._close_sample, ev.COUNT: self._close_count}[
            self.kind
        ]
        found = note | closing()
        if error := self._error():
            found["error"] = error
        self.session.recorder.journal.json(found)

    def _error(self) -> str:
        """What went wrong in an instrument, which then saw less than it should have."""
        return next((i.error for i in (self._lines, self._sampler, self._counted) if i is not None and i.error), "")

    def _names(self) -> dict[int, str]:
        return module_names([module for _, module in self.session.recorder.modules.alive()])

    # profile

    def _open_profile(self) -> bool:
        session = self.session
        path = (
            Path(session.config.folder) / f"{session.stem}.window{len(session.loops)}-{self.session._steps}.trace.json"
        )
        self._profiled = Profiled(path)
        if not self._profiled.start():
            session.recorder.journal.json(
                {"type": "note", "text": "the program runs a profiler itself: no window of ours"}
            )
            return False
        self._lines = LineLog(session.user, self._names())
        if not self._lines.start(sys._getframe()):
            session.recorder.journal.json(
                {"type": "note", "text": "another tracer is active: lines come from samples only"}
            )
            self._lines = None
        return True

    def _close_profile(self) -> dict[str, Any]:
        assert self._profiled is not None
        written = self._profiled.stop()
        found: dict[str, Any] = {
            "trace": self._profiled.path.name if written else None,
            "stop_ns": self._profiled.stop_ns,
        }
        if self._lines is not None:
            found["lines"] = self._lines.as_json()
        return found

    # sample

    def _open_sample(self) -> bool:
        session = self.session
        interval = plan.sample_interval(self._step_ns)
        self._sampler = Sampler(session.recorder.thread, interval, session.user.is_user)
        self._sampler.start()
        session.workers.switch(True, interval)
        return True

    def _close_sample(self) -> dict[str, Any]:
        assert self._sampler is not None
        self._stop_sampler()
        # Denormals come with time (decaying states): looked for once more, later than in the counting steps.
        later = Counted(set(), facts._flushes_denormals(), {})
        self._look_at_states(later)
        return {"samples": self._sampler.as_json(), "denormals": _worst(later)}

    # count

    def _open_count(self) -> bool:
        session, recorder = self.session, self.session.recorder
        owned = {
            tensor.untyped_storage().data_ptr()
            for _, module in recorder.modules.alive()
            for tensor in (*module.parameters(), *module.buffers())
            if type(tensor).__module__.startswith("torch") and tensor.layout == _strided()
        }
        names = self._names()
        self._counted = Counted(owned, facts._flushes_denormals(), names)
        self._look_at_states(self._counted)
        self._lines = LineLog(session.user, names, self._counted.module)
        if not self._lines.start(sys._getframe()):
            self._lines = None
        if not facts.compiled():
            self._hook(self._counted)
        return True

    def _look_at_states(self, counted: Counted) -> None:
        """Parameters and buffers of the modules that the program calls, for denormal values."""
        for _, module in self.session.recorder.modules.alive():
            for kind, named in (("parameter", module.named_parameters()), ("buffer", module.named_buffers())):
                for name, tensor in list(named)[:64]:
                    if type(tensor).__module__.startswith("torch") and tensor.layout == _strided():
                        counted.denormal(f"{kind} {name}", tensor, {})

    def _hook(self, counted: Counted) -> None:
        """Of several pairs of saved-tensor hooks only the innermost is called: the program's own are never covered."""
        from torch.autograd import graph

        if _innermost() is not None or not _hooks_allowed() or _watched_ops():
            text = "the program has saved-tensor hooks or a dispatch mode of its own: what is saved was not counted"
            self.session.recorder.journal.json({"type": "note", "text": text})
            return
        self._saved = graph.saved_tensors_hooks(counted.pack, counted.unpack)
        self._saved.__enter__()
        self._hooked = True

    def _close_count(self) -> dict[str, Any]:
        session, counted = self.session, self._counted
        assert counted is not None
        found: dict[str, Any] = {}
        self.unhook()
        if self._hooked:
            found["saved"] = [
                {"module": m, "op": op, "span": {"file": f, "function": fn, "line": ln}, "num_bytes": b, "count": c}
                for (m, op, f, fn, ln), (b, c) in counted.saved.items()
            ]
        roots = {session.recorder.modules.number(root.pop("module")): root for root in counted.roots.values()}
        return found | {
            "roots": roots,
            "inputs": counted.inputs[:32],
            "denormals": _worst(counted),
            "switches": counted.switches,
            "orphans": facts.orphans(session.recorder),
            "held": session.growth(sys._getframe()),
            "gc_span": _gc_span(session),
        }


def _worst(counted: Counted) -> list[dict[str, Any]]:
    return sorted(counted.denormals, key=lambda d: -d["share"])[:16]


def _innermost() -> tuple[Any, Any] | None:
    """The pair of saved-tensor hooks that is called now."""
    import torch

    pair: tuple[Any, Any] | None = torch._C._autograd._top_saved_tensors_default_hooks(True)
    return pair


def _hooks_allowed() -> bool:
    """Whether torch.autograd.graph.disable_saved_tensors_hooks is off."""
    import torch

    return bool(torch._C._autograd._saved_tensors_hooks_is_enabled())  # type: ignore[attr-defined]


def _watched_ops() -> bool:
    """Whether the program sees every op by a dispatch mode: autograd detaches what it hands to saved-tensor hooks."""
    import torch

    return torch._C._len_torch_dispatch_stack() > 0


def _gc_span(session: Session) -> dict[str, Any] | None:
    return source.call_line(session.user_sources(), ("collect",))


def _strided() -> Any:
    import torch

    return torch.strided
