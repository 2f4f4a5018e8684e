"""Timelines for tests: spans that hypothesis draws, and the JSON that Kineto of 2021 or today writes of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

TODAY = {"op": "cpu_op", "annotation": "user_annotation", "python": "python_function", "runtime": "cuda_runtime"}
TODAY |= {"kernel": "kernel", "memcpy": "gpu_memcpy", "memset": "gpu_memset"}
IN_2021 = {"op": "Operator", "runtime": "Runtime", "kernel": "Kernel", "memcpy": "Memcpy", "memset": "Memset"}
HOST = ("op", "annotation", "python")
DEVICE = ("kernel", "memcpy", "memset")


@dataclass(frozen=True)
class Span:
    """One event; times in ns since the epoch, `lane` the thread or the stream."""

    table: str
    name: str
    start: int
    dur: int
    lane: int
    link: int = -1
    shape: tuple[int, ...] = ()


@dataclass(frozen=True)
class Format:
    """How a file is written."""

    year: int = 2026
    base: int = 1_790_857_026_000_000_000
    unit: int = 1
    """ns that every time is a multiple of."""
    indent: int | None = None
    array: bool = False


NAMES = st.sampled_from(["aten::mm", "aten::add", "void k<float, 4>(int, {lambda()#1})", 'a"b\\c},{', "é\n\x7f]"])


def spans(unit: int = 1) -> st.SearchStrategy[list[Span]]:
    """Up to 30 events of every table, in any order, overlapping as they like."""
    time = st.integers(0, 10**9).map(lambda n: 1_790_857_026_000_000_000 + n * unit)
    one = st.builds(
        Span,
        table=st.sampled_from([*HOST, *DEVICE, "runtime"]),
        name=NAMES,
        start=time,
        dur=st.integers(0, 10**7).map(lambda n: n * unit),
        lane=st.integers(0, 3),
        link=st.integers(-1, 40),
        shape=st.lists(st.integers(0, 2**40), max_size=3).map(tuple),
    )
    return st.lists(one, min_size=1, max_size=30)


def formats() -> st.SearchStrategy[Format]:
    """Every combination of year, base time, unit and layout."""
    return st.builds(
        Format,
        year=st.sampled_from([2021, 2026]),
        base=st.sampled_from([0, 1_790_857_026_000_000_000, 1_788_000_000_123_456_789]),
        unit=st.sampled_from([1, 1000]),
        indent=st.sampled_from([None, 2]),
        array=st.booleans(),
    )


def micros(ns: int) -> str:
    """ns as microseconds, with three decimals where needed, as Kineto prints it."""
    whole, rest = divmod(ns, 1000)
    return f"{whole}.{rest:03d}" if rest else str(whole)


def event(span: Span, fmt: Format) -> str:
    """One event as JSON text; numbers are written by hand so that no double rounds them."""
    old = fmt.year == 2021
    category = (IN_2021 if old else TODAY).get(span.table, TODAY[span.table])
    on_device = span.table in DEVICE
    args: dict[str, Any] = {"external id" if old and span.table not in HOST else "External id": span.link}
    if on_device or span.table == "runtime":
        args["correlation"] = span.link
    if on_device:
        args |= {"device": 0, "stream": span.lane}
    if span.table == "op" and span.shape:
        args |= {"Input type": ["float"], "Input Dims": [list(span.shape)]}
    pid, tid = (
        (0, f"stream {span.lane}" if old else span.lane) if on_device else (7, str(span.lane) if old else span.lane)
    )
    fields = {"ph": "X", "cat": category, "name": span.name, "pid": pid, "tid": tid, "ts": "@ts", "dur": "@dur"}
    text = json.dumps({**fields, "args": args}, indent=fmt.indent, ensure_ascii=False)
    ts = micros(span.start - (0 if fmt.array else fmt.base))
    return text.replace('"@ts"', ts).replace('"@dur"', micros(span.dur))


def document(events: list[str], fmt: Format) -> bytes:
    """A whole file around these events."""
    listed = "[" + ",\n".join(events) + "]"
    if fmt.array:
        return listed.encode()
    base = f'"baseTimeNanoseconds": {fmt.base}, ' if fmt.base else ""
    head = f'{{"schemaVersion": 1, "deviceProperties": [], "record_shapes": 1, "displayTimeUnit": "ms", {base}'
    return f'{head}"traceEvents": {listed}, "traceName": "x], [{{"}}'.encode()
