"""One watched program: plain phase, windows, the rest; any part of it may fail without the program noticing."""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import get_ident
from types import FrameType
from typing import Any

from gobrrr.capture.facts import program_facts as facts
from gobrrr.capture.facts.loader_facts import until_second_epoch
from gobrrr.capture.hooks.hooks import Hooks
from gobrrr.capture.hooks.transform_guard import (
    hide_own_code,
    in_backward,
    is_profiled,
    is_the_programs,
    is_traced,
    is_tracing,
    unseen,
)
from gobrrr.capture.process.config import SESSION, Config
from gobrrr.capture.session import records, window_plan
from gobrrr.capture.session.journal import JournalWriter
from gobrrr.capture.session.later import Later
from gobrrr.capture.session.pause import Rests
from gobrrr.capture.session.recorder import Recorder, optimizer_made
from gobrrr.capture.source import pixel_lines
from gobrrr.capture.source.user_code import UserFiles, calling_line
from gobrrr.capture.steps import device_memory, ranks
from gobrrr.capture.steps.loops import Loop
from gobrrr.capture.windows.counted import Held, Name, grown, held_tensors, kept_graphs
from gobrrr.capture.windows.counting import CountWindow
from gobrrr.capture.windows.dataflow import FlowWindow
from gobrrr.capture.windows.profiling import ProfileWindow, is_capturing, leave_without_kineto, let_through
from gobrrr.capture.windows.sampling import SampleWindow
from gobrrr.capture.windows.window import Window
from gobrrr.capture.windows.workers import WorkerSampling
from gobrrr.recording.model import event_kinds as ev
from gobrrr.recording.model.event_kinds import FORWARDS
from gobrrr.recording.model.warmup import median, settling, warmup

ORDER = (ProfileWindow, CountWindow, FlowWindow, SampleWindow)  # the short ones first: a program may end
MAX_LOOPS = 3  # loops looked at closely; proposed: each costs windows; recordings with more loops would settle it
# How long the plain hooks stay once the windows are done: epochs' ends, evaluation and growth are seen, then nothing.
TAIL_NS, TAIL_STEPS = 600 * window_plan.SECOND, 20_000
TRAINING_NS = 2 * window_plan.SECOND
"""Without an update after which what goes on is no evaluation between two of them, or a long one."""
RESERVE = 32 << 20
"""Bytes of address space, never touched, that are given back when the program is over: to look at what it died of takes
some MiB where none are left."""
PROFILED = f"{ev.NO_WINDOW}: the program profiles or traces itself"
SPENT = "a signal asked for a look, and the budget of all looks is spent: a larger --budget has room for more"
TRACED = f"{ev.NO_WINDOW}: steps end inside torch.jit.trace; mark them outside of it: for batch in gobrrr.steps(loader)"


