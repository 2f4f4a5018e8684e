"""What loader workers have a copy of, told apart cheaply: has the program changed it since they were made?

Only what is worth a look between two epochs: plain values and generators by value; containers, objects, classes and
functions (with what they close over and which globals they name) by what they hold; arrays and tensors by sums of their
bytes, a second for some 10 GB. What is too much to be looked at counts as changed.
"""

from __future__ import annotations

import contextlib
import functools
import marshal
import math
import pickle
import random
import types
import weakref
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from gobrrr.remedies.seams import Seams

PLAIN = (type(None), bool, int, float, complex, str, bytes, Enum)
DEEP = 6
"""Loader, Subset, data set, transform, its list, one of them: that one's own values are still seen."""
MOST, LONG = 5_000, 100
"""Things that are looked at in all, and entries of a container that is entered; of longer ones a sum."""
BYTES = 1 << 30
"""Of arrays, in all: a tenth of a second, about what it costs to start workers."""
STRANGERS = ("builtins", "typing", "abc", "collections", "torch")
"""Modules whose classes and functions change nothing by themselves."""


class TooMuch(Exception):
    """More than can be looked at between two epochs."""


class CopiedState:
    """A look at some objects; `is_still` says whether a later one found the same. Raises TooMuch."""

    def __init__(self, things: Iterable[Any]) -> None:
        self._alive: list[weakref.ref[Any]] = []
        self._met: set[int] = set()
        self._bytes = 0
        self._marks = tuple(self._mark(thing, DEEP) for thing in things)

    def is_still(self, later: CopiedState) -> bool:
        """An object that died may have left its address to another."""
        return self._marks == later._marks and all(ref() is not None for ref in self._alive)

    def _mark(self, thing: Any, deep: int) -> Any:
        if isinstance(thing, PLAIN):
            return type(thing), repr(thing) if isinstance(thing, float | complex) else thing
        if isinstance(thing, list | tuple | set | frozenset | dict | deque):
            return self._container(thing, deep)
        if (own := self._own_value(thing)) is not None:
            return self._who(thing), own
        if not deep or id(thing) in self._met:
            return self._who(thing)
        self._meet(thing)
        return self._who(thing), tuple(self._mark(each, deep - 1) for each in parts(thing))

    def _container(self, thing: Any, deep: int) -> Any:
        """One that is made anew with the same entries is the same."""
        if not deep or id(thing) in self._met:
            return self._who(thing), len(thing)
        self._meet(thing)
        if len(thing) > LONG:
            return type(thing), _sum_of_plain(thing)
        entries = (*thing.keys(), *thing.values()) if isinstance(thing, dict) else thing
        marks = [self._mark(each, deep - 1) for each in entries]
        return type(thing), frozenset(marks) if isinstance(thing, set | frozenset) else tuple(marks)

    def _own_value(self, thing: Any) -> Any:
        """Of arrays, tensors and generators; null for what is looked into."""
        import numpy as np
        import torch

        if isinstance(thing, torch.Tensor):
            if thing.layout != torch.strided or thing.device.type != "cpu":
                return tuple(thing.shape), str(thing.dtype), None if thing.is_inference() else thing._version
            self._read(thing.nbytes)
            flat = thing.detach().as_subclass(torch.Tensor).resolve_conj().resolve_neg().reshape(-1)
            return tuple(thing.shape), str(thing.dtype), _sum(flat.contiguous().view(torch.uint8).numpy())
        if isinstance(thing, np.memmap):
            return thing.shape, str(thing.dtype)  # the file's, and workers read the same one
        if isinstance(thing, np.ndarray):
            self._read(thing.nbytes)
            values = _sum_of_plain(thing.tolist()) if thing.dtype.hasobject else _sum(thing)
            return thing.shape, str(thing.dtype), values
        if isinstance(thing, torch.Generator):
            return bytes(thing.get_state().cpu().numpy().tobytes())
        if isinstance(thing, np.random.Generator | np.random.RandomState) or type(thing) is random.Random:
            return pickle.dumps(thing)
        return None

    def _read(self, num_bytes: int) -> None:
        self._bytes += num_bytes
        if self._bytes > BYTES:
            raise TooMuch

    def _meet(self, thing: Any) -> None:
        self._met.add(id(thing))
        if len(self._met) > MOST:
            raise TooMuch

    def _who(self, thing: Any) -> int:
        with contextlib.suppress(TypeError):  # a list, say
            self._alive.append(weakref.ref(thing))
        return id(thing)


def _sum(array: Any) -> int:
    """Of sums of 4 KiB each, in which every 8 bytes have a weight of their own: what changes places changes it."""
    import numpy as np

    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    whole = flat.size // 4096 * 4096
    sums = np.einsum("ij,j->i", flat[:whole].view(np.uint64).reshape(-1, 512), _weights())
    return zlib.crc32(flat[whole:].tobytes(), zlib.crc32(sums.tobytes()))


