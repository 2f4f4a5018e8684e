"""Intervals of time as (n, 2) arrays of begin and end in ns, each [begin, end): how they are joined, cut, measured."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
NONE: Ints = np.zeros((0, 2), np.int64)


def as_spans(start: Ints, dur: Ints) -> Ints:
    """Spans of columns of begins and lengths."""
    return np.stack((start, start + dur), axis=1)


def lengths(spans: Ints) -> Ints:
    """ns of each."""
    found: Ints = spans[:, 1] - spans[:, 0]
    return found


def total(spans: Ints) -> int:
    """ns of all of them together."""
    return int(lengths(spans).sum())


def distinct(times: Ints) -> Ints:
    """Sorted, each once. numpy's unique hashes integers: ten times as slow for moments, which are nearly sorted."""
    ordered = np.sort(times)
    return ordered[np.concatenate(([True], ordered[1:] != ordered[:-1]))] if len(ordered) else ordered


def among(values: npt.NDArray[Any], others: npt.NDArray[Any]) -> Flags:
    """Mark values that are one of the others. numpy's isin hashes large integers, in thirty times the time."""
    ordered = np.sort(others)
    if not len(ordered):
        return np.zeros(len(values), bool)
    found: Flags = ordered[np.searchsorted(ordered, values) % len(ordered)] == values
    return found


def union(spans: Ints) -> Ints:
    """The spans as disjoint ones, in order; those that touch are one, and one without length stays if it is alone."""
    if not len(spans):
        return NONE
    order = np.argsort(spans[:, 0], kind="stable")
    starts, ends = spans[order, 0], np.maximum.accumulate(spans[order, 1])
    new = np.concatenate(([True], starts[1:] > ends[:-1]))
    last = np.concatenate((np.flatnonzero(new)[1:] - 1, [len(ends) - 1]))
    return np.stack((starts[new], ends[last]), axis=1)


def merged(spans: Ints) -> Ints:
    """The union of those that have a length."""
    return union(spans[spans[:, 1] > spans[:, 0]])


def gaps(spans: Ints, begin: int, end: int) -> Ints:
    """Return the parts of [begin, end) that disjoint spans, in order, leave free."""
    edges = np.concatenate(([begin], spans.reshape(-1), [end])).reshape(-1, 2)
    return edges[edges[:, 1] > edges[:, 0]]


def within(times: npt.NDArray[Any], spans: Ints) -> Flags:
    """Mark times that lie in one of the spans: disjoint, in order."""
    if not len(spans):
        return np.zeros(len(times), bool)
    at = np.searchsorted(spans[:, 0], times, "right") - 1
    found: Flags = (at >= 0) & (times < spans[np.maximum(at, 0), 1])
    return found


def ends_of(times: Ints, spans: Ints) -> Ints:
    """The end of the span that each time lies in, of disjoint ones in order; the time itself where it lies in none."""
    if not len(spans):
        return times
    at = np.maximum(np.searchsorted(spans[:, 0], times, "right") - 1, 0)
    return np.where(within(times, spans), spans[at, 1], times)


def elapsed(times: Ints, spans: Ints) -> Ints:
    """How much of disjoint spans, in order, lies before each time."""
    if not len(spans):
        return np.zeros(len(times), np.int64)
    before = np.concatenate(([0], np.cumsum(lengths(spans))))
    begun = np.maximum(np.searchsorted(spans[:, 0], times, "right") - 1, 0)
    found: Ints = before[begun] + np.clip(times - spans[begun, 0], 0, lengths(spans)[begun])
    return found


def overlap(spans: Ints, others: Ints) -> Ints:
    """ns of the others, which are disjoint and in order, in each of the spans."""
    return elapsed(spans[:, 1], others) - elapsed(spans[:, 0], others)


def parts(spans: Ints, others: Ints, outside: bool = False) -> Ints:
    """Return the parts of the spans that lie in the others, or `outside` of them; all disjoint and in order."""
    edges = distinct(np.concatenate((spans.reshape(-1), others.reshape(-1))))
    begins, ends = edges[:-1], edges[1:]
    told = within(begins, spans) & (within(begins, others) != outside)
    return np.stack((begins[told], ends[told]), axis=1)
