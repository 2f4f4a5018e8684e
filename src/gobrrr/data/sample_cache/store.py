"""Payloads by number in a folder: appended by many processes at once (shards.py), checked on reading."""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import struct
import threading
import time
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gobrrr.data.sample_cache.samples import ALIGN, MAX_BYTES
from gobrrr.data.sample_cache.shards import DATA, ENTRY, HEAD, INDEX, MOST_NAMES, Handle, Writer, is_index, readable
from gobrrr.system import files

_SHARD_BITS = 44
"""A place is a shard's number and, in these bits, an offset: 16 TiB per shard."""
_MOST_SHARDS = 10_000
"""Shards read of a folder; proposed: more than processes ever write at once; a folder with more would settle it."""
_MOST_OPEN = 128
"""Files open at once; proposed: far below the usual limit, 1,024; timing a store of more shards would settle it."""
_BLOCK = 1 << 20
"""Entries read at once."""
# A page that is written becomes the process's own; no swap is set aside for it, where the system knows that.
_PRIVATE = mmap.MAP_PRIVATE | getattr(mmap, "MAP_NORESERVE", 0)
_MOST_TRIED = 64
"""Records of one number, where the first is damaged."""
_LARGE = 1 << 20
"""Bytes from which on a record says what it is before memory is taken for it."""
_SHARE = 0.01
"""Largest share of the time that looking for other processes' records takes."""


