"""Facts of a DataLoader, read once per iterator, and of the library that its samples come from: read off the objects,
nothing of which is run but the library's own count of shards."""

from __future__ import annotations

import dis
import math
import os
from collections.abc import Iterable
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any

from gobrrr.capture.hooks.transform_guard import is_traced
from gobrrr.capture.source.user_code import defined, user_line


def loader_facts(iterator: Any, frame: Any) -> dict[str, Any]:
    """Facts in the shape of recording.facts.LoaderFacts, from a loader iterator and the frame of its `__next__`."""
    from torch.utils.data.dataloader import _DatasetKind

    dataset = getattr(iterator, "_dataset", None)
    collate = getattr(iterator, "_collate_fn", None)
    sampler = getattr(iterator, "_index_sampler", None)
    length, stream = _length(dataset), getattr(iterator, "_dataset_kind", _DatasetKind.Map) == _DatasetKind.Iterable
    return {
        "key": [id(dataset), id(collate), getattr(iterator, "_num_workers", 0)],
        "num_workers": getattr(iterator, "_num_workers", 0),
        "batch_size": getattr(sampler, "batch_size", None),
        "persistent_workers": bool(getattr(iterator, "_persistent_workers", False)),
        "pin_memory": bool(getattr(iterator, "_pin_memory", False)),
        "prefetch_factor": getattr(iterator, "_prefetch_factor", None),
        "dataset": type(dataset).__name__,
        "dataset_span": defined(getattr(type(dataset), "__iter__" if stream else "__getitem__", None)),
        "in_memory": _in_memory(dataset, length),
        "one_by_one": bool(getattr(iterator, "_auto_collation", True)) and not _takes_batches(dataset),
        "length": length,
        "stream": stream,
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


KINDS = {
    ("datasets.iterable_dataset", "IterableDataset"): "datasets stream",
    ("datasets.arrow_dataset", "Dataset"): "datasets",
    ("webdataset.pipeline", "DataPipeline"): "webdataset",
    ("streaming.base.dataset", "StreamingDataset"): "streaming",
}
"""By the class that a library itself defines: folders called datasets or streaming many a program has of its own."""
DEEP = 8
"""Wrappers that are looked through; proposed: ends a circle; deeper ones of real programs would settle it."""


def source_facts(dataset: Any) -> dict[str, Any] | None:
    """Facts in the shape of recording.facts.SourceFacts; None for a data set of no known library."""
    found, wrapped = _inside(dataset)
    if not (kind := _kind(found)):
        return None
    try:
        return {"kind": kind, "wrapped": wrapped, **_READ[kind](found)}
    except Exception:  # what a library keeps where is its own business, and changes
        return None


def _inside(dataset: Any) -> tuple[Any, bool]:
    """Return the known library's data set inside wrappers, and whether one of these was none of torch's: its
    `__getitem__` may be one sample's."""
    from torch.utils.data import Subset

    wrapped = False
    for _ in range(DEEP):
        if _kind(dataset):
            break
        held = _variables(dataset)
        known = [each for each in held.values() if _kind(each)]
        inner = known[0] if len(known) == 1 else held.get("dataset")
        if inner is None:
            break
        wrapped = wrapped or type(dataset) is not Subset
        dataset = inner
    return dataset, wrapped


def _kind(dataset: Any) -> str:
    """Return the known kind of a data set, by its class, not by `isinstance`, which asks the object."""
    for owner in type(dataset).__mro__:
        if found := KINDS.get((owner.__module__, owner.__name__)):
            return found
    return ""


def _variables(thing: Any) -> dict[str, Any]:
    """An object's own, without asking it: its `__getattr__` is the program's."""
    try:
        held = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return {}
    return held if type(held) is dict else {}


def _of_stream(dataset: Any) -> dict[str, Any]:
    form = _variables(_variables(dataset).get("_formatting")).get("format_type")
    return {"shares": True, "shards": _counted(dataset), "format": _word(form)}


def _counted(dataset: Any) -> int | None:
    """Return the number of shards by the library's own property, never one of a class that the program derives; none
    where calls are counted."""
    if is_traced():
        return None
    for owner in type(dataset).__mro__:
        for name in ("num_shards", "n_shards"):
            count = vars(owner).get(name)
            if isinstance(count, property) and owner.__module__ == "datasets.iterable_dataset":
                return _whole(count.__get__(dataset))
    return None


def _of_table(dataset: Any) -> dict[str, Any]:
    held = _variables(dataset)
    features = _variables(held.get("_info")).get("features")
    columns = dict.values(features) if isinstance(features, dict) else ()
    return {"format": _word(held.get("_format_type")), "numbers": any(map(_is_numbers, columns))}


def _is_numbers(column: Any) -> bool:
    """A list of numbers, or of lists of them: Sequence, List or an array of the library."""
    inner, depth = column, 0
    while "feature" in (held := _variables(inner)) and depth < DEEP:
        inner, depth = held["feature"], depth + 1
    array = type(column).__name__.startswith("Array")
    return (depth > 0 or array) and _word(held.get("dtype")).startswith(("int", "uint", "float", "bool"))


def _of_pipeline(dataset: Any) -> dict[str, Any]:
    """Return the facts of a pipeline: its first stage lists the shards; a splitter among the next gives each worker its
    own of them."""
    stages = _variables(dataset).get("pipeline") or [None]
    urls = stages[0] if type(stages[0]) is list else _variables(stages[0]).get("urls")
    functions = [each if type(each) is FunctionType else _variables(each).get("f") for each in stages]
    names = {each.__name__ for each in functions if type(each) is FunctionType}
    draws = type(stages[0]).__name__.startswith("Resampled")  # each worker goes on drawing shards: none runs out
    said = os.environ.get("WORLD_SIZE", "1") if "split_by_node" in names else "1"
    ranks = max(1, int(said)) if said.isascii() and said.isdecimal() else 1
    listed = _whole(len(urls) // ranks) if type(urls) is list and not draws else None
    return {"shares": draws or "split_by_worker" in names, "shards": listed, "batched": "_batched" in names}


def _of_samples(dataset: Any) -> dict[str, Any]:
    held = _variables(dataset)
    streams, kept = held.get("streams"), _whole(held.get("cache_limit"))
    remote = [_variables(each).get("remote") for each in streams] if isinstance(streams, list) else []
    largest, shards = held.get("max_shard_size_across_all_streams", 0), held.get("num_shards", 0)
    return {
        "shares": True,
        "batch_size": _whole(held.get("batch_size")),
        "predownload": _whole(held.get("predownload")),
        "remote": any(type(each) is str for each in remote),
        "evicts": bool(kept and held.get("shuffle") is True and kept < int(largest) * int(shards)),
    }


def _whole(number: Any) -> int | None:
    """Return a number as a recording takes it."""
    return number if type(number) is int and 0 <= number <= 1 << 40 else None


def _word(text: Any) -> str:
    return text if type(text) is str else ""


_READ = {"datasets stream": _of_stream, "datasets": _of_table, "webdataset": _of_pipeline, "streaming": _of_samples}
