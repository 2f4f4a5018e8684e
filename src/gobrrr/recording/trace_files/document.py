"""Where are the events in this file, and what does it say around them?

The file is read in blocks, cut where one event ends and the next begins, so that memory does not grow with its size.
Each block is decoded at once; only a block in which something is wrong is read event by event (`salvage`).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from gobrrr.errors import TraceError
from gobrrr.recording.trace_files import others
from gobrrr.recording.trace_files.limits import Limits, exceeded
from gobrrr.recording.trace_files.salvage import BAD, BETWEEN, salvage
from gobrrr.recording.trace_files.unpack import GZIP
from gobrrr.recording.trace_files.wire import Batch, decode

_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_ARRAY = re.compile(rb"\[\s*(?=[{\]])")
_LEAD = b" \t\r\n,"
_GAP = re.compile(rb"[ \t\r\n,]*")
_BOM = b"\xef\xbb\xbf"
_NEAR = 1 << 16  # bytes at the end that are searched first; proposed: holds an event; longer ones settle it
_NO_BRACKETS = bytes(b for b in range(256) if b not in b"[]{}")
_NUMBER = re.compile(
    rb'"(schemaVersion|baseTimeNanoseconds|record_shapes|with_stack|profile_memory)"\s*:\s*(\d{1,19})\b'
)
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_STEP = np.array([1 if b in b"[{" else -1 if b in b"]}" else 0 for b in range(256)], np.int32)
HINT = "expected the JSON that torch.profiler's export_chrome_trace writes"


class Document:
    """One pass over a trace file's text. After `batches` is exhausted the other attributes are complete."""

    def __init__(self, blocks: Iterable[bytes], source: str, limits: Limits) -> None:
        self.properties: dict[str, Any] = {}
        self.skipped: Counter[str] = Counter()
        self.notes: list[str] = []
        self.truncated = False
        self.num_events = 0
        self.head = b""
        """How the file begins: it tells whose it is."""
        self._blocks, self._source, self._limits = iter(blocks), source, limits
        self._is_array = self._exact = False

    def batches(self) -> Iterator[Batch]:
        """Yield every readable event, in the file's order. Raises TraceError if there is no trace in it."""
        pending: bytes | None = self._open()
        text = b""
        while pending is not None:
            text += pending
            cut = _last_cut(text)
            if cut:
                batch, tail = self._decode(text, cut)
                yield self._count(batch)
                text = text[cut:]
                if tail is not None:
                    return self._close(tail + text)
            elif len(text) > self._limits.value_bytes:
                raise exceeded(self._source, "value_bytes", self._limits.value_bytes, len(text), self._place())
            pending = next(self._blocks, None)
        yield self._count(self._finish(text))

    def _open(self) -> bytes:
        """Read up to the first event and return what was read beyond."""
        head, seen = b"", 0
        for block in self._blocks:
            head = head + block if head else block.removeprefix(_BOM).lstrip()
            self.head = head[: others.HEAD]
            if head.startswith(b"["):
                return self._open_array(head)
            if head and not head.startswith(b"{"):
                break
            if found := _EVENTS.search(head, max(0, seen - 64)):
                self._note_properties(head[: found.start()].rstrip(_LEAD) + b"}")
                return head[found.end() :]
            if len(head) > self._limits.value_bytes:
                raise exceeded(
                    self._source, "value_bytes", self._limits.value_bytes, len(head), "before its first event"
                )
            seen = len(head)
        raise others.begun(self._source, self.head) or TraceError(f"{self._source} {_what_else(head)}", HINT)

    def _open_array(self, head: bytes) -> bytes:
        """A bare list of events, which Chrome's format allows and does not require to be closed."""
        found = _ARRAY.match(head)
        if not found:
            raise TraceError(f"{self._source} is a JSON array, but not of events", HINT)
        self._is_array = True
        return head[found.end() :]

    def _decode(self, text: bytes, cut: int) -> tuple[Batch, bytes | None]:
        """Decode whole events up to `cut`; the second value is what follows the list, if it ended here."""
        begin = _GAP.match(text).end()  # type: ignore[union-attr]
        listed = b"".join((b"[", memoryview(text)[begin:cut], b"]"))
        self._check_depth(listed, outside=1)
        batch = decode(listed, self._exact)
        if batch is None:
            return self._salvage(text[:cut], last=False)
        self._exact = batch.exact
        return batch, None

    def _finish(self, text: bytes) -> Batch:
        """Read the last event, and what follows the list."""
        self._check_depth(text)
        batch, tail = self._salvage(text, last=True)
        if tail is not None:
            self._close(tail)
        return batch

    def _salvage(self, text: bytes, last: bool) -> tuple[Batch, bytes | None]:
        found = salvage(text, last)
        if found.first_bad and not self.skipped[BAD]:
            self.notes.append(f"first unreadable event {self._place()}: {found.first_bad!r}")
        self.skipped.update(found.skipped)
        if last and (found.torn or (found.tail is None and not self._is_array)):
            self.truncated = True
            self.notes.append(f"the file ends in the middle, {self._place()}")
        return found.batch(), None if found.tail is None else found.tail.encode("utf-8", "replace")

    def _count(self, batch: Batch) -> Batch:
        self.num_events += len(batch.events)
        if self.num_events > self._limits.events:
            raise exceeded(self._source, "events", self._limits.events)
        return batch

    def _close(self, tail: bytes) -> None:
        """Read what follows the list, up to the limit on one value."""
        for block in self._blocks:
            if len(tail) + len(block) > self._limits.value_bytes:
                self.notes.append("what follows the events is too long and was not read")
                return
            tail += block
        tail = tail.strip(_LEAD)
        if not self._is_array and tail != b"}":
            self._check_depth(tail)
            self._note_properties(b"{" + tail)

    def _note_properties(self, text: bytes) -> None:
        """Keep the top level's other fields; a broken part of them is no reason to give up the events."""
        self._check_depth(text)
        try:
            found = json.loads(text.decode("utf-8", "replace"), strict=False)
        except (ValueError, RecursionError):
            found = {m[1].decode(): int(m[2]) for m in _NUMBER.finditer(text)}
            self.notes.append("the fields beside the events are damaged")
        if isinstance(found, dict):
            found.pop("traceEvents", None)
            self.properties.update(found)

    def _check_depth(self, text: bytes, outside: int = 0) -> None:
        """Refuse deep nesting before a decoder meets it. Brackets in strings are told apart only when in doubt; those
        `outside`, around all of it, are ours."""
        bound = self._limits.depth
        if _depth(text) - outside > bound:
            depth = _depth(_STRING.sub(b"", text)) - outside
            if depth > bound:
                raise exceeded(self._source, "depth", bound, depth, self._place())

    def _place(self) -> str:
        return f"after {self.num_events} events"


def _depth(text: bytes) -> int:
    """Deepest nesting of brackets, counted as if none were in a string."""
    brackets = np.frombuffer(text.translate(None, _NO_BRACKETS), np.uint8)
    return int(np.cumsum(_STEP[brackets], dtype=np.int32).max(initial=0))


def _last_cut(text: bytes) -> int:
    """Where the last event begins that another one precedes: just behind the brace of that other one; 0 if none."""
    for start in (max(0, len(text) - _NEAR), 0):
        cuts = [found.start() + 1 for found in BETWEEN.finditer(text, start)]
        if cuts:
            return cuts[-1]
    return 0


def _what_else(head: bytes) -> str:
    """Say what a file without events seems to be."""
    if not head.strip():
        return "is empty"
    if head.startswith(GZIP):
        return "is compressed twice: unpack it once (gunzip)"
    if not head.startswith(b"{"):
        return "is not JSON"
    try:
        json.loads(head.decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError):
        return "is broken off or damaged before its first event"
    return "is JSON, but has no list of traceEvents"
