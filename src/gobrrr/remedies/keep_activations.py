"""Activations are kept for backward instead of being computed again."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar

from gobrrr.capture.userfiles import UserFiles
from gobrrr.remedies.model import Remedy, SetKeyword

if TYPE_CHECKING:
    from gobrrr.remedies.seams import Seams

ARGUMENTS = ("TrainingArguments", "Seq2SeqTrainingArguments", "SFTConfig", "DPOConfig", "RewardConfig", "GRPOConfig")
"""Of transformers and trl; trl's have gradient_checkpointing=True where nobody says otherwise."""

OPTIONS = ("use_reentrant", "context_fn", "determinism_check", "debug", "early_stop", "preserve_rng_state")
"""Of checkpoint itself; all other keyword arguments are the function's."""

_FILES = UserFiles()


class KeepActivations(Remedy):
    """Layers of transformers forget that they are to be checkpointed, and torch.utils.checkpoint.checkpoint calls its
    function and no more. Calls that do something else beside are left alone: other contexts, random numbers that are
    not to be the same, buffers that move in each forward (a batch norm's statistics move twice), and inputs of which
    none asks for a gradient, which reentrant checkpointing lets through without one. In code that is compiled only the
    layers are reached: dynamo knows torch's function by its place."""

    name = "keep_activations"
    title = "keeps activations for backward where memory has room, instead of computing them again"
    safety = "exact"
    place = "model"
    codes = ("BRR111",)
    conflicts: ClassVar[tuple[str, ...]] = ("activation_checkpointing",)
    by_hand = "TrainingArguments(..., gradient_checkpointing=False)  # or layer(x) for checkpoint(layer, x)"
    edit = SetKeyword(ARGUMENTS, "gradient_checkpointing", "False", of=("transformers", "trl"))

    def apply(self, seams: Seams) -> None:
        seams.at_model(lambda model: self._layers(model, seams))
        self._calls(seams)

    def _layers(self, model: Any, seams: Seams) -> None:
        marked = [part for part in model.modules() if part.__dict__.get("gradient_checkpointing") is True]
        for part in marked:
            seams.replace(part, "gradient_checkpointing", False)
        if marked:
            seams.applied(self.name, f"in {len(marked)} layers of {type(model).__name__}")

    def _calls(self, seams: Seams) -> None:
        from torch.utils import checkpoint as module

        plain = module.checkpoint
        put_back: list[bool] = []
        told: list[bool] = []

        @functools.wraps(plain)  # dynamo reads its signature
        def checkpoint(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            if put_back or not _only_recomputes(function, args, kwargs):
                return plain(function, *args, **kwargs)
            if not told:
                told.append(True)
                seams.applied(self.name, "in torch.utils.checkpoint")
            return function(*args, **{name: given for name, given in kwargs.items() if name not in OPTIONS})

        def undo() -> None:
            put_back.append(True)  # libraries that imported the function have it for good
            module.checkpoint = plain

        module.checkpoint = checkpoint
        seams.undo(undo)


def _only_recomputes(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call differs from one of its function by nothing but when activations are computed."""
    import torch
    from torch.utils.checkpoint import noop_context_fn

    if not kwargs.get("preserve_rng_state", True) or kwargs.get("context_fn", noop_context_fn) is not noop_context_fn:
        return False
    if any(_moves(module) for module in _modules_of(function, args, kwargs)):
        return False
    asks = any(isinstance(each, torch.Tensor) and each.requires_grad for each in args)
    return kwargs.get("use_reentrant") is False or asks


def _moves(module: Any) -> bool:
    """Whether a forward in train() mode writes to a buffer: those of batch norms and of spectral ones are."""
    kinds = ("track_running_stats", "n_power_iterations")
    holding = (each for each in module.modules() if each.training and each._buffers)
    return any(getattr(each, kind, False) for each in holding for kind in kinds)


def _modules_of(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Those that a call may run: what it is given, what its function holds, is a method of, closes over or names."""
    from torch.nn import Module

    todo: list[Any] = [function, *args, *kwargs.values()]
    found: list[Any] = []
    met: dict[int, Any] = {}
    while todo:
        each = todo.pop()
        if id(each) in met:
            continue
        met[id(each)] = each  # held, so that no other has its id
        if isinstance(each, Module):
            found.append(each)
        elif isinstance(each, (list, tuple)):
            todo += each
        elif isinstance(each, functools.partial):
            todo += [each.func, *each.args, *each.keywords.values()]
        elif inspect.ismethod(each):
            todo += [each.__func__, each.__self__, *getattr(each.__self__, "__dict__", {}).values()]
        elif inspect.isfunction(each):
            todo += _named_by(each)
    return found


def _named_by(function: FunctionType) -> list[Any]:
    """What it closes over, and the globals that it names, which in packages are no modules that train."""
    values: list[Any] = []
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # nothing is in it yet
            values.append(cell.cell_contents)
    code, known = function.__code__, function.__globals__
    if code.co_filename.startswith("<") or _FILES.is_user(code.co_filename):
        values += [known[name] for name in code.co_names if name in known]
    return values


REMEDY = KeepActivations()
