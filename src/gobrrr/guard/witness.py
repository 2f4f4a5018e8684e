"""Takes an observation of a running program: what went into its models, what came out, losses, gradients, updates.

    with Witness() as witness:
        train()
    observation = witness.observation()

Meant for runs of their own, never for timed ones: it reads every tensor of the first steps. The program computes what
it would compute without it.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

import msgspec

from gobrrr.capture.lookup import ModuleCall, plain
from gobrrr.guard.look import look
from gobrrr.guard.modules import named_parameters, plain_name, watching
from gobrrr.guard.observation import Call, Observation, Step
from gobrrr.guard.rows import data_of, storages, tensors_of
from gobrrr.guard.seen import Seen
from gobrrr.guard.updates import hyperparameters, unscaled, update

DETAILED = 3
"""Steps whose tensors are all looked at."""
CALLS_WITHOUT_UPDATE = 8
"""So many calls of models without an update are looked at in detail before it is taken that none comes."""
Prepare = Callable[[Any, Any, Any], contextlib.AbstractContextManager[tuple[Any, Any]]]
AfterStep = Callable[[int, int], None]
_COMPILER = ("torch._dynamo", "torch._inductor", "torch.compiler")


class Witness:
    """Watches this thread's models and optimizers between `__enter__` and `__exit__`."""

    def __init__(
        self, detailed: int = DETAILED, prepare: Prepare | None = None, after_step: AfterStep | None = None
    ) -> None:
        """`prepare` may change a model and its arguments before each call: a float64 reference does. `after_step` is
        told of updates made and of calls since the last one, and may end the program."""
        self._detailed, self._prepare, self._after_step = detailed, prepare, after_step
        self._undo: list[Callable[[], object]] = []
        self._steps: list[Step] = []
        self._calls: list[Call] = []
        self._losses: list[float] = []
        self._models: dict[int, tuple[str, Any]] = {}
        self._names: dict[int, str] = {}
        self._named_models: set[str] = set()
        self._outputs: set[int] = set()
        self._buffers: dict[str, str] = {}
        self._scaled: dict[int, tuple[weakref.ref[Any], float]] = {}
        self._before: dict[int, Any] = {}
        self._pending: dict[str, Any] = {}
        self._inside: dict[str, Seen] | None = {}
        self._depth = 0
        self._backward = False
        self._thread = threading.get_ident()
        self.remarks: list[str] = []
        self.complete = False

    # in and out

    def __enter__(self) -> Witness:
        self._thread = threading.get_ident()
        try:
            self._watch_calls()
            self._watch_backward()
            self._watch_updates()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.complete = kind is None
        self.remove()

    def remove(self) -> None:
        """Take all hooks out, last one first; safe to call twice."""
        while self._undo:
            self._undo.pop()()

    @property
    def num_steps(self) -> int:
        """Steps seen so far; calls where no update has come."""
        return len(self._steps) or len(self._calls)

    def observation(self) -> Observation:
        """What was seen so far."""
        training = bool(self._steps)
        steps = self._steps if training else [Step(calls=(call,)) for call in self._calls]
        trainable = {
            name: bool(p.requires_grad)
            for label, model in self._models.values()
            for name, p in named_parameters(label, model)
        }
        return Observation(
            steps=tuple(steps), trainable=trainable, training=training, complete=self.complete,
            remarks=tuple(dict.fromkeys(self.remarks)),
        )  # fmt: skip

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
                bound = self.function.__get__(instance, owner)
                if not witness._is_the_programs(sys._getframe(1).f_globals.get("__name__", "")):
                    return bound
                return lambda *args, **kwargs: witness._called(instance, bound, args, kwargs)

        self._module_call = ModuleCall(Calls)
        self._undo.append(self._module_call.remove)

    def _is_the_programs(self, caller: str) -> bool:
        if self._depth or self._backward or threading.get_ident() != self._thread:
            return False
        return not caller.startswith(_COMPILER)

    def _called(self, model: Any, call: Any, args: Any, kwargs: Any) -> Any:
        label, inside = self._label(model), self._inside
        before = data_of((args, kwargs), self._outputs)
        self._depth += 1
        try:
            with self._prepared(model, args, kwargs) as (given, named), watching(model, label, inside):
                result = call(*given, **named)
        finally:
            self._depth -= 1
            self._module_call.again()
        self._name(model, label)
        found = tensors_of(result)
        self._outputs.update(storages(found))
        after = data_of((args, kwargs), self._outputs, rows=False)
        data = before if after.digest == before.digest else msgspec.structs.replace(before, mutated=True)
        outputs = tuple(look(tensor) for tensor in found) if self._is_detailed() else None
        self._calls.append(Call(label, bool(model.training), data, outputs, dict(inside or {})))
        self._inside = None
        if self._after_step is not None:
            self._after_step(len(self._steps), len(self._calls))
        return result

    def _prepared(self, model: Any, args: Any, kwargs: Any) -> contextlib.AbstractContextManager[tuple[Any, Any]]:
        return self._prepare(model, args, kwargs) if self._prepare else contextlib.nullcontext((args, kwargs))

    def _is_detailed(self) -> bool:
        if self._steps:
            return len(self._steps) < self._detailed
        return len(self._calls) < CALLS_WITHOUT_UPDATE

    def _label(self, model: Any) -> str:
        if id(model) not in self._models:
            kind = type(getattr(model, "_orig_mod", model)).__name__
            num = sum(label.split("#")[0] == kind for label, _ in self._models.values())
            self._models[id(model)] = (f"{kind}#{num}", model)
        return self._models[id(model)][0]

    def _name(self, model: Any, label: str) -> None:
        """After the first call: lazy modules have their parameters now."""
        if label not in self._named_models:
            self._named_models.add(label)
            for name, parameter in named_parameters(label, model):
                self._names.setdefault(id(parameter), name)

    # backward

    def _watch_backward(self) -> None:
        import torch
        from torch.amp import GradScaler

        backward, scale = torch.autograd.backward, GradScaler.scale
        witness = self

        def watched(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != witness._thread:
                return backward(tensors, *args, **kwargs)
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

        torch.autograd.backward = watched
        GradScaler.scale = scaled  # type: ignore[method-assign]
        self._undo.append(lambda: setattr(torch.autograd, "backward", backward))
        self._undo.append(lambda: setattr(GradScaler, "scale", scale))

    def _note_loss(self, tensors: Any) -> None:
        import torch

        for tensor in (tensors,) if isinstance(tensors, torch.Tensor) else tuple(tensors):
            known = self._scaled.pop(id(tensor), None)
            if known is not None and known[0]() is tensor:
                self._losses.append(known[1])
            elif tensor.numel() == 1:
                self._losses.append(float(tensor.detach()))

    # updates

    def _watch_updates(self) -> None:
        from torch.optim import optimizer

        for handle in (
            optimizer.register_optimizer_step_pre_hook(self._update_begins),
            optimizer.register_optimizer_step_post_hook(self._update_ends),
        ):
            self._undo.append(handle.remove)

    def _update_begins(self, optimizer: Any, *_: Any) -> None:
        if threading.get_ident() != self._thread:
            return
        parameters = list(self._named(optimizer))
        gradients = {name: unscaled(optimizer, p.grad) for name, p in parameters}
        norms = [float(g.detach().double().norm()) for g in gradients.values() if g is not None]
        self._pending = {"gradient_norm": float(sum(n * n for n in norms)) ** 0.5}
        if self._is_detailed_update():
            self._pending["gradients"] = {n: None if g is None else look(g) for n, g in gradients.items()}
            self._before = {id(p): p.detach().clone() for _, p in parameters}

    def _update_ends(self, optimizer: Any, *_: Any) -> None:
        if threading.get_ident() != self._thread or not self._pending:
            return
        seen = self._pending
        if self._is_detailed_update():
            seen["updates"] = {n: update(p, self._before.get(id(p))) for n, p in self._named(optimizer)}
            seen["buffers"] = self._changed_buffers()
            self._before = {}
        self._steps.append(
            Step(
                calls=tuple(self._calls), losses=tuple(self._losses), hyperparameters=hyperparameters(optimizer),
                **seen,
            )
        )  # fmt: skip
        self._calls, self._losses, self._pending, self._outputs = [], [], {}, set()
        if self._after_step is not None:
            self._after_step(len(self._steps), 0)

    def _is_detailed_update(self) -> bool:
        return len(self._steps) < self._detailed

    def _named(self, optimizer: Any) -> Iterator[tuple[str, Any]]:
        """The optimizer's parameters with the names that their models give them."""
        for g, group in enumerate(optimizer.param_groups):
            for i, parameter in enumerate(group["params"]):
                yield self._names.get(id(parameter), f"{type(optimizer).__name__}.{g}.{i}"), parameter

    def _changed_buffers(self) -> dict[str, Seen]:
        """Buffers that are others than when they were last looked at; at first all."""
        found = {}
        for label, model in self._models.values():
            for name, buffer in model.named_buffers():
                full = f"{label}.{plain_name(name)}"
                seen = look(buffer)
                if self._buffers.get(full) != seen.digest:
                    found[full] = seen
                self._buffers[full] = seen.digest
        return found
