"""Read a file's bytes, plain or compressed, and where they stop."""

from __future__ import annotations

import gzip
import importlib
import zlib
from collections.abc import Iterator
from importlib.util import find_spec
from io import BufferedReader
from types import ModuleType
from typing import BinaryIO, cast

from gobrrr.errors import TraceError
from gobrrr.recording.trace_files.limits import RATIO_FLOOR, Limits, exceeded

BLOCK = 4 << 20  # bytes; proposed: many events, little memory; reading times at other sizes settle it
GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_FOREIGN = {b"PK\x03\x04": "a zip archive", b"\x80\x04\x95": "a pickle, which is never loaded", b"BZh": "bzip2"}


class Unpacker:
    """Iterates over a file's decompressed bytes in blocks of at most BLOCK, within the limits.

    A compressed stream that breaks off or fails its checksum ends the iteration with `note` set; what came before
    is kept. Raises TraceError where a limit is exceeded or the compression is not one that can be read.
    """

    def __init__(self, file: BinaryIO, num_bytes: int, source: str, limits: Limits) -> None:
        if num_bytes > limits.file_bytes:
            raise exceeded(source, "file_bytes", limits.file_bytes, num_bytes)
        if num_bytes == 0:
            raise TraceError(f"{source} is empty", "was the program killed before the profiler wrote its trace?")
        self.note, self.broke = "", False
        self._num_bytes, self._source, self._limits = num_bytes, source, limits
        self._stream = _open(file, source)

    def __iter__(self) -> Iterator[bytes]:
        done = 0
        while not self.note and (block := self._next(done)):
            done += len(block)
            if done > self._limits.unpacked_bytes:
                raise exceeded(self._source, "unpacked_bytes", self._limits.unpacked_bytes)
            if done > RATIO_FLOOR and done > self._limits.ratio * self._num_bytes:
                raise exceeded(self._source, "ratio", self._limits.ratio, place=f"unpacks from {self._num_bytes} bytes")
            yield block

    def _next(self, done: int) -> bytes:
        """A block, shorter where the data end or break off."""
        parts: list[bytes] = []
        missing = BLOCK
        try:
            while missing and (part := self._stream.read1(missing)):
                parts.append(part)
                missing -= len(part)
        except Exception as error:
            done += BLOCK - missing
            if isinstance(error, OSError) and done == 0:
                raise TraceError(f"{self._source} cannot be read: {error.strerror or error}") from error
            self.note = _said(error, done)
            self.broke = not self.note.startswith("other bytes")
        return b"".join(parts)


def _said(error: Exception, done: int) -> str:
    """How a compressed stream ended after so many unpacked bytes. Raises what is no such end."""
    if isinstance(error, EOFError):
        return f"the compressed data breaks off after {done} unpacked bytes"
    if isinstance(error, gzip.BadGzipFile) and "Not a gzipped file" in str(error):  # between two members
        return f"other bytes follow the compressed data, of {done} unpacked bytes"
    if isinstance(error, (OSError, zlib.error)) or type(error).__name__ == "ZstdError":
        return f"the compressed data is damaged after {done} unpacked bytes"
    raise error


def _open(file: BinaryIO, source: str) -> BufferedReader:
    """The stream of decompressed bytes, chosen by the file's first bytes and not by its name."""
    magic = file.read(4)
    file.seek(0)
    for start, what in _FOREIGN.items():
        if magic.startswith(start[:4]):
            raise TraceError(f"{source} is {what}, not a trace", "give the .json, .json.gz or .json.zst file")
    if magic.startswith(GZIP):
        return cast(BufferedReader, gzip.GzipFile(fileobj=file))
    if magic == _ZSTD:
        return _open_zstd(file, source)
    return cast(BufferedReader, file)


def _open_zstd(file: BinaryIO, source: str) -> BufferedReader:
    module = _zstd()
    if module is None:
        raise TraceError(f"{source} is compressed with zstd, which this Python cannot read", "pip install zstandard")
    return cast(BufferedReader, module.open(file, "rb"))


def _zstd() -> ModuleType | None:
    """The standard library's module (Python 3.14 and later), or the package of the same interface, or None."""
    for name in ("compression.zstd", "zstandard"):
        if find_spec(name.partition(".")[0]):
            return importlib.import_module(name)
    return None
