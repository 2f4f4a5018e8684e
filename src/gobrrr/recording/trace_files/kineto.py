"""Read torch.profiler's trace files, of any year and vendor, as hostile data, into a Trace.

`unpack` gives bytes, `document` and `wire` give events, `categories` says which table each belongs to, `columns` hold
them; `tables` are filled and put in order (`assemble`).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from gobrrr.errors import TraceError
from gobrrr.recording.model.trace import Trace
from gobrrr.recording.trace_files import others
from gobrrr.recording.trace_files.assemble import assemble
from gobrrr.recording.trace_files.document import HINT, Document
from gobrrr.recording.trace_files.limits import DEFAULT, Limits
from gobrrr.recording.trace_files.tables import Tables
from gobrrr.recording.trace_files.unpack import Unpacker
from gobrrr.system import files


def read_trace(path: Path, limits: Limits = DEFAULT) -> Trace:
    """Read one trace file: JSON, plain or compressed with gzip or zstd.

    Events that make no sense are left out and counted in `skipped`, a file that breaks off is read as far as it goes.
    Raises TraceError where the file cannot be opened, is no trace, or exceeds a limit.
    """
    try:
        with files.opened(path) as file:
            return read_stream(file, os.fstat(file.fileno()).st_size, str(path), limits)
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror or error}") from error


def read_stream(file: BinaryIO, num_bytes: int, source: str, limits: Limits = DEFAULT) -> Trace:
    """As `read_trace`, from an open file of `num_bytes` bytes; `source` is its name in messages."""
    unpacker = Unpacker(file, num_bytes, source, limits)
    document = Document(unpacker, source, limits)
    tables = Tables(document.skipped)
    for batch in document.batches():
        tables.add(batch)
    if unpacker.note:
        document.notes.insert(0, unpacker.note)
    if tables.num_rows == 0:
        raise others.begun(source, document.head) or TraceError(f"{source} {_why_nothing(document)}", HINT)
    if error := others.mixed(source, tables.categories()):
        raise error
    truncated = document.truncated or unpacker.broke
    return assemble(tables, document.properties, source, truncated, "; ".join(document.notes))


def _why_nothing(document: Document) -> str:
    if document.num_events == 0:
        return "is a trace without any events"
    if not document.skipped:
        return f"has {document.num_events} events, all of them metadata: nothing ran while it was recorded"
    reasons = ", ".join(f"{reason}: {count}" for reason, count in document.skipped.most_common(3))
    return f"has {document.num_events} events, but none that torch.profiler writes ({reasons})"
