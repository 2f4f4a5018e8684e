"""One watched program: plain phase, then the windows, then the rest; every part of it may fail without the program noticing."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import sys
import time
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any

from gobrrr.capture import facts, plan
from gobrrr.capture.config import Config
from gobrrr.capture.counted import Counted, held_graphs
from gobrrr.capture.hooks import Hooks
from gobrrr.capture.journal import JournalWriter
from gobrrr.capture.linelog import LineLog
from gobrrr.capture.loaderfacts import user_line
from gobrrr.capture.loops import UPDATE
from gobrrr.capture.profiled import Profiled
from gobrrr.capture.recorder import Recorder
from gobrrr.capture.sampler import Sampler
from gobrrr.capture.source import growth_line
from gobrrr.capture.userfiles import UserFiles
from gobrrr.capture.workers import WorkerSampling
from gobrrr.recording import marks as ev
from gobrrr.recording.warmup import warmup

ORDER = (ev.PROFILE, ev.SAMPLE, ev.COUNT)
MAX_LOOPS = 3
# How long the plain hooks stay once the windows are done: epochs' ends, evaluation and growth are seen, then nothing.
TAIL_NS, TAIL_STEPS = 600 * plan.SECOND, 20_000


class Loop:
    """What is known of one loop while the program runs."""

    def __init__(self) -> None:
        self.walls: list[int] = []
        self.last = 0
        self.total = 0
        self.done = 0
        self.settle = 0
        self.attempts = 0
        self.steps = 0


class Session:
    """Watches the program of this process. `begin()` installs, `end()` removes and writes what is left."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.user = UserFiles()
        self.recorder = Recorder(self._open_journal, self._boundary)
        self.hooks = Hooks(self.recorder, self._failed)
        self.workers = WorkerSampling(config.folder, self.user)
        self.hooks.fetched = self.workers.fetched
        self.loops: dict[tuple[int, int], Loop] = {}
        self._window: Window | None = None
        self._steps = self._tail_from = 0
        self._held: tuple[int, dict[tuple[str, str, str], int]] = (0, {})
        self._compiled: dict[str, Any] = {}
        self._busy = False
        self._spent_ns = 0
        self._ended = False

    # life

    def begin(self) -> None:
        """Install the hooks."""
        self.hooks.install()

    def end(self, reason: str = "exit") -> None:
        """Remove everything and write the last facts; safe to call twice and at any moment."""
        if self._ended or os.getpid() != self.recorder.pid:
            return
        self._ended = True
        with contextlib.suppress(Exception):
            self._abandon_window()
        self.hooks.remove()
        self.workers.close()
        if not self.recorder.started:
            return
        with contextlib.suppress(Exception):
            self._write_facts("end")
        with contextlib.suppress(Exception):
            self.recorder.flush()
            self.recorder.journal.json({"type": "end", "reason": reason, "lookups": self.hooks.num_lookups})
            self.recorder.journal.close()

    def forked(self) -> None:
        """In a forked child: the hooks stay where they are (a loader's worker is one) and see that this is not theirs."""
        atexit.unregister(self.end)

    def _open_journal(self) -> JournalWriter:
        rank = os.environ.get("RANK") or os.environ.get("LOCAL_RANK") or "0"
        path = Path(self.config.folder) / f"rank{rank}.journal"
        if path.exists():
            path = path.with_name(f"rank{rank}-{os.getpid()}.journal")
        self.stem = path.stem
        journal = JournalWriter(path)
        journal.json(self._start())
        return journal

    def _start(self) -> dict[str, Any]:
        import torch

        from gobrrr.capture.overhead import costs

        return {
            "type": "start",
            "clock": [time.time_ns(), time.perf_counter_ns()],
            "pid": os.getpid(),
            "argv": list(getattr(sys, "orig_argv", sys.argv)),
            "executable": sys.executable,
            "cwd": str(Path.cwd()),
            "rank": _number(os.environ.get("RANK")),
            "world_size": _number(os.environ.get("WORLD_SIZE")),
            "python": sys.version.split()[0],
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "device": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
            "costs": costs(),
        }

    def _failed(self, error: BaseException) -> None:
        """A hook of ours has failed: watching ends here, the program goes on."""
        with contextlib.suppress(Exception):
            self._abandon_window()
        self.hooks.remove()
        with contextlib.suppress(Exception):
            self.recorder.flush()
            trace = error.__traceback__
            while trace is not None and trace.tb_next is not None:
                trace = trace.tb_next
            at = f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace else ""
            self.recorder.journal.json({"type": "failed", "error": f"{type(error).__name__}: {error}", "at": at})

    # steps

    def _boundary(self, kind: int, number: int, now: int) -> None:
        """A step of loop (kind, number) ended at `now`; called in the program's thread, between two of its lines."""
        if self._busy:
            return
        self._busy = True
        try:
            self._step(kind, number, now)
        finally:
            self._busy = False

    def _step(self, kind: int, number: int, now: int) -> None:
        loop = self.loops.get((kind, number))
        if loop is None:
            loop = self.loops[(kind, number)] = Loop()
            if kind == UPDATE:
                self.recorder.update_spans[number] = user_line(sys._getframe())
        self._steps += 1
        loop.steps += 1
        if self._window is not None:
            self._in_window((kind, number), loop, now)
        else:
            self._plain((kind, number), loop, now)
        if self.config.stop_after and self._steps >= self.config.stop_after:
            self.end("stop-after")
            raise StopProgram(0)

    def _plain(self, key: tuple[int, int], loop: Loop, now: int) -> None:
        if loop.last:
            loop.total += now - loop.last
            if loop.settle:
                loop.settle -= 1
            else:
                loop.walls.append(now - loop.last)
        loop.last = now
        if len(loop.walls) > 4096:
            del loop.walls[:2048]
        if loop.done >= len(ORDER):
            self._tail(now)
        elif self._may_open(loop) and plan.is_steady(loop.walls):
            self._open(key, loop)
            loop.last = time.perf_counter_ns()

    def _may_open(self, loop: Loop) -> bool:
        """Another loop gets its own windows only if it takes more time than any that has them."""
        if loop.settle or loop.attempts > 6 or self._spent_ns > self.config.budget_ns:
            return False
        others = [other for other in self.loops.values() if other is not loop and other.done]
        return len(others) < MAX_LOOPS and all(loop.total > other.total for other in others)

    def _tail(self, now: int) -> None:
        if not self._tail_from:
            self._tail_from = now
            self._tail_steps = self._steps
        if now - self._tail_from > TAIL_NS or self._steps - self._tail_steps > TAIL_STEPS:
            self.end("watched enough")

    # windows

    def _open(self, key: tuple[int, int], loop: Loop) -> None:
        step_ns = median(loop.walls[warmup(loop.walls) :])
        kind = ORDER[loop.done]
        loop.attempts += 1
        began = time.perf_counter_ns()
        if not loop.done and not self._held[0]:
            self._held = (self._steps, held_graphs(sys._getframe(), self.user))
            self._compiled = facts.compiled()
            self._write_facts("steady")
        self._window = Window(self, kind, key, step_ns)
        if not self._window.open():
            self._window = None
            loop.done += 1
            return
        self.recorder.note(ev.WINDOW_BEGIN, key[1], kind)
        self._spent_ns += time.perf_counter_ns() - began

    def _in_window(self, key: tuple[int, int], loop: Loop, now: int) -> None:
        window = self._window
        assert window is not None
        if key == window.loop:
            window.steps += 1
            if window.steps < window.goal and not window.exhausted(now):
                return
        elif not window.exhausted(now):
            return
        self._close(window.steps > 0)

    def _close(self, complete: bool) -> None:
        window, self._window = self._window, None
        assert window is not None
        began = time.perf_counter_ns()
        loop = self.loops[window.loop]
        window.close(complete)
        if complete:
            loop.done += 1
        loop.settle = self._settle()
        self.recorder.note(ev.WINDOW_END, window.loop[1], window.kind)
        loop.last = time.perf_counter_ns()
        self._spent_ns += loop.last - began
        if loop.done >= len(ORDER):
            self._write_facts("windows")

    def _settle(self) -> int:
        """Steps until a loader's prefetched batches, piled up while a window closed, are used up."""
        alive = [self.recorder.loader_facts.get(number, {}) for number, _ in self.recorder.loaders.alive()]
        queued = [(f.get("num_workers") or 0) * (f.get("prefetch_factor") or 0) for f in alive]
        return 1 + min(24, max(queued, default=0))

    def _abandon_window(self) -> None:
        window, self._window = self._window, None
        if window is not None:
            window.close(window.steps > 0)
            self.recorder.note(ev.WINDOW_END, window.loop[1], window.kind)

    # facts

    def user_sources(self) -> list[str]:
        """The user's source files that were met, main file first."""
        main = getattr(sys.modules.get("__main__"), "__file__", None)
        known = [file for file, is_user in self.user._known.items() if is_user and file != main]
        return [str(Path(file).resolve()) for file in ([main] if main else []) + known][:64]

    def _write_facts(self, moment: str) -> None:
        recorder = self.recorder
        found: dict[str, Any] = {
            "type": "facts",
            "moment": moment,
            "steps": self._steps,
            "settings": facts.settings(self.user_sources()),
            "modules": facts.modules(recorder),
            "optimizers": facts.optimizers(recorder),
            "loaders": facts.loaders(recorder),
            "compile": facts.compiled(),
            "memory": facts.memory(),
        }
        recorder.journal.json(found)

    def growth(self, frame: FrameType) -> list[dict[str, Any]]:
        """Containers that hold graphs and grew since the windows began."""
        since, before = self._held
        grown = []
        for (file, function, name), length in held_graphs(frame, self.user).items():
            rate = (length - before.get((file, function, name), 0)) / max(1, self._steps - since)
            span = growth_line(file, name) or {"file": file, "line": frame.f_lineno, "function": function}
            grown.append({"name": name, "kind": "", "length": length, "growth_per_step": rate, "span": span})
        return [held for held in grown if held["growth_per_step"] > 0]


