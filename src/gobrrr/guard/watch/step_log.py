"""Keep a record of each step of a watched run, and say when a step is over.

A step is closed at the program's next use of a model, its next backward pass, the next update by an optimizer that
has updated in it, or its end: whatever a remedy does to the weights after the update still belongs to it. Optimizers
that update one after the other are of one step (Pyro has one for each tensor, in the order of a set, which differs from
process to process). Then the run is set to the baseline's state, where that was kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gobrrr.guard.model.observation import Call, Step
from gobrrr.guard.model.tensor_digest import Seen, scalar
from gobrrr.guard.reference.states import Named, States
from gobrrr.guard.reference.watched_steps import LATE_TWINS, TWIN_STEPS, kept_before, whole_steps
from gobrrr.guard.watch.digest import dense, look, sampled
from gobrrr.guard.watch.effects import FileWrites
from gobrrr.guard.watch.inputs import is_plain
from gobrrr.guard.watch.modules import named_parameters, plain_name
from gobrrr.guard.watch.randomness import streams
from gobrrr.guard.watch.weight_copies import Tensors, copies

LARGE_BUFFER = 1 << 20
"""Elements above which a buffer is looked at by samples in every step."""
MOST_CALLS = 256
"""Calls of models in one step whose outputs are kept; a long evaluation has more."""
OPTIMIZER = "state of optimizer "
Parts = Mapping[str, Sequence[tuple[str, int]]]
NOT_NUMBERS = frozenset(("params", "fused", "foreach", "capturable", "differentiable", "maximize_grad"))
"""Entries of an optimizer's group that choose an implementation, not a computation."""


