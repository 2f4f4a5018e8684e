"""Frames of a journal, for those who read it whole and those who read it while it grows.

`capture/out/journal.py` has the format, and imports nothing of this: it runs in a program that is not ours.
"""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np

from gobrrr.recording.model.trace import Ints

HEADER = struct.Struct("<cI")
"""Kind, and bytes of the payload."""
CHECK = struct.Struct("<I")
"""crc32 of header and payload."""
EVENTS, RECORD = b"E", b"J"
EVENT_BYTES = 32  # of an event: four int64 (see event_kinds)


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
