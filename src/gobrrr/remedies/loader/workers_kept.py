"""Loader workers that stay from epoch to epoch: until when, for which loops, of how many loaders, and what memory and
descriptors their batches take."""

from __future__ import annotations

import contextlib
import copy
import functools
import math
import os
import weakref
from pathlib import Path
from typing import Any, ClassVar

from gobrrr.remedies.loader.copied_state import CopiedState, reached, shared_file
from gobrrr.remedies.mechanism.seams import Seams

SHARED = Path("/dev/shm")
MOST_KEPT = 4
"""Loaders whose workers stay, the last used: a program with a loader for each of a hundred clients has no use of as
many processes, each with six descriptors."""


class Renewed(int):
    """A true `persistent_workers` whose workers are made anew where what they have copies of has changed, or is TooMuch
    to tell. It outlives a trainer that makes a loader like another. Without the look that it needs it is false."""

    looked_at: ClassVar[bool] = False
    alone = False
    """Whether the program asks for no workers: then it may do without them."""

    def __bool__(self) -> bool:
        return self.looked_at


class Epoch:
    """Iterator that a loop holds while its workers stay: once it is over it stays so, whatever they serve then."""

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
    kept: list[weakref.ref[Any]] = []

    @functools.wraps(plain)
    def __iter__(self: Any) -> Any:
        if not isinstance(getattr(self, "persistent_workers", False), Renewed):
            return plain(self)
        now, before = _look(self), getattr(self._iterator, "_gobrrr_copied", None)
        stay = now is not None and before is not None and before.is_still(now)
        if stay and (amid := self._iterator._gobrrr_epoch()) is not None:  # a loop that was left has let go of it
            stay = not amid.is_amid()  # somebody iterates over it still, as a loop around this one does
        if stay:  # as workers that are made anew draw their seed: who draws next, a sampler say, gets what it would get
            torch.empty((), dtype=torch.int64).random_(generator=self.generator)
        else:
            self._iterator = None  # its workers end with it, once nobody iterates over it
            # None either where a file is open, of which forked workers would share the position.
            if self.persistent_workers.alone and (shared_file(reached((self.dataset, self.collate_fn))) or is_short()):
                workers, self.num_workers = self.num_workers, 0
                try:
                    return plain(self)
                finally:
                    self.num_workers = workers
        iterator = plain(self)
        if not stay:
            iterator._gobrrr_copied = now
        kept[:] = [each for each in kept if each() is not None and each() is not self] + [weakref.ref(self)]
        while len(kept) > MOST_KEPT:  # those that were used longest ago end, once nobody iterates over them
            other: Any = kept.pop(0)()
            if other is not None:
                other._iterator = None
        epoch = Epoch(iterator)
        iterator._gobrrr_epoch = weakref.ref(epoch)
        return epoch

    Renewed.looked_at = True
    seams.undo(lambda: setattr(Renewed, "looked_at", False))
    seams.replace(DataLoader, "__iter__", __iter__)
    seams.at_batch(_in_own_memory)


def _in_own_memory(iterator: Any, batch: Any) -> Any:
    """The batch, or a copy in this process's own memory: each tensor that comes from a worker holds a descriptor and
    shared memory for as long as it lives, and a program that asked for no workers may keep as many as it likes."""
    stays = getattr(iterator, "_persistent_workers", None)
    if not isinstance(stays, Renewed) or not stays.alone or iterator._pin_memory or not is_short():
        return batch
    try:
        return copy.deepcopy(batch)
    except Exception:  # an object of the program's own
        return batch


def is_short() -> bool:
    """Whether half of the descriptors that this process may have are taken, or half of the memory for what processes
    share."""
    with contextlib.suppress(OSError):
        shared = os.statvfs(SHARED)
        if 2 * shared.f_bavail < shared.f_blocks:
            return True
    return descriptors() < 2 * _next_descriptor()


def descriptors() -> float:
    """Return the most descriptors that this process may have."""
    import resource  # not on Windows, where there are none

    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return math.inf if most == resource.RLIM_INFINITY else most


def _next_descriptor() -> float:
    """The least number that is free: below it all are taken."""
    try:
        found = os.open(os.devnull, os.O_RDONLY)
    except OSError:
        return math.inf
    os.close(found)
    return found


def _look(loader: Any) -> CopiedState | None:
    """Samplers stay in the program's process: what they are told between epochs workers need not know."""
    try:
        return CopiedState((loader.dataset, loader.collate_fn, loader.worker_init_fn))
    except Exception:  # the program's own objects, asked in a way that they did not foresee
        return None
