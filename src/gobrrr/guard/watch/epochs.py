"""Record what a program's loaders give in an epoch, whatever its order: which samples, and what is in them.

A remedy may change the order of samples or the draws of an augmentation, and no batch can be compared any more. So,
once the watched steps are over, the sampler is asked for a whole epoch of indices, and some items are fetched, each
from a random state of its own: then augmentation draws the same in every run. Unless it draws from a generator that the
data set keeps (MONAI's transforms do): that shows where an item is fetched once more.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable
from typing import Any

import msgspec
from torch.utils.data import BatchSampler, DataLoader
from torch.utils.data._utils.fetch import _MapDatasetFetcher

from gobrrr.capture.hooks.lookup import Patches
from gobrrr.guard.model.observation import Epoch
from gobrrr.guard.watch.inputs import cut_of, fingerprint
from gobrrr.guard.watch.randomness import begin, restore, streams

MOST_LOADERS, MOST_INDICES = 8, 20_000_000
ITEMS = 8
"""Items that are fetched of each data set, drawn over all its indices."""
SECONDS = 5.0
"""For the items of one loader; slower ones are fingerprinted in part."""


class Epochs:
    """Notes the loaders that are iterated over while it watches; `read` asks them for their epochs."""

    def __init__(self) -> None:
        self._loaders: list[Any] = []

    def watch(self, patches: Patches) -> None:
        """From now on, until `patches` are taken out."""
        plain, loaders = DataLoader.__iter__, self._loaders

        def __iter__(self: Any) -> Any:
            if len(loaders) < MOST_LOADERS and not any(known is self for known in loaders):
                loaders.append(self)
            return plain(self)

        patches.replace(DataLoader, "__iter__", __iter__)

    def read(self) -> tuple[Epoch, ...]:
        """Their epochs, in the order in which they were first iterated over; then they are let go."""
        before, loaders = streams(), list(self._loaders)
        self._loaders.clear()
        try:
            return tuple(_epoch(loader) for loader in loaders)
        finally:
            restore(before)


def _epoch(loader: Any) -> Epoch:
    found = Epoch(
        type(loader.dataset).__name__, getattr(loader, "batch_size", None), workers=getattr(loader, "num_workers", 0),
        workers_stay=bool(getattr(loader, "persistent_workers", False)), workers_seeded=_seeds_workers(loader),
    )  # fmt: skip
    if not hasattr(loader.dataset, "__getitem__") or not hasattr(loader.dataset, "__len__"):
        return found
    try:
        indices = _indices(loader)
        drawn = random.Random(0).sample(sorted(set(indices)), min(ITEMS, len(set(indices))))
        items, digests = _items(_fetch(loader), drawn)
        batch = None
        if digests is not None and items and loader.collate_fn is not None:
            begin(1000)  # fetched anew: a data set may make a whole batch at once
            whole: Any = _MapDatasetFetcher(loader.dataset, True, loader.collate_fn, False)
            batch = whole.fetch(drawn[: len(items)]) if _is_batched(loader) else loader.collate_fn(items)
        return msgspec.structs.replace(
            found, num=len(indices), unique=len(set(indices)),
            indices=hashlib.blake2b(repr(sorted(indices)).encode(), digest_size=12).hexdigest(),
            items=digests or {}, batch=None if batch is None else fingerprint(batch, cut_of((batch,), {})),
            draws_alone=digests is None,
        )  # fmt: skip
    except Exception:  # the program's own code, asked for what it does not do by itself
        return found


def _seeds_workers(loader: Any) -> bool:
    """Whether it has a function for that, or the data set's class asks which worker it is in."""
    if getattr(loader, "worker_init_fn", None) is not None:
        return True
    own = (value for kind in type(loader.dataset).__mro__ for value in vars(kind).values())
    return any("get_worker_info" in code.co_names for each in own if (code := getattr(each, "__code__", None)))


def _indices(loader: Any) -> list[Any]:
    """An epoch of a sampler that begins from a fixed random state. Raises ValueError where it does not end."""
    begin(0)
    sampler = loader.batch_sampler if loader.batch_sampler is not None else loader.sampler
    if type(sampler) is BatchSampler and sampler.drop_last:  # what that leaves out is another sample in another order
        sampler = sampler.sampler
    most = min(MOST_INDICES, 2 * len(loader.dataset))
    found: list[Any] = []
    for each in sampler:
        found.extend(each if isinstance(each, (list, tuple)) else (each,))
        if len(found) > most:
            raise ValueError("no end in sight")
    return found


def _is_batched(loader: Any) -> bool:
    return loader.batch_size is not None or loader.batch_sampler is not None


def _fetch(loader: Any) -> Callable[[Any], Any]:
    """Gives the sample of an index as torch's fetcher does, with what a remedy has put in its way."""
    if not _is_batched(loader):
        return _MapDatasetFetcher(loader.dataset, False, lambda sample: sample, False).fetch
    together: Any = _MapDatasetFetcher(loader.dataset, True, lambda samples: samples, False)

    def fetch(index: Any) -> Any:
        given = together.fetch([index])
        return given[0] if type(given) is list and len(given) == 1 else given

    return fetch


def _items(fetch: Callable[[Any], Any], drawn: list[Any]) -> tuple[list[Any], dict[str, str] | None]:
    """As many as there is time for, and their digests by index; null where one, fetched again, was another."""
    until = time.monotonic() + SECONDS
    found: list[Any] = []
    digests: dict[str, str] = {}
    for number, index in enumerate(drawn):
        begin(1 + number)
        found.append(fetch(index))
        digests[str(index)] = fingerprint(found[-1])
        begin(1 + number)
        if fingerprint(fetch(index)) != digests[str(index)]:
            return found, None
        if time.monotonic() > until:
            break
    return found, digests
