"""Events of the Chrome Trace Event Format, which ui.perfetto.dev opens: lines of JSON that are written one by one.

The format: docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU. Times are microseconds there, here
ns from the file's own begin; they are written with three decimals, not by way of a double.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from gobrrr.system.escape import plain

NAME = 512
"""Characters of a text: templates make names of some thousand."""
LANES = 16
"""Tracks that one thread is spread over at most: events of one track lie within each other or apart."""
CHUNK = 1 << 16
"""Bytes that are written at once: what a pipe of Linux takes (pipe(7))."""
KEPT = 1 << 16
"""Texts of a process that are kept to be written again, of NAME characters: 32 MiB at most, where escapes are few."""


def text(words: str, mask: Callable[[str], str] = str) -> str:
    """Any string as ASCII JSON that only prints, cut."""
    return json.dumps(plain(mask(words[: 8 * NAME]), NAME))


def micros(ns: int) -> str:
    """1234567 -> '1234.567'."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def lanes(start: Sequence[int], end: Sequence[int]) -> list[int]:
    """For each event of a thread, sorted by start, the longer first, the number of the first track in which it lies
    within what is open there; -1 where that would take more than LANES."""
    open_: list[list[int]] = []
    found = []
    for begin, finish in zip(start, end, strict=True):
        number = next((at for at, ends in enumerate(open_) if _fits(ends, begin, finish)), len(open_))
        if number == LANES:
            number = -1
        elif number == len(open_):
            open_.append([finish])
        else:
            open_[number].append(finish)
        found.append(number)
    return found


def _fits(ends: list[int], begin: int, end: int) -> bool:
    """Say whether an event lies within what is open on a track when it begins; take off what is over by then."""
    while ends and ends[-1] <= begin:
        ends.pop()
    return not ends or end <= ends[-1]


class Process:
    """One process of the file: its tracks get numbers that no other process has, in the order in which they are shown.

    `zero`: the ns that the file's time 0 is.
    """

    def __init__(self, pid: int, zero: int, tids: count[int], mask: Callable[[str], str] = str) -> None:
        self.pid, self.zero, self.mask = pid, zero, mask
        self._tids = tids
        self._texts: dict[str, str] = {}
        self.dropped = 0
        """Events that no track had room for."""

    def named(self, name: str) -> Iterator[str]:
        """Its name, and its place among the others."""
        yield self._metadata("process_name", 0, f'"name":{self.text(name)}')
        yield self._metadata("process_sort_index", 0, f'"sort_index":{self.pid}')

    def label(self, words: str) -> str:
        """Return the event that puts words beside the process's name: once, for of two the later one is shown."""
        return self._metadata("process_labels", 0, f'"labels":{self.text(words)}')

    def text(self, words: str) -> str:
        """Return text() of the words, masked; keep the first results, as a file repeats few names."""
        known = self._texts.get(words)
        if known is None:
            known = text(words, self.mask)
            if len(self._texts) < KEPT and len(words) <= NAME:
                self._texts[words] = known
        return known

    def track(self, name: str) -> tuple[int, Iterable[str]]:
        """A track's number, and the events that name it."""
        tid = next(self._tids)
        head = self._metadata("thread_name", tid, f'"name":{self.text(name)}')
        return tid, (head, self._metadata("thread_sort_index", tid, f'"sort_index":{tid}'))

    def tracks(self, name: str, lane: Sequence[int]) -> tuple[list[int], list[str]]:
        """The track of each event by its number of lanes(), as many as are needed, and what names them; -1 stays."""
        self.dropped += lane.count(-1)
        numbers: list[int] = []
        heads: list[str] = []
        for number in range(max(lane, default=-1) + 1):
            tid, head = self.track(name if not number else f"{name} ({number + 1})")
            numbers.append(tid)
            heads += head
        return [numbers[each] if each >= 0 else -1 for each in lane], heads

    def slice(self, tid: int, start: int, end: int, name: str, args: str = "") -> str:
        """A complete event; `name` and `args` are JSON."""
        told = f',"args":{args}' if args else ""
        when = f'"ts":{self.at(start)},"dur":{micros(end - start)}'
        return f'{{"ph":"X","pid":{self.pid},"tid":{tid},{when},"name":{name}{told}}}'

    def flow(self, number: int, tid: int, time: int, begins: bool) -> str:
        """One end of an arrow; it belongs to the slice that is open on its track then."""
        ends = '"ph":"s"' if begins else '"ph":"f","bp":"e"'
        where = f'"id":{number},"pid":{self.pid},"tid":{tid},"ts":{self.at(time)}'
        return f'{{{ends},{where},"cat":"launch","name":"launch"}}'

    def counter(self, name: str, unit: str, times: Iterable[int], values: Iterable[int]) -> Iterator[str]:
        """A counter's values from each moment on."""
        head = f'{{"ph":"C","pid":{self.pid},"name":{self.text(name)},"args":{{"{unit}":'
        for time, value in zip(times, values, strict=True):
            yield f'{head}{value}}},"ts":{self.at(time)}}}'

    def at(self, time: int) -> str:
        """A moment in the file's time; none is before its begin."""
        return micros(max(0, time - self.zero))

    def _metadata(self, name: str, tid: int, args: str) -> str:
        return f'{{"ph":"M","pid":{self.pid},"tid":{tid},"ts":0,"name":"{name}","args":{{{args}}}}}'


def arguments(process: Process, told: Mapping[str, Any]) -> str:
    """A slice's args as JSON: what is empty is left out."""
    parts = (f'"{name}":{process.text(value) if isinstance(value, str) else json.dumps(value)}'
             for name, value in told.items() if value not in ("", None))  # fmt: skip
    joined = ",".join(parts)
    return f"{{{joined}}}" if joined else ""


def document(events: Iterable[str], said: Mapping[str, str]) -> Iterator[bytes]:
    """The whole file in pieces of some CHUNK bytes; `said` stands beside the events."""
    told = ",".join(f"{json.dumps(name)}:{text(words)}" for name, words in said.items())
    part, size, before = [f'{{"displayTimeUnit":"ms","otherData":{{{told}}},"traceEvents":[\n'], 0, ""
    for event in events:
        part.append(before + event)
        before, size = ",\n", size + len(event)
        if size > CHUNK:
            yield "".join(part).encode("ascii")
            part, size = [], 0
    yield ("".join(part) + "\n]}\n").encode("ascii")


def gzipped(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same compressed; no time and no name is in it, so that the same events make the same bytes."""
    packer = zlib.compressobj(6, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    for piece in pieces:
        yield packer.compress(piece)
    yield packer.flush()
