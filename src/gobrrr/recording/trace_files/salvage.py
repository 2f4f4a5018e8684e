"""Which events can still be read where the text is not the JSON it should be?

Real Kineto versions wrote control characters, unquoted `N/A`, names that are not UTF-8 and quotes without escape;
disks fill and jobs are killed in the middle of a file. Here events are read one after the other by the standard
library's lenient scanner. One that does not parse is counted and left out, and reading goes on at the next place
where an event begins. It is some ten times slower than `wire.decode`, and only used on the blocks where that fails.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from msgspec import Raw

from gobrrr.recording.model.trace import NO_TIME
from gobrrr.recording.trace_files.wire import MAX_TIME, NONE, Args, Batch, Event, exact_time

_KEYS = "ph|cat|name|pid|tid|ts|dur|id|s|bp|args"
BETWEEN = re.compile(rb'\}\s*,\s*\{\s*"(?:' + _KEYS.encode() + rb')"\s*:')
"""Where one event ends and the next begins. It cannot match within a string: that has no quote without a backslash."""
_NEXT = re.compile(r",\s*\{\s*\"(?:" + _KEYS + r")\"\s*:")
"""Where to go on after a broken event, which may lack its own closing brace."""
_END = re.compile(r"(?<=\})\s*\]\s*(?=[,}]|$)")
_SPACE = re.compile(r"[\s,\x00]*")
_BARE = re.compile(r"(:\s*)(?:N/A|n/a|None|undefined|-?nan(?:\([^)]*\))?|-?inf)(?=\s*[,}\]])")

BAD = "not readable as JSON"
NO_OBJECT = "not an object"


class _Number(float):
    """A float that remembers how it was written, because a double cannot hold absolute nanoseconds."""

    text: str

    def __new__(cls, text: str) -> _Number:
        number = super().__new__(cls, text)
        number.text = text
        return number


_SCANNER = json.JSONDecoder(parse_float=_Number, strict=False)


@dataclass
class Salvage:
    """Events that were found, a count of those left out by reason, and where the list ended."""

    objects: list[dict[str, Any]] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    tail: str | None = None
    """Text behind the list's closing bracket, None where that was not seen."""
    torn: bool = False
    """The text ends within an event."""
    first_bad: str = ""
    """The beginning of the first event that could not be read."""

    def batch(self) -> Batch:
        """The events in the same form as `wire.decode` gives them."""
        return Batch([_event(obj) for obj in self.objects], np.array([_start(obj) for obj in self.objects], np.int64))


def salvage(data: bytes, last: bool) -> Salvage:
    """Read events separated by commas as far as they can be read; `last` if the file ends with `data`."""
    text = data.decode("utf-8", "replace")
    found = Salvage()
    place = _SPACE.match(text).end()  # type: ignore[union-attr]
    while place < len(text):
        if text[place] == "]":
            found.tail = text[place + 1 :]
            break
        end = _take(text, place, found)
        if end is None:
            end = _skip(text, place, last, found)
        place = _SPACE.match(text, end).end()  # type: ignore[union-attr]
    return found


def _take(text: str, place: int, found: Salvage) -> int | None:
    """Read one value, and return where it ends; None where it cannot be read."""
    try:
        value, end = _SCANNER.raw_decode(text, place)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, dict):
        found.objects.append(value)
    else:
        found.skipped[NO_OBJECT] += 1
    return end


def _skip(text: str, place: int, last: bool, found: Salvage) -> int:
    """Go past an event that cannot be read, mending it first if that is enough; return where the next one begins."""
    after = _NEXT.search(text, place) or (_END.search(text, place) if last else None)
    end = after.start() if after else len(text)
    mended, changes = _BARE.subn(r"\1null", text[place:end])
    if changes and _take(mended, 0, found) is not None:
        return end
    if last and after is None:
        found.torn = True
    else:
        found.skipped[BAD] += 1
        found.first_bad = found.first_bad or text[place : place + 80]
    return end


def _event(obj: dict[str, Any]) -> Event:
    args = obj.get("args")
    return Event(
        ph=_text(obj.get("ph")),
        cat=_text(obj.get("cat")),
        name=_text(obj.get("name")),
        pid=_int(obj.get("pid")),
        tid=_int(obj.get("tid")),
        ts=_float(obj.get("ts")),
        dur=_float(obj.get("dur")),
        id=_int(obj.get("id")),
        args=_args(args) if isinstance(args, dict) else None,
    )


def _start(obj: dict[str, Any]) -> int:
    """Start in ns, from the text where there is one."""
    ts = obj.get("ts")
    if isinstance(ts, _Number):
        return exact_time(ts.text.encode())
    if isinstance(ts, int) and not isinstance(ts, bool) and abs(ts) < MAX_TIME / 1000:
        return ts * 1000
    return int(NO_TIME)


def _text(value: object) -> str | None:
    """Text without lone surrogates, which no encoder would write again."""
    if not isinstance(value, str):
        return None
    return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _int(value: object) -> int | str | None:
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < MAX_TIME else None
    return value if isinstance(value, int) and not isinstance(value, bool) else _text(value)


def _float(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 1e300 else float("inf")


def _raw(value: object) -> Raw:
    return NONE if value is None else Raw(json.dumps(value, default=str).encode())


def _number(value: object) -> float | str | None:
    return _text(value) if isinstance(value, str) else _float(value)


_BY_TYPE = {"Int": _int, "Raw": _raw, "str | None": _text, "float | str | None": _number}
_COERCE = {f.encode_name: (f.name, _BY_TYPE[Args.__annotations__[f.name]]) for f in msgspec.structs.fields(Args)}


def _args(args: dict[str, Any]) -> Args:
    """The declared arguments, each as its own type or not at all."""
    known: dict[str, Any] = {}
    for key in args.keys() & _COERCE.keys():
        name, coerce = _COERCE[key]
        known[name] = coerce(args[key])
    return Args(**known)
