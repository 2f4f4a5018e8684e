"""Torch's own seams, watched without a frame of ours on the user's stack, and given back exactly as they were.

- optimizer updates: torch's global step hooks;
- loader waits: torch wraps `next()` of every loader in a record_function; its enter and exit are watched;
- top-level forwards and new loader iterators: the method is looked up through a descriptor that notes the look-up and
  hands out the very same method, so that tracebacks, identity checks and torch.compile see what they always see;
- backward passes: whichever function starts one, torch looks up its engine; so is that look-up noted;
- replays of CUDA graphs: torch's own method looks up that of its base class, which is noted;
- collectives: torch's functions look up the process group's method, which is noted.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from functools import wraps
from threading import get_ident
from time import perf_counter_ns
from types import FrameType
from typing import Any

from gobrrr.capture.hooks import generation
from gobrrr.capture.hooks.lookup import (
    EngineLookup,
    KeptCalls,
    Lookup,
    ModuleCall,
    Patches,
    Seat,
    nothing,
    plain,
    starters,
    top_level,
    watch_replays,
)
from gobrrr.capture.hooks.module_parts import is_training
from gobrrr.capture.hooks.transform_guard import called_from_compiled, is_the_programs, unseen
from gobrrr.capture.session.recorder import Recorder
from gobrrr.capture.steps.ranks import watch_collectives
from gobrrr.capture.steps.vitals import Children
from gobrrr.recording.model import event_kinds as ev
from gobrrr.words import LOADER, UPDATE

_RECEIVED = "_rcvd_idx"
"""Attribute that an iterator of workers has from its first epoch on: it begins another one, and is not being made."""
_TIMED_EVERY = 31  # prime: in step with no loop
_LONGEST_HOOK, _MAX_TIMINGS = 5_000_000, 8192
"""ns of one hook, and hooks, at most, that the mean is of; proposed: longer ones opened windows; timings without one
would settle it."""


class Hooks:
    """Installs and removes every hook of the plain phase. `on_error` is told of an exception in a hook of ours."""

    def __init__(self, recorder: Recorder, on_error: Callable[[BaseException], None]) -> None:
        self.recorder = recorder

        def failed(error: BaseException) -> None:
            with contextlib.suppress(Exception):
                on_error(error)

        self._on_error = failed
        self._patches = Patches()
        self._standing = Patches()  # undoes what a rest takes out
        self._updates: tuple[Seat, ...] = ()
        self.update_end: Callable[..., None] = nothing
        self._late: list[Callable[[], None]] = []
        self._calls: ModuleCall | None = None
        self._grad_enabled: Callable[[], bool] = bool
        self._updating = False  # torch iterates over its optimizer hooks, one of which is ours
        self.num_lookups = self.num_calls = 0
        self._overflow: RecursionError | None = None
        self._timings: list[int] = []
        self.fetched: Callable[[], None] | None = None
        self.profiler_comes: Callable[[Any], bool] | None = None
        """Told before a profiler starts; says whether it is the program's."""
        self._silent, self._num_lasting = False, 0
        self.silenced: Callable[[], object] = nothing
        """Told before the hooks are taken out for as long as the program's profiler runs."""
        self.begun: Callable[[], object] = lambda: recorder.note(ev.ITER, -1)
        """Told that an iterator of a loader is being made."""
        self.children = Children()
        self._waiting: list[int] = []  # a dataset may iterate over a loader of its own

    @property
    def installed(self) -> bool:
        """Whether hooks are in place."""
        return bool(self._patches)

    def install(self) -> None:
        """Put all hooks in place; on any failure none stays."""
        try:
            self._profilers()
            self._num_lasting = len(self._patches)
            self._plain_hooks()
        except BaseException:
            self.remove()
            raise

    def _plain_hooks(self) -> None:
        self._optimizers()
        self._loaders()
        self._stand()
        self.recorder.collections.install()
        self._patches.append(self.recorder.collections.remove)

    def remove(self) -> None:
        """Take every hook out again, in reverse order; safe to call twice and from inside a hook."""
        self._standing.take_out()
        self._patches.take_out()
        if self._late:  # in a rest nothing of ours waits for this step's end: that of the next annotation will do
            self._annotations()

    def rest(self, beat: Callable[..., None]) -> None:
        """Take out what every step runs through, all but `beat`, called with each optimizer that has stepped."""
        self._standing.take_out()
        for update, hook in zip(self._updates, (nothing, beat), strict=True):
            update.becomes(hook)

    def wake(self) -> None:
        """Put in what `rest` took out."""
        if self._patches and not self._standing:
            for update in self._updates:
                update.becomes(update.own)
            self._stand()

    def _stand(self) -> None:
        # A new one: what was taken out and is still held by somebody must not come to life again.
        self._standing = Patches()
        self._annotations()
        self._modules()
        seen = self._guarded(self.recorder.replay, standing=self._standing, trains=False)
        watch_replays(seen, self._standing, self._on_error)
        called = self._guarded(lambda _: self.recorder.note(ev.COLLECTIVE, -1), standing=self._standing)
        watch_collectives(called, self._standing)
        self._backwards()
        self._fetchers()
        self._generates = False
        self._generation()

    def guarded(self, body: Callable[..., object]) -> Callable[..., None]:
        """`body` as a part of a hook: what goes wrong in it does not reach the program."""
        return self._guarded(body, updating=True)

    def _guarded(
        self,
        body: Callable[..., object],
        *,
        anywhere: bool = False,
        updating: bool = False,
        trains: bool | None = None,
        standing: Patches | None = None,
    ) -> Callable[..., None]:
        """Whatever goes wrong in `body` must not reach the program: it is reported and the watching ends.

        Calls from other threads and forks count only with `anywhere`; a part of a step (`trains` or not) may make its
        thread the watched one. A hook that is out but still held, by who has wrapped it, does nothing. One closure does
        it all: in a program that trains its code is cold each time."""
        recorder, patches = self.recorder, self._patches
        standing = patches if standing is None else standing

        def hook(*args: Any) -> None:
            here = anywhere or get_ident() == recorder.thread
            if not (standing and patches) or not (here or recorder.adopts(updating or trains)):
                return
            self._updating = self._updating or updating
            try:
                if self._overflow is not None:
                    raise self._overflow
                self.num_calls += 1
                if self.num_calls % _TIMED_EVERY:
                    body(*args)
                else:
                    self._timed(body, args)
            except RecursionError as error:
                if self._overflow is None:  # the stack is full, nothing may be called: the next hook tells
                    self._overflow = error.with_traceback(None)
                else:
                    self._on_error(error)
            except BaseException as error:
                self._on_error(error)
                if is_the_programs(error):
                    raise
            finally:
                if updating:
                    self._updating = False

        return called_from_compiled(hook) if updating else hook

    def _timed(self, body: Callable[..., object], args: tuple[Any, ...]) -> None:
        """Time one hook in so many: the cost of watching is measured in the run itself."""
        began = perf_counter_ns()
        body(*args)
        ns = perf_counter_ns() - began
        if ns < _LONGEST_HOOK and len(self._timings) < _MAX_TIMINGS:  # longer ones opened or closed a window
            self._timings.append(ns)

    def cost(self) -> dict[str, float]:
        """Hooks called so far, ns that one of them took on average, and look-ups of module calls.

        The slowest fiftieth is left out: on a busy machine those were interrupted by other processes.
        """
        kept = sorted(self._timings)[: max(1, len(self._timings) * 49 // 50)]
        each = sum(kept) / len(kept) if kept else 0.0
        return {"calls": self.num_calls, "ns_per_call": each, "lookups": self.num_lookups}

    # optimizers

    def _optimizers(self) -> None:
        from torch.optim import optimizer

        begin = Seat(optimizer.register_optimizer_step_pre_hook, self._guarded(self._update_begin, updating=True))
        self._patches.append(lambda: self._unregister(begin.handle))
        self.update_end = self._guarded(self._update_end, updating=True)
        end = Seat(optimizer.register_optimizer_step_post_hook, self.update_end)
        self._patches.append(lambda: self._unregister(end.handle))
        self._updates = (begin, end)

    def _unregister(self, handle: Any) -> None:
        """Take a hook out of torch's table, but not while torch iterates over it: then when the step is over."""
        if self._updating:
            self._late.append(handle.remove)
        else:
            handle.remove()

    def _update_begin(self, optimizer: Any, *_: Any) -> None:
        if self._calls is not None:
            self._calls.again()
        self.recorder.note(ev.UPDATE_BEGIN, self.recorder.optimizers.number(optimizer))

    def _update_end(self, optimizer: Any, *_: Any) -> None:
        self.recorder.update_end(self.recorder.optimizers.number(optimizer))

    def _step_over(self) -> None:
        with contextlib.suppress(Exception):
            while self._late:
                self._late.pop()()
            if not self._patches:
                self._standing.take_out()

    # loaders

    def _annotations(self) -> None:
        from torch.autograd.profiler import record_function

        leave: Any = record_function.__exit__
        enter_there, leave_there = (vars(record_function)[name] for name in ("__enter__", "__exit__"))
        standing = self._standing
        begin = self._guarded(self._next_begin, standing=standing)
        end = self._guarded(self._next_end)
        hooks = self

        def entered(annotation: Any) -> None:
            if _is(annotation, LOADER):
                begin(sys._getframe(1).f_back)

        @wraps(leave)
        def __exit__(self: Any, *exc: Any) -> Any:
            result = leave(self, *exc)
            if hooks._late:  # torch wraps an optimizer's step, its hooks included, in a record_function
                hooks._step_over()
            elif _is(self, LOADER):
                end(exc[0] if exc else None, sys._getframe(0).f_back)
            return result

        def leaves(annotation: Any) -> Any:
            """All others' exits have no frame of ours below them, where the stack may be full."""
            return __exit__ if hooks._late or _is(annotation, LOADER, UPDATE) else None

        standing.replace(record_function, "__enter__", Lookup(enter_there, entered, self._on_error))
        standing.replace(record_function, "__exit__", Lookup(leave_there, leaves, self._on_error))

    def _next_begin(self, frame: Any) -> None:
        iterator = frame.f_locals.get("self") if frame is not None else None
        self._waiting.append(self._loader_number(iterator, frame))
        if len(self._waiting) == 1:
            self.recorder.wait(self._waiting[0])

    def _next_end(self, exc: Any, frame: Any) -> None:
        if not self._waiting:
            return
        number = self._waiting.pop()
        if self._waiting:
            return
        if exc is None:
            self.recorder.batch(number, frame)
        else:
            self.recorder.note(ev.DATA_END, number, 1)

    def _loader_number(self, iterator: Any, frame: Any) -> int:
        recorder = self.recorder
        number = recorder.loaders.number(iterator)
        if number not in recorder.loader_facts:
            from gobrrr.capture.facts.loader_facts import loader_facts

            with unseen():
                recorder.loader_facts[number] = loader_facts(iterator, frame)
        return number

    def _loaders(self) -> None:
        from torch.utils.data.dataloader import _BaseDataLoaderIter, _MultiProcessingDataLoaderIter

        seen = self._guarded(lambda _: self.begun())
        self._patches.replace(_BaseDataLoaderIter, "__init__", Lookup(_BaseDataLoaderIter.__init__, seen))
        again = self._guarded(lambda iterator: self.begun() if _RECEIVED in vars(iterator) else None)
        own = _MultiProcessingDataLoaderIter._reset
        self._patches.replace(_MultiProcessingDataLoaderIter, "_reset", Lookup(own, again))
        for owner, name, told in self.children.seams():
            self._patches.replace(owner, name, Lookup(owner.__dict__[name], self._guarded(told, anywhere=True)))

    def _fetchers(self) -> None:
        from torch.utils.data import _utils

        fetched = self._guarded(lambda _: self.fetched() if self.fetched else None, anywhere=True)
        for kind in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
            fetcher = getattr(_utils.fetch, kind)
            self._standing.replace(fetcher, "fetch", Lookup(fetcher.fetch, fetched))

    # profilers

    def _profilers(self) -> None:
        """There is one profiler per process, and the program's own must find it free. While it runs no hook stands:
        with stacks it would list them."""
        from torch.autograd import profiler

        begins = self._guarded(self._profiler_begins, anywhere=True)
        for owner, name in starters():
            self._patches.replace(owner, name, Lookup(owner.__dict__[name], begins))
        stopped: Any = profiler._run_on_profiler_stop
        again = self._guarded(self._speak, anywhere=True)

        def _run_on_profiler_stop() -> None:
            stopped()
            again()

        self._patches.replace(profiler, "_run_on_profiler_stop", _run_on_profiler_stop)

    def _profiler_begins(self, found: Any) -> None:
        theirs = self.profiler_comes is not None and self.profiler_comes(found)
        if theirs and found.enabled and type(found).__module__ == "torch.autograd.profiler":  # the others tell no end
            self.silenced()
            self._silent = True
            self._standing.take_out()
            self._patches.take_out(self._num_lasting)

    def _speak(self) -> None:
        if self._silent:
            self._silent = False
            self._plain_hooks()

    # modules

    def _modules(self) -> None:
        from torch import is_grad_enabled
        from torch.nn import Module

        self._grad_enabled = is_grad_enabled
        outer, is_top_level = plain(Module.__dict__["__call__"]).__code__, top_level()
        seen = self._guarded(self._forward, standing=self._standing, trains=False)

        def lookup(module: Any) -> None:
            self.num_lookups += 1
            frame: FrameType | None = sys._getframe(1).f_back  # None where C calls it: a thread's start, a finalizer
            if not is_top_level(frame):
                return
            if frame is not None and "__call__" in frame.f_code.co_names:
                kept.begin()
            if not kept.on or vars(module).get("_compiled_call_impl") is not None:
                seen(module)

        def called(module: Any, frame: FrameType) -> None:
            if frame.f_code is outer and is_top_level(frame.f_back):
                seen(module)

        kept = KeptCalls(called, self._on_error)
        self._standing.append(kept.remove)
        self._calls = ModuleCall(lambda method: Lookup(method, lookup, self._on_error))
        self._standing.append(self._calls.remove)

    def _generation(self) -> None:
        """As soon as the program has imported the library."""
        if self._generates or generation.mixin() is None:
            return
        self._generates, standing = True, self._standing
        begins = self._guarded(lambda _: self.recorder.note(ev.GENERATE, -1), standing=standing)
        goes_on = self._guarded(lambda ids, _: self.recorder.note(ev.TOKENS, *ids.shape), standing=standing)
        generation.watch_generation(begins, goes_on, standing, self._on_error)

    def _forward(self, module: Any) -> None:
        self._generation()
        new = self.recorder.modules.known(module) is None  # an assistant stays so: it guesses within another's step
        if new and (generation.is_aside(module) or (self._generates and generation.is_guess())):
            return
        flags = int(is_training(module)) | int(self._grad_enabled()) << 1
        self.recorder.forward(self.recorder.module(module), flags)

    # backward passes

    def _backwards(self) -> None:
        from torch.autograd import graph

        engine, is_top_level = graph._engine_run_backward.__code__, top_level()
        seen = self._guarded(self.recorder.backward, standing=self._standing, trains=True)

        def lookup() -> None:
            frame = sys._getframe(1).f_back
            if frame is None or frame.f_code is not engine:
                return  # somebody who asks the engine for something else
            if is_top_level(frame.f_back):  # else part of another pass, or of a model that differentiates
                seen(frame)

        self._standing.append(EngineLookup(lookup, self._on_error).remove)


def _is(annotation: Any, *prefixes: str) -> bool:
    """Whether an annotation's name begins so. It may be anything, and may raise."""
    try:
        return type(annotation.name) is str and annotation.name.startswith(prefixes)
    except Exception:
        return False
