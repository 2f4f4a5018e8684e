"""Parameters that no optimizer updates ask for no gradients."""

from __future__ import annotations

import contextlib
import functools
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from gobrrr.errors import GobrrrError
from gobrrr.remedies.mechanism.forwards import replaced
from gobrrr.remedies.mechanism.optimizer_groups import asked_for, at_each_group, parameters_of
from gobrrr.remedies.mechanism.seams import Seams
from gobrrr.remedies.model import Remedy, is_distributed

ASKERS = ("gobrrr.remedies.mechanism.graph_later", "gobrrr.remedies.layers.chunks")
"""Remedies that ask for gradients themselves, of what they know."""
INPUTS = 5
"""Arguments of torch.autograd.backward before those that it is asked for."""


class FreezeUnused(Remedy):
    """requires_grad is off, while the program's models run, for all of their parameters that no optimizer holds when
    the first one makes an update: gradients of theirs are computed and thrown away. The program finds it on wherever it
    looks or copies. What an optimizer is given later, or clipping, torch.autograd.grad and backward(inputs=...) are,
    asks again; where that needs what was not computed meanwhile, the remedy gives up."""

    name = "freeze_unused"
    title = "computes no gradients for parameters that are never updated"
    safety = "tolerance"  # torch chooses some kernels by what asks for a gradient
    place = "optimizer"
    saves_memory = True
    serves = "training"
    unseen = (
        "gradients of parameters that no optimizer holds are None for who reads them; where a clipping, an update or "
        "torch.autograd, asked by name, begins to need them later, all remedies are taken away with a message"
    )
    by_hand = "for p in backbone.parameters(): p.requires_grad_(False)"

    def apply(self, seams: Seams) -> None:
        found = _Unused()

        def steps(optimizer: Any) -> None:
            if is_distributed():
                seams.declined(self.name, "several processes wait for every gradient")
                return
            found.has(optimizer)
            if num := found.freeze():
                for model in found.models:
                    _run_asleep(model, found, seams)
                seams.applied(self.name, f"{num} parameters")

        seams.undo(found.thaw)
        at_each_group(seams, found.has)
        _see_clipping(found, seams)
        _see_asking(found, seams)
        _see_emptying(found, seams)
        _recompute_asleep(found, seams)
        seams.at_model(found.models.append)
        seams.at_optimizer(steps)
        seams.at_step(lambda: _give_up(seams) if found.owes_an_update() else None)