class Store:
    """`get(number)` and `put(number, payload)`, for numbers from 0 to `length` - 1, 12 bytes of memory for each.

    `seed`: what checksums begin at. `leave_free`: bytes of the disk that stay free. A write that fails is told once
    and ends the writing of this process. Threads may share a store; a forked process goes on with what its parent knew.
    """

    def __init__(self, folder: Path, length: int, seed: int, leave_free: int = 0, copy: bool = True) -> None:
        self.folder = folder
        self.length = length
        self.seed = seed
        self.leave_free = leave_free
        self.copy = copy
        self._places = np.full(length, -1, np.int64)
        self._sizes = np.zeros(length, np.uint32)
        self._shards: dict[str, int] = {}  # the number of each, by name
        self._names: list[str] = []
        self._seen: list[int] = []  # entries read, by shard
        self._begin()

    def _begin(self) -> None:
        """Set up what one process owns: nothing open is shared with a parent, whose lock and places it would use."""
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._open: dict[int, Handle] = {}
        self._maps: dict[int, mmap.mmap] = {}
        self._writer: Writer | None = None
        self._writes = True
        self._told = False
        self._look_again = self._search_again = 0.0  # times before which that would cost more than its share

    def __getstate__(self) -> tuple[Any, ...]:
        return self.folder, self.length, self.seed, self.leave_free, self.copy

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def __len__(self) -> int:
        """How many numbers have a record, as far as this process knows."""
        return int(np.count_nonzero(self._places >= 0))

    def get(self, number: int) -> Any:
        """The payload: a buffer of its own or, without `copy`, private pages of the file. None where there is none,
        or none that is whole."""
        if os.getpid() != self._process:
            self._begin()
        place = self._places.item(number)
        if place < 0 and time.perf_counter() >= self._look_again:
            self.look()
            place = self._places.item(number)
        if place < 0:
            return None
        payload = self._read(place, self._sizes.item(number), number)
        return payload if payload is not None else self._elsewhere(number)

    def put(self, number: int, payload: bytes | bytearray) -> None:
        """Keep it, or say once why that cannot be."""
        if os.getpid() != self._process:
            self._begin()
        with self._lock:
            if not self._writes:
                return
            try:
                if self._writer is None:
                    self._writer = Writer(self.folder, self.leave_free)
                offset = self._writer.append(number, payload, self.seed)
                shard = self._shard(self._writer.name)
                # entries that were read by nobody here (of a shard taken over) stay to be read
                if self._seen[shard] == self._writer.count - 1:
                    self._seen[shard] += 1
                self._sizes[number] = len(payload)
                self._places[number] = shard << _SHARD_BITS | offset
            except OSError as error:
                self._writes = False
                self._writer = None
                reason = error.strerror or str(error)
                _warn(f"{self.folder} takes no more samples ({reason}): they are computed anew each time")

    def damaged(self, number: int) -> None:
        """Forget a record that was whole and made no sample, and say so once."""
        self._places[number] = -1
        if not self._told:
            self._told = True
            _warn(f"{self.folder} is damaged (the record of sample {number}): what is damaged is computed anew")

    def look(self) -> None:
        """Take in what other processes have written since the last look. A missing folder is an empty one."""
        began = time.perf_counter()
        with self._lock:
            try:
                with os.scandir(self.folder) as found:
                    few = [one for one in itertools.islice(found, MOST_NAMES) if is_index(one.name)]
                # the one written last comes last, and its records count: it may hold what another has damaged
                few.sort(key=lambda one: (one.stat(follow_symlinks=False).st_mtime_ns, one.name))
            except OSError:
                few = []
            for one in few[:_MOST_SHARDS]:
                self._take_in(self._shard(one.name.removesuffix(INDEX)))
        self._look_again = _later(began)

    def _shard(self, name: str) -> int:
        if name not in self._shards:
            self._shards[name] = len(self._names)
            self._names.append(name)
            self._seen.append(0)
        return self._shards[name]

    def _take_in(self, shard: int) -> None:
        """Entries that are new; those whose bytes are not there (after a crash of the system) are passed over."""
        try:
            for number, entries in self._entries(shard, self._seen[shard]):
                keep = entries[self._sane(shard, entries)]
                self._sizes[keep["number"]] = keep["size"]
                self._places[keep["number"]] = keep["offset"] | shard << _SHARD_BITS
                self._seen[shard] = number
        except OSError:
            return  # a link, a pipe, a file of another user: none of ours

    def _entries(self, shard: int, first: int) -> Iterator[tuple[int, Any]]:
        """(entries up to here, the next block of entries), from the first on; as many as a data set can make use of."""
        most = 4 * self.length + _BLOCK
        path = self.folder / (self._names[shard] + INDEX)
        if path.lstat().st_size // ENTRY.itemsize <= first:
            return
        with files.opened(path, follow=False) as file:
            file.seek(first * ENTRY.itemsize)
            while first < most:
                data = file.read(_BLOCK * ENTRY.itemsize)
                entries = np.frombuffer(data[: len(data) // ENTRY.itemsize * ENTRY.itemsize], ENTRY)
                if not len(entries):
                    return
                first += len(entries)
                yield first, entries

    def _sane(self, shard: int, entries: Any) -> Any:
        end = min((self.folder / (self._names[shard] + DATA)).lstat().st_size, 1 << _SHARD_BITS)
        number, offset, size = entries["number"], entries["offset"], entries["size"]
        inside = (offset >= 0) & (offset <= end) & (offset % ALIGN == 0) & (offset + HEAD.size + size <= end)
        return inside & (number >= 0) & (number < self.length) & (size <= MAX_BYTES)

    def _elsewhere(self, number: int) -> Any:
        """Another record of the same number, which a process made that found the first one damaged."""
        began = time.perf_counter()
        if began >= self._search_again:
            with self._lock:
                for place, size in itertools.islice(self._records(number), _MOST_TRIED):
                    payload = self._read(place, size, number)
                    if payload is not None:
                        self._sizes[number], self._places[number] = size, place
                        return payload
            self._search_again = _later(began)
        self.damaged(number)
        return None

    def _records(self, number: int) -> Iterator[tuple[int, int]]:
        """(place, size) of all records of a number, by reading all entries."""
        for shard in range(len(self._names)):
            with contextlib.suppress(OSError):
                for _, entries in self._entries(shard, 0):
                    mine = entries[entries["number"] == number]
                    for _, offset, size in mine[self._sane(shard, mine)].tolist():
                        yield shard << _SHARD_BITS | offset, size

    def _read(self, place: int, size: int, number: int) -> Any:
        """A record's payload; None where the file is gone, too short, or says something else than was written."""
        shard, offset = place >> _SHARD_BITS, place & ((1 << _SHARD_BITS) - 1)
        try:
            file = self._open.get(shard) or self._opened(shard)
            if size > _LARGE and HEAD.unpack(os.pread(file.fileno(), HEAD.size, offset))[1:] != (size, number):
                return None
            for record in self._copies(shard, file, offset, size):
                checksum, said_size, said_number = HEAD.unpack_from(record)
                if (said_size, said_number, checksum) == (size, number, zlib.crc32(record[4:], self.seed)):
                    return record[HEAD.size :]
        except (OSError, ValueError, struct.error):
            pass
        return None

    def _copies(self, shard: int, file: Handle, offset: int, size: int) -> Iterator[Any]:
        """The record as it is mapped, and as the file has it: who was given the pages may have changed them."""
        mapped = None if self.copy else self._mapped(shard, file, offset, size)
        if mapped is not None:
            yield mapped
        copied = self._copied(file, offset, size)
        if copied is not None:
            yield copied

    def _opened(self, shard: int) -> Handle:
        with self._lock:
            if len(self._open) >= _MOST_OPEN:
                self._open.pop(next(iter(self._open)))  # closed once no thread reads from it
            file = self._open[shard] = readable(self.folder / (self._names[shard] + DATA))
        return file

    def _copied(self, file: Handle, offset: int, size: int) -> Any:
        record: Any = np.empty(HEAD.size + size, np.uint8)
        return record if os.preadv(file.fileno(), [record], offset) == len(record) else None

    def _mapped(self, shard: int, file: Handle, offset: int, size: int) -> Any:
        """Pages that are this process's own once it writes to them: torch knows no tensor that cannot be written."""
        end = offset + HEAD.size + size
        if os.fstat(file.fileno()).st_size < end:
            return None
        with self._lock:
            pages = self._maps.get(shard)
            if pages is None or len(pages) < end:
                with contextlib.suppress(OSError):  # where private pages count as memory, a large shard is too much
                    pages = self._maps[shard] = mmap.mmap(file.fileno(), 0, _PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
        if pages is None or len(pages) < end:
            return None
        return np.frombuffer(pages, np.uint8, end - offset, offset)


def _later(began: float) -> float:
    """When to do again what began then and ends now."""
    now = time.perf_counter()
    return now + (now - began) / _SHARE


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=4)
