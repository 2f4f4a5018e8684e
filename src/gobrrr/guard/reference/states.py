"""The baseline's own state at some step boundaries, kept on disk, so that another run can begin a step from it.

Two runs that round differently drift apart, and after twenty steps a fault can't be told from the drift. A run that is
set to the baseline's weights, buffers, optimizer states and random streams before a step makes that one step from the
same place with the same batch: what differs then is what the change does.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec

from gobrrr.guard.watch.digest import raw
from gobrrr.guard.watch.randomness import Streams, restore, streams

MOST_BYTES = 4 << 30
"""Bytes of all states of a program together; never more than a quarter of what the disk has left."""
_ALIGNED = 64
"""Bytes; proposed: an x86 cache line, a multiple of any element's size; timing reads on other chips would settle it."""
Named = dict[str, Any]
"""Tensors and plain numbers by name."""


class _Entry(msgspec.Struct, frozen=True):
    """Where a tensor lies behind the head; a plain number is its own entry."""

    name: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    at: int = 0
    number: float | None = None


class _Head(msgspec.Struct, frozen=True):
    random: Streams
    entries: tuple[_Entry, ...]


class States:
    """A folder of states. The baseline's run keeps them (`keeps`), any other run is set to them."""

    def __init__(self, folder: Path, keeps: bool) -> None:
        self._folder, self.keeps = folder, keeps
        if keeps:
            folder.mkdir(parents=True, exist_ok=True)
        self._left = min(MOST_BYTES, shutil.disk_usage(folder).free // 4) if keeps else 0

    def affordable(self, num_bytes: int) -> int:
        """How many states of so many bytes there is room for."""
        return self._left // max(1, num_bytes)

    def has(self, step: int) -> bool:
        """Whether the state before a step was kept."""
        return self._file(step).exists()

    def keep(self, step: int, named: Named) -> None:
        """Write the state before a step. A disk that is full costs this state and all later ones."""
        entries, blobs, at = [], [], 0
        for name, value in named.items():
            if not hasattr(value, "dtype"):
                entries.append(_Entry(name, number=float(value)))
                continue
            flat = value.detach().to("cpu").contiguous().reshape(-1)
            entries.append(_Entry(name, str(value.dtype).removeprefix("torch."), tuple(value.shape), at))
            blobs.append(flat)
            at += _padded(flat.numel() * flat.element_size())
        if at > self._left:
            return
        self._left -= at
        try:
            self._write(step, _Head(streams(), tuple(entries)), blobs)
        except OSError:
            self._left = 0

    def _write(self, step: int, head: _Head, blobs: list[Any]) -> None:
        words = msgspec.msgpack.encode(head)
        part = self._file(step).with_suffix(".part")
        with part.open("wb") as file:
            file.write(len(words).to_bytes(8, "little") + words)
            file.write(bytes(_padded(file.tell()) - file.tell()))
            for blob in blobs:
                data = raw(blob)
                file.write(data)
                file.write(bytes(_padded(len(data)) - len(data)))
        part.rename(self._file(step))

    def begin_from(self, step: int, named: Named) -> list[str]:
        """Set tensors, in place, and the random streams to the baseline's before a step. Gives the names of its state
        that could not be set: they are not there, or of another shape."""
        import torch

        size = self._file(step).stat().st_size
        whole = torch.from_file(str(self._file(step)), shared=False, size=size, dtype=torch.uint8)
        words = int.from_bytes(bytes(whole[:8].tolist()), "little")
        head = msgspec.msgpack.decode(raw(whole[8 : 8 + words]), type=_Head)
        values = whole[_padded(8 + words) :]
        with torch.no_grad():
            missing = [entry.name for entry in head.entries if not _set(named.get(entry.name), values, entry)]
        restore(head.random)
        return missing

    def _file(self, step: int) -> Path:
        return self._folder / f"before-{step}"


def _set(own: Any, values: Any, entry: _Entry) -> bool:
    """Whether a tensor of the baseline's could be put into this run's own, or a number is the same."""
    import torch

    if entry.number is not None:
        return not hasattr(own, "dtype") and bool(own == entry.number)
    if getattr(own, "shape", None) != entry.shape:
        return False
    dtype = getattr(torch, entry.dtype)
    num_bytes = own.numel() * dtype.itemsize
    kept = values[entry.at : entry.at + num_bytes].view(dtype).reshape(entry.shape)
    kept = kept.to(own.dtype)
    try:
        if not torch.equal(own.cpu(), kept):
            own.data.copy_(kept)  # a step's graph may hold it already: its version must stay
    except RuntimeError:  # a tensor of inference mode, or one that is not its own memory's only owner
        return False
    return True


def _padded(num_bytes: int) -> int:
    return -(-num_bytes // _ALIGNED) * _ALIGNED