class _Unused:
    """Parameters of models that no optimizer holds."""

    def __init__(self) -> None:
        self.models: list[Any] = []
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._held: set[int] = set()
        self._frozen: dict[int, Any] = {}
        self._is_frozen = False
        self._pending: dict[int, Any] = {}
        """Parameters that slept in a forward whose backward has not come."""
        self._owed: dict[int, Any] = {}
        """Parameters that would have a gradient by now."""
        self.has_reentrant = False
        """A checkpoint asks its inputs, as they are, whether anything in it is to have a gradient."""

    def has(self, optimizer: Any) -> None:
        """The program has it, and it holds parameters."""
        self._optimizers.add(optimizer)
        self.hold(parameters_of(optimizer))

    def look(self) -> None:
        """Hold what optimizers have by now: the program may write to the lists of their groups."""
        for optimizer in list(self._optimizers):
            self.hold(parameters_of(optimizer))

    def hold(self, parameters: Iterable[Any]) -> None:
        """An optimizer has these, or somebody reads their gradients."""
        self._held.update(map(id, parameters))
        for parameter in self._held.intersection(self._frozen):
            del self._frozen[parameter]

    def freeze(self) -> int:
        """Once; how many were."""
        if self._is_frozen:
            return 0
        self._is_frozen = True
        every = (p for model in self.models for p in model.parameters())
        ours = (p for p in every if p.requires_grad and p.is_leaf and id(p) not in self._held)
        self._frozen = {} if self.has_reentrant else {id(p): p for p in ours if not _is_watched(p)}
        for parameter in self._frozen.values():
            parameter.grad = None
        self._owed.update(self._frozen)
        return len(self._frozen)

    def frozen(self) -> list[Any]:
        return list(self._frozen.values())

    def sleep(self) -> list[Any]:
        """Return the frozen parameters, for a forward from which a backward may come."""
        self.look()
        self.hold(filter(_is_watched, self.frozen()))
        self._pending.update(self._frozen)
        return self.frozen()

    def went_back(self) -> bool:
        """A backward came: what slept would have its gradient. Whether somebody wants to hear of it meanwhile."""
        wanted = any(map(_is_watched, self._pending.values()))
        self._owed.update(self._pending)
        self._pending.clear()
        return wanted

    def emptied(self, parameters: Iterable[Any]) -> None:
        """The program has no use for the gradients that these have."""
        for parameter in parameters if self._owed else ():
            self._owed.pop(id(parameter), None)

    def is_due(self, parameters: Sequence[Any]) -> bool:
        """Whether the gradient of one is left out by a backward that is to come."""
        return any(id(parameter) in self._pending for parameter in parameters)

    def owes(self, parameters: Sequence[Any]) -> bool:
        return self.is_due(parameters) or any(id(parameter) in self._owed for parameter in parameters)

    def lacks(self, parameters: Sequence[Any]) -> bool:
        """Whether one has no gradient, or will have none."""
        return self.owes(parameters) or any(id(parameter) in self._frozen for parameter in parameters)

    def owes_an_update(self) -> bool:
        self.look()
        return not self._held.isdisjoint((*self._owed, *self._pending))

    def thaw(self) -> None:
        """None is."""
        self._is_frozen, self._frozen, self._owed, self._pending = True, {}, {}, {}


def _is_watched(parameter: Any) -> bool:
    """Somebody wants to hear of its gradient, but for other remedies, which only change what there is."""
    hooks = (*(parameter._backward_hooks or {}).values(), *(parameter._post_accumulate_grad_hooks or {}).values())
    return any(not str(getattr(hook, "__module__", "")).startswith("gobrrr.") for hook in hooks)


@contextlib.contextmanager
def _asleep(parameters: Sequence[Any]) -> Iterator[None]:
    """Keep these parameters from asking for gradients in here, but for those that the program has switched off itself.
    Layers that compute in another way where nobody asks compute as if somebody did."""
    from gobrrr.remedies.mechanism.graph_later import AS_WITH_A_GRAPH

    asking = [parameter for parameter in parameters if parameter.requires_grad]
    for parameter in asking:
        parameter.requires_grad = False
    try:
        with AS_WITH_A_GRAPH if asking else contextlib.nullcontext():
            yield
    finally:
        for parameter in asking:
            parameter.requires_grad = True


