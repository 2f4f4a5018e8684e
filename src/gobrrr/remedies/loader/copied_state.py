"""What do the objects hold that loader workers have a copy of, and has the program changed it since?

Only what is worth a look between two epochs: plain values and generators by value; containers, objects, classes and
functions (with what they close over and which globals they name) by what they hold; arrays and tensors by sums of their
bytes, a second for some 10 GB. What is too much to be looked at counts as changed. What workers could not have for
themselves is found too: open files and connections, of which forked processes share one position, and iterators, which
have one that no copy moves.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import marshal
import pickle
import random
import types
import weakref
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import filterfalse, islice
from typing import Any

import numpy as np

from gobrrr.data.sample_cache.names import is_installed, named

PLAIN = (type(None), bool, int, float, complex, str, bytes, Enum)
CONTAINERS = (list, tuple, set, frozenset, dict, deque)
DEEP = 6
"""Loader, Subset, data set, transform, its list, one of them: that one's own values are still seen."""
MOST, LONG = 5_000, 100
"""Things that are looked at in all, and entries of a container that is entered; of longer ones a sum, or both ends."""
BYTES = 1 << 30
"""Bytes of arrays looked at, in all: a tenth of a second, about what it costs to start workers."""
HARMLESS = ("builtins", "typing", "abc", "collections", "torch")
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
        """Say whether all is the same and alive; an object that died may have left its address to another."""
        return self._marks == later._marks and all(ref() is not None for ref in self._alive)

    def _mark(self, thing: Any, deep: int) -> Any:
        if isinstance(thing, PLAIN):
            return type(thing), repr(thing) if isinstance(thing, float | complex) else thing
        if isinstance(thing, CONTAINERS):
            return self._container(thing, deep)
        if (own := self._own_value(thing)) is not None:
            return self._who(thing), own
        if not deep or id(thing) in self._met:
            return self._who(thing)
        self._meet(thing)
        return self._who(thing), tuple(self._mark(each, deep - 1) for each in parts(thing))

    def _container(self, thing: Any, deep: int) -> Any:
        """Return a mark that is the same for a container made anew with the same entries."""
        if not deep or id(thing) in self._met:
            return self._who(thing), len(thing)
        self._meet(thing)
        if len(thing) > LONG:
            return type(thing), _sum_of_plain(thing)
        entries = (*thing.keys(), *thing.values()) if isinstance(thing, dict) else thing
        marks = [self._mark(each, deep - 1) for each in entries]
        return type(thing), frozenset(marks) if isinstance(thing, set | frozenset) else tuple(marks)

    def _own_value(self, thing: Any) -> Any:
        """Return the value of an array, a tensor or a generator; None for other things, whose parts are looked at."""
        import torch

        if isinstance(thing, torch.Tensor):
            if thing.layout != torch.strided or thing.device.type != "cpu":
                return tuple(thing.shape), str(thing.dtype), None if thing.is_inference() else thing._version
            self._read(thing.nbytes)
            flat = thing.detach().as_subclass(torch.Tensor).resolve_conj().resolve_neg().reshape(-1)
            return tuple(thing.shape), str(thing.dtype), _sum(np.from_dlpack(flat.contiguous().view(torch.uint8)))
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
    """Return a sum of the bytes, made of sums of 4 KiB each, in which every 8 bytes have a weight of their own: bytes
    that change places change it."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    whole = flat.size // 4096 * 4096
    sums = np.einsum("ij,j->i", flat[:whole].view(np.uint64).reshape(-1, 512), _weights())
    return zlib.crc32(flat[whole:].tobytes(), zlib.crc32(sums.tobytes()))


@functools.cache
def _weights() -> Any:
    """512 numbers of splitmix64 (Steele et al. 2014), odd, so that no single change is lost."""
    found = np.arange(1, 513, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        found = (found ^ (found >> np.uint64(shift))) * np.uint64(factor)
    return (found ^ (found >> np.uint64(31))) | np.uint64(1)


def _sum_of_plain(long: Any) -> int:
    """Return a sum of a long container of plain values, lists and dicts; raise TooMuch for any other."""
    try:
        return zlib.crc32(marshal.dumps(long, 2))  # from 3 on it tells who is referred to twice
    except ValueError:
        raise TooMuch from None


def parts(thing: Any) -> Iterator[Any]:
    """Yield the things that it holds, or that a call of it looks up."""
    if isinstance(thing, types.ModuleType):
        return
    if isinstance(thing, type):
        for each in filterfalse(_is_harmless, thing.__mro__):
            yield from (v for v in vars(each).values() if isinstance(v, (*PLAIN, list, dict, types.FunctionType)))
        return
    if isinstance(thing, types.MethodType):
        yield from (thing.__self__, thing.__func__)
    elif isinstance(thing, functools.partial):
        yield from (thing.func, thing.args, thing.keywords)
    elif isinstance(thing, types.FunctionType):
        yield from _of_function(thing)
    else:
        yield type(thing)
    for kind in type(thing).__mro__:
        names = vars(kind).get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            yield None if name == "__weakref__" else getattr(thing, name, None)  # our own look makes one
    own = getattr(thing, "__dict__", {})
    yield from (*own.keys(), *own.values())


def _of_function(function: types.FunctionType) -> Iterator[Any]:
    if _is_harmless(function):
        return
    yield from closed_over(function)
    yield from (function.__defaults__, function.__kwdefaults__)
    names = named(function.__code__)
    things = [function.__globals__[name] for name in names if name in function.__globals__]
    yield from things
    modules = [each for each in things if isinstance(each, types.ModuleType)]
    yield from (value for m in modules for name in names if isinstance(value := vars(m).get(name), PLAIN))


def closed_over(function: types.FunctionType) -> Iterator[Any]:
    """Yield what a function closes over."""
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # not filled yet
            yield cell.cell_contents


def _is_harmless(thing: Any) -> bool:
    return str(getattr(thing, "__module__", "")).partition(".")[0] in HARMLESS


CONNECTIONS = {
    "sqlite3": ("Connection", "Cursor"), "h5py": ("File", "Group", "Dataset"), "tables": ("File",),
    "netCDF4": ("Dataset",), "zipfile": ("ZipFile", "ZipExtFile"), "tarfile": ("TarFile",), "cv2": ("VideoCapture",),
    "lmdb": ("Environment", "Transaction", "Cursor"), "builtins": ("Environment", "Transaction"),
    "pyarrow": ("NativeFile",), "rasterio": ("DatasetReader",), "decord": ("VideoReader",), "av": ("InputContainer",),
}  # fmt: skip
"""Classes by the package that they come from; lmdb's own name none."""
STANDARD = 2
"""The last descriptor of standard input, output and errors."""


