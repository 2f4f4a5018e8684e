"""Intervals of time, against sets of single nanoseconds."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from gobrrr.spans import (
    as_spans,
    distinct,
    elapsed,
    ends_of,
    gaps,
    lengths,
    merged,
    overlap,
    parts,
    total,
    union,
    within,
)
from tests.support.spans_drawn import ROUNDS, Spans, apart, array, drawn, moments


def listed(spans: np.ndarray) -> Spans:
    return [(int(a), int(b)) for a, b in spans]


def is_tidy(spans: Spans) -> bool:
    """In order, none empty, none over another."""
    return all(a < b for a, b in spans) and all(x[1] <= y[0] for x, y in pairwise(spans))


@pytest.mark.parametrize("seed", ROUNDS)
def test_stretches_are_sets_of_moments(seed: int) -> None:
    some, idle, others = drawn(seed), apart(seed), apart(seed + 1000)
    found = listed(merged(array(some)))
    assert moments(found) == moments(some) and is_tidy(found)
    assert all(x[1] < y[0] for x, y in pairwise(found)), "what touches is one"
    times = np.arange(45)
    assert within(times, array(idle)).tolist() == [t in moments(idle) for t in range(45)]
    assert elapsed(times, array(idle)).tolist() == [len([m for m in moments(idle) if m < t]) for t in range(45)]
    free = array(idle)
    assert overlap(array(some), free).tolist() == [len(moments(idle) & moments([s])) for s in some]
    assert overlap(merged(array(some)), free).sum() == len(moments(idle) & moments(some))
    inside, outside = listed(parts(free, array(others))), listed(parts(free, array(others), outside=True))
    assert moments(inside) == moments(idle) & moments(others) and is_tidy(inside)
    assert moments(outside) == moments(idle) - moments(others) and is_tidy(outside)
    ends = {t: end for begin, end in idle for t in range(begin, end)}
    assert ends_of(times, free).tolist() == [ends.get(t, t) for t in range(45)]
    assert total(free) == sum(lengths(free).tolist()) == len(moments(idle))


@pytest.mark.parametrize("seed", ROUNDS)
def test_idle_is_what_work_leaves(seed: int) -> None:
    busy = [s for s in drawn(seed) if s[1] > s[0]] or [(3, 5)]
    working = union(array(busy))
    assert moments(listed(working)) == moments(busy)
    found = listed(gaps(working, 0, 60))
    assert moments(found) == set(range(60)) - moments(busy) and is_tidy(found)
    assert distinct(array(busy).ravel()).tolist() == sorted({edge for span in busy for edge in span})


def test_nothing_is_in_no_stretch() -> None:
    times, none = np.arange(5), array([])
    assert not within(times, none).any() and not elapsed(times, none).any()
    assert ends_of(times, none).tolist() == times.tolist()
    assert listed(gaps(none, 2, 7)) == [(2, 7)] and not len(gaps(none, 3, 3)) and not len(union(none))
    assert not len(parts(none, none)) and not len(parts(none, array([(1, 2)]), outside=True))
    assert listed(parts(array([(1, 9)]), none, outside=True)) == [(1, 9)] and not len(parts(array([(1, 9)]), none))
    assert not len(merged(none)) and not len(merged(array([(4, 4)]))) and not len(distinct(none.ravel()))


def test_what_has_no_length_is_in_the_union_alone() -> None:
    """An event of no time touches what it lies at, and elsewhere parts the idle around it."""
    spans = array([(20, 20), (0, 5), (5, 5)])
    assert listed(union(spans)) == [(0, 5), (20, 20)] and listed(merged(spans)) == [(0, 5)]
    assert listed(gaps(union(spans), 0, 30)) == [(5, 20), (20, 30)]
    assert listed(as_spans(np.array([1, 7]), np.array([2, 0]))) == [(1, 3), (7, 7)]


def test_times_are_within_spans_from_their_begin_to_before_their_end() -> None:
    spans = np.array([[10, 20], [30, 40]])
    times = np.array([9, 10, 19, 20, 29, 30, 39, 40, 99])
    assert within(times, spans).tolist() == [False, True, True, False, False, True, True, False, False]
    assert not within(times, np.zeros((0, 2), np.int64)).any()


def test_elapsed_is_the_part_of_the_spans_before_a_time() -> None:
    spans = np.array([[10, 20], [30, 40]])
    assert elapsed(np.array([0, 10, 15, 20, 25, 30, 35, 40, 99]), spans).tolist() == [0, 0, 5, 10, 10, 10, 15, 20, 20]
    assert elapsed(np.array([5]), np.zeros((0, 2), np.int64)).tolist() == [0]


def test_union_of_nested_touching_and_apart() -> None:
    starts, ends = union(np.array([[0, 8], [2, 5], [10, 20], [20, 25]])).T
    assert starts.tolist() == [0, 10]
    assert ends.tolist() == [8, 25]
