"""Whether a loader's samples may be fetched in another process than the program's: not where fetching one changes what
the program holds (workers would change a copy), nor where what is held cannot be copied.

A batch is fetched in a copy of the process (forked_copy.py), between two looks at the program's own objects. What is
written once, a file that is opened with the first sample, is no change: it is the same after other samples. What
fetching writes on disk stays there. Objects of packages are left out: their authors knew of workers.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import pickle
import random
import time
import types
import weakref
from collections.abc import Callable, Iterable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np

from gobrrr.remedies.loader.copied_state import (
    CONTAINERS,
    PLAIN,
    CopiedState,
    TooMuch,
    is_own,
    moved_iterator,
    parts,
    reached,
    shared_file,
    shared_memory,
)
from gobrrr.remedies.loader.source_writes import written
from gobrrr.remedies.loader.workers_kept import descriptors
from gobrrr.remedies.mechanism.forked_copy import PATIENCE_S, TriedApart, apart

FETCHING, SAMPLERS = ("dataset", "collate_fn"), ("sampler", "batch_sampler")
PACKAGES = ("torch", "datasets", "gobrrr", "builtins", "collections")
"""Packages whose data sets are known to write nothing themselves; classes of others count as the program's own."""
DEEP = 4  # levels looked into. proposed: what a data set writes lies near it; a missed write would settle it
IN_TIME = 0.9
"""Share of the patience within which another batch must end."""
LONG, BYTES = 100_000, 1 << 28
"""Entries of a container and bytes of arrays, in all, of which a sum is taken: some 0.1 s."""
BATCHES = 4
"""Batches whose descriptors a worker must have room for: two that wait, one that it makes, and what else it has
open."""
ITS_PLACE = "it goes on from its place there, and a worker would move a copy"


class TooManyTensors(Exception):
    """Raised for a batch with too many tensors: each takes a descriptor."""


class Fetched:
    """Says whether another process may fetch for a loader; asks once per data set and collate function."""

    def __init__(self, aside: Callable[[int], object]) -> None:
        """`aside` hears how many ns were taken."""
        self._aside = aside
        self._known: dict[tuple[Any, ...], tuple[weakref.ref[Any], str]] = {}

    def why_not(self, loader: dict[str, Any]) -> str:
        """Say why not for a DataLoader with these arguments; empty where another process may fetch."""
        return _said(shared, loader) or self.changes(loader)

    def changes(self, loader: dict[str, Any]) -> str:
        """Say why it matters which process has fetched, and how much; empty where it does not."""
        began = time.perf_counter_ns()
        try:
            return _said(changing, loader) or _said(self._once, loader)
        finally:
            self._aside(time.perf_counter_ns() - began)

    def _once(self, loader: dict[str, Any]) -> str:
        data, collate = loader.get("dataset"), loader.get("collate_fn")
        key = id(data), getattr(collate, "__code__", type(collate))
        known = self._known.get(key)
        if known is not None and known[0]() is data:
            return known[1]
        said = tried(loader)
        with contextlib.suppress(TypeError):  # a list, say
            self._known[key] = weakref.ref(data), said
        return said


def _said(look: Callable[[dict[str, Any]], str], loader: dict[str, Any]) -> str:
    try:
        return look(loader)
    except Exception as error:  # the program's own objects, asked in a way that they did not foresee
        return f"its data set cannot be looked at: {type(error).__name__}"


def shared(loader: dict[str, Any]) -> str:
    """Say what it holds now that processes would share: the cheapest look, and the one that protects from reading
    another's rows."""
    found = reached(_top(loader))
    if name := shared_file(found):
        return f"its data set holds an open file (a {name}), and processes would share one position in it"
    if name := moved_iterator(found):
        return f"its data set holds an iterator (a {name}): {ITS_PLACE}"
    return ""


def changing(loader: dict[str, Any]) -> str:
    """Say why not, by the program's source; that of samplers runs in no worker."""
    where = written(reached(_top(loader, FETCHING)))
    return f"{where} writes into what the program keeps, and a worker would into a copy" if where else ""


def tried(loader: dict[str, Any]) -> str:
    """Say why not, by a batch that is fetched in a copy of the process. None is fetched from a package's stream (from a
    network, say)."""
    from torch.utils.data import IterableDataset

    top = _top(loader)
    found = reached(top)
    writes = any(_may_write(each, top) for each in found)
    if not writes and isinstance(loader.get("dataset"), IterableDataset):
        return ""
    if writes and (name := shared_memory(found)):
        return f"its data set holds memory that processes share (a {name})"
    try:
        return str(apart(lambda: _what_changes(loader)))
    except TriedApart as error:
        return f"a batch could not be fetched in another process and sent from there ({error})"


def _top(loader: dict[str, Any], names: tuple[str, ...] = FETCHING + SAMPLERS) -> list[Any]:
    return [loader[name] for name in names if loader.get(name) is not None]


def _may_write(thing: Any, top: Iterable[Any]) -> bool:
    """Whether it is the program's own and may run. A data set is, wherever its class comes from."""
    if isinstance(thing, CONTAINERS) and type(thing) in CONTAINERS:
        return False
    if any(thing is each for each in top):
        kind = thing if isinstance(thing, types.FunctionType) else type(thing)
        return str(getattr(kind, "__module__", "")).partition(".")[0] not in PACKAGES
    return is_own(thing)


# in the copy


