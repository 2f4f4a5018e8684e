"""All rows of a batch from tensors in memory at once, instead of one by one and stacked again."""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.data import Subset, TensorDataset, default_collate, default_convert
from torch.utils.data._utils.fetch import _MapDatasetFetcher as Fetcher

from gobrrr.remedies.loader.source_writes import tree_of
from gobrrr.remedies.mechanism.seams import Seams

KNOWN = {"skorch.dataset.Dataset": ("X", "y")}
"""Classes that index with what they are given, an array too, and where they keep their arrays."""
PLAIN = (ast.Name, ast.Attribute, ast.Subscript, ast.Tuple, ast.Dict, ast.Load, ast.Store, ast.Assign, ast.Return)


def fetch_whole(name: str, seams: Seams) -> None:
    """Let fetchers take rows whole where they can, for the remedy of this name."""
    plain: Any = Fetcher.fetch
    said, declined = (functools.partial(say, name) for say in (seams.applied, seams.declined))

    def fetch(fetcher: Any, indices: Any) -> Any:
        collate, data = fetcher.collate_fn, fetcher.dataset
        ours = isinstance(collate, Collate) and collate.data is data and fetcher.auto_collation
        return collate(Rows(data, indices)) if ours and collate.may_take_many() else plain(fetcher, indices)

    def change(given: dict[str, Any]) -> dict[str, Any]:
        of_another = isinstance(given.get("collate_fn"), Collate)  # loader, of whose data set it knows
        kwargs = {**given, "collate_fn": default_collate} if of_another else given
        if why_not := _why_not(kwargs):
            declined(why_not)
            return kwargs
        if kwargs.get("num_workers"):  # they cannot tell
            said("in the loader's workers")
        return {**kwargs, "collate_fn": Collate(kwargs["dataset"], said, declined)}

    seams.replace(Fetcher, "fetch", fetch)
    seams.at_loader(change)


def _why_not(kwargs: dict[str, Any]) -> str:
    """Say why not for a loader with these arguments; empty where its rows can be taken whole."""
    if kwargs.get("collate_fn") not in (None, default_collate):
        return "the loader has a collate function of its own"
    if kwargs.get("batch_sampler") is None and kwargs.get("batch_size", 1) is None:
        return "the loader makes no batches of samples by index"
    data = kwargs.get("dataset")
    if takes_many(data):
        return ""
    while type(data) is Subset:
        data = data.dataset
    return f"its data set (a {type(data).__name__}) may do more than index arrays in memory"


