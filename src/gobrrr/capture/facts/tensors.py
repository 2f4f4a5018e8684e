"""Tensors in what the program passes on, read without running its code: which they are, and how they are padded."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Iterator
from itertools import islice
from typing import Any

MIN_PADDED_LENGTH = 8  # tokens; proposed: shorter rows pad little; padded programs with shorter rows would settle it


def is_plain(tensor: Any) -> bool:
    """Say whether a tensor is one of torch's own with a storage and one shape. Wrappers of others (fake, distributed,
    of torch.func) have no storage, nested ones no shape."""
    import torch

    stands_for_others = torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    kind = type(tensor)
    own = kind.__module__.startswith("torch") and kind.__torch_dispatch__ is torch.Tensor.__torch_dispatch__
    return not stands_for_others and own and tensor.layout == torch.strided and not tensor.is_nested


def version(tensor: Any) -> int:
    """Return how often a tensor was written in place; inference tensors do not count that."""
    return 0 if tensor.is_inference() else int(tensor._version)


def some_of(tensor: Any, most: int) -> Any:
    """Return some `most` elements of a tensor's storage, spread over it, flat and on its device. Raises RuntimeError or
    TypeError where it cannot be read."""
    import torch

    with torch.no_grad():
        flat = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(tensor.untyped_storage())
        return flat[:: max(1, flat.numel() // most)]


def some_bytes(tensor: Any, most: int) -> bytes:
    """Return the bytes of `some_of` a tensor's elements. Raises as it does."""
    return bytes_of(some_of(tensor, most))


def bytes_of(tensor: Any) -> bytes:
    """Return the bytes of a plain tensor's elements. tensor.numpy() would make its storage one that can never be
    resized again, and FSDP resizes those of parameters."""
    import numpy
    import torch

    return numpy.from_dlpack(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)).tobytes()


def tensors_in(value: Any, depth: int = 0) -> Iterator[Any]:
    """The tensors in containers, the first sixteen of each, four deep."""
    import torch

    kind = type(value)  # not isinstance, which asks the object: a lazy proxy would load what it stands for
    if issubclass(kind, torch.Tensor):
        yield value
    elif depth < 4 and issubclass(kind, UserDict):  # what tokenizers of transformers give
        yield from tensors_in(object.__getattribute__(value, "__dict__").get("data"), depth)
    elif depth < 4 and issubclass(kind, (list, tuple, dict)):
        for item in islice(_items(value, kind), 16):
            yield from tensors_in(item, depth + 1)


def _items(value: Any, kind: type) -> Iterator[Any]:
    """Return an iterator of a container's items, by the methods of list, tuple or dict themselves: a subclass's own may
    do anything."""
    if issubclass(kind, dict):
        return iter(dict.values(value))
    return list.__iter__(value) if issubclass(kind, list) else tuple.__iter__(value)


def describe(tensor: Any) -> dict[str, Any]:
    """Shape, dtype, bytes and padding of an input, in the shape of recording.facts.InputFacts."""
    return {
        "shape": list(tensor.shape),
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "num_bytes": tensor.numel() * tensor.element_size(),
        **_padding(tensor),
    }


def _padding(tensor: Any) -> dict[str, Any]:
    """Return the share of a [batch, length] integer tensor that is a trailing run of the value that most rows end with,
    that value, and the length of the longest row without it: what the batch must be padded to.

    A run counts from two equal values on; null where it is not such a tensor, or fewer than half of the rows end in a
    run of one and the same value, or most is that value elsewhere too, or every value is 0 or 1 (a mask).
    """
    found = trailing_runs(tensor)
    if found is None:
        return {"pad_share": None, "pad_value": None, "longest": None}
    runs, value = found
    longest = int(tensor.shape[1] - runs.min())
    if not is_padding(tensor, runs, value):
        return {"pad_share": 0.0, "pad_value": None, "longest": longest}
    return {"pad_share": float(runs.sum()) / tensor.numel(), "pad_value": value, "longest": longest}


def is_padding(tensor: Any, runs: Any, value: float) -> bool:
    """Whether half of the rows end in a run of the value, and it is not most of what comes before: labels of a masked
    language model are -100 wherever nothing is to be guessed, without any padding."""
    run = int(runs.sum())
    return int((runs > 0).sum()) * 2 >= len(runs) and 2 * (int((tensor == value).sum()) - run) <= tensor.numel() - run


def trailing_runs(tensor: Any, value: float | None = None) -> tuple[Any, float] | None:
    """(per row the trailing run of `value`, that value): by default of the one that most rows end with."""
    import torch

    if tensor.dim() != 2 or tensor.is_floating_point() or tensor.is_complex():
        return None
    if not tensor.shape[0] or tensor.shape[1] < MIN_PADDED_LENGTH:
        return None
    with torch.no_grad():
        rows = tensor.detach()
        value = rows[:, -1].mode().values.item() if value is None else value
        if rows.dtype == torch.bool or bool(((rows == 0) | (rows == 1)).all()):
            return None
        runs = (rows == value).flip(1).long().cumprod(1).sum(1)
        return torch.where(runs >= 2, runs, torch.zeros_like(runs)), float(value)
