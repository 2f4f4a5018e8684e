"""Which rank of how many is this process, and when does its own thread call a collective?"""

from __future__ import annotations

import contextlib
import sys
import zlib
from collections.abc import Callable, Iterable, Sequence
from types import FrameType
from typing import Any

from gobrrr.capture.facts.tensors import is_plain, some_bytes, tensors_in
from gobrrr.capture.hooks.lookup import Lookup, Patches
from gobrrr.capture.hooks.transform_guard import unseen

COLLECTIVES = (
    "allreduce", "allreduce_coalesced", "broadcast", "reduce", "allgather", "allgather_coalesced", "_allgather_base",
    "gather", "scatter", "reduce_scatter", "_reduce_scatter_base", "alltoall", "alltoall_base", "send", "recv",
    "barrier", "monitored_barrier",
)  # fmt: skip
"""Methods of a process group that its Python functions call (torch.distributed.distributed_c10d)."""


MOST_BATCHES, MOST_VALUES, FEWEST_VALUES = 8, 256, 8
"""Batches of which a checksum is kept, values of each in it, and values that a tensor must have (proposed)."""
SWITCHES = ("find_unused_parameters", "gradient_as_bucket_view", "static_graph", "broadcast_buffers")
"""Arguments of DistributedDataParallel that are told."""

FIRST, CAP = 1 << 20, 25 << 20
"""Bytes of DistributedDataParallel's first bucket and of the others (torch.distributed._DEFAULT_FIRST_BUCKET_BYTES,
bucket_cap_mb)."""


def among_others() -> bool:
    """Say whether a process group of several ranks is set up."""
    distributed: Any = sys.modules.get("torch.distributed")
    try:
        return bool(distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1)
    except (AttributeError, RuntimeError, ValueError):
        return False


class Batches:
    """Checksums of the first batches that the loaders hand out: ranks with the same ones do the same work."""

    def __init__(self) -> None:
        self.checksums: list[int] = []
        self.known: dict[str, Any] = {}
        """Facts of the process group, for when it is gone."""

    def look(self, frame: FrameType | None) -> None:
        """A loader hands out a batch, in this frame of torch's."""
        if frame is None or len(self.checksums) >= MOST_BATCHES or not among_others():
            return
        with contextlib.suppress(Exception), unseen():  # a batch may be anything
            every = [t for t in tensors_in(frame.f_locals.get("data")) if is_plain(t) and t.device.type == "cpu"]
            if sum(tensor.numel() for tensor in every) >= FEWEST_VALUES:
                parts = (some_bytes(tensor.detach(), MOST_VALUES) for tensor in every)
                self.checksums.append(zlib.crc32(b"".join(parts)))


def facts(modules: Iterable[tuple[int, Any]], batches: Batches) -> dict[str, Any]:
    """Return rank, number of ranks, backend, and what each DistributedDataParallel among the numbered `modules` is set
    to; empty where no process group of several ranks is set up."""
    if not among_others():
        return batches.known and batches.known | {"batches": batches.checksums}
    import torch.distributed as distributed
    from torch.nn.parallel import DistributedDataParallel

    batches.known = {
        "rank": distributed.get_rank(),
        "world_size": distributed.get_world_size(),
        "backend": str(distributed.get_backend()),
        "batches": batches.checksums,
        "wrappers": [
            {
                "id": number, "bucket_bytes": int(module.bucket_bytes_cap), "ranks": module.process_group.size(),
                **{name: bool(getattr(module, name)) for name in SWITCHES},
            }
            for number, module in modules
            if isinstance(module, DistributedDataParallel)
        ],
    }  # fmt: skip
    return batches.known


def watch_collectives(seen: Callable[[Any], Any], patches: Patches) -> None:
    """Call `seen(group)` whenever Python looks one of the collectives up on a process group."""
    core: Any = sys.modules.get("torch._C._distributed_c10d")
    group = getattr(core, "ProcessGroup", None)
    for name in COLLECTIVES if group is not None else ():
        if name in vars(group):
            patches.replace(group, name, Lookup(vars(group)[name], seen))


def buckets(sizes: Sequence[int], first: int = FIRST, cap: int = CAP) -> list[int]:
    """Return the bytes of each bucket in which DistributedDataParallel sums gradients of so many bytes, in the order in
    which they come: a bucket is full with the gradient that brings it to its limit."""
    found, held = list[int](), 0
    for size in sizes:
        held += size
        if held >= (cap if found else first):
            found.append(held)
            held = 0
    return [*found, held] if held else found
