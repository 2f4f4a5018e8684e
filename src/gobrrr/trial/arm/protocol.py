"""Messages between referee and arm: JSON lines through two FIFOs in the arm's folder.

Arm to referee: `ready` (seconds since its start), `block` (steps, ns of each, ns in all), `aside` (steps of another
loop), `once` (ns of a step that went into what no later one does), `applied` and `declined` (remedy, detail, the user's
line that led there), `failed` (error), `ended`. Referee to arm: `run` (steps), `say`, `end`. What each means when is in
handshake.py.
"""

from __future__ import annotations

import json
import os
import select
import time
from pathlib import Path
from typing import Any

from gobrrr.system.descriptors import Held

ASK, TOLD, OBSERVED, STATES, STDOUT = "ask", "told", "observation", "states", "stdout"
"""Files of an arm's folder: two FIFOs, what the guard saw, the states that it kept, what the program printed."""
REPLAYED = "replayed batches"
"""Name under which an arm says that it replays batches (replaying.py). No remedy can have it: it is two words."""
Message = dict[str, Any]


def make(folder: Path) -> None:
    """The two FIFOs of an arm. Raises OSError."""
    for name in (ASK, TOLD):
        os.mkfifo(folder / name)


def open_fifo(file: Path) -> int:
    """Open for both directions, so that neither side waits for the other and no end of file comes in between."""
    return os.open(file, os.O_RDWR | os.O_CLOEXEC)


class Line:
    """One FIFO: whole lines in, whole lines out."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._held = Held(open_fifo(file))
        self._read = b""

    def send(self, kind: str, **fields: Any) -> None:
        """Write one message; blocks while the other side is far behind."""
        data = json.dumps({"kind": kind, **fields}).encode() + b"\n"
        while data:
            data = data[os.write(self._fd(), data) :]

    def receive(self, seconds: float | None = None) -> Message | None:
        """The next message; None where none came in time. A line that is no message is passed over."""
        until = None if seconds is None else time.monotonic() + seconds
        while True:
            line, found, rest = self._read.partition(b"\n")
            if found:
                self._read = rest
                message = _decoded(line)
                if message is not None:
                    return message
                continue
            left = None if until is None else max(0.0, until - time.monotonic())
            if not self._readable(left):
                return None
            self._read += os.read(self._fd(), 1 << 16)

    def close(self) -> None:
        """Close it; safe to call twice."""
        self._held.close()

    def _fd(self) -> int:
        """The program in whose process it lies may have closed it: then it is opened anew."""
        if self._held.fd < 0:
            self._held = Held(open_fifo(self._file))
        return self._held.fd

    def _readable(self, seconds: float | None) -> bool:
        poll = select.poll()  # select() takes no high descriptors
        poll.register(self._fd(), select.POLLIN)
        found = poll.poll(None if seconds is None else 1000 * seconds)
        return any(event & select.POLLIN for _, event in found)  # not where another thread has closed it meanwhile


def _decoded(line: bytes) -> Message | None:
    try:
        message = json.loads(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) and isinstance(message.get("kind"), str) else None
