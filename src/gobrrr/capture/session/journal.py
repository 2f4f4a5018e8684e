"""How does the watched program's side write down what it sees, so that a kill at any moment loses only the tail?

Frame: kind (1 byte), payload length (4 bytes, little-endian), payload, crc32 of all before it (4 bytes, little-endian);
kinds and payloads are in gobrrr.words. Standard library only: it is imported into a program that is not ours.
`recording/run_folder/journal.py` reads it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
import threading
import zlib
from array import array
from collections.abc import Callable

from gobrrr.system.descriptors import NEW, Held, no_size_signal
from gobrrr.words import CHECK, EVENTS, HEADER, RECORD

ERROR = ".error-"
"""Text between a journal's name and the errno that ended it, in the name of an empty file beside it."""
MAX_EVENTS_PER_FRAME = 1 << 15
"""A torn frame is lost whole: 1 MiB of events is the most that one crash may cost."""


class JournalWriter:
    """Appends frames to `path`, each with one unbuffered write; a forked child that inherits it writes nothing.

    Opening raises OSError, also where there is such a file already. Writing never does: a full disk must not kill the
    watched program, so the first failure ends the journal and stays in `error`. So does the program that closes the
    descriptor: the number may be that of its own file by now.
    """

    def __init__(self, path: str | os.PathLike[str], ended: Callable[[OSError], object] = lambda error: None) -> None:
        """`ended` is told of the failure that ends it."""
        self.path = os.fspath(path)
        self.error: OSError | None = None
        self._ended = ended
        self.num_bytes = 0
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._closed = False
        self._held = Held(os.open(self.path, NEW | os.O_APPEND, 0o600))

    def json(self, obj: dict[str, object]) -> None:
        """Append one JSON object; what JSON cannot say is written as its str()."""
        if self._mine():
            self._frame(RECORD, json.dumps(obj, separators=(",", ":"), default=str).encode())

    def events(self, events: array[int]) -> None:
        """Append quadruples (t_ns, kind, id, value) laid end to end in an array('q'); raises ValueError otherwise."""
        if events.typecode != "q" or len(events) % 4:
            raise ValueError("events are quadruples in an array('q')")
        if not self._mine():
            return
        for first in range(0, len(events), 4 * MAX_EVENTS_PER_FRAME):
            part = events[first : first + 4 * MAX_EVENTS_PER_FRAME]
            if sys.byteorder == "big":
                part.byteswap()
            self._frame(EVENTS, part.tobytes())

    def close(self) -> None:
        """End the journal; calling it twice, or in a forked child, does no harm."""
        with self._lock:
            self._held.close()
            self._closed = True

    def _mine(self) -> bool:
        """Writable, and this is the process that opened it: a fork's frames would count its parent's time twice."""
        return not self._closed and self.error is None and os.getpid() == self._pid

    def _frame(self, kind: bytes, payload: bytes) -> None:
        body = HEADER.pack(kind, len(payload)) + payload
        rest = memoryview(body + CHECK.pack(zlib.crc32(body)))
        with self._lock:
            try:
                while rest and not self._closed:
                    if (fd := self._held.fd) < 0:
                        raise OSError(errno.EBADF, "the program closed the recording's descriptor")
                    with no_size_signal():
                        written = os.write(fd, rest)
                    self.num_bytes += written
                    rest = rest[written:]
            except OSError as error:  # later frames would stand behind a torn one and never be read
                self.error = error
                # Why it ended, in the name of an empty file, for which a full disk has still room.
                with contextlib.suppress(OSError):
                    os.close(os.open(f"{self.path}{ERROR}{error.errno}", NEW, 0o600))
                self._ended(error)