@functools.cache
def _weights() -> Any:
    """512 numbers of splitmix64 (Steele et al. 2014), odd, so that no single change is lost."""
    import numpy as np

    found = np.arange(1, 513, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        found = (found ^ (found >> np.uint64(shift))) * np.uint64(factor)
    return (found ^ (found >> np.uint64(31))) | np.uint64(1)


def _sum_of_plain(long: Any) -> int:
    """Of a long container of plain values, lists and dicts; others are TooMuch."""
    try:
        return zlib.crc32(marshal.dumps(long, 2))  # from 3 on it tells who is referred to twice
    except ValueError:
        raise TooMuch from None


def parts(thing: Any) -> Iterator[Any]:
    """What it holds, or what a call of it looks up."""
    if isinstance(thing, types.ModuleType):
        return
    if isinstance(thing, type):
        yield from _of_class(thing)
        return
    if isinstance(thing, types.MethodType):
        yield from (thing.__self__, thing.__func__)
    elif isinstance(thing, functools.partial):
        yield from (thing.func, thing.args, thing.keywords)
    elif isinstance(thing, types.FunctionType):
        yield from _of_function(thing)
    else:
        yield type(thing)
    yield from _slots(thing)
    own = getattr(thing, "__dict__", {})
    yield from (*own.keys(), *own.values())


def _of_class(kind: type) -> Iterator[Any]:
    for each in kind.__mro__:
        if not _is_strange(each):
            yield from (v for v in vars(each).values() if isinstance(v, (*PLAIN, list, dict, types.FunctionType)))


def _of_function(function: types.FunctionType) -> Iterator[Any]:
    if _is_strange(function):
        return
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # not filled yet
            yield cell.cell_contents
    yield from (function.__defaults__, function.__kwdefaults__)
    names = sorted(_names(function.__code__))
    named = [function.__globals__[name] for name in names if name in function.__globals__]
    yield from named
    modules = [each for each in named if isinstance(each, types.ModuleType)]
    yield from (value for m in modules for name in names if isinstance(value := vars(m).get(name), PLAIN))


def _names(code: types.CodeType) -> set[str]:
    """Also those of functions and comprehensions inside."""
    inside = (each for each in code.co_consts if isinstance(each, types.CodeType))
    return set(code.co_names).union(*map(_names, inside))


def _slots(thing: Any) -> Iterator[Any]:
    for kind in type(thing).__mro__:
        names = vars(kind).get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            yield None if name == "__weakref__" else getattr(thing, name, None)  # our own look makes one


def _is_strange(thing: Any) -> bool:
    return str(getattr(thing, "__module__", "")).partition(".")[0] in STRANGERS


class Renewed(int):
    """A true `persistent_workers` whose workers are made anew where what they have copies of has changed, or is TooMuch
    to tell. It outlives a trainer that makes a loader like another. Without the look that it needs it is false."""

    looked_at: ClassVar[bool] = False
    alone = False
    """Whether the program asks for no workers: then it may do without them."""

    def __bool__(self) -> bool:
        return self.looked_at


class Epoch:
    """What a loop holds of an iterator whose workers stay: once it is over it stays so, whatever they serve then."""

    def __init__(self, iterator: Any) -> None:
        self._iterator, self._over = iterator, False

    def __iter__(self) -> Epoch:
        return self

    def __next__(self) -> Any:
        if self._over:
            raise StopIteration
        try:
            return next(self._iterator)
        except StopIteration:
            self._over = True
            raise

    def __len__(self) -> int:
        return len(self._iterator)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._iterator, name)

    def is_amid(self) -> bool:
        """Whether batches are still to come. It is over where only the end is, which a trainer that counts never
        asks for. Of a stream workers say when that is."""
        from torch.utils.data.dataloader import _DatasetKind

        given = "_num_yielded" if self._dataset_kind == _DatasetKind.Map else "_rcvd_idx"
        left = getattr(self._iterator, "_send_idx", math.inf) - getattr(self._iterator, given, 0)  # replayed: unknown
        self._over = self._over or left <= 0
        return not self._over


def renew_workers(seams: Seams) -> None:
    """Loaders whose `persistent_workers` are Renewed look at what workers copied, each time they are iterated over."""
    import torch
    from torch.utils.data import DataLoader

    if Renewed.looked_at:
        return  # another remedy has them look
    plain: Any = DataLoader.__iter__

    @functools.wraps(plain)
    def __iter__(self: Any) -> Any:
        if not isinstance(getattr(self, "persistent_workers", False), Renewed):
            return plain(self)
        now, before = _look(self), getattr(self._iterator, "_gobrrr_copied", None)
        stay = now is not None and before is not None and before.is_still(now) and _is_free(self._iterator)
        if stay:  # as workers that are made anew draw their seed: who draws next, a sampler say, gets what it would get
            torch.empty((), dtype=torch.int64).random_(generator=self.generator)
        else:
            self._iterator = None  # its workers end with it, once nobody iterates over it
            if self.persistent_workers.alone and _has_opened(self):
                return _without_workers(self, plain)
        iterator = plain(self)
        if not stay:
            iterator._gobrrr_copied = now
        epoch = Epoch(iterator)
        iterator._gobrrr_epoch = weakref.ref(epoch)
        return epoch

    Renewed.looked_at = True
    seams.undo(lambda: setattr(Renewed, "looked_at", False))
    seams.replace(DataLoader, "__iter__", __iter__)


def _look(loader: Any) -> CopiedState | None:
    """Samplers stay in the program's process: what they are told between epochs workers need not know."""
    try:
        return CopiedState((loader.dataset, loader.collate_fn, loader.worker_init_fn))
    except Exception:  # the program's own objects, asked in a way that they did not foresee
        return None


def _is_free(iterator: Any) -> bool:
    """Whether an iterator may begin anew: nobody iterates over it still, as a loop around this one does. A loop that
    was left has let go of it."""
    epoch = iterator._gobrrr_epoch()
    return epoch is None or not epoch.is_amid()


def _has_opened(loader: Any) -> bool:
    """Whether a file is open by now of which workers that are forked would share the position: the program has fetched
    a sample itself, say."""
    from gobrrr.remedies.reached import reached, shared_file

    return bool(shared_file(reached((loader.dataset, loader.collate_fn))))


def _without_workers(loader: Any, plain: Any) -> Any:
    workers, loader.num_workers = loader.num_workers, 0
    try:
        return plain(loader)
    finally:
        loader.num_workers = workers
