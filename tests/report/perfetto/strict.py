"""The Chrome Trace Event Format as its document states it, checked by who does not look at how it is written.

Times are taken as decimal text in microseconds, so that no double rounds a nanosecond.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

Event = dict[str, Any]
TOP = {"displayTimeUnit", "otherData", "traceEvents"}


def read(path: Path) -> dict[str, Any]:
    """The document; numbers with a point as Decimal."""
    data = path.read_bytes()
    text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    return json.loads(text.decode("ascii"), parse_float=Decimal)  # type: ignore[no-any-return]


def check(told: dict[str, Any]) -> list[Event]:
    """The events, where all is as it should be; AssertionError says what is not."""
    assert set(told) == TOP and told["displayTimeUnit"] in ("ms", "ns")
    events: list[Event] = told["traceEvents"]
    for event in events:
        assert event["ph"] in "XMCsf" and len(event["ph"]) == 1, event
        assert isinstance(event["pid"], int) and isinstance(event["name"], str) and event["name"].isprintable(), event
        assert len(event["name"]) <= 512, event
        if event["ph"] != "M":
            assert isinstance(event["ts"], (Decimal, int)) and event["ts"] >= 0, event
    slices = [event for event in events if event["ph"] == "X"]
    _check_names(events, slices)
    _check_nesting(slices)
    _check_flows(events, slices)
    for event in events:
        if event["ph"] == "C":
            assert event["args"] and all(isinstance(value, (int, Decimal)) for value in event["args"].values()), event
    return events


def _check_names(events: list[Event], slices: list[Event]) -> None:
    """Every process and every track has one name, and no number of a track is in two processes."""
    named = [(e["pid"], e["tid"]) for e in events if e["ph"] == "M" and e["name"] == "thread_name"]
    processes = [e["pid"] for e in events if e["ph"] == "M" and e["name"] == "process_name"]
    assert len(set(named)) == len(named) and len({tid for _, tid in named}) == len(named)
    assert {(e["pid"], e["tid"]) for e in slices} <= set(named) and {e["pid"] for e in slices} <= set(processes)


def _check_nesting(slices: list[Event]) -> None:
    """Slices of one track lie within each other or apart; what holds others stands before them in the file."""
    tracks: dict[int, list[Event]] = defaultdict(list)
    for event in slices:
        assert isinstance(event["tid"], int) and event["dur"] >= 0, event
        tracks[event["tid"]].append(event)
    for track in tracks.values():
        open_: list[Decimal] = []
        for event in sorted(track, key=lambda event: event["ts"]):  # stable: equal ones as they stand in the file
            end = event["ts"] + event["dur"]
            while open_ and open_[-1] <= event["ts"]:
                open_.pop()
            assert not open_ or end <= open_[-1], f"{event} reaches out of what holds it"
            open_.append(end)


def _check_flows(events: list[Event], slices: list[Event]) -> None:
    """Each arrow has one begin and one end, not before it, each inside a slice of its track."""
    begins = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    assert len(begins) + len(ends) == sum(e["ph"] in "sf" for e in events) and set(begins) == set(ends)
    starts = {(e["tid"], e["ts"]) for e in slices}
    for number, begin in begins.items():
        end = ends[number]
        assert begin["ts"] <= end["ts"] and end["bp"] == "e" and begin["cat"] == end["cat"], begin
        assert (begin["tid"], begin["ts"]) in starts and (end["tid"], end["ts"]) in starts, begin