class Rows(Sequence[Any]):
    """The samples of some indices: one by one, or whole."""

    def __init__(self, data: Any, indices: Sequence[Any]) -> None:
        self._data, self._indices = data, indices

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, place: Any) -> Any:
        return self._data[self._indices[place]]

    def whole(self) -> Any:
        """Return all at once, as a batch: by an array of indices, which is three to ten times as fast as a list of
        them. What is given out twice is stacked twice, and has memory of its own each time."""
        data: Any = self._data
        indices = list(self._indices)
        while type(data) is Subset:
            data, indices = data.dataset, [data.indices[each] for each in indices]
        met = set[int]()

        def apart(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            place = leaf.untyped_storage().data_ptr()
            own = leaf.clone() if place in met else leaf
            met.add(place)
            return own.reshape(-1).view(own.shape)  # rows of a transposed column would lie as it does

        return tree_map(apart, default_convert(data[np.asarray(indices)]))  # type: ignore[no-untyped-call]


class Collate:
    """torch's collate function, which takes promised rows of one data set whole once that was seen to be the same.
    Workers that are not forked get it pickled, and who is told lives here."""

    _same: bool | None = None

    def __init__(self, data: Any, told: Callable[[str], object], declined: Callable[[str], object]) -> None:
        self.data, self._told, self._declined = data, told, declined

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_told": str, "_declined": str}  # which tell nobody

    def may_take_many(self) -> bool:
        """Whether the data set is still one of which rows can be taken whole, and they were the same so far."""
        if self._same is not False and not takes_many(self.data):
            self._same = False
            self._declined("its data set has become another")
        return self._same is not False

    def __call__(self, samples: Any) -> Any:
        if not isinstance(samples, Rows):
            return default_collate(samples)
        if self._same:
            return samples.whole()
        batch = default_collate(list(samples))
        if self._same is None:
            self._same = _equal(batch, samples)
            if self._same:
                self._told(f"{len(samples)} rows in one")
            else:
                self._declined("a batch that was taken whole was not the same bit for bit")
        return batch


def takes_many(data: Any) -> bool:
    """Whether indexing it with an array of indices must give what its rows are, stacked."""
    while type(data) is Subset:
        data = data.dataset
    kind = type(data)
    if hasattr(kind, "__getitems__"):
        return False
    method, known = getattr(kind, "__getitem__", None), KNOWN.get(f"{kind.__module__}.{kind.__qualname__}")
    own = method is TensorDataset.__getitem__
    columns = list(data.tensors) if own else attributes(data, known or indexed(method))
    return bool(columns) and all(map(_is_array, columns))


def indexed(method: Any) -> tuple[str, ...]:
    """Attributes that a __getitem__ indexes with what it is given, where it does nothing else; else none. What runs is
    read: a decorator's own function, not what that says it wraps."""
    code = getattr(method, "__code__", None)
    return _indexed(code) if code is not None else ()


@functools.lru_cache(maxsize=64)
def _indexed(code: CodeType) -> tuple[str, ...]:
    function = tree_of(code)
    if function is None or function.decorator_list or len(function.args.args) != 2:
        return ()
    me, index = (each.arg for each in function.args.args)
    body = function.body[1:] if ast.get_docstring(function) else function.body
    nodes = [each for statement in body for each in ast.walk(statement)]
    columns = [each for each in nodes if isinstance(each, ast.Attribute)]
    picks = [each for each in nodes if isinstance(each, ast.Subscript)]
    others = [each for each in nodes if not isinstance(each, PLAIN)]
    only = (
        all(isinstance(each.value, ast.Name) and each.value.id == me for each in columns)
        and all(isinstance(each.slice, ast.Name) and each.slice.id == index for each in picks)
        and {id(each.value) for each in picks} == {id(each) for each in columns}
        and all(isinstance(each, ast.Constant) and isinstance(each.value, str) for each in others)
    )
    return tuple(each.attr for each in columns) if only else ()


def attributes(data: Any, names: Sequence[str]) -> list[Any]:
    """Return the named attributes that the object itself holds; None for one that a property makes."""
    own, kind = getattr(data, "__dict__", {}), type(data)
    made = {name for name in names if hasattr(type(inspect.getattr_static(kind, name, None)), "__set__")}
    return [None if name in made else own.get(name) for name in names]


def _is_array(column: Any) -> bool:
    if type(column) in (torch.Tensor, torch.nn.Parameter):  # a subclass may index in a way of its own
        return bool(column.layout == torch.strided and column.dim() > 0)
    return type(column) is np.ndarray and column.ndim > 0 and column.dtype.kind in "fiub"


def _equal(batch: Any, rows: Rows) -> bool:
    """Bit for bit, in the same nest of lists and mappings."""
    try:
        (ours, shape), (whole, other) = tree_flatten(batch), tree_flatten(rows.whole())
        return shape == other and all(
            isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and _same_bits(a, b)
            for a, b in zip(ours, whole, strict=True)
        )
    except (TypeError, ValueError, IndexError, KeyError, RuntimeError):
        return False


def _same_bits(a: Any, b: Any) -> bool:
    """A missing value is the same as itself."""

    def bits(tensor: Any) -> Any:
        """Flat: torch shows no bytes of what has no dimension, nor where one of a single element has an odd stride."""
        return tensor.clone(memory_format=torch.contiguous_format).reshape(-1).view(torch.uint8)

    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(bits(a), bits(b))
