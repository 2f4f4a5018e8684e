"""Takes an observation of a running program: what went into its models, what came out, losses, gradients, updates.

    with Witness() as witness:
        train()
    observation = witness.observation()

Meant for runs of their own, never for timed ones: it reads every tensor. The program computes what it would compute
without it, but for the order in which dropout draws its masks (dropout.py), unless it is set to the states of another
run (`states`).
"""

from __future__ import annotations

import contextlib
import sys
import threading
import weakref
from collections.abc import Callable
from time import monotonic
from types import FrameType, TracebackType
from typing import Any

import msgspec
import torch
from torch.amp import GradScaler
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from gobrrr.capture.hooks import generation
from gobrrr.capture.hooks.lookup import ModuleCall, Patches, plain, watch_replays
from gobrrr.capture.hooks.transform_guard import hide_own_code, is_functional
from gobrrr.guard.model.observation import Call, Epoch, Observation, Step
from gobrrr.guard.reference.states import States
from gobrrr.guard.reference.watched_steps import TWIN_STEPS
from gobrrr.guard.watch import dropout, functional, generated
from gobrrr.guard.watch.digest import look
from gobrrr.guard.watch.epochs import Epochs
from gobrrr.guard.watch.inputs import Computed, cut_of, data_of, tensors_of, tokens_of
from gobrrr.guard.watch.modules import Parts
from gobrrr.guard.watch.step_log import Book
from gobrrr.guard.watch.step_log import Parts as PartsOf

Prepare = Callable[[Any, Any, Any], contextlib.AbstractContextManager[tuple[Any, Any]]]
AfterStep = Callable[[int, int], None]
_RUN_IN_COMPILED_CODE = (
    "gobrrr.guard.watch.witness", "gobrrr.guard.watch.modules", "gobrrr.guard.reference.variants",
)  # fmt: skip
"""Modules that torch.compile must not trace; guard.watch.dropout stands in for torch's own and must be."""
TRANSFORMED = "models are called inside a transform, where tensors have no numbers of their own"
REPLAYED = "a CUDA graph was replayed in the end, and what it computed was not seen"
MOST_GENERATING = 30.0
"""Seconds in generate() after which no more sequences are watched (proposed: a race has minutes for several runs)."""
_COMPILER = ("torch._dynamo", "torch._inductor", "torch.compiler")


