"""How do events become columns: growing arrays of numbers, and tables of the distinct texts they point into?"""

from __future__ import annotations

import json
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from gobrrr.recording.model.trace import NAME_CHARS, Collective, Ids, Shape, Signature, ThreadInfo
from gobrrr.recording.trace_files.wire import NONE, Args, Event, Int

K = TypeVar("K")
V = TypeVar("V")
DENSE = 4
"""Numbers per row up to which a table of all of them costs less than sorting the rows."""
TOO_LARGE = "integers beyond 64 bits (the event is kept without them)"
_PLACE = attrgetter("pid", "tid")
_LAST_INT = re.compile(r"(?:^|\s)(0[xX][0-9a-fA-F]{1,16}|-?\d{1,19})$")
_DTYPES = {"q": np.int64, "i": np.int32, "B": np.uint8, "d": np.float64}


class Table:
    """Columns that grow by whole batches. `codes` names each with array's type code: q, i, B or d."""

    def __init__(self, **codes: str) -> None:
        self._columns = {name: array(code) for name, code in codes.items()}

    def extend(self, **values: array[Any] | npt.NDArray[Any] | list[int]) -> None:
        """Append to every column the same number of rows."""
        assert values.keys() == self._columns.keys(), values.keys() ^ self._columns.keys()
        for name, rows in values.items():
            column = self._columns[name]
            if not isinstance(rows, array):
                rows = array(column.typecode, np.asarray(rows, _DTYPES[column.typecode]).tobytes())
            column.extend(rows)

    def __contains__(self, name: str) -> bool:
        return name in self._columns

    def column(self, name: str) -> npt.NDArray[Any]:
        """A column as it stands; once taken it can grow no more."""
        data = self._columns[name]
        return np.frombuffer(data, _DTYPES[data.typecode]) if data else np.empty(0, _DTYPES[data.typecode])

    def sorted(self, order: npt.NDArray[np.intp]) -> dict[str, npt.NDArray[Any]]:
        """All columns in this order, each freed once it is copied; one with k values per row as (rows, k)."""
        return {name: self._take(name, order) for name in list(self._columns)}

    def _take(self, name: str, order: npt.NDArray[np.intp]) -> npt.NDArray[Any]:
        column = self.column(name)
        taken = (column if len(column) == len(order) else column.reshape(len(order), -1))[order]
        del self._columns[name]
        return taken


class Known(dict[K, int]):
    """Ids of keys that were met; `find` gives that of a new one. Looking a known one up runs no Python."""

    def __init__(self, find: Callable[[K], int]) -> None:
        super().__init__()
        self._find = find

    def __missing__(self, key: K) -> int:
        found = self[key] = self._find(key)
        return found

    def ids(self, keys: Iterable[K]) -> array[int]:
        """The id of every key."""
        return array("i", map(self.__getitem__, keys))


class Texts(Known[str]):
    """Distinct names, in the order in which they were first seen; too long ones are cut."""

    def __init__(self) -> None:
        super().__init__(lambda text: len(self))

    def __missing__(self, key: str) -> int:
        return super().__missing__(key) if len(key) <= NAME_CHARS else self[key[:NAME_CHARS]]

    def all(self) -> tuple[str, ...]:
        """The texts by id."""
        return tuple(self)


class Interned(Generic[V]):
    """Distinct values behind raw bytes that repeat: each text is decoded once, each value stored once."""

    def __init__(self, decode: Callable[[Any], V | None]) -> None:
        self._decode = decode
        self._known = Known[Any](self._find)
        self._by_value: dict[V, int] = {}

    def ids(self, keys: Iterable[Any]) -> array[int]:
        """The id of every key's value, -1 where it has none."""
        return self._known.ids(keys)

    def all(self) -> tuple[V, ...]:
        """The values by id."""
        return tuple(self._by_value)

    def _find(self, key: Any) -> int:
        value = self._decode(key)
        return -1 if value is None else self._by_value.setdefault(value, len(self._by_value))


class Threads:
    """Host threads by the process and thread ids that events carry."""

    def __init__(self) -> None:
        self._known = Known[tuple[Int, Int]](self._find)
        self._by_value: dict[tuple[int | str, int | str], int] = {}
        self._names: dict[tuple[int | str, int | str], str] = {}

    def ids(self, events: Sequence[Event]) -> array[int]:
        """The thread of every event."""
        return self._known.ids(map(_PLACE, events))

    def name(self, event: Event) -> None:
        """Take in a metadata event, if it names a thread."""
        if event.name == "thread_name" and event.args and isinstance(event.args.name, str):
            self._names[(_id(event.pid), _id(event.tid))] = event.args.name[:NAME_CHARS]

    def all(self) -> tuple[ThreadInfo, ...]:
        """The threads that own events, by id."""
        return tuple(ThreadInfo(*key, self._names.get(key, "")) for key in self._by_value)

    def _find(self, key: tuple[Int, Int]) -> int:
        return self._by_value.setdefault((_id(key[0]), _id(key[1])), len(self._by_value))


