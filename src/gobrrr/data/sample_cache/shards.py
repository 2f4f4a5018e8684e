"""Shards of a store on disk, and the one process that appends to each.

A shard is two files under one lock:

- `part-*.data`: records, each at a multiple of 16 bytes: checksum, size, number (16 bytes), payload;
- `part-*.index`: one entry per record, written after it: number, offset, size (20 bytes).

A record counts once its entry is whole. So a process can be killed at any moment, and another takes its shard over. The
checksum covers number, size and payload and begins at the data's fingerprint, so that what is read is what was computed
for this very number of this very data. Nothing that counts is ever cut off, so that what is mapped stays.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import secrets
import stat
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from gobrrr.data.sample_cache.samples import ALIGN
from gobrrr.system import files

HEAD = struct.Struct("<IIq")
ENTRY = np.dtype([("number", "<i8"), ("offset", "<i8"), ("size", "<u4")])
_ENTRY = struct.Struct("<qqI")
PREFIX, DATA, INDEX = "part-", ".data", ".index"
MOST_NAMES = 40_000
"""Names of a folder that are looked at."""
_BETWEEN_LOOKS = 64 << 20
"""Bytes written between two looks at how much of the disk is free."""


class Handle:
    """An open file that is closed once nobody uses it: a thread may still read what another has put away."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def fileno(self) -> int:
        return self.number

    def __del__(self, close: Callable[[int], None] = os.close) -> None:  # at exit the module's names are gone
        close(self.number)


def readable(path: Path) -> Handle:
    """A plain file, no link. Raises OSError."""
    with files.opened(path, follow=False) as file:
        return Handle(os.dup(file.fileno()))


class Writer:
    """Appends to a shard that no other process writes to: one that was left, or a new one. Raises OSError."""

    def __init__(self, folder: Path, leave_free: int) -> None:
        self.folder = folder
        self.leave_free = leave_free
        self.name, self.index = _free_shard(folder)
        self.data = _writable(folder / (self.name + DATA), os.O_CREAT)
        self.count = os.fstat(self.index.fileno()).st_size // ENTRY.itemsize
        self.end = _aligned(os.fstat(self.data.fileno()).st_size)
        self.unlooked = _BETWEEN_LOOKS

    def append(self, number: int, payload: bytes | bytearray, seed: int) -> int:
        """The record's offset. The entry comes last: without it the record does not count."""
        self._look_at_disk(len(payload))
        offset = self.end
        rest = struct.pack("<Iq", len(payload), number)
        checksum = zlib.crc32(payload, zlib.crc32(rest, seed))
        try:
            _write(self.data, checksum.to_bytes(4, "little") + rest + payload, offset)
        except OSError:
            os.ftruncate(self.data.fileno(), offset)  # gives back the part; nobody reads beyond the last entry
            raise
        self.end = _aligned(offset + HEAD.size + len(payload))
        _write(self.index, _ENTRY.pack(number, offset, len(payload)), self.count * ENTRY.itemsize)
        self.count += 1
        return offset

    def _look_at_disk(self, size: int) -> None:
        self.unlooked += size
        if self.unlooked >= _BETWEEN_LOOKS:
            self.unlooked = 0
            facts = os.statvfs(self.folder)
            if facts.f_bavail * facts.f_frsize < self.leave_free:
                raise OSError(errno.ENOSPC, f"less than {self.leave_free:,} bytes of the disk are free")


def _free_shard(folder: Path) -> tuple[str, Handle]:
    """A shard that nobody holds, and its index file, locked until it is closed."""
    with os.scandir(folder) as found:
        names = sorted(one.name for one in itertools.islice(found, MOST_NAMES) if is_index(one.name))
    for name in names:
        try:
            file = _writable(folder / name, 0)
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue  # held, not ours, or on a file system without locks
        return name.removesuffix(INDEX), file
    while True:
        name = f"{PREFIX}{secrets.token_hex(8)}"
        file = _writable(folder / (name + INDEX), os.O_CREAT | os.O_EXCL)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue  # another process was faster to take it over
        except OSError:
            pass  # no locks here: nobody takes shards over either
        return name, file


def _writable(path: Path, flags: int) -> Handle:
    """A plain file of its own, no link. Raises OSError."""
    number = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | flags, files.AS_USUAL)
    handle = Handle(number)
    facts = os.fstat(number)
    if not stat.S_ISREG(facts.st_mode) or facts.st_nlink != 1:
        raise OSError(errno.EINVAL, f"{path.name} is no plain file of its own")
    return handle


def _write(file: Handle, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(file.fileno(), view, offset)
        view, offset = view[written:], offset + written


def _aligned(offset: int) -> int:
    return offset + -offset % ALIGN


def is_index(name: str) -> bool:
    return name.startswith(PREFIX) and name.endswith(INDEX)
