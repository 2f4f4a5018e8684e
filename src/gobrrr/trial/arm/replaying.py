"""An arm whose loaders hand out the same few batches again and again: its step is the step with its batches ready. In
the program's process. No remedy: nobody can name it, and nothing keeps it.

A loader makes a few batches when its first one is asked for. From then on each is a copy of one of these, made off the
clock: what the program does to a batch goes with that copy. As many come in an epoch as before, through torch's own
`__next__`, so that steps are found where they always are.
"""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Iterator, Mapping
from threading import get_ident
from typing import Any, Protocol

import psutil

from gobrrr import units
from gobrrr.capture.process.config import Config
from gobrrr.capture.session.session import StopProgram
from gobrrr.trial.arm.inside import Inside
from gobrrr.trial.arm.meters import Nothing
from gobrrr.trial.arm.protocol import REPLAYED

MOST, FEWEST = 8, 2
"""Batches that are kept of a loader; of one alone a program whose lengths vary tells nothing."""
ROOM = 0.1
"""Share of the free memory that they may take."""
DRAW_S = 5.0
"""After which no more are drawn than FEWEST: the other arms wait for this one's first step."""
MOST_LOADERS = 8
"""Most loaders that batches are kept of. A program that makes a data set for each epoch would load in each of them."""
DEEPEST = 6
"""Containers within each other that are looked through for tensors."""


class Replaying(Inside):
    """Watches an arm for timed blocks, as Inside does, its batches replayed."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._gauge = Replay(self._told)

    def _block(self) -> dict[str, Any]:
        told = super()._block()
        return told | {"ns": max(1, told["ns"] - told.pop("copied_ns"))}


class Told(Protocol):
    """Where an arm says something: protocol.Line."""

    def send(self, kind: str, **fields: Any) -> None: ...


class Refused(Exception):
    """Its batches cannot be replayed; the reason."""


class Replay(Nothing):
    """Puts the kept batches in, and knows how long copying them took (ns) in the steps that count."""

    def __init__(self, told: Told) -> None:
        self._told, self._said, self._pid, self._thread = told, False, os.getpid(), get_ident()
        self._kept: dict[tuple[Any, ...], Kept] = {}
        self._draws = False
        self._step = self._block = 0

    def install(self) -> None:
        from torch.utils.data import DataLoader, dataloader

        replay, plain = self, DataLoader._get_iterator

        class Replayed(dataloader._BaseDataLoaderIter):
            """Iterator of a loader: as many batches as it has, all of them kept ones."""

            def __init__(self, loader: Any) -> None:
                super().__init__(loader)
                self._loader, self._given = loader, 0

            def _reset(self, loader: Any, first_iter: bool = False) -> None:
                super()._reset(loader, first_iter)
                self._given = 0

            def _next_data(self) -> Any:
                batch = replay.batch(self._loader, self._given, plain)
                self._given += 1
                return batch

        def _get_iterator(loader: Any) -> Any:
            own = replay._draws or os.getpid() != replay._pid  # a data set may have a loader of its own
            return plain(loader) if own else Replayed(loader)

        DataLoader._get_iterator = _get_iterator  # type: ignore[method-assign, assignment]

    def batch(self, loader: Any, given: int, plain: Any) -> Any:
        """A copy of one that was kept, for a loader that has given so many in this epoch. Raises StopIteration."""
        try:
            kept = self._of(loader, plain)
            if given >= kept.num:
                raise StopIteration
            began = time.perf_counter_ns()
            batch = copied(kept.next())
        except Refused as error:
            self._told.send("failed", error=str(error))
            raise StopProgram(1) from None
        if get_ident() == self._thread:  # one that reads ahead copies beside the step
            self._step += time.perf_counter_ns() - began
        if not self._said:
            self._said = True
            self._told.send("applied", remedy=REPLAYED, detail=f"{len(kept.batches)} of {kept.num} batches an epoch")
        return batch

    def _of(self, loader: Any, plain: Any) -> Kept:
        """Return what is kept of this loader, or of one that was made like it: for each epoch, say."""
        sampler = loader.batch_sampler if loader.batch_size is None else None
        alike = (loader.dataset, loader.collate_fn, sampler)
        key = (*map(id, alike), loader.batch_size)
        if key not in self._kept:
            if len(self._kept) == MOST_LOADERS:
                raise Refused(f"it makes more than {MOST_LOADERS} loaders, each with a data set of its own")
            self._draws = True
            try:
                self._kept[key] = Kept(loader, plain, alike)
            finally:
                self._draws = False
        return self._kept[key]

    def begin(self, warm: bool) -> None:
        self._step, self._block, self._thread = 0, 0, get_ident()

    def step(self, counts: bool) -> None:
        self._step, self._block = 0, self._block + self._step * counts

    def end(self) -> dict[str, int]:
        return {"copied_ns": self._block}


class Kept:
    """The first batches of a loader, and how many it has in an epoch."""

    def __init__(self, loader: Any, plain: Any, alike: tuple[Any, ...]) -> None:
        """`alike`: what it is known by, which must stay so long. Raises Refused."""
        self._alike, self._at = alike, 0
        try:
            self.num = len(loader)
        except (TypeError, NotImplementedError):
            raise Refused("its data set is a stream without a length: nobody knows when an epoch ends") from None
        self.batches: list[Any] = []
        self._draw(plain(loader))

    def next(self) -> Any:
        """One after the other, from epoch to epoch."""
        self._at += 1
        return self.batches[(self._at - 1) % len(self.batches)]

    def _draw(self, source: Iterator[Any]) -> None:
        """As many of a loader's batches as there are time and room for."""
        began, most, room = time.monotonic(), min(MOST, self.num), ROOM * psutil.virtual_memory().available
        while len(self.batches) < most:
            if len(self.batches) >= FEWEST and time.monotonic() - began > DRAW_S:
                return
            try:
                batch = next(source)
            except StopIteration:  # fewer than it said
                self.num = len(self.batches)
                return
            size = sum(int(each.nbytes) for each in _arrays(batch))
            most = min(most, int(room // size)) if size else most
            if most < min(FEWEST, self.num):
                said = f"{units.size(size)} each, where all may take {units.size(room)}"
                raise Refused(f"its batches are too large to keep: {said}")
            self.batches.append(batch)


def copied(batch: Any) -> Any:
    """A batch of its own, tensors and containers: as pinned as the one that was kept. Raises Refused."""
    try:
        return copy.deepcopy(batch, {id(each): _cloned(each) for each in _arrays(batch) if hasattr(each, "detach")})
    except Exception as error:
        raise Refused(f"its batches cannot be copied: {type(error).__name__}: {error}") from None


def _cloned(tensor: Any) -> Any:
    """Copy its elements alone: copy.deepcopy would take along all of the storage that a view is of."""
    cloned = tensor.detach().clone()
    return (cloned.pin_memory() if tensor.is_pinned() else cloned).requires_grad_(tensor.requires_grad)


def _arrays(value: Any, depth: int = 0) -> Iterator[Any]:
    """Tensors and arrays in containers and in objects' attributes."""
    if hasattr(value, "nbytes"):
        yield value
    elif depth < DEEPEST:
        inner: Any = ()
        if isinstance(value, Mapping):
            inner = list(value.values())
        elif isinstance(value, (list, tuple)):
            inner = value
        elif not isinstance(value, type) and not callable(value):
            inner = list(getattr(value, "__dict__", {}).values())
        for each in inner:
            yield from _arrays(each, depth + 1)