class Book:
    """Notes of one run. `expected` steps are planned for; `states` are kept in it or it is set to them. Between those
    steps and number `late` nothing is looked at."""

    def __init__(
        self, expected: int = TWIN_STEPS, states: States | None = None, late: int = 0, parts: Parts | None = None
    ) -> None:
        """`parts`: a parameter's name -> names and rows of the parameters of the baseline that it holds."""
        self._parts_of = parts or {}
        self.passed = 0
        """Steps that were not looked at."""
        self._to_pass = max(0, late - expected)
        self.steps: list[Step] = []
        self.calls: list[Call] = []
        self.losses: list[float] = []
        self.models: dict[int, tuple[str, Any]] = {}
        self.writes, self.tensors = FileWrites(), Tensors()
        self._expected, self._states = expected, states
        self._names: dict[int, str] = {}
        self._named: set[str] = set()
        self._optimizers: list[Any] = []
        self._whole: frozenset[int] = frozenset((0,))
        self._kept: frozenset[int] = frozenset()
        self._begun = "own"
        self._buffers: dict[str, str] = {}
        self._before: Named = {}
        self._update: _Update | None = None

    # what the program does

    def label(self, model: Any) -> str:
        """A model's name: its class and how many of that class came before it."""
        if id(model) not in self.models:
            kind = type(getattr(model, "_orig_mod", model)).__name__
            num = sum(label.split("#")[0] == kind for label, _ in self.models.values())
            self.models[id(model)] = (f"{kind}#{num}", model)
        return self.models[id(model)][0]

    def name(self, model: Any, label: str) -> None:
        """After the first call: lazy modules have their parameters now."""
        if label not in self._named:
            self._named.add(label)
            for name, parameter in named_parameters(label, model):
                self._names.setdefault(id(parameter), name)
            self._note_beginning()

    def outputs(self, tensors: list[Any]) -> tuple[Seen, ...] | None:
        """Return the record of a call's outputs; None once there are too many."""
        if len(self.calls) >= MOST_CALLS and self.steps:
            return None
        number = len(self.steps) if self.steps else len(self.calls)
        if not self.steps and len(self.calls) == 1:  # a program that only infers makes no other plan
            first = self.calls[0].outputs or ()
            self._whole = whole_steps(self._expected, sum(seen.numel for seen in first), len(first) + 1)
        return tuple(look(tensor, whole=self._is_whole(number)) for tensor in tensors)

    def goes_on(self, optimizer: Any) -> bool:
        """Whether the step that is open is this optimizer's too."""
        return self._update is not None and not self._update.has(optimizer)

    @property
    def passes(self) -> bool:
        """Whether the step that is open is one that nobody looks at."""
        return len(self.steps) == self._expected and self.passed < self._to_pass

    def update_begins(self, optimizer: Any) -> None:
        """An optimizer is about to step: its gradients are complete."""
        if self.passes:
            self._update = self._update or _Update(False)
            self._update.begins(optimizer, {})
            return
        if not any(known is optimizer for known in self._optimizers):
            self._optimizers.append(optimizer)
        self._note_beginning()
        if self._update is None or self._update.has(optimizer):
            self._update = _Update(self._is_whole(len(self.steps)))
        gradients = {name: unscaled(optimizer, p.grad) for name, p in self._owned(optimizer).items()}
        self._update.begins(optimizer, dict(part for each in gradients.items() for part in self._split(*each)))

    def update_ends(self, optimizer: Any) -> None:
        """It has stepped."""
        if self._update is not None:
            self._update.ended(optimizer)

    def close(self) -> bool:
        """Whether a step was open that is over now: it is written down, and the next one is begun as it should be."""
        found = self._update
        if found is None or not found.over:
            return False
        self._update = None
        if self.passes:
            self.passed += 1
            if self.passed == self._to_pass:
                self._begin_late()
            return True
        updates = self._updates(found.whole)
        # Before they are set to the baseline's: an optimizer that loses its state must not find it mended.
        states = {name: look(value, found.whole) if hasattr(value, "layout") else scalar(value)
                  for name, value in self._optimizer_states()}  # fmt: skip
        self.steps.append(
            Step(
                calls=tuple(self.calls), losses=tuple(self.losses), gradients=found.gradients,
                updates=updates, states=states, buffers=self._changed_buffers(),
                hyperparameters=found.hyperparameters, whole=found.whole, begun=self._begun, random=streams().digest,
                file_writes=self.writes.num, saved=tuple(self.writes.saved), copies=self._copies(found.whole),
            )
        )  # fmt: skip
        self.calls, self.losses, self.writes.num, self.writes.saved = [], [], 0, []
        self._plan()
        if not self.passes:
            self._begin()
        return True

    def _begin(self) -> None:
        self._begun = self._set_to_baseline(len(self.steps))
        self._note_beginning()

    def _begin_late(self) -> None:
        """Steps that passed have changed what the next one is compared with."""
        self._before, self.calls, self.losses = {}, [], []
        self._changed_buffers()
        self._begin()

    # names

    def trainable(self) -> dict[str, bool]:
        """requires_grad of every parameter of the models that were called."""
        return {n: bool(p.requires_grad) for label, model in self.models.values()
                for name, p in named_parameters(label, model) for n, _ in self._split(name, p)}  # fmt: skip

    def _split(self, name: str, value: Any) -> Iterator[tuple[str, Any]]:
        """A parameter, or what belongs to it, under its name; one that holds several of the baseline's as these, of
        which each has what counts for all (the number of an update)."""
        model, _, own = name.partition(".")
        parts = self._parts_of.get(own, ())
        if parts and not getattr(value, "shape", (0,)):
            yield from ((f"{model}.{part}", value) for part, _ in parts)
            return
        if value is None or sum(rows for _, rows in parts) != next(iter(getattr(value, "shape", ())), None):
            yield name, value
            return
        first = 0
        for part, rows in parts:
            yield f"{model}.{part}", value.detach().narrow(0, first, rows)
            first += rows

    def _owned(self, optimizer: Any) -> dict[str, Any]:
        """An optimizer's parameters with the names that their models give them."""
        number = next(n for n, known in enumerate(self._optimizers) if known is optimizer)
        return {
            self._names.get(id(parameter), f"{type(optimizer).__name__}#{number}.{g}.{i}"): parameter
            for g, group in enumerate(optimizer.param_groups)
            for i, parameter in enumerate(group["params"])
        }

    def _parameters(self) -> Iterator[tuple[str, Any]]:
        """All parameters: those of models, whoever updates them, and those that only an optimizer knows."""
        known = set()
        for label, model in self.models.values():
            for name, parameter in named_parameters(label, model):
                if id(parameter) not in known:
                    known.add(id(parameter))
                    yield from self._split(self._names.get(id(parameter), name), parameter)
        for optimizer in self._optimizers:
            yield from ((n, p) for n, p in self._owned(optimizer).items() if id(p) not in known)

    def _named_buffers(self) -> Iterator[tuple[str, Any]]:
        for label, model in self.models.values():
            for name, buffer in model.named_buffers():
                yield f"{label}.{plain_name(name)}", buffer

    def _state(self) -> Named:
        """Everything that a step begins from: parameters, buffers, and what the optimizers keep for each parameter."""
        found = dict((*self._parameters(), *self._named_buffers(), *self._optimizer_states()))
        return {name: value for name, value in found.items() if _is_kept(value)}

    def _optimizer_states(self) -> Iterator[tuple[str, Any]]:
        before: dict[str, int] = {}  # optimizers that have the parameter as well; the order of others may differ
        for optimizer in self._optimizers:
            for name, parameter in self._owned(optimizer).items():
                number = before[name] = before.get(name, -1) + 1
                for key, value in optimizer.state.get(parameter, {}).items():
                    if isinstance(value, (int, float)) or hasattr(value, "layout"):
                        for part, of_part in self._split(name, value):
                            yield f"{OPTIMIZER}{number} for {part}: {key}", of_part

    # looking

    def _note_beginning(self) -> None:
        """Keep the parameters from which the step begins, as far as they are known by now."""
        whole = self._is_whole(len(self.steps))
        for name, parameter in self._parameters():
            if name not in self._before:
                self._before[name] = _part(parameter, whole).clone()

    def _updates(self, whole: bool) -> dict[str, Seen]:
        """Return the change of each parameter since the step began, whoever made it. What it was before is let go with
        this frame: it must not be found among the copies of the weights."""
        before, self._before = self._before, {}
        return {name: update(_part(p, whole), before.get(name)) for name, p in self._parameters()}

    def _is_whole(self, step: int) -> bool:
        return step in self._whole or (step >= self._expected and len(self._whole) == self._expected)

    def _changed_buffers(self) -> dict[str, Seen]:
        """Buffers that are others than when they were last looked at; at first all."""
        found = {}
        for name, buffer in self._named_buffers():
            seen = look(buffer, whole=buffer.numel() <= LARGE_BUFFER)
            if self._buffers.get(name) != seen.digest:
                found[name] = seen
            self._buffers[name] = seen.digest
        return found

    def _copies(self, whole: bool) -> dict[str, tuple[Seen, ...]] | None:
        """Not in every step: it goes through all objects of the process."""
        if not whole or len(self.steps) not in (0, self._expected // 2, self._expected - 2, self._expected - 1):
            return None
        shapes = {tuple(p.shape) for _, p in self._parameters() if p.numel() > 1}
        known = {v.untyped_storage().data_ptr() for v in self._state().values() if hasattr(v, "layout")}
        known |= {p.grad.untyped_storage().data_ptr() for _, p in self._parameters() if _has_gradient(p)}
        return copies(self.tensors.all(), shapes, known)

    # the baseline's state

    def _plan(self) -> None:
        """After the first step it is known how large a step is."""
        if len(self.steps) > 1:
            return
        step, parameters = self.steps[0], [p for _, p in self._parameters()]
        seen = [s for c in step.calls for s in c.outputs or ()]
        states = step.states or {}
        elements = 2 * sum(p.numel() for p in parameters) + sum(s.numel for s in (*seen, *states.values()))
        self._whole = whole_steps(self._expected, elements, 2 * len(parameters) + len(seen) + len(states))
        if self._states is not None and self._states.keeps:
            size = sum(v.numel() * v.element_size() for v in self._state().values() if hasattr(v, "layout"))
            self._kept = kept_before(self._whole, self._states.affordable(size))
            if self._to_pass:
                self._kept |= {self._expected + number for number in range(LATE_TWINS)}

    def _set_to_baseline(self, step: int) -> str:
        """Keep the baseline's state before a step, or begin from it; says how alike the step begins (Step.begun)."""
        states = self._states
        if states is None:
            return "own"
        if states.keeps:
            if step in self._kept:
                states.keep(step, self._state())
            return "own"
        if not states.has(step):
            return "own"
        missing = states.begin_from(step, self._state())
        self._changed_buffers()  # what was set is no change of the next step's
        if not missing:
            return "baseline"
        return "part" if all(name.startswith(OPTIMIZER) for name in missing) else "own"


class _Update:
    """The updates of one step, between the first one's beginning and the next use of a model."""

    def __init__(self, whole: bool) -> None:
        self.whole, self.over = whole, False
        self.gradients: dict[str, Seen | None] = {}
        self._by: list[tuple[str, Any]] = []
        """First parameter of each optimizer that updates, and itself."""
        self._numbers: dict[int, tuple[dict[str, str], ...]] = {}

    def has(self, optimizer: Any) -> bool:
        """Whether it is one of those that update."""
        return any(known is optimizer for _, known in self._by)

    def begins(self, optimizer: Any, gradients: Named) -> None:
        """Its gradients are complete."""
        self.gradients |= {n: None if g is None else look(g, self.whole) for n, g in gradients.items()}
        self._by.append((min(gradients, default=""), optimizer))
        self.over = False

    def ended(self, optimizer: Any) -> None:
        """It has stepped with these numbers."""
        self.over = True
        self._numbers[id(optimizer)] = hyperparameters(optimizer)

    @property
    def hyperparameters(self) -> tuple[dict[str, str], ...]:
        """Numbers of all groups, the optimizers in the order of their parameters' names."""
        ordered = sorted(self._by, key=lambda each: each[0])
        return tuple(group for _, optimizer in ordered for group in self._numbers.get(id(optimizer), ()))


def _part(parameter: Any, whole: bool) -> Any:
    return parameter.detach() if whole else sampled(parameter)


def _is_kept(value: Any) -> bool:
    return not hasattr(value, "layout") or (is_plain(value) and not value.is_quantized)


def _has_gradient(parameter: Any) -> bool:
    return parameter.is_leaf and parameter.grad is not None and _is_kept(parameter.grad)


def unscaled(optimizer: Any, gradient: Any) -> Any:
    """A fused optimizer under a GradScaler divides inside its kernel."""
    scale = getattr(optimizer, "grad_scale", None)
    return gradient if scale is None or gradient is None else gradient / scale


def update(parameter: Any, before: Any) -> Seen:
    """Return the change; its digest is the parameter's, so that equal updates of other parameters are not the same."""
    if before is None:
        return look(parameter)
    return look(dense(parameter).double() - dense(before).double(), of=parameter)


def hyperparameters(optimizer: Any) -> tuple[dict[str, str], ...]:
    """Every group's numbers, and the optimizer's kind."""
    kind = type(optimizer).__name__
    return tuple(
        {"optimizer": kind} | {key: _number(value) for key, value in group.items() if key not in NOT_NUMBERS}
        for group in optimizer.param_groups
    )


def _number(value: Any) -> str:
    """A learning rate may be a tensor in one run and a float in the other."""
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "numel", lambda: 0)() == 1:
        value = float(item())
    return repr(float(f"{value:.7g}")) if isinstance(value, float) else repr(value)
