"""Read the journal that the watched program wrote before it ended, however it ended.

`capture/session/journal.py` has the format. The file is hostile until checked: lengths are held against what is there,
every frame against its checksum, and reading stops with a note where the first one does not hold.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from gobrrr.errors import TraceError
from gobrrr.recording.model.trace import Ints
from gobrrr.recording.trace_files.limits import DEFAULT, Limits, exceeded
from gobrrr.system import files
from gobrrr.words import CHECK, EVENT_BYTES, EVENTS, HEADER, RECORD


@dataclass(frozen=True, eq=False)
class Journal:
    """Frames in the order in which they were written, as far as they are whole."""

    events: Ints
    """(n, 4): t_ns, kind, id, value."""
    records: tuple[dict[str, Any], ...]
    truncated: bool = False
    note: str = ""
    """Where and why reading stopped, empty for a whole file."""


def read_journal(path: Path, limits: Limits = DEFAULT) -> Journal:
    """Read a journal up to its first frame that is not whole.

    Raises TraceError where the file cannot be opened or a limit of `limits` is exceeded; a torn or damaged tail is no
    error but `truncated` and a note.
    """
    events: list[Ints] = []
    records: list[dict[str, Any]] = []
    note = ""
    try:
        with files.opened(path) as file:
            num_bytes = os.fstat(file.fileno()).st_size
            if num_bytes > limits.file_bytes:
                raise exceeded(str(path), "file_bytes", limits.file_bytes, num_bytes)
            for kind, payload in _frames(file, str(path), num_bytes, limits):
                if kind == EVENTS:
                    events.append(events_of(payload))
                else:
                    records.append(record_of(payload))
    except Unreadable as stop:
        note = str(stop)
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or error}", "is it the journal of a finished run?") from error
    joined = np.concatenate(events) if events else np.empty((0, 4), np.int64)
    return Journal(joined, tuple(records), bool(note), note)


def _frames(file: BinaryIO, source: str, num_bytes: int, limits: Limits) -> Iterator[tuple[bytes, bytes]]:
    """Yield (kind, payload) of every whole frame; raise Unreadable at the first that is not."""
    place = 0
    while head := file.read(HEADER.size):
        if len(head) < HEADER.size:
            raise Unreadable(f"ends within a frame at byte {place}")
        kind, length = HEADER.unpack(head)
        if kind not in (EVENTS, RECORD):
            raise Unreadable(f"no frame begins at byte {place}")
        if length > num_bytes - place - HEADER.size - CHECK.size:
            raise Unreadable(f"ends within a frame at byte {place}")
        if length > limits.journal_frame_bytes:
            raise exceeded(source, "journal_frame_bytes", limits.journal_frame_bytes, length, f"at byte {place}")
        payload, check = file.read(length), file.read(CHECK.size)
        if len(payload) < length or len(check) < CHECK.size:
            raise Unreadable(f"ends within a frame at byte {place}")
        if CHECK.unpack(check)[0] != zlib.crc32(payload, zlib.crc32(head)):
            raise Unreadable(f"the checksum of the frame at byte {place} is wrong")
        if kind == EVENTS and length % EVENT_BYTES:
            raise Unreadable(f"the events of the frame at byte {place} are not whole")
        yield kind, payload
        place += HEADER.size + length + CHECK.size


class Unreadable(Exception):
    """Reading cannot go on; the message says why."""


def events_of(payload: bytes) -> Ints:
    """(n, 4): t_ns, kind, id, value. `payload`: EVENT_BYTES of each."""
    found: Ints = np.frombuffer(payload, "<i8").reshape(-1, 4).astype(np.int64)
    return found


def record_of(payload: bytes) -> dict[str, Any]:
    """One JSON object; NaN and infinity, which JSON does not have, become None. Raises Unreadable where it is none."""
    try:
        record = json.loads(payload, parse_constant=lambda _: None)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"a record is not JSON: {error}") from error
    if not isinstance(record, dict):
        raise Unreadable("a record is not a JSON object")
    return record