def _id(value: Int) -> int | str:
    """One form for 25738 and "25738", which the format of 2021 mixes."""
    if value is None:
        return ""
    if isinstance(value, str):
        return int(value) if value.isdecimal() and len(value) < 19 else value[:NAME_CHARS]
    return value


def ints(values: list[Int], bad: Counter[str]) -> array[int]:
    """A column of int64. Text is read as decimal or hexadecimal, "stream 7" as 7, null and what does not fit is -1."""
    try:
        return array("q", values)  # type: ignore[arg-type]
    except (TypeError, OverflowError):
        return array("q", [_int(value, bad) for value in values])


def _int(value: Int, bad: Counter[str]) -> int:
    if isinstance(value, str):
        found = _LAST_INT.search(value)
        value = int(found[1], 0 if found[1][:2] in ("0x", "0X") else 10) if found else None
    if value is None:
        return -1
    if not -(2**63) <= value < 2**63:
        bad[TOO_LARGE] += 1
        return -1
    return value


def floats(values: list[float | str | None]) -> array[float]:
    """A column of doubles, NaN where there is no number."""
    try:
        return array("d", values)  # type: ignore[arg-type]
    except TypeError:
        return array("d", [value if isinstance(value, float) else float("nan") for value in values])


def signature_keys(args: list[Args]) -> list[bytes]:
    """The raw text of every op's inputs: shapes, dtypes, strides, values; no JSON has the character between them."""
    join = b"\0".join
    return [
        b"" if a.dtypes is NONE and a.shapes is NONE else join((a.shapes, a.dtypes, a.strides, a.concrete))
        for a in args
    ]


def signature(key: bytes) -> Signature | None:
    """Decode an op's inputs; None where nothing was recorded."""
    if not key:
        return None
    shapes, dtypes, strides, concrete = map(_json, key.split(b"\0"))
    found = Signature(_shapes(shapes), _texts(dtypes), _shapes(strides), _texts(concrete))
    return found if found != Signature() else None


def stack(key: bytes) -> str | None:
    """A recorded Python stack; None where it is empty."""
    value = _json(key)
    return value[: 8 * NAME_CHARS] if isinstance(value, str) and value else None


def collective(key: tuple[Any, ...] | None) -> Collective | None:
    """A communication library's own record; None where the event has none."""
    if key is None:
        return None
    name, dtype, group, ranks, *counts = key
    size_in, size_out, num_ranks, seq = (_int(count, Counter()) for count in counts)
    texts = [str(text or "")[:NAME_CHARS] for text in (name, dtype, "" if group is None else str(group), ranks)]
    return Collective(texts[0], texts[1], size_in, size_out, num_ranks, texts[2], texts[3], seq)


def collective_keys(args: list[Args]) -> list[tuple[Any, ...] | None]:
    """Return the key that tells one collective call from another; None for events that are none."""
    return [
        None
        if a.collective is None
        else (a.collective, a.dtype, a.group, a.ranks, a.in_elements, a.out_elements, a.group_size, a.seq)
        for a in args
    ]


def _json(text: bytes) -> Any:
    """Decode a short text, leniently; None where it is not JSON."""
    if not text:
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass
    try:
        return json.loads(text.decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError):
        return None


def _shapes(value: Any) -> tuple[Shape, ...]:
    return tuple(_shape(item) for item in value) if isinstance(value, list) else ()


def _shape(value: Any) -> Shape:
    """Nested lists as nested tuples; what is neither a list nor an int64 is left out."""
    if not isinstance(value, list):
        return ()
    return tuple(
        _shape(item) if isinstance(item, list) else item
        for item in value
        if isinstance(item, list) or (type(item) is int and -(2**63) <= item < 2**63)
    )


def _texts(value: Any) -> tuple[str, ...]:
    return (
        tuple(item[:NAME_CHARS] if isinstance(item, str) else "" for item in value) if isinstance(value, list) else ()
    )


def numbered(columns: Sequence[npt.NDArray[Any]]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Numbers of the distinct rows of columns, counted in order of appearance, and where each appears first."""
    number = np.zeros(len(columns[0]), np.int64)
    first = number[:1]
    for column in columns:
        low, high = int(column.min(initial=0)), int(column.max(initial=0))
        code = number * (high - low + 1) + column - low
        if (size := len(first) * (high - low + 1)) > DENSE * len(code):
            known, code = np.unique(code, return_inverse=True)
            size = len(known)
        met = np.full(size, len(code))
        met[code[::-1]] = np.arange(len(code) - 1, -1, -1)  # of equal ones the first is written last
        there = np.flatnonzero(met < len(code))
        order = there[np.argsort(met[there])]
        first = met[order]
        met[order] = np.arange(len(order))
        number = met[code]
    return number, first


def starting_with(names: tuple[str, ...], prefixes: tuple[str, ...]) -> npt.NDArray[np.bool_]:
    """For every name, whether it starts with one of the prefixes."""
    return np.array([name.startswith(prefixes) for name in names], bool)


def rows(ids: Ids, flags: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """The flag of the name of every row."""
    return flags[ids] if len(flags) else np.zeros(len(ids), bool)
