"""Contents of a module, read without calling a method of the program's.

A program may override named_parameters, __getattr__, __hash__ and the like, and an override may draw random numbers,
count, or print: so a module's own dictionaries are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from gobrrr.capture.hooks.transform_guard import is_functional, unseen, variables


def modules(root: Any) -> Iterator[tuple[str, Any]]:
    """(qualified name, module) of a module and all below it, each once, in torch's order."""
    seen: set[int] = set()
    waiting = [("", root)]
    while waiting:
        name, module = waiting.pop()
        if module is None or id(module) in seen:
            continue
        seen.add(id(module))
        yield name, module
        below = [(f"{name}.{part}" if name else part, child) for part, child in items(module, "_modules")]
        waiting.extend(reversed(below))


def parameters(root: Any) -> Iterator[tuple[str, Any]]:
    """(qualified name, parameter), each once."""
    return _tensors(root, "_parameters")


def is_bare(root: Any) -> bool:
    """Whether it has no parameter, nor packed ones, as quantised layers have; a scripted module does not say."""
    if "_parameters" not in _own(root) or next(parameters(root), None) is not None:
        return False
    return not any("_packed_params" in _own(module) for _, module in modules(root))


def buffers(root: Any) -> Iterator[tuple[str, Any]]:
    """(qualified name, buffer), each once."""
    return _tensors(root, "_buffers")


def gradient(tensor: Any) -> Any | None:
    """Return the gradient that backward has left at a parameter. For a tensor in a parameter's place that was computed
    (a clone that is adapted) torch says in a warning that there is none."""
    return tensor.grad if tensor.is_leaf or tensor.retains_grad else None


def is_training(module: Any) -> bool:
    """Say whether a module is in train() mode."""
    return bool(_own(module).get("training", True))


def takes_length_first(root: Any) -> bool:
    """Whether it or a part of it (a recurrence, an attention) has batch_first=False, torch's default."""
    return any(_own(module).get("batch_first") is False for _, module in modules(root))


def original(module: Any) -> Any | None:
    """The module that torch.compile wrapped in this one, or None."""
    return next((part for name, part in items(module, "_modules") if name == "_orig_mod"), None)


def is_compiled(module: Any) -> bool:
    """Whether it is such a wrapper, or compiles its own calls."""
    return original(module) is not None or _own(module).get("_compiled_call_impl") is not None


def num_hooks(root: Any) -> int:
    """Count the hooks on a module and all below it."""
    kinds = [f"_{kind}hooks" for kind in ("forward_", "forward_pre_", "backward_", "backward_pre_")]
    return sum(len(_own(module).get(kind) or ()) for _, module in modules(root) for kind in kinds)


def _tensors(root: Any, kind: str) -> Iterator[tuple[str, Any]]:
    seen: set[int] = set()
    for prefix, module in modules(root):
        for name, tensor in items(module, kind):
            if tensor is not None and id(tensor) not in seen:
                seen.add(id(tensor))
                yield f"{prefix}.{name}" if prefix else name, tensor


def items(module: Any, kind: str) -> list[tuple[str, Any]]:
    """(name, what it is) of a module's own `_modules`, `_parameters` or `_buffers`; what was set to None is there."""
    found = _own(module).get(kind)
    return list(found.items()) if found is not None else []  # a ScriptModule's are torch's own wrappers


def _own(module: Any) -> dict[str, Any]:
    found: dict[str, Any] = object.__getattribute__(module, "__dict__")
    return found


_INPUTS = 3
"""Position, among the arguments that torch.autograd hands to its engine, of the tensors to lead to; none: all
leaves."""


class Targets:
    """Does a backward pass lead to weights, or to what a model was given alone (attribution, an attack, a dream)? Looks
    at passes of a program that no optimizer updates. `alive` gives the modules that it calls."""

    def __init__(self, alive: Callable[[], list[tuple[int, Any]]]) -> None:
        self._alive = alive
        self._num_modules = -1
        self._shapes: set[tuple[int, ...]] = set()
        self._frozen = False

    def are_inputs(self, engine: FrameType, num_modules: int) -> bool:
        """Whether the pass that this frame of torch's starts leads to no weight of a model. What has the shape of a
        weight may stand for it in a functional call; inside a transform nothing is known."""
        import torch

        if is_functional():
            return False
        if num_modules != self._num_modules:
            self._num_modules = num_modules
            with unseen():
                weights = [weight for _, module in self._alive() for _, weight in parameters(module)]
                self._shapes = {tuple(weight.shape) for weight in weights}
                self._frozen = bool(weights) and not any(weight.requires_grad for weight in weights)
        given = variables(engine).get("args", ())
        inputs = given[_INPUTS] if len(given) > _INPUTS else ()
        if not self._shapes or not inputs:
            return self._frozen
        with unseen():
            tensors = [each for each in inputs if isinstance(each, torch.Tensor)]
            return len(tensors) == len(inputs) and not any(
                isinstance(each, torch.nn.Parameter) or tuple(each.shape) in self._shapes for each in tensors
            )
