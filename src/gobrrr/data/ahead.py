"""Batches on the device before they are asked for: copied one ahead, on a stream of their own.

A copy overlaps with computing where three things hold: its source is pinned, it does not block the host, and it is on
another stream than the computing. Memory is then safe by four rules, which torch's allocators leave to the program:
the computing waits for the copy's event; what was allocated on the copying stream is marked as used by the computing
one (`record_stream`); a host batch is neither freed nor filled again before its copy has ended; and what is so marked
is never freed in a forked child, which torch would end with SIGABRT: CUDA cannot be called there.
"""

from __future__ import annotations

import copy
import ctypes
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from gobrrr.errors import GobrrrError


def prefetch(loader: Any, device: torch.device | str | int) -> Prefetch:
    """An iterable over `loader`'s batches with their tensors on `device`.

    On CUDA and ROCm the next batch is drawn and its copy begun before a batch is handed out; on the CPU batches are
    passed through as they are; on other devices they are copied as they come. Batches are nested dicts, lists, tuples
    and named tuples; what else has a `to` is moved by it, without running ahead. An error of the loader comes where it
    would have come without, after the batches before it. Leaving the loop early has drawn one batch more.
    """
    device = torch.device(device)
    if not hasattr(loader, "__iter__"):
        raise GobrrrError(
            f"{type(loader).__name__} cannot be iterated", "give a DataLoader, or any iterable of batches"
        )
    return Prefetch(loader, device, CudaLane if device.type == "cuda" else None)


class Lane(Protocol):
    """A way for batches to the device that runs beside the computing."""

    def send(self, batch: Any) -> Any:
        """Begin to copy, and give the batch on the device; one batch is on its way at a time."""

    def sent(self) -> None:
        """Wait until the copy that was begun last has left the host's memory."""

    def receive(self, batch: Any) -> Any:
        """The batch for computing, which waits for the copy; its memory waits for the computing."""


class Prefetch:
    """Result of `prefetch`: iterates as often as the loader and has its length."""

    def __init__(self, loader: Any, device: torch.device, lane: Callable[[torch.device], Lane] | None) -> None:
        self.loader = loader
        self.device = device
        self._lane = lane

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        if self._lane is not None:
            return _ahead(iter(self.loader), self._lane(self.device))
        if self.device.type == "cpu":
            return iter(self.loader)
        return (moved(batch, lambda tensor: tensor.to(self.device), self.device) for batch in self.loader)


def _ahead(batches: Iterator[Any], lane: Lane) -> Iterator[Any]:
    """One batch is on its way whenever another is handed out."""
    following, error = _next(batches, lane)
    while following is not None:
        batch = lane.receive(following[0])
        following = None
        lane.sent()  # a loader that fills the same memory again may do so now
        following, error = _next(batches, lane)
        yield batch
        del batch
    if error is not None:
        try:
            raise error
        finally:
            del error  # else it and this frame hold each other, and the loader with its workers


def _next(batches: Iterator[Any], lane: Lane) -> tuple[tuple[Any] | None, BaseException | None]:
    """The next batch on its way, in a tuple of its own since a batch may be None; or the error that came instead."""
    try:
        return (lane.send(next(batches)),), None
    except StopIteration:
        return None, None
    except Exception as error:
        return None, error


class CudaLane:
    """A stream for copies, its own or one that others copy on as well."""

    def __init__(self, device: torch.device, stream: Any = None) -> None:
        if not torch.cuda.is_available():
            raise GobrrrError(f"there is no {device} here", "give device='cpu', or a machine with a GPU")
        self.device = device
        self.stream: Any = stream or torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self.event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]

    def send(self, batch: Any) -> Any:
        with torch.cuda.stream(self.stream):
            there = moved(batch, self._copied, None)
            self.event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self.event.record(self.stream)
        return there

    def _copied(self, tensor: Tensor) -> Tensor:
        if tensor.device.type != "cpu" or not _is_plain(tensor):
            return tensor  # what the computing's stream may still be making is moved by it
        if tensor.is_pinned():
            MARKED.add(tensor)
        else:
            tensor = tensor.pin_memory()  # torch keeps this memory until the copy has ended
        return tensor.to(self.device, non_blocking=True)

    def sent(self) -> None:
        self.event.synchronize()

    def receive(self, batch: Any) -> Any:
        current = torch.cuda.current_stream(self.device)
        current.wait_event(self.event)
        return moved(batch, lambda tensor: _used_by(current, tensor.to(self.device)), self.device)


def _used_by(stream: Any, tensor: Tensor) -> Tensor:
    if _is_plain(tensor):
        MARKED.add(tensor)
        tensor.record_stream(stream)
    return tensor


def _is_plain(tensor: Tensor) -> bool:
    """Whether it is one piece of memory: a sparse or nested one is moved by the computing's stream, and not marked."""
    return tensor.layout is torch.strided and not tensor.is_nested


def moved(batch: Any, move: Callable[[Tensor], Tensor], device: torch.device | None) -> Any:
    """The batch with `move` of each of its tensors; its containers are new, of the same types.

    What is no container and has a `to` of its own goes through that, if `device` is given.
    """
    if isinstance(batch, Tensor):
        return move(batch)
    if isinstance(batch, Mapping):
        items = {key: moved(value, move, device) for key, value in batch.items()}
        if type(batch) is dict:
            return items
        new = copy.copy(batch)  # keeps what else it knows: Hugging Face's BatchEncoding has its encodings
        new.update(items)  # type: ignore[attr-defined]
        return new
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(moved(value, move, device) for value in batch))
    if isinstance(batch, list | tuple):
        return type(batch)([moved(value, move, device) for value in batch])
    if device is not None and callable(getattr(batch, "to", None)):
        return batch.to(device)
    return batch


FEW = 64
"""Storages that may be known before it is worth looking which of them are still there."""


class Marked:
    """Storages by a weak reference of torch's own: Python's would not see that a view or a graph holds one."""

    def __init__(self) -> None:
        self._known: set[StorageWeakRef] = set()
        self._most = FEW

    def add(self, tensor: Tensor) -> None:
        """Before its memory is marked."""
        self._known.add(_weak(tensor.untyped_storage()))
        if len(self._known) > self._most:
            self._forget()
            self._most = max(FEW, 2 * len(self._known))  # a program may keep all of its batches

    def _forget(self) -> None:
        for each in list(self._known):
            if each.expired():  # type: ignore[no-untyped-call]
                self._known.discard(each)

    def keep(self) -> None:
        """In a forked child: what is still there stays for ever, the interpreter's own end included."""
        for each in list(self._known):
            storage = torch.UntypedStorage._new_with_weak_ptr(each.cdata)
            if storage is not None:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(storage))


_weak: Callable[[torch.UntypedStorage], StorageWeakRef] = StorageWeakRef

MARKED = Marked()

if hasattr(os, "register_at_fork"):  # who cannot fork has no such children
    os.register_at_fork(after_in_child=MARKED.keep)