def _run_asleep(model: Any, found: _Unused, seams: Seams) -> None:
    """Its forwards, but for those in which a hook may want the gradient of what is inside; what is compiled in place is
    called by another name."""
    import torch

    from gobrrr.remedies.mechanism.graph_later import are_hooked, may_go_fast, modules_of

    def asleep(of: Any, forward: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or is_distributed() or not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        modules = modules_of(of)
        if are_hooked(modules) or may_go_fast(modules):  # the program has frozen such a layer itself
            return forward(*args, **kwargs)
        with _asleep(found.sleep()):
            return forward(*args, **kwargs)

    compiled = getattr(model, "_compiled_call_impl", None) is not None
    name = "_compiled_call_impl" if compiled else "forward"
    seams.replace(model, name, replaced(model, asleep, name))


def _recompute_asleep(found: _Unused, seams: Seams) -> None:
    """Freeze the same parameters when backward repeats a checkpointed forward: it has to save the same again."""
    from torch.utils import checkpoint

    plain = checkpoint._checkpoint_without_reentrant_generator

    @functools.wraps(plain)
    def without_reentrant(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        frozen = [parameter for parameter in found.frozen() if not parameter.requires_grad]

        @functools.wraps(function)
        def again(*given: Any, **options: Any) -> Any:
            with _asleep(frozen):
                return function(*given, **options)

        return plain(again, *args, **kwargs)

    class Noted:
        """In place of the checkpoint that asks its inputs."""

        @staticmethod
        def apply(*args: Any) -> Any:
            found.has_reentrant = True
            if any(not parameter.requires_grad for parameter in found.frozen()):
                _give_up(seams)
            return reentrant.apply(*args)

    reentrant: Any = checkpoint.CheckpointFunction
    seams.replace(checkpoint, "_checkpoint_without_reentrant_generator", without_reentrant)
    seams.replace(checkpoint, "CheckpointFunction", Noted)


def _see_clipping(found: _Unused, seams: Seams) -> None:
    """A norm over all parameters counts the gradients of those that nobody updates."""
    from torch.nn import utils

    plain = utils.clip_grad_norm_

    @functools.wraps(plain)
    def clip_grad_norm_(parameters: Any, *args: Any, **kwargs: Any) -> Any:
        given = [parameters] if hasattr(parameters, "requires_grad") else list(parameters)
        found.hold(given)
        if found.owes(given):
            _give_up(seams)
        return plain(given, *args, **kwargs)

    for place in (utils, utils.clip_grad):
        seams.replace(place, "clip_grad_norm_", clip_grad_norm_)


def _see_asking(found: _Unused, seams: Seams) -> None:
    """Watch for gradients asked for by name: one that was not computed gives an error, or None. Other remedies' own
    requests are left out."""
    from torch import autograd, compiler, nn

    def noted(inputs: Any, lacks: Callable[[list[Any]], bool]) -> Any:
        """Return the inputs to be given on; from now on their gradients are asked for."""
        given, leaves = asked_for(inputs)
        is_late = lacks(leaves)
        found.hold(leaf for leaf in leaves if isinstance(leaf, nn.Parameter))
        if is_late:
            _give_up(seams)
        return given

    grad_of, backward_of = autograd.grad, autograd.backward

    @functools.wraps(grad_of)
    def grad(outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        is_ours = compiler.is_compiling() or _asker(sys._getframe(1)) in ASKERS
        return grad_of(outputs, inputs if is_ours else noted(inputs, found.lacks), *args, **kwargs)

    @functools.wraps(backward_of)
    def backward(*args: Any, **kwargs: Any) -> Any:
        inputs = args[INPUTS] if len(args) > INPUTS else kwargs.get("inputs")
        if inputs is not None and not compiler.is_compiling():
            args, kwargs = args[:INPUTS], {**kwargs, "inputs": noted(inputs, found.lacks)}
        if found.went_back():
            _give_up(seams)
        return backward_of(*args, **kwargs)

    together = autograd.graph.register_multi_grad_hook

    @functools.wraps(together)
    def register_multi_grad_hook(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        return together(noted(tensors, found.is_due), *args, **kwargs)

    seams.replace(autograd, "backward", backward)
    seams.replace(autograd, "grad", grad)
    seams.replace(autograd.graph, "register_multi_grad_hook", register_multi_grad_hook)


def _asker(frame: Any) -> str:
    """The module that asks, through another remedy's function in place of torch's."""
    while (name := frame.f_globals.get("__name__", "")) == "gobrrr.remedies.optimizer.sparse_gradient":
        frame = frame.f_back
    return str(name)


def _see_emptying(found: _Unused, seams: Seams) -> None:
    """Until then gradients add up, also those that nobody wants yet."""
    from torch.nn import Module
    from torch.optim import Optimizer

    def told(plain: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(plain)
        def zero_grad(holder: Any, *args: Any, **kwargs: Any) -> None:
            found.emptied(parameters_of(holder))
            plain(holder, *args, **kwargs)

        return zero_grad

    for kind in (Optimizer, Module):
        seams.replace(kind, "zero_grad", told(kind.zero_grad))


def _give_up(seams: Seams) -> None:
    said = "freeze_unused: the program now asks for gradients that it had no use for before, which were not computed"
    seams.give_up(GobrrrError(said, "gobrrr tune --without freeze_unused"))
