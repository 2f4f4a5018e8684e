"""Decode the JSON events of a trace file, with their times to the nanosecond.

Fields that no later stage of reading (tables.py, assemble.py) uses are not declared, so the decoder skips them; where
the text is not valid JSON there is no batch, and salvage.py reads what it can. Shapes and the like stay raw
bytes, which repeat so much that decoding each distinct text once is enough.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import reduce

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Raw, field

from gobrrr.recording.model.trace import NO_TIME, Ints

Int = int | str | None
"""ROCm writes some numbers as text, decimal or hexadecimal."""
NONE = Raw(b"")
MAX_TIME = 2.0**62
"""ns, 146 years: with a base time of at most half of it, and a duration of a quarter, sums still fit 64 bits."""
MAX_DURATION = 2**60  # ns: a quarter of MAX_TIME
DECIMALS, LONGEST = 3, 20
"""Decimals of a time in us that a recording writes, and its most characters: 16 digits are until the year 2286."""
MAX_EXACT = 2.0**43
"""us; below it a double is nearer than half a nanosecond to the decimal that was written."""


class Args(msgspec.Struct, gc=False):
    """The arguments of an event, of all kinds of events together."""

    external_id: Int = field(default=-1, name="External id")
    sequence: Int = field(default=-1, name="Sequence number")
    forward_thread: Int = field(default=-1, name="Fwd thread id")
    concrete: Raw = field(default=NONE, name="Concrete Inputs")
    dtypes: Raw = field(default=NONE, name="Input type")
    strides: Raw = field(default=NONE, name="Input Strides")
    shapes: Raw = field(default=NONE, name="Input Dims")
    stack: Raw = field(default=NONE, name="Call stack")
    device: Int = -1
    stream: Int = -1
    correlation: Int = -1
    external_id_2021: Int = field(default=-1, name="external id")
    bytes: Int = -1
    blocks_per_sm: float | str | None = field(default=math.nan, name="blocks per SM")
    total_reserved: Int = field(default=-1, name="Total Reserved")
    total_allocated: Int = field(default=-1, name="Total Allocated")
    num_bytes: Int = field(default=0, name="Bytes")
    address: Int = field(default=-1, name="Addr")
    device_id: Int = field(default=-1, name="Device Id")
    device_type: Int = field(default=-1, name="Device Type")
    collective: str | None = field(default=None, name="Collective name")
    dtype: str | None = None
    in_elements: Int = field(default=-1, name="In msg nelems")
    out_elements: Int = field(default=-1, name="Out msg nelems")
    group_size: Int = field(default=-1, name="Group size")
    group: Int = field(default=None, name="Process Group Name")
    ranks: str | None = field(default=None, name="Process Group Ranks")
    seq: Int = field(default=-1, name="Seq")
    name: Int = None


class Event(msgspec.Struct, gc=False):
    """One event of any phase. What is absent, null or of another type than it should be is None."""

    ph: str | None = None
    cat: str | None = None
    name: str | None = None
    pid: Int = None
    tid: Int = None
    ts: float | None = None
    dur: float | None = None
    id: Int = None
    args: Args | None = None


@dataclass(frozen=True)
class Batch:
    """Events with their start in ns (before the base time is added), NO_TIME where it is no time."""

    events: list[Event]
    start: Ints
    exact: bool = False
    """Starts were read from their text, as those of the next batch will have to be."""


class _Exact(Event, gc=False):
    ts: Raw = NONE  # type: ignore[assignment]


_EVENTS = msgspec.json.Decoder(list[Event])
_EXACT = msgspec.json.Decoder(list[_Exact])
_FRACTION = re.compile(rb'"ts"\s*:\s*-?\d{13,}\.')


def decode(document: bytes, exact: bool = False) -> Batch | None:
    """Decode a list of events, all at once; None where anything in them is not as it should be. Where a double cannot
    hold the nanoseconds, as in the batch before if `exact`, starts are read from their text."""
    try:
        if not exact:
            events = _EVENTS.decode(document)
            micros = np.array([event.ts for event in events], np.float64)
            if not ((np.abs(micros) >= MAX_EXACT).any() and _has_fractions(micros, document)):
                return Batch(events, nanoseconds(micros))
        timed = _EXACT.decode(document)
        texts = b"\0".join([event.ts for event in timed]).split(b"\0") if timed else []
        return Batch(list[Event](timed), exact_times(texts), True)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _has_fractions(micros: npt.NDArray[np.float64], document: bytes) -> bool:
    """Whether times of this size were written with decimals: a double shows quarters at most, so look at the text too.

    The first events are enough, as a writer uses one format for all.
    """
    return bool((micros != np.floor(micros)).any()) or _FRACTION.search(document, 0, 1 << 16) is not None


def nanoseconds(micros: npt.NDArray[np.float64]) -> Ints:
    """Microseconds as ns, exact below MAX_EXACT; NO_TIME for NaN, infinity and what is beyond MAX_TIME."""
    sane = np.abs(micros) < MAX_TIME / 1000
    micros = np.where(sane, micros, 0.0)
    whole = np.floor(micros)
    ns = whole.astype(np.int64) * 1000 + np.rint((micros - whole) * 1000).astype(np.int64)
    return np.where(sane, ns, NO_TIME)


def exact_times(texts: list[bytes]) -> Ints:
    """ns of each text: all at once those with the three decimals of Kineto, each width by itself."""
    width = np.fromiter(map(len, texts), np.int64, len(texts))
    found = np.empty(len(texts), np.int64)
    for size in sorted(set(width.tolist())):
        rows = np.flatnonzero(width == size)
        own = [texts[row] for row in rows.tolist()] if len(rows) < len(texts) else texts
        alike = _thousandths(own, size) if DECIMALS + 1 < size <= LONGEST else None
        found[rows] = alike if alike is not None else [exact_time(text) for text in own]
    return found


def _thousandths(texts: list[bytes], width: int) -> Ints | None:
    """Return as ns numbers in us of one width with a point and three digits behind it; None where one is another."""
    digits = np.frombuffer(b"".join(texts), np.uint8).reshape(-1, width) - np.uint8(ord("0"))
    whole, point, decimals = digits[:, : -DECIMALS - 1], digits[:, -DECIMALS - 1], digits[:, -DECIMALS:]
    if (point + np.uint8(ord("0")) != ord(".")).any() or (whole > 9).any() or (decimals > 9).any():
        return None
    micros, ns = (reduce(lambda sums, column: sums * 10 + column, part.T, np.int64(0)) for part in (whole, decimals))
    return np.asarray(
        np.where(micros < MAX_TIME / 1000, micros, 0) * 1000 + np.where(micros < MAX_TIME / 1000, ns, NO_TIME)
    )


def exact_time(text: bytes) -> int:
    """b'1712195495519689.047' -> 1712195495519689047; NO_TIME where it is not a number or beyond MAX_TIME."""
    whole, _, fraction = text.partition(b".")
    if whole.isdigit() and len(whole) < 16 and (fraction.isdigit() or not fraction) and len(fraction) <= 3:
        return int(whole) * 1000 + int(fraction.ljust(3, b"0"))
    try:
        if abs(float(text)) < MAX_TIME / 1000:
            return round(Decimal(text.decode("ascii")) * 1000)
    except (ValueError, InvalidOperation):
        pass
    return int(NO_TIME)
