"""Remedies that trade memory for time: activations kept instead of recomputed, and activation checkpointing."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Hashable
from itertools import count
from types import FunctionType
from typing import Any, ClassVar

from gobrrr.errors import GobrrrError
from gobrrr.remedies.mechanism.seams import Seams
from gobrrr.remedies.model import BeforeTraining, Remedy, SetKeyword

ARGUMENTS = ("TrainingArguments", "Seq2SeqTrainingArguments", "SFTConfig", "DPOConfig", "RewardConfig", "GRPOConfig")
"""Argument classes of transformers and trl; trl's have gradient_checkpointing=True where nobody says otherwise."""

OPTIONS = ("use_reentrant", "context_fn", "determinism_check", "debug", "early_stop", "preserve_rng_state")
"""Options of checkpoint itself; all other keyword arguments are the function's."""

MOVES_LATER = "a checkpointed function has begun to change what it holds, and did so once instead of twice"
DRAWS_LATER = "random numbers were drawn in a checkpointed function once instead of twice, or by another thread"
MOST = 10_000
"""Ways of calls that are remembered."""


class KeepActivations(Remedy):
    """Layers of transformers forget that they are to be checkpointed, and torch.utils.checkpoint.checkpoint calls its
    function and no more. Calls that do something else beside are left alone: other contexts, random numbers that are
    not to be the same, and inputs of which none asks for a gradient, which reentrant checkpointing lets through without
    one. The first call of each function is computed again as ever, and looked at: where that moves something (a batch
    norm's statistics, an average, a counter), it goes on moving twice. A call that begins to draw random numbers later,
    and does nothing else that can be seen, is thrown away and made again as ever, with the same numbers; not where
    another thread may have drawn them. In code that is compiled only the layers are reached: dynamo knows torch's
    function by its place."""

    name = "keep_activations"
    title = "keeps activations for backward where memory has room, instead of computing them again"
    safety = "exact"
    place = "model"
    late = True
    conflicts: ClassVar[tuple[str, ...]] = ("activation_checkpointing",)
    unseen = (
        "what a checkpointed function changes in a hook, deep within an object or on disk changes once a step instead "
        "of twice; three times in a call that begins to draw random numbers"
    )
    by_hand = "TrainingArguments(..., gradient_checkpointing=False)  # or layer(x) for checkpoint(layer, x)"
    edit = SetKeyword(ARGUMENTS, "gradient_checkpointing", "False", of=("transformers", "trl"))

    def apply(self, seams: Seams) -> None:
        seams.at_model(lambda model: self._layers(model, seams))
        self._calls(seams)

    def _layers(self, model: Any, seams: Seams) -> None:
        marked = [part for part in model.modules() if part.__dict__.get("gradient_checkpointing") is True]
        marked = [part for part in marked if not any(map(_may_move, part.modules()))]
        for part in marked:
            seams.replace(part, "gradient_checkpointing", False)
        if marked:
            seams.applied(self.name, f"in {len(marked)} layers of {type(model).__name__}")

    def _calls(self, seams: Seams) -> None:
        from torch.utils import checkpoint as module

        plain = module.checkpoint
        put_back: list[bool] = []
        told: list[bool] = []
        ways = _Ways(functools.partial(seams.declined, self.name))

        @functools.wraps(plain)  # dynamo reads its signature
        def checkpoint(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            if put_back or not _only_recomputes(args, kwargs):
                return plain(function, *args, **kwargs)
            from gobrrr.remedies.mechanism.call_side_effects import Glance, can_be_known, reached_by

            things = reached_by(function, args, kwargs)
            way = ways.of(things, kwargs)
            if way.moves or (kwargs.get("use_reentrant") is not False and not all(map(can_be_known, things))):
                return plain(function, *args, **kwargs)
            if not way.may_be_kept:
                return plain(way.looked_at(function, things), *args, **kwargs)
            if not told:
                told.append(True)
                seams.applied(self.name, "in torch.utils.checkpoint")
            before = Glance(things)
            result = function(*args, **{name: given for name, given in kwargs.items() if name not in OPTIONS})
            after = Glance(things)
            moved, drew = before.moved(after), before.drew(after)
            if drew and not moved and threading.active_count() == 1:  # by the function, and nobody else, from now on
                before.put_back_drawn(after)
                way.moves_again()
                return plain(function, *args, **kwargs)
            if drew or way.has_new(moved):
                later = MOVES_LATER if way.has_new(moved) else DRAWS_LATER
                seams.give_up(GobrrrError(f"{self.name}: {later}", f"gobrrr tune --without {self.name}"))
            return result

        def undo() -> None:
            put_back.append(True)  # libraries that imported the function have it for good
            module.checkpoint = plain

        module.checkpoint = checkpoint
        seams.undo(undo)


def _may_move(module: Any) -> bool:
    """Whether a forward in train() mode may change the module: those of batch norms and of spectral ones do, and nobody
    has looked at those of the program's own classes, whose calls of checkpoint are."""
    from gobrrr.remedies.loader.copied_state import is_own

    return is_own(module) or any(getattr(module, kind, False) for kind in ("track_running_stats", "n_power_iterations"))


def _only_recomputes(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call differs from one of its function by nothing but when activations are computed."""
    import torch
    from torch.utils.checkpoint import noop_context_fn

    if not kwargs.get("preserve_rng_state", True) or kwargs.get("context_fn", noop_context_fn) is not noop_context_fn:
        return False
    asks = any(isinstance(each, torch.Tensor) and each.requires_grad for each in args)
    return kwargs.get("use_reentrant") is False or asks


class _Ways:
    """Calls that are checkpointed, by the modules that they may run, the code of functions, and their options."""

    def __init__(self, declined: Callable[[str], None]) -> None:
        self._declined = declined
        self._known: dict[Hashable, _Way] = {}

    def of(self, things: list[Any], kwargs: dict[str, Any]) -> _Way:
        """The one of a call that reaches these."""
        from torch.nn import Module

        modules = [each for each in things if isinstance(each, Module)]
        codes = tuple(each.__code__ for each in things if isinstance(each, FunctionType))
        options = tuple(kwargs.get(option) for option in OPTIONS)
        key = tuple((id(each), each.training) for each in modules), codes, options
        found = self._known.get(key)
        if found is None or not found.is_of(modules):
            if len(self._known) >= MOST:  # made anew for each call: those before are gone
                self._known.clear()
            found = self._known[key] = _Way(modules, self._declined)
        return found


class _Way:
    """Knowledge of calls of one way. A call whose backward has come tells: where computing it again changed nothing,
    leaving that out changes nothing either."""

    def __init__(self, modules: list[Any], declined: Callable[[str], None]) -> None:
        self._modules, self._declined = [weakref.ref(each) for each in modules], declined
        self._came = self.moves = False
        self._moved: set[int] = set()
        """Things that changed in forward, and not again in backward."""

    def is_of(self, modules: list[Any]) -> bool:
        """An id may be another module's by now."""
        return all(ref() is each for ref, each in zip(self._modules, modules, strict=True))

    @property
    def may_be_kept(self) -> bool:
        """Whether it was computed again, and nothing changed by that."""
        return self._came and not self.moves

    def looked_at(self, function: Callable[..., Any], things: list[Any]) -> Callable[..., Any]:
        """The function for checkpoint to call, at first and again in backward."""
        from gobrrr.remedies.mechanism.call_side_effects import Glance, Look

        calls = count()

        def looked(*args: Any, **kwargs: Any) -> Any:
            again = next(calls) > 0
            look, glance = Look(things) if again else None, Glance(things)
            try:
                return function(*args, **kwargs)
            finally:  # torch may stop it by an error once it has what it needs
                if look is None:
                    self._moved |= glance.moved(Glance(things))
                else:
                    self._came = True
                    if not look.is_still(Look(things)):
                        self.moves_again()

        return looked

    def moves_again(self) -> None:
        """Computing it again changes something."""
        if not self.moves:
            self.moves = True
            self._declined("what a checkpointed function holds changes whenever it is computed again")

    def has_new(self, moved: set[int]) -> bool:
        """Whether something moves of which it is not known whether it would have moved again in backward."""
        return bool(moved - self._moved)


class ActivationCheckpointing(Remedy):
    """model.gradient_checkpointing_enable() on models of transformers: a third more computing, far less memory."""

    name = "activation_checkpointing"
    title = "recomputes activations in backward: less memory, more computing"
    safety = "tolerance"
    place = "model"
    saves_memory = True
    serves = "training"
    by_hand = "model.gradient_checkpointing_enable()  # or torch.utils.checkpoint.checkpoint(layer, x)"
    edit = BeforeTraining(
        '{model}.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})'
    )

    def apply(self, seams: Seams) -> None:
        def enable(module: Any) -> None:
            switch = getattr(module, "gradient_checkpointing_enable", None)
            if switch is None or getattr(module, "is_gradient_checkpointing", False):
                return
            switch(gradient_checkpointing_kwargs={"use_reentrant": False})
            seams.undo(module.gradient_checkpointing_disable)
            seams.applied(self.name, type(module).__name__)

        seams.at_model(enable)
