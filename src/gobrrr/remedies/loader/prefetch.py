"""The next batch is copied to the device while the step computes."""

from __future__ import annotations

import weakref
from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING, Any

from gobrrr.capture.hooks.transform_guard import hide_own_code
from gobrrr.remedies.mechanism.seams import Seams
from gobrrr.remedies.model import Remedy

if TYPE_CHECKING:
    import torch

    from gobrrr.data.ahead import Lane
    from gobrrr.remedies.loader.drawn_ahead import Held

LEAST_READY = 2
"""Batches that a loader's workers are given in advance: of one alone the program would wait for the next to be made
before it may begin with this one."""


class Prefetch(Remedy):
    """For DataLoaders with workers. Which tensors of a batch a program sends to a device, and where, is learned from
    its own `.to(device)` and `.cuda()`; from the next batch on those are copied one ahead, and are what it gets where
    it asks again, unless it has changed them, or asks for anything else as well. Batches, their order and their errors
    are the loader's own, and its sampler and workers are asked when they always are.

    Changes that torch does not count (through NumPy, or `.data`) are not seen: the device has what the loader gave.
    """

    name = "prefetch"
    title = "copies the next batch to the device while this one is computed on"
    safety = "exact"
    place = "loader"
    overlaps = ("pin_memory",)
    by_hand = "for batch in gobrrr.data.prefetch(loader, device): ..."

    def __init__(self, lane: Callable[[torch.device], Lane] | None = None, kind: str = "cuda") -> None:
        self._lane, self._kind = lane, kind

    def probe(self) -> str:
        import torch

        return "" if self._kind != "cuda" or torch.cuda.is_available() else "there is no CUDA device to copy to"

    def apply(self, seams: Seams) -> None:
        import torch

        from gobrrr.remedies.loader.drawn_ahead import Asked, device_of_cuda, device_of_to

        hide_own_code("gobrrr.remedies.loader.drawn_ahead", "gobrrr.remedies.loader.prefetch")
        held: weakref.WeakValueDictionary[int, Held] = weakref.WeakValueDictionary()
        told = Once(lambda kind: seams.applied(self.name, f"batches to {kind}"))
        for name, device_of in (("to", device_of_to), ("cuda", device_of_cuda)):
            plain = getattr(torch.Tensor, name)
            seams.replace(torch.Tensor, name, Asked(plain, device_of, self._kind, held, told, seams.give_up))
        loaders = Loaders(
            self._lane or cuda_lanes(), held, Once(lambda why: seams.declined(self.name, why)), seams.give_up
        )
        seams.undo(loaders.end)
        seams.at_batch(loaders)


class Once:
    """Tells each thing once."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell, self._told = tell, set[str]()

    def __call__(self, what: str) -> None:
        if what not in self._told:
            self._told.add(what)
            self._tell(what)


class Loaders:
    """Hears of each batch that a program draws, and puts an Ahead into iterators that can have one."""

    def __init__(
        self, lane: Callable[[torch.device], Lane], held: MutableMapping[int, Held],
        decline: Callable[[str], None], failed: Callable[[BaseException], None],
    ) -> None:  # fmt: skip
        self._lane, self._held, self._decline, self._failed = lane, held, decline, failed
        self._aheads: weakref.WeakSet[Any] = weakref.WeakSet()

    def __call__(self, iterator: Any, batch: Any) -> Any:
        from gobrrr.remedies.loader.drawn_ahead import Ahead

        if isinstance(vars(iterator).get("_next_data"), Ahead):
            return batch
        if why_not := _why_not(iterator):
            self._decline(why_not)
            return batch
        iterator._next_data = ahead = Ahead(iterator, batch, self._lane, self._held, self._failed)
        self._aheads.add(ahead)
        return batch

    def end(self) -> None:
        """Draw no more ahead; what was drawn is still handed out."""
        for ahead in list(self._aheads):
            ahead.end()


def _why_not(iterator: Any) -> str:
    """Say why batches cannot be taken from an iterator early unnoticed; empty where they can."""
    from torch.utils.data import dataloader

    if not iterator._num_workers:
        return "the loader has no workers: its samples would be made, and drawn at random, before their time"
    theirs = {"_next_data", "_try_put_index"} & vars(iterator).keys()
    if type(iterator) is not dataloader._MultiProcessingDataLoaderIter or theirs:
        return f"the loader hands its batches out in a way of its own (a {type(iterator).__name__})"
    if iterator._prefetch_factor * iterator._num_workers < LEAST_READY:
        return "the loader's worker makes one batch at a time"
    if not getattr(iterator, "_in_order", True):
        return "the loader hands batches out as they come"
    if iterator._dataset_kind != dataloader._DatasetKind.Map:
        return "a stream's workers would be asked for batches before their time"
    return ""


def cuda_lanes() -> Callable[[torch.device], Lane]:
    """A lane for each batch, all of a device on one stream: memory of one is not used again on another."""
    from gobrrr.data.ahead import CudaLane

    streams: dict[torch.device, Any] = {}

    def lane(device: torch.device) -> Lane:
        made = CudaLane(device, streams.get(device))
        streams[device] = made.stream
        return made

    return lane
