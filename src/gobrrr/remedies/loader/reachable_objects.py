"""Objects that can be reached from a loader's data set, and whether workers could not have them for themselves: open
files and connections, of which forked processes share one position, and iterators, which have one that no copy
moves."""

from __future__ import annotations

import contextlib
import logging
import random
import types
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from gobrrr.data.sample_cache.names import is_installed
from gobrrr.remedies.loader.copied_state import PLAIN, parts

MOST, EACH = 5_000, 100
"""Things that are looked at in all, and entries of a container."""
CONTAINERS = (list, tuple, set, frozenset, dict, deque)
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
    return next((type(each).__name__ for each in moved if not _is_file(each)), "")


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
        return _is_connection(thing) and not _is_closed(thing)
    return False


def _is_connection(thing: Any) -> bool:
    return any(
        kind.__name__ in CONNECTIONS.get(str(kind.__module__).partition(".")[0], ()) for kind in type(thing).__mro__
    )


def _is_closed(thing: Any) -> bool:
    """Say whether it is closed, in the words of zipfile, tarfile and h5py."""
    closed = getattr(thing, "closed", False) is True or getattr(thing, "fp", thing) is None
    return closed or (type(thing).__module__.startswith("h5py") and not thing)


def _is_file(thing: Any) -> bool:
    return hasattr(type(thing), "fileno") or _is_connection(thing)


def _is_leaf(thing: Any) -> bool:
    import numpy as np
    import torch

    if isinstance(thing, torch.Tensor):
        return not _is_shared(thing)
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
        yield from islice(container, EACH)
        container = container.values()
    yield from islice(container, EACH)
    if len(container) > EACH and not isinstance(container, set | frozenset):
        yield from islice(reversed(container), EACH)


def _is_shared(tensor: Any) -> bool:
    """Say whether a CPU tensor's memory is shared; False on a device, where torch says it of all."""
    with contextlib.suppress(Exception):  # one without memory of its own
        return tensor.device.type == "cpu" and bool(tensor.is_shared())
    return False
