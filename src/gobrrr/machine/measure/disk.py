"""How fast a folder's disk gives training samples back: as small files, as one archive, as one mapped file.

The data are made here (random bytes, which no disk compresses), read cold and warm, and removed. Cold is asked for
with `posix_fadvise(DONTNEED)` and believed only where the kernel then says that a page is not in memory
(`RWF_NOWAIT`). It is cold for this computer: the host of a virtual disk, or a server, may hold it still.
"""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import tarfile
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from gobrrr.errors import GobrrrError

SCHEMA = "gobrrr.disk/1"
SAMPLE = 64 << 10
"""Bytes: a small photograph, or 16,000 tokens."""
SIZE = 256 << 20  # bytes of each layout; proposed: 4096 samples; the spread between two runs settles it
SECONDS = 20.0  # of writing and reading; proposed: as long as a user waits; the spread between two runs settles it
_LEAST = 16
"""Samples: fewer are no measurement."""
_WRITING = 0.4
"""Share of the time that making the data may take; what is made by then is what is read."""


class Reading(msgspec.Struct, frozen=True):
    """One pass. `cold`: the kernel said so; `rate`: bytes per second; `complete`: False where the time was up."""

    layout: str
    order: str
    cold: bool
    samples: int
    rate: float
    samples_per_second: float
    complete: bool


class Disk(msgspec.Struct, frozen=True):
    """Speeds measured on a folder's disk. `notes`: what could not be had, and why."""

    sample_bytes: int
    samples: int
    readings: tuple[Reading, ...]
    notes: tuple[str, ...] = ()
    schema: str = SCHEMA


Read = Callable[[int], Any]


def measure(folder: Path, size: int = SIZE, seconds: float = SECONDS) -> Disk:
    """Write `size` bytes three times (fewer where that takes too long), read them in each way, remove them.

    It takes about `seconds`. Raises GobrrrError for a folder that is none, cannot be written or has too little room.
    """
    _check(folder, size)
    began = time.monotonic()
    try:
        home = Path(tempfile.mkdtemp(prefix="gobrrr-disk-", dir=folder))
    except OSError as error:
        raise _unwritable(folder, error) from None
    try:
        count = _write(home, size // SAMPLE, began + seconds * _WRITING)
        return _measured(home, count, began + seconds)
    except OSError as error:
        raise _unwritable(folder, error) from None
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _check(folder: Path, size: int) -> None:
    if not folder.is_dir():
        raise GobrrrError(f"{folder} is no folder", "name one on the disk that holds your data")
    free, need = shutil.disk_usage(folder).free, 4 * size
    if free < need:
        raise GobrrrError(
            f"{folder} has {free >> 20:,} MiB free; {need >> 20:,} MiB are wanted", "make room, or name another folder"
        )


def _unwritable(folder: Path, error: OSError) -> GobrrrError:
    return GobrrrError(f"cannot measure in {folder}: {error.strerror or error}", "name a folder that can be written")


def _write(home: Path, most: int, deadline: float) -> int:
    """The same samples in all layouts, on the disk; how many there are."""
    draw = np.random.Generator(np.random.SFC64())
    (home / "files").mkdir()
    count = 0
    with (home / "raw").open("wb") as raw, tarfile.open(home / "tar", "w") as tar:
        while count < most and (count < _LEAST or time.monotonic() < deadline):
            data = draw.bytes(SAMPLE)
            path = home / "files" / f"{count:06d}"
            with path.open("wb") as file:
                file.write(data)
                file.flush()
            raw.write(data)
            tar.add(path, arcname=path.name)
            count += 1
    _flush(home)
    return count


def _flush(home: Path) -> None:
    """To the disk: a page that is not there yet cannot leave memory. File by file it takes 7 ms each."""
    import ctypes

    handle = os.open(home, os.O_RDONLY)
    try:
        ctypes.CDLL(None).syncfs(handle)
    except (OSError, AttributeError):  # not Linux: all file systems
        os.sync()
    finally:
        os.close(handle)


def _all(home: Path) -> Iterator[Path]:
    yield home / "raw"
    yield home / "tar"
    yield from (home / "files").iterdir()


def _measured(home: Path, count: int, deadline: float) -> Disk:
    ways: list[tuple[str, str, Callable[[Path, np.ndarray[Any, Any]], Iterator[Any]]]] = [
        ("small files", "in order", _files),
        ("small files", "random", _files),
        ("one archive (tar)", "in order", _archive),
        ("one file, mapped", "in order", _mapped),
        ("one file, mapped", "random", _mapped),
    ]
    shuffled = np.random.RandomState(0).permutation(count)
    readings, warm_only = [], False
    for number, (layout, order, read) in enumerate(ways):
        warm = shuffled if order == "random" else np.arange(count)
        for cold in (True, False):
            left = 2 * (len(ways) - number) - (not cold)
            until = time.monotonic() + max(0.1, deadline - time.monotonic()) / left
            if cold and not _dropped(home):
                warm_only = True
                continue
            readings.append(_timed(layout, order, cold, read(home, warm), count, until))
            warm = warm[: readings[-1].samples]  # those that the cold pass has brought into memory
    notes = ["cold could not be had: the system keeps these files in memory (tmpfs, or no posix_fadvise)"]
    return Disk(SAMPLE, count, tuple(readings), tuple(notes) if warm_only else ())


def _timed(layout: str, order: str, cold: bool, samples: Iterator[Any], count: int, until: float) -> Reading:
    """Every byte is looked at: what is only mapped has not been read."""
    done, began = 0, time.perf_counter()
    for data in samples:
        zlib.adler32(data)
        done += 1
        if time.monotonic() > until and done >= _LEAST:
            break
    took = time.perf_counter() - began
    return Reading(layout, order, cold, done, done * SAMPLE / took, done / took, done == count)


def _files(home: Path, order: Any) -> Iterator[Any]:
    for number in order.tolist():
        with (home / "files" / f"{number:06d}").open("rb") as file:
            yield file.read()


def _archive(home: Path, order: Any) -> Iterator[Any]:
    with tarfile.open(home / "tar") as tar:
        for member in tar:
            file = tar.extractfile(member)
            assert file is not None
            yield file.read()


def _mapped(home: Path, order: Any) -> Iterator[Any]:
    with (home / "raw").open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as pages:
        for number in order.tolist():
            yield pages[number * SAMPLE : (number + 1) * SAMPLE]


def _dropped(home: Path) -> bool:
    """Say whether the kernel has let go of all pages, as far as it tells."""
    if not hasattr(os, "posix_fadvise"):
        return False
    for path in _all(home):
        handle = os.open(path, os.O_RDONLY)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)
    return not any(_in_memory(path) for path in (home / "raw", home / "tar", home / "files" / "000000"))


def _in_memory(path: Path) -> bool:
    """Say whether the middle of a file can be read without its disk; yes where the system does not tell."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.preadv(handle, [bytearray(1)], os.fstat(handle).st_size // 2, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except (OSError, AttributeError) as error:
        return not (isinstance(error, OSError) and error.errno == errno.EAGAIN)
    finally:
        os.close(handle)
    return True
