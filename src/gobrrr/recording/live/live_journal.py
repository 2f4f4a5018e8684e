"""Read a journal that still grows, on from where the last look ended.

`capture/session/journal.py` has the format. `recording/run_folder/journal.py` reads it whole; here it is read frame by
frame, and no more is held than one frame of events. A frame that is not whole yet is waited for.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from gobrrr.recording.trace_files.limits import DEFAULT
from gobrrr.system import files
from gobrrr.words import CHECK, EVENT_BYTES, EVENTS, HEADER, RECORD

_PIECE = 1 << 20  # bytes read at once; proposed: no memory to speak of; the peak of a long look settles it
MOST_EVENTS = 1 << 20
"""Bytes of a frame of events: capture writes no larger one."""
MOST_RECORD = 4 << 20
"""Bytes of a record that is handed on; the columns of a window are larger, and are passed over."""
TORN = 3
"""Looks after which a checksum that is wrong stays wrong: the file system may show a size before its bytes."""


class Growing:
    """A journal that is being written. `share`: how much of it was read; `damage`: why it cannot be read on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damage = ""
        self.share = 0.0
        self.behind = False
        """Whether more lies there to be read at once."""
        self.modified_s = 0.0
        """When it was written last, Unix seconds."""
        self._place = self._wrong = 0
        self._file: tuple[int, int] | None = None

    def look(self, most: int) -> Iterator[tuple[bytes, bytes]]:
        """Kind and payload of the next whole frames, some `most` bytes of them. A file that has become shorter, or
        another one, begins anew with (b"", b""). Raises OSError where it is gone or no plain file."""
        with files.opened(self.path) as file:
            facts = os.fstat(file.fileno())
            self.modified_s = facts.st_mtime
            here = (facts.st_dev, facts.st_ino)
            if self._file is not None and (here != self._file or facts.st_size < self._place):
                self._place, self.damage, self._wrong = 0, "", 0
                yield b"", b""
            self._file = here
            end = min(facts.st_size, self._place + most)
            while not self.damage and self._place < end:
                file.seek(self._place)
                frame = self._frame(file, facts.st_size)
                if frame is None:
                    break
                yield frame
            self.share = self._place / facts.st_size if facts.st_size else 1.0
            self.behind = not self.damage and self._place >= end and end < facts.st_size

    def _frame(self, file: BinaryIO, size: int) -> tuple[bytes, bytes] | None:
        """The frame at the place, which moves behind it; None where it is not whole."""
        head = file.read(HEADER.size)
        if len(head) < HEADER.size:
            return None
        kind, length = HEADER.unpack(head)
        most = {EVENTS: MOST_EVENTS, RECORD: DEFAULT.journal_frame_bytes}.get(kind, -1)
        if length > most or (kind == EVENTS and length % EVENT_BYTES):
            self.damage = f"no frame begins at byte {self._place}"
            return None
        if self._place + HEADER.size + length + CHECK.size > size:
            return None
        payload, mark = self._payload(file, head, length)
        check = file.read(CHECK.size)
        if len(check) < CHECK.size or CHECK.unpack(check)[0] != mark:
            self._wrong += 1
            if self._wrong >= TORN:
                self.damage = f"the checksum of the frame at byte {self._place} is wrong"
            return None
        self._wrong = 0
        self._place += HEADER.size + length + CHECK.size
        return kind, payload

    def _payload(self, file: BinaryIO, head: bytes, length: int) -> tuple[bytes, int]:
        """The payload and the checksum of all so far; nothing but the checksum of a record that is too large."""
        mark, pieces, left = zlib.crc32(head), [], length
        while left and (piece := file.read(min(left, _PIECE))):
            mark, left = zlib.crc32(piece, mark), left - len(piece)
            if length <= MOST_RECORD:
                pieces.append(piece)
        return b"".join(pieces), mark
