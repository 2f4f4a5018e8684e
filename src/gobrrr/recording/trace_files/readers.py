"""Find the reader of a file: the first whose mark it begins with, whatever its name."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from gobrrr.recording.model.trace import Trace
from gobrrr.recording.trace_files.limits import Limits
from gobrrr.system import files


class Reader(NamedTuple):
    """One format of traces."""

    endings: tuple[str, ...]
    """Endings of the files that are looked for in folders."""
    mark: bytes
    """Bytes that such a file begins with; empty: anything."""
    function: str
    """module:name of what takes a path and limits, gives a Trace, and raises TraceError; imported when it reads."""

    def read(self, path: Path, limits: Limits) -> Trace:
        """The trace. Raises TraceError."""
        module, _, name = self.function.partition(":")
        trace: Trace = getattr(import_module(module), name)(path, limits)
        return trace


KINETO = Reader((".json", ".json.gz", ".json.zst"), b"", "gobrrr.recording.trace_files.kineto:read_trace")
READERS: tuple[Reader, ...] = (
    Reader((".sqlite",), b"SQLite format 3\0", "gobrrr.recording.trace_files.nsys:read_export"),
    KINETO,
)


def reader_of(path: Path) -> Reader:
    """The last where the file cannot be opened: reading says that better."""
    most = max(len(reader.mark) for reader in READERS)
    try:
        with files.opened(path) as file:
            begins = file.read(most)
    except OSError:
        return READERS[-1]
    return next(reader for reader in READERS if begins.startswith(reader.mark))
