"""Contents of a module, read without calling a method of the program's.

A program may override named_parameters, __getattr__, __hash__ and the like, and an override may draw random numbers,
count, or print: so a module's own dictionaries are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


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
        below = [(f"{name}.{part}" if name else part, child) for part, child in _items(module, "_modules")]
        waiting.extend(reversed(below))


def parameters(root: Any) -> Iterator[tuple[str, Any]]:
    """(qualified name, parameter), each once."""
    return _tensors(root, "_parameters")


def is_bare(root: Any) -> bool:
    """Whether it has no parameter; a scripted module does not say."""
    return "_parameters" in _own(root) and next(parameters(root), None) is None


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
    return next((part for name, part in _items(module, "_modules") if name == "_orig_mod"), None)


def is_compiled(module: Any) -> bool:
    """Whether it is such a wrapper, or compiles its own calls."""
    return original(module) is not None or _own(module).get("_compiled_call_impl") is not None


def _tensors(root: Any, kind: str) -> Iterator[tuple[str, Any]]:
    seen: set[int] = set()
    for prefix, module in modules(root):
        for name, tensor in _items(module, kind):
            if tensor is not None and id(tensor) not in seen:
                seen.add(id(tensor))
                yield f"{prefix}.{name}" if prefix else name, tensor


def _items(module: Any, kind: str) -> list[tuple[str, Any]]:
    found = _own(module).get(kind)
    return list(found.items()) if found is not None else []  # a ScriptModule's are torch's own wrappers


def _own(module: Any) -> dict[str, Any]:
    found: dict[str, Any] = object.__getattribute__(module, "__dict__")
    return found