class Witness:
    """Watches this thread's models and optimizers between `__enter__` and `__exit__`."""

    def __init__(
        self, prepare: Prepare | None = None, after_step: AfterStep | None = None, states: States | None = None,
        expected: int = TWIN_STEPS, without_dropout: bool = False, late: int = 0,
        parts: PartsOf | None = None,
    ) -> None:  # fmt: skip
        """`prepare` may change a model and its arguments before each call: a float64 reference does. `after_step` is
        told of updates made and of calls since the last one, and may end the program. `states`: of the baseline, kept
        by its own run, and begun from by others. `expected`: steps that are planned for. `without_dropout`: there is
        none while it watches. `late`: the step from which it looks once more after those that are planned. `parts`: as
        Book has it."""
        self._prepare = prepare or (lambda model, args, kwargs: contextlib.nullcontext((args, kwargs)))
        self._after_step = after_step or (lambda updates, calls: None)
        self._patches = Patches()
        self._expected = expected
        self._dropout = dropout.none if without_dropout else dropout.same_masks_in_any_layout
        self.book = Book(expected, states, late, parts)
        self._epochs = Epochs()
        self._seen_epochs: tuple[Epoch, ...] | None = None
        self._computed = Computed()
        self._scaled: dict[int, tuple[weakref.ref[Any], float]] = {}
        self._parts: Parts | None = None
        self._first, self._depth = True, 0
        self._thread = threading.get_ident()
        self._backward = self._applying = self._functional = self._transformed = self._replayed = self.complete = False
        self._generating = 0.0
        self.printed: dict[str, tuple[tuple[str, ...], ...]] | None = None

    # in and out

    def __enter__(self) -> Witness:
        self._thread = threading.get_ident()
        hide_own_code(*_RUN_IN_COMPILED_CODE)
        try:
            self._watch_calls()
            generation.awaited(self._watch_generation, self._patches)
            functional.watch(self._transforms, self._patches)
            self._watch_backward()
            self._patches.append(register_optimizer_step_pre_hook(self._update_begins).remove)
            self._patches.append(register_optimizer_step_post_hook(self._update_ends).remove)
            watch_replays(self._graph_replayed, self._patches)
            self._patches.append(self.book.writes.stop)
            self._dropout(self._patches)
            self._epochs.watch(self._patches)
            self.book.tensors.watch(self._patches)
            self.book.writes.start()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.complete = kind is None
        self.remove()

    def remove(self) -> None:
        """Take all hooks out, last one first; safe to call twice."""
        self._patches.take_out()

    @property
    def num_steps(self) -> int:
        """Steps seen so far; calls where no update has come."""
        return len(self.book.steps) or len(self.book.calls)

    def observation(self) -> Observation:
        """Return the observation so far."""
        self.book.close()
        training = bool(self.book.steps)
        calls = tuple(self.book.calls)
        tail = (Step(calls=calls, gradients={}, updates={}, buffers={}),) if calls and self.complete else ()
        steps = tuple(Step(calls=(call,)) for call in calls)
        if training:  # of which the gradients and updates are seen
            steps = tuple(map(_of_models, (*self.book.steps, *tail)))
        remarks = ((TRANSFORMED, self._transformed and not training), (REPLAYED, self._replayed))
        if self._seen_epochs is None:
            self._seen_epochs = self._epochs.read()
        return Observation(
            steps=steps, trainable=self.book.trainable(), training=training, complete=self.complete,
            remarks=tuple(remark for remark, holds in remarks if holds), epochs=self._seen_epochs,
            printed=self.printed, planned=self._expected, passed=self.book.passed,
            transformed=not training and any(call.model.startswith(functional.LABEL) for call in calls),
        )  # fmt: skip

    def _close(self) -> None:
        """The program goes on to its next step: the last one is over."""
        if self.book.close():
            self._computed.clear()
            self._after_step(len(self.book.steps), 0)

    # calls of models

    def _watch_calls(self) -> None:
        witness = self

        class Calls:
            """Hands out the method itself, except for a call that the program makes: that one goes through us."""

            def __init__(self, method: Any) -> None:
                self.function = method

            def __get__(self, instance: Any, owner: type | None = None) -> Any:
                if instance is None:
                    return plain(self.function)
                bound, caller = self.function.__get__(instance, owner), sys._getframe(0).f_back
                if not witness._is_the_programs(instance, caller):
                    return witness._part(instance, bound, caller)
                return lambda *args, **kwargs: witness._called(instance, bound, args, kwargs)

        self._module_call = ModuleCall(Calls)
        self._patches.append(self._module_call.remove)

    def _is_the_programs(self, model: Any, caller: FrameType | None) -> bool:
        if self._backward or threading.get_ident() != self._thread:
            return False
        self._functional |= self._applying
        if self._depth or generation.is_aside(model):
            return False
        if is_functional():
            self._transformed = True
            return False
        if caller is None or not _compiles(caller):
            return True
        # A model that the program itself has compiled hands its call on, from the compiler's own code.
        return hasattr(model, "_orig_mod") and caller.f_code is getattr(type(model).__call__, "__code__", None)

    def _part(self, part: Any, call: Any, caller: FrameType | None) -> Any:
        """Watch the parts too in the first call."""
        if self._parts is None or threading.get_ident() != self._thread or is_functional() or _compiles(caller):
            return call
        return self._parts.watched(part, call)

    def _called(self, model: Any, call: Any, args: Any, kwargs: Any) -> Any:
        self._close()
        self._replayed = False
        if self.book.passes:
            self._depth += 1
            try:
                return call(*args, **kwargs)
            finally:
                self._depth -= 1
        label = self.book.label(model)
        cut, tokens = cut_of(args, kwargs), tokens_of(args, kwargs)
        before = data_of((args, kwargs), self._computed, cut=cut, tokens=tokens)
        parts = Parts(model, label) if self._first else None
        self._depth, self._parts = self._depth + 1, parts
        try:
            with self._prepare(model, args, kwargs) as (given, named):
                result = call(*given, **named)
        finally:
            self._depth, self._parts = self._depth - 1, None
            self._module_call.again()
        self.book.name(model, label)
        found = [cut(each) for each in tensors_of(result)]
        after = data_of((args, kwargs), self._computed, rows=False, cut=cut)
        self._computed.add(found)
        data = before if after.digest == before.digest else msgspec.structs.replace(before, mutated=True)
        inside = parts.seen if parts else {}
        self.book.calls.append(Call(label, bool(model.training), data, self.book.outputs(found), inside))
        self._first = False
        self._after_step(len(self.book.steps), len(self.book.calls))
        return result

    # generate() of transformers

    def _watch_generation(self) -> None:
        if (call := generation.original()) is None:
            return

        def generate(model: Any, *args: Any, **kwargs: Any) -> Any:
            began = monotonic()
            self._depth += 1
            try:
                result = call(model, *args, **kwargs)
            finally:
                self._depth -= 1
            self._note_generated(model, args, kwargs, result, begin())
            self._generating += monotonic() - began
            planned = self._expected if self._generating > MOST_GENERATING else 0
            self._after_step(0, max(planned, len(self.book.calls)))
            return result

        def begins(_: Any) -> Callable[..., Any] | None:
            trains = self.book.steps or self._backward
            return None if trains or self._depth or threading.get_ident() != self._thread else generate

        begin = generation.watch_generation(begins, lambda *_: None, self._patches)

    def _note_generated(self, model: Any, args: Any, kwargs: Any, result: Any, begin: int | None) -> None:
        """Note each sequence as a call of its own: prompts may be batched otherwise."""
        from gobrrr.data.prompts import option

        named, sampled = self.book.label(model), bool(option(model, kwargs, "do_sample"))
        for given, tokens in generated.rows(model, args, kwargs, result, begin):
            data = data_of(given, rows=False)
            data = msgspec.structs.replace(data, rows=(data.digest,))
            call = Call(named, bool(model.training), data, (look(tokens),), tokens=True, sampled=sampled)
            self.book.calls.append(call)
        self.book.name(model, named)
        self._first = False

    # transforms of torch.func

    def _transforms(self, label: str, call: Any, args: Any, kwargs: Any) -> Any:
        """The outermost one is looked at as if it were a call of a model without parameters; not one that knows of no
        model, while none does: a mask that is made by vmap is seen in what the model gives for it."""
        if self._depth or self._backward or threading.get_ident() != self._thread or is_functional():
            return call(*args, **kwargs)
        self._close()
        data = data_of((args, kwargs), self._computed)
        self._depth, self._applying = self._depth + 1, True
        try:
            result = call(*args, **kwargs)
        finally:
            self._depth, self._applying = self._depth - 1, False
        if not self._functional:
            return result
        self.book.calls.append(Call(label, False, data, self.book.outputs(tensors_of(result))))
        self._after_step(len(self.book.steps), len(self.book.calls))
        return result

    # backward

    def _watch_backward(self) -> None:
        backward, scale = torch.autograd.backward, GradScaler.scale
        witness = self

        def watched(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != witness._thread or not witness._patches:
                return backward(tensors, *args, **kwargs)
            witness._close()
            if not witness.book.passes:
                witness._note_loss(tensors)
            witness._backward = True
            try:
                return backward(tensors, *args, **kwargs)
            finally:
                witness._backward = False
                witness._module_call.again()  # the backward pass of a compiled model is traced when it first runs

        def scaled(self: Any, outputs: Any) -> Any:
            result = scale(self, outputs)
            if isinstance(outputs, torch.Tensor) and outputs.numel() == 1:
                witness._scaled[id(result)] = (weakref.ref(result), float(outputs.detach()))
            return result

        self._patches.replace(torch.autograd, "backward", watched)
        self._patches.replace(GradScaler, "scale", scaled)

    def _note_loss(self, tensors: Any) -> None:
        for tensor in (tensors,) if isinstance(tensors, torch.Tensor) else tuple(tensors):
            known = self._scaled.pop(id(tensor), None)
            if known is not None and known[0]() is tensor:
                self.book.losses.append(known[1])
            elif tensor.numel() == 1:
                self.book.losses.append(float(tensor.detach()))

    # updates

    def _update_begins(self, optimizer: Any, *_: Any) -> None:
        if threading.get_ident() == self._thread:
            if not self.book.goes_on(optimizer):
                self._close()
            self.book.update_begins(optimizer)

    def _update_ends(self, optimizer: Any, *_: Any) -> None:
        if threading.get_ident() == self._thread:
            self._replayed = False
            self.book.update_ends(optimizer)

    # graphs

    def _graph_replayed(self, _: Any) -> None:
        """Note a replay: its numbers are seen in the next call or update alone."""
        self._replayed = True


def _compiles(caller: FrameType | None) -> bool:
    return caller is not None and caller.f_globals.get("__name__", "").startswith(_COMPILER)


def _of_models(step: Step) -> Step:
    """Without calls of transforms, whose results come back in gradients and updates."""
    calls = tuple(call for call in step.calls if not call.model.startswith(functional.LABEL))
    return msgspec.structs.replace(step, calls=calls)