def _what_changes(arguments: dict[str, Any]) -> str:
    from torch.utils.data import DataLoader, IterableDataset
    from torch.utils.data.dataloader import _DatasetKind

    until = time.monotonic() + PATIENCE_S * IN_TIME
    loader: Any = DataLoader.__new__(DataLoader)  # as the program asks for it, without workers and remedies
    inspect.unwrap(DataLoader.__init__)(loader, **without_workers(arguments))
    before = Held(arguments)
    batches = iter(loader._index_sampler)
    index = next(batches, None)
    if index is None and loader._auto_collation:
        return ""  # it is empty
    arguments_of = loader.dataset, loader._auto_collation, loader.collate_fn, loader.drop_last
    fetcher: Any = _DatasetKind.create_fetcher(loader._dataset_kind, *arguments_of)  # type: ignore[no-untyped-call]

    def fetch(wanted: Any) -> Held:
        with contextlib.suppress(StopIteration):  # a stream that is through
            _send(fetcher.fetch(wanted))
        return Held(arguments)

    began = time.monotonic()
    after, found = fetch(index), reached(_top(arguments))
    took = time.monotonic() - began
    if name := moved_iterator(found) or (isinstance(loader.dataset, IterableDataset) and shared_file(found)):
        return f"its data set holds a {name} once a batch is fetched: {ITS_PLACE}"
    if before.is_still(after):
        return ""
    for wanted in (next(batches, index), index):  # the others first: a cache would have these
        if time.monotonic() + took > until:  # those that were in time must do
            break
        before, after = after, fetch(wanted)
        if not before.is_still(after):
            break
    still = before.is_still(after)
    return "" if still else f"fetching a batch changes {before.changed(after)}, and a worker would change a copy"


def _send(batch: Any) -> None:
    """Send a batch as a worker's queue would, there and back, except the memory of tensors, which it shares. Raises
    whatever it meets: a worker's queue says so on a thread of its own, and the program would wait for ever."""
    import torch

    shared: list[Any] = []

    class Pickler(ForkingPickler):
        def persistent_id(self, thing: Any) -> int | None:
            if not isinstance(thing, torch.UntypedStorage) or thing.device.type != "cpu":
                return None
            shared.append(thing)
            return len(shared) - 1

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, number: int) -> Any:
            return shared[number]

    sent = io.BytesIO()
    Pickler(sent).dump(batch)
    if BATCHES * len(shared) > descriptors():
        raise TooManyTensors
    sent.seek(0)
    Unpickler(sent).load()


WITH_WORKERS_ONLY = ("prefetch_factor", "persistent_workers", "multiprocessing_context", "timeout")
"""Arguments that a DataLoader without workers refuses."""


def without_workers(arguments: dict[str, Any]) -> dict[str, Any]:
    """A DataLoader's arguments, less those that are refused where it has none."""
    return {name: each for name, each in arguments.items() if name not in WITH_WORKERS_ONLY} | {"num_workers": 0}


class Held(CopiedState):
    """State that the program's own objects and code hold, each for itself. Looks at a part of what is too much: it
    never raises."""

    def __init__(self, loader: dict[str, Any]) -> None:
        import torch

        super().__init__([])
        self._shared = getattr(random, "_inst", None), getattr(np.random.mtrand, "_rand", None), torch.default_generator
        """Generators that torch seeds in each worker."""
        self._own: list[Any] = []
        marks: list[Any] = []
        seeded = loader.get("worker_init_fn") is not None  # what workers draw the program sees to
        for names, self._draws in ((FETCHING, seeded), (SAMPLERS, True)):  # which draw beside it, only earlier
            top = _top(loader, names)
            own = [each for each in reached(top) if _may_write(each, top) or any(each is one for one in top)]
            self._own += own
            marks += map(self._mark_of, own)
        self._marks = tuple(marks)

    def changed(self, later: Held) -> str:
        """Name the thing that is not what it was."""
        pairs = zip(self._own, self._marks, later._marks, strict=False)
        kind: Any = next((each for each, mine, theirs in pairs if mine != theirs), self._own[0])
        named = kind if isinstance(kind, type | types.FunctionType) else type(kind)
        return f"what its {named.__name__} holds"

    def _mark_of(self, thing: Any) -> Any:
        try:
            held = [thing] if isinstance(thing, CONTAINERS) else []
            return id(thing), tuple(self._mark(each, DEEP) for each in (*held, *parts(thing)))
        except Exception:  # the program's own objects, asked in a way that they did not foresee
            return id(thing)

    def _mark(self, thing: Any, deep: int) -> Any:
        if isinstance(thing, io.BytesIO | io.StringIO):
            return self._who(thing), None if thing.closed else thing.tell()
        if not self._is_value(thing):
            return self._who(thing)
        try:
            if isinstance(thing, CONTAINERS) and len(thing) > LONG:
                raise TooMuch
            return super()._mark(thing, deep)
        except TooMuch:
            return self._who(thing), len(thing), getattr(thing, "_version", None)

    def _read(self, num_bytes: int) -> None:
        if self._bytes + num_bytes > BYTES:
            raise TooMuch
        self._bytes += num_bytes

    def _is_value(self, thing: Any) -> bool:
        """Plain ones, what holds them, and generators that are its own."""
        import torch

        if isinstance(thing, random.Random | np.random.Generator | np.random.RandomState | torch.Generator):
            return not self._draws and not any(thing is each for each in self._shared)
        return isinstance(thing, (*PLAIN, *CONTAINERS, np.ndarray, torch.Tensor))