def reached(things: Iterable[Any]) -> list[Any]:
    """Return what these hold and what their code names, the nearest first; where there is much, or a long container,
    only a part."""
    waiting, met = deque(things), dict[int, Any]()
    while waiting and len(met) < MOST:
        thing = waiting.popleft()
        if id(thing) not in met and not _is_leaf(thing):
            met[id(thing)] = thing
            with contextlib.suppress(Exception):  # the program's own objects, asked in a way that they did not foresee
                waiting.extend(_inside(thing))
    return list(met.values())


def is_own(thing: Any) -> bool:
    """Whether a class, a function or an object is the program's own, and no package's."""
    kind = thing if isinstance(thing, type | types.FunctionType) else type(thing)
    module = str(getattr(kind, "__module__", None))
    return not is_installed(module) and module.partition(".")[0] not in ("gobrrr", "torch")


def shared_file(things: Iterable[Any]) -> str:
    """The class of an open file or connection among these; nothing where none is."""
    return next((type(each).__name__ for each in things if is_open(each)), "")


def moved_iterator(things: Iterable[Any]) -> str:
    """The class of an iterator among these that is no class of the program's: those keep their place in attributes."""
    moved = (each for each in things if hasattr(type(each), "__next__") and not is_own(each))
    moved = (each for each in moved if not hasattr(type(each), "fileno") and not _is_connection(each))
    return next((type(each).__name__ for each in moved), "")


def shared_memory(things: Iterable[Any]) -> str:
    """The class of what processes write into together: a batch that is fetched to look would be seen in the program."""
    import torch

    kinds = (type(each) for each in things if not isinstance(each, type))
    ours = (kind for kind in kinds if issubclass(kind, torch.Tensor) or kind.__module__.startswith("multiprocessing."))
    return next((kind.__name__ for kind in ours), "")


def is_open(thing: Any) -> bool:
    """Whether it is an open file, or what has one in a way of its own."""
    if isinstance(thing, type):
        return False
    with contextlib.suppress(Exception):  # closed, or a file in memory
        if hasattr(type(thing), "fileno"):
            return int(thing.fileno()) > STANDARD
    with contextlib.suppress(Exception):
        # in the words of zipfile, tarfile and h5py
        closed = getattr(thing, "closed", False) is True or getattr(thing, "fp", thing) is None
        closed = closed or (type(thing).__module__.startswith("h5py") and not thing)
        return _is_connection(thing) and not closed
    return False


def _is_connection(thing: Any) -> bool:
    names = ((str(kind.__module__).partition(".")[0], kind.__name__) for kind in type(thing).__mro__)
    return any(name in CONNECTIONS.get(package, ()) for package, name in names)


def _is_leaf(thing: Any) -> bool:
    import torch

    if isinstance(thing, torch.Tensor):
        with contextlib.suppress(Exception):  # one without memory of its own
            shared: Any = thing.is_shared  # which torch says of all on a device
            return not (thing.device.type == "cpu" and shared())
        return True
    return isinstance(thing, (*PLAIN, types.ModuleType, logging.Logger, logging.Handler, np.ndarray, random.Random))


def _inside(thing: Any) -> Iterator[Any]:
    """Yield the things inside; none for a package's functions and classes: what they name is not the program's."""
    import torch

    if isinstance(thing, torch.Tensor):
        return
    if isinstance(thing, CONTAINERS):
        yield from _entries(thing)
    elif isinstance(thing, type):
        for kind in filter(is_own, thing.__mro__):
            yield from vars(kind).values()
    elif isinstance(thing, staticmethod | classmethod):
        yield thing.__func__
    elif not isinstance(thing, types.FunctionType) or is_own(thing):
        yield from parts(thing)


def _entries(container: Any) -> Iterator[Any]:
    """Yield the first and the last entries."""
    if isinstance(container, dict):
        yield from islice(container, LONG)
        container = container.values()
    yield from islice(container, LONG)
    if len(container) > LONG and not isinstance(container, set | frozenset):
        yield from islice(reversed(container), LONG)