class Session:
    """Watches the program of this process. `begin()` installs, `end()` removes and writes what is left."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.user = UserFiles()
        self.recorder = Recorder(self._open_journal, self._boundary)
        self.hooks = Hooks(self.recorder, self._failed)
        self.workers = WorkerSampling(config.folder, self.user)
        self.hooks.fetched = self._fetches
        self.hooks.profiler_comes = self._make_way
        self.rests = Rests(self.hooks, self.recorder, self._rested)
        self.later = Later(config)
        self.rests.asked = self.later.asked
        self._stop_at = 0 if self.later.holds else config.stop_after
        self.loops: dict[tuple[int, int], Loop] = {}
        self._window: Window | None = None
        self._steps = self._watched = self._tail_from = self._seen_at = 0
        self._held: tuple[tuple[int, dict[Name, Held]], ...] = ()
        self._busy = self._failure = self._told = False
        self._spent_ns = 0
        self._runtime: dict[str, Any] = {}
        self.ended = False
        self.nested = False
        self._reserve: mmap.mmap | None = None

    # life

    def begin(self) -> None:
        """Install the hooks."""
        hide_own_code()
        with contextlib.suppress(OSError):
            self._reserve = mmap.mmap(-1, RESERVE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._runtime = facts.memory()
        self.prepare()
        if self.config.watcher == SESSION and not self.nested:
            self.hooks.children.watched_as = self.config.to_env()
        self.later.begin()
        self.hooks.install()

    def prepare(self) -> None:
        """Prepare what the hooks need: nothing here."""

    def _fetches(self) -> None:
        """A loader's fetcher is asked for a batch, here or in a worker."""
        if os.getpid() == self.recorder.pid:
            self.recorder.draws.begin()
        else:
            self.workers.fetched()

    def complain(self, error: BaseException) -> None:
        with contextlib.suppress(Exception):
            self.recorder.journal.json(records.complaint(error))

    def end(self, reason: str = "exit") -> None:
        """Remove everything and write the last facts; safe to call twice and at any moment."""
        if os.getpid() != self.recorder.pid:
            return
        reserve, self._reserve = self._reserve, None
        if reserve is not None:
            reserve.close()
        # An error ends the program, not a line of a shell. After an interrupt nothing is imported: eval() of a named
        # tuple would make Python forget that it is to die of the signal.
        if isinstance(getattr(sys, "last_value", None), Exception) and not hasattr(sys, "ps1"):
            with contextlib.suppress(Exception):
                from gobrrr.capture.facts import failure  # not before: a program seldom dies

                failure.note(Path(self.config.folder), self._steps, self.growth, self._runtime.get("rss_bytes"))
            with contextlib.suppress(Exception):
                records.spawned_raised(Path(self.config.folder))
        if self.recorder.ranked and reason == "exit":
            with contextlib.suppress(Exception):
                records.last_words(Path(self.config.folder))
        if self.ended:
            return
        self.ended = True
        try:
            self.rests.end()
            self._say(self.later.news() if self.recorder.started else "")
        except Exception as error:
            self.complain(error)
        self._abandon_window()
        for take_off in (self.hooks.remove, self.workers.close, let_through):
            with contextlib.suppress(Exception):
                take_off()
        if not self.recorder.started:
            with contextlib.suppress(OSError):
                records.no_step(Path(self.config.folder))
            return
        with contextlib.suppress(Exception):
            self._write_facts("end")
        with contextlib.suppress(Exception):
            self.recorder.flush()
        with contextlib.suppress(Exception):
            self.recorder.journal.json({"type": "end", "reason": reason, "lookups": self.hooks.num_lookups})
        with contextlib.suppress(Exception):
            self.recorder.journal.close()

    def mark(self) -> None:
        """An explicit step ends here."""
        if self._failure:
            return
        try:
            if not self.rests.explicit():
                self.recorder.explicit()
        except BaseException as error:
            self._failed(error)
            if is_the_programs(error):
                raise

    def forked(self) -> None:
        """In a forked child: hooks stay (a loader's worker is one) and see that they are abroad, instruments do not."""
        window, self._window = self._window, None
        if window is not None:
            window.release()
        leave_without_kineto()

    def _open_journal(self) -> JournalWriter:
        rank = os.environ.get("RANK") or os.environ.get("LOCAL_RANK") or "0"
        path = Path(self.config.folder) / f"rank{rank}.journal"
        asked = {"from_step": self.config.from_step, "on_signal": self.config.on_signal}
        start = records.start() | {"spawned": bool(self.config.spawned)} | asked
        try:
            journal = JournalWriter(path, self._failed)
        except FileExistsError:  # several that are spawned at once know no rank yet
            path = path.with_name(f"rank{rank}-{os.getpid()}.journal")
            journal = JournalWriter(path, self._failed)
        self.stem = path.stem
        try:
            journal.json(start)
        except BaseException:
            journal.close()
            raise
        return journal

    def _failed(self, error: BaseException) -> None:
        """A hook of ours has failed: watching ends here, the program goes on."""
        if self.ended or self._failure or os.getpid() != self.recorder.pid:
            return
        self._failure = True
        self._abandon_window()
        with contextlib.suppress(Exception):
            self.hooks.remove()
        with contextlib.suppress(Exception):
            self.recorder.flush()
        self.complain(error)

    # steps

    def _boundary(self, kind: int, number: int, now: int) -> None:
        """A step of loop (kind, number) ended at `now`; called in the program's thread, between two of its lines."""
        if self._busy or self._failure:
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
            if kind == FORWARDS:
                self.recorder.forward_spans[number] = calling_line(sys._getframe())
        self._steps += 1
        self._watched += 1
        loop.steps += 1
        if self._window is not None:
            self._in_window((kind, number), loop, now)
        else:
            self._plain((kind, number), loop, now)
        if self._stop_at and self._steps >= self._stop_at:
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
        if self.later.holds and not self._may_look(key, loop, now):
            return
        if loop.done >= len(ORDER) or (self.config.on_signal and self._spent_ns > self.config.budget_ns):
            if self.config.leave and (key[0] in ev.TRAINS or not optimizer_made()):  # else a training may be to come
                if self._second_epoch_is_near(loop, now):
                    return
                self.end("left early")
                raise StopProgram(0)
            self._tail(key, now)
        elif loop.total >= loop.look_at and self._may_open(key, loop, now):
            loop.look_at = (
                loop.total + self.config.plain_ns // 10
            )  # medians of hundreds of short steps would cost more than all hooks
            if window_plan.is_steady(loop.walls, self.config.plain_ns):
                self._open(key, loop)
                loop.last = time.perf_counter_ns()

    def _may_open(self, key: tuple[int, int], loop: Loop, now: int) -> bool:
        """Another loop gets its own windows only if it takes more time than any that has them, or trains where those do
        not: what came before the training says nothing of how long it will last. Nor does what is evaluated between its
        steps while it still waits for its windows."""
        if loop.settle or loop.attempts > 6 or self._spent_ns > self.config.budget_ns:
            return False
        if is_capturing() or in_backward():  # torch's profiler, started inside a node of the graph, crashes
            return False
        if why_not := TRACED if is_tracing() else PROFILED if is_profiled() else "":
            if not self._told:
                self._told = True
                self._say(why_not)
            return False
        recent = [other for other, seen in self.loops.items() if now - seen.last < TRAINING_NS]
        if key[0] not in ev.TRAINS and any(map(self._waits, recent)):
            return False
        others = [(kind, other) for (kind, _), other in self.loops.items() if other is not loop and other.done]
        rivals = [other for kind, other in others if key[0] not in ev.TRAINS or kind in ev.TRAINS]
        return len(others) < MAX_LOOPS and all(loop.total > rival.total for rival in rivals)

    def _waits(self, key: tuple[int, int]) -> bool:
        """Whether a loop trains and has not had its windows."""
        return key[0] in ev.TRAINS and self.loops[key].done < len(ORDER)

    def _second_epoch_is_near(self, loop: Loop, now: int) -> bool:
        """Whether to stay for it: only there it is seen that samples come again."""
        self._seen_at = self._seen_at or now
        left = self._seen_at + self.config.leave * window_plan.SECOND - now
        facts = self.recorder.loader_facts.values()
        return (
            left > 0 and until_second_epoch(facts, self._steps) * median(loop.walls[-window_plan.MANY_STEPS :]) < left
        )

    def _tail(self, key: tuple[int, int], now: int) -> None:
        self.later.over()
        if self.later.holds:
            return
        if not self._tail_from:
            self._tail_from = now
            self._tail_steps = self._watched
        if now - self._tail_from > TAIL_NS or self._watched - self._tail_steps > TAIL_STEPS or self.rests.enough:
            self.end("watched enough")
        elif not (self._stop_at or is_tracing()):
            self.rests.step(key, now, self.loops[key].steps)

    def _may_look(self, key: tuple[int, int], loop: Loop, now: int) -> bool:
        """Whether the look that was asked for begins. Before it facts are noted, once steps are steady."""
        self._say(self.later.news())
        due = self.later.due(key[0], loop.steps) and not (is_tracing() or in_backward() or is_capturing())
        if due and self._spent_ns > self.config.budget_ns:
            self._say(SPENT)
            self.later.over()
        elif due:
            self._look(key, loop)
            return True
        elif self._held and not (self._stop_at or is_tracing()):
            self.rests.step(key, now, loop.steps, self.later.left(loop.steps))
        elif not self._held and loop.total >= loop.look_at and self._may_open(key, loop, now):
            loop.look_at = loop.total + self.config.plain_ns // 10
            if window_plan.is_steady(loop.walls, self.config.plain_ns):
                self._aside(key, loop, 0)
        return False

    def _look(self, key: tuple[int, int], loop: Loop) -> None:
        """A look that was asked for begins: steps are to be steady anew, and all windows open again."""
        self.later.holds = False
        self.rests.silenced()
        for each in self.loops.values():
            each.walls, each.look_at, each.done, each.attempts = [], 0, 0, 0
        self._aside(key, loop, 1)
        if self.config.stop_after and not self._stop_at:
            self._stop_at = self._steps + self.config.stop_after

    def _aside(self, key: tuple[int, int], loop: Loop, begins: int) -> None:
        """Note the facts between two steps, of which none is longer by it."""
        with unseen():
            self.look_for_tensors()
        self._write_facts("steady")
        self.recorder.note(ev.ASIDE, key[1], begins)
        loop.last = time.perf_counter_ns()

    def _say(self, note: str) -> None:
        if note:
            self.recorder.journal.json({"type": "note", "text": note})

    def _rested(self, key: tuple[int, int], times: Sequence[int], begun: int) -> None:
        """Steps of a loop that were counted while the hooks rested."""
        loop = self.loops[key]
        loop.last = times[-1] if times else begun
        loop.total += loop.last - begun
        loop.steps += len(times)
        self._steps += len(times)

    # windows

    def _open(self, key: tuple[int, int], loop: Loop) -> None:
        step_ns = median(loop.walls[warmup(loop.walls) :])
        loop.attempts += 1
        began = time.perf_counter_ns()
        if not loop.done and not self._held:
            with unseen():
                self.look_for_tensors()
            self._write_facts("steady")
        self._window = window = ORDER[loop.done](self, key, step_ns)
        if not window.open():
            self._window = None
            loop.done += 1
            return
        self.recorder.note(ev.WINDOW_BEGIN, key[1], window.kind)
        self._spent_ns += time.perf_counter_ns() - began

    def _in_window(self, key: tuple[int, int], loop: Loop, now: int) -> None:
        window = self._window
        assert window is not None
        if is_tracing() or in_backward():
            return  # what its end computes would be written down too; a node that ends puts the profiler's state back
        if is_traced():
            self._close(False)
            return
        if key == window.loop:
            window.step_over()
            if not window.is_enough(now) and not window.exhausted(now):
                return
        elif not window.exhausted(now) and (window.loop[0] in ev.TRAINS or not self._waits(key)):
            return  # another loop's step
        self._close(window.steps > 0)

    def trace_file(self) -> Path:
        """Return the file that the next profile is written to."""
        return Path(self.config.folder) / f"{self.stem}.window{len(self.loops)}-{self._steps}.trace.json"

    def _close(self, complete: bool) -> None:
        window, self._window = self._window, None
        assert window is not None
        began = time.perf_counter_ns()
        loop = self.loops[window.loop]
        try:
            window.close(complete)
        finally:
            window.release()
        if complete:
            loop.done += 1
        queued = settling(self.recorder.loader_facts.get(n, {}) for n, _ in self.recorder.loaders.alive())
        loop.settle = window_plan.settle_steps(window.step_ns, queued)
        self.recorder.note(ev.WINDOW_END, window.loop[1], window.kind)
        loop.last = time.perf_counter_ns()
        self._spent_ns += loop.last - began
        if loop.done >= len(ORDER):
            self._write_facts("windows")

    def overdue(self) -> None:
        """The window's loop has made no step for long; called between two lines of the program, until it is closed."""
        window = self._window
        if window is None or self._busy or get_ident() != self.recorder.thread:
            return
        if is_tracing() or in_backward() or is_capturing():
            return
        self._busy = True
        try:
            self._close(window.steps > 0)
        except BaseException as error:
            self._failed(error)
            if is_the_programs(error):
                raise
        finally:
            self._busy = False

    def _abandon_window(self) -> None:
        window, self._window = self._window, None
        if window is not None:
            with contextlib.suppress(Exception):
                window.close(window.steps > 0)
                self.recorder.note(ev.WINDOW_END, window.loop[1], window.kind)
            window.release()

    def _make_way(self, profile: Any) -> bool:
        """A profiler starts. Where it is the program's own the window closes first: there is one per process, and what
        we do would stand in its list."""
        window = self._window
        if window is not None and window.owns(profile):
            return False
        if window is not None:
            self._close(False)
        return True

    # facts

    def _write_facts(self, moment: str) -> None:
        recorder, errors = self.recorder, dict[str, str]()
        tables: dict[str, Callable[[], Any]] = {
            "settings": lambda: facts.settings(self.user.sources(), errors),
            "modules": lambda: facts.modules(recorder),
            "optimizers": lambda: facts.optimizers(recorder),
            "loaders": lambda: facts.loaders(recorder),
            "lengths": lambda: facts.lengths(recorder),
            "draws": lambda: facts.draws(recorder),
            "pictures": lambda: pixel_lines.found(self.user.sources(), recorder.loader_facts.values()),
            "compile": facts.compiled,
            "forward_spans": lambda: [{"id": n, "span": span} for n, span in recorder.forward_spans.items()],
            "memory": lambda: facts.memory(None if self.nested else self._runtime),
            "watching": self.hooks.cost,
            "device": device_memory.name,
            "children": self.hooks.children.facts,
            "ranks": lambda: ranks.facts(recorder.modules.alive(), recorder.batches),
        }
        found: dict[str, Any] = {"type": "facts", "moment": moment, "steps": self._steps, "errors": errors}
        for name, table in tables.items():
            with records.noted(errors, name), unseen():
                found[name] = table()
        recorder.journal.json(found)

    def growth(self, frame: FrameType) -> list[dict[str, Any]]:
        """Containers that hold tensors and grew since the windows began, or since the window that counts did (what is
        freed at an epoch's end may have been freed between); else those whose graphs are of many steps."""
        for since, before in self._held:
            if found := grown(frame, self.user, before, max(1, self._steps - since)):
                return found
        return kept_graphs(frame, self.user, self._steps) if self._steps > 2 else []

    def look_for_tensors(self) -> None:
        """Note which containers hold tensors now, for growth()."""
        self._held = (*self._held[:1], (self._steps, held_tensors(sys._getframe(), self.user)))


class StopProgram(SystemExit):
    """--stop-after: the program ends here, unwinding as sys.exit() does."""
