"""Facts of a DataLoader, read from its iterator, once per iterator."""

from __future__ import annotations

import dis
import math
from collections.abc import Iterable
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any

from gobrrr.capture.facts.data_formats import source_facts
from gobrrr.capture.hooks.transform_guard import is_traced
from gobrrr.capture.source.user_lines import defined, user_line


def loader_facts(iterator: Any, frame: Any) -> dict[str, Any]:
    """Facts in the shape of recording.facts.LoaderFacts, from a loader iterator and the frame of its `__next__`."""
    from torch.utils.data.dataloader import _DatasetKind

    dataset = getattr(iterator, "_dataset", None)
    collate = getattr(iterator, "_collate_fn", None)
    sampler = getattr(iterator, "_index_sampler", None)
    length = _length(dataset)
    return {
        "key": [id(dataset), id(collate), getattr(iterator, "_num_workers", 0)],
        "num_workers": getattr(iterator, "_num_workers", 0),
        "batch_size": getattr(sampler, "batch_size", None),
        "persistent_workers": bool(getattr(iterator, "_persistent_workers", False)),
        "pin_memory": bool(getattr(iterator, "_pin_memory", False)),
        "prefetch_factor": getattr(iterator, "_prefetch_factor", None),
        "dataset": type(dataset).__name__,
        "dataset_span": defined(
            getattr(type(dataset), "__getitem__", None) or getattr(type(dataset), "__iter__", None)
        ),
        "in_memory": _in_memory(dataset, length),
        "one_by_one": bool(getattr(iterator, "_auto_collation", True)) and not _takes_batches(dataset),
        "length": length,
        "stream": getattr(iterator, "_dataset_kind", _DatasetKind.Map) == _DatasetKind.Iterable,
        "source": source_facts(dataset),
        "collate": _name(collate),
        "collate_span": defined(collate),
        "created_span": user_line(frame),
    }


def _name(function: Any) -> str:
    """Return the name of a function, or of an object's class: an attribute of the object may be anything, and raise
    anything."""
    plain = isinstance(function, FunctionType | BuiltinFunctionType | MethodType | type)
    return str(function.__qualname__) if plain else type(function).__name__


def until_second_epoch(loaders: Iterable[dict[str, Any]], steps: int) -> float:
    """Steps until a loader begins anew that gives each step a batch, by its length: of those without workers whose
    first epoch this is. Infinite where there is none, or it should have begun by now."""
    seen = [tuple(facts["key"]) for facts in loaders]
    first = [facts for facts in loaders if seen.count(tuple(facts["key"])) == 1 and not facts["num_workers"]]
    known = [facts["length"] / facts["batch_size"] for facts in first if facts["length"] and facts["batch_size"]]
    left = max(known, default=0.0) - steps
    return left if left >= -1 else math.inf


def _takes_batches(dataset: Any) -> bool:
    """Has `__getitems__`; a Subset has what its dataset has."""
    from torch.utils.data import Subset

    while type(dataset) is Subset:
        dataset = dataset.dataset
    return bool(getattr(type(dataset), "__getitems__", None))


def _in_memory(dataset: Any, length: int | None) -> bool:
    """A TensorDataset, or a dataset that holds a tensor or array as long as itself."""
    import torch
    from torch.utils.data import Subset, TensorDataset

    while isinstance(dataset, Subset):
        dataset, length = dataset.dataset, _length(dataset.dataset)
    if isinstance(dataset, TensorDataset):
        return True
    if length is None:
        return False
    held = vars(dataset).values() if hasattr(dataset, "__dict__") else ()
    arrays = [v for v in held if isinstance(v, torch.Tensor) or type(v).__module__ == "numpy"]
    return any(getattr(array, "ndim", 0) > 0 and len(array) == length for array in arrays)


def _length(dataset: Any) -> int | None:
    """len(), unless the user's `__len__` might do more than look something up, or calls are counted: it is called more
    often than plainly."""
    if is_traced():
        return None
    method = getattr(type(dataset), "__len__", None)
    code = getattr(method, "__code__", None)
    if method is None or code is None or type(dataset).__module__.startswith("torch.utils.data.datapipes"):
        return None
    if not method.__module__.startswith("torch.") and not _only_looks(code, method.__globals__):
        return None
    try:
        return len(dataset)
    except Exception:  # a user's __len__ may do anything; its failure is not ours to show
        return None


_DOES_MORE = (
    "STORE_", "DELETE_", "IMPORT_", "YIELD_", "GET_", "FOR_", "LOAD_METHOD", "MAKE_", "RAISE_", "WITH_", "SETUP_",
)  # fmt: skip
_LOOKING = {"len", "int", "min", "max", "sum"}


def _only_looks(code: CodeType, names: dict[str, Any]) -> bool:
    """Whether a function calls nothing but a few builtins and changes nothing."""
    for step in dis.get_instructions(code):
        if step.opname.startswith(_DOES_MORE) or "NULL|self" in step.argrepr:
            return False
        if step.opname == "LOAD_GLOBAL" and step.argval not in _LOOKING and type(names.get(step.argval)) is not int:
            return False
    return True