class StopProgram(SystemExit):
    """--stop-after: the program ends here, unwinding as sys.exit() does."""


class Window:
    """One closer look at some steps of a loop."""

    def __init__(self, session: Session, kind: int, loop: tuple[int, int], step_ns: float) -> None:
        self.session, self.kind, self.loop = session, kind, loop
        self.steps = 0
        budget = session.config.budget_ns
        planned = {ev.PROFILE: plan.profile_steps, ev.SAMPLE: plan.sample_steps}.get(kind)
        self.goal = session.config.steps if kind == ev.PROFILE and session.config.steps else planned(step_ns, budget) if planned else 1
        self._limit = budget / 3 + 20 * step_ns
        self._step_ns = step_ns
        self._began = 0
        self._rss = 0
        self._lines: LineLog | None = None
        self._profiled: Profiled | None = None
        self._sampler: Sampler | None = None
        self._counted: Counted | None = None
        self._saved: Any = None

    def open(self) -> bool:
        """Start the instruments; False where they cannot run."""
        self._began = time.perf_counter_ns()
        self._rss = dict_of_vitals().get(ev.RSS, 0)
        opened = {ev.PROFILE: self._open_profile, ev.SAMPLE: self._open_sample, ev.COUNT: self._open_count}[self.kind]()
        self._began = time.perf_counter_ns()
        return opened

    def exhausted(self, now: int) -> bool:
        """Whether time or bytes of the budget are spent."""
        grown = dict_of_vitals().get(ev.RSS, 0) - self._rss if self.kind == ev.PROFILE else 0
        return now - self._began > self._limit or grown > self.session.config.budget_bytes

    def close(self, complete: bool) -> None:
        """Stop the instruments and write what they saw."""
        ended = time.perf_counter_ns()
        note = {"type": "window", "kind": ev.WINDOW_NAMES[self.kind], "loop": list(self.loop), "steps": self.steps}
        note |= {"complete": complete, "began": self._began, "ended": ended, "clock": [time.time_ns(), time.perf_counter_ns()]}
        if self._lines is not None:
            self._lines.stop(sys._getframe())
        closing = {ev.PROFILE: self._close_profile, ev.SAMPLE: self._close_sample, ev.COUNT: self._close_count}[self.kind]
        self.session.recorder.journal.json(note | closing())

    # profile

    def _open_profile(self) -> bool:
        session = self.session
        path = Path(session.config.folder) / f"{session.stem}.window{len(session.loops)}-{self.session._steps}.trace.json"
        self._profiled = Profiled(path)
        if not self._profiled.start():
            session.recorder.journal.json({"type": "note", "text": "the program runs a profiler itself: no window of ours"})
            return False
        self._lines = LineLog(session.user)
        self._lines.name_modules([module for _, module in session.recorder.modules.alive()])
        if not self._lines.start(sys._getframe()):
            session.recorder.journal.json({"type": "note", "text": "another tracer is active: lines come from samples only"})
            self._lines = None
        return True

    def _close_profile(self) -> dict[str, Any]:
        assert self._profiled is not None
        written = self._profiled.stop()
        found: dict[str, Any] = {"trace": self._profiled.path.name if written else None, "stop_ns": self._profiled.stop_ns}
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
        self._sampler.stop()
        self.session.workers.switch(False, 0.0)
        return {"samples": self._sampler.as_json()}

    # count

    def _open_count(self) -> bool:
        session, recorder = self.session, self.session.recorder
        owned = {
            tensor.untyped_storage().data_ptr()
            for _, module in recorder.modules.alive()
            for tensor in (*module.parameters(), *module.buffers())
            if type(tensor).__module__.startswith("torch") and tensor.layout == _strided()
        }
        self._counted = Counted(owned, facts._flushes_denormals(), session.user)
        for _, module in recorder.modules.alive():
            for name, param in list(module.named_parameters())[:64]:
                if type(param).__module__.startswith("torch") and param.layout == _strided():
                    self._counted.denormal(f"parameter {name}", param, {})
        self._lines = LineLog(session.user, self._counted.module)
        if not self._lines.start(sys._getframe()):
            self._lines = None
        if not facts.compiled():
            import torch

            self._saved = torch.autograd.graph.saved_tensors_hooks(self._counted.pack, self._counted.unpack)
            self._saved.__enter__()
        return True

    def _close_count(self) -> dict[str, Any]:
        session, counted = self.session, self._counted
        assert counted is not None
        found: dict[str, Any] = {}
        if self._saved is not None:
            self._saved.__exit__(None, None, None)
            found["saved"] = [
                {"span": {"file": f, "function": fn, "line": ln}, "num_bytes": b, "count": c}
                for (f, fn, ln), (b, c) in counted.saved.items()
            ]
        roots = {session.recorder.modules.number(root.pop("module")): root for root in counted.roots.values()}
        return found | {
            "roots": roots,
            "inputs": counted.inputs[:32],
            "denormals": sorted(counted.denormals, key=lambda d: -d["share"])[:16],
            "switches": counted.switches,
            "orphans": facts.orphans(session.recorder),
            "held": session.growth(sys._getframe()),
            "gc_span": _gc_span(session),
            "error": counted.error,
        }


def _gc_span(session: Session) -> dict[str, Any] | None:
    from gobrrr.capture import source

    return source.call_line(session.user_sources(), ("collect",)) if gc.isenabled() or gc.get_count() else None


def _strided() -> Any:
    import torch

    return torch.strided


def dict_of_vitals() -> dict[int, int]:
    """Resident bytes, faults and CPU time of this moment by event kind."""
    from gobrrr.capture.recorder import vitals

    return dict(vitals())


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None
