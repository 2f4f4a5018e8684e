"""Nesting: hand-made trees, and properties over any timeline, clock skew included."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gobrrr.recording.model.call_tree import nest, nest_threads, parents

Spans = list[tuple[int, int]]


def arrays(spans: Spans) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(start, end) pairs as sorted columns of start and dur."""
    ordered = sorted(spans, key=lambda span: (span[0], -span[1]))
    return np.array([s for s, _ in ordered], np.int64), np.array([e - s for s, e in ordered], np.int64)


def union(spans: Spans) -> int:
    """Nanoseconds covered by at least one span."""
    return len({t for start, end in spans for t in range(start, end)})


@pytest.mark.parametrize(
    ("spans", "parent", "own", "overlaps"),
    [
        ([], [], [], 0),
        ([(0, 10)], [-1], [10], 0),
        ([(0, 10), (2, 5), (3, 4), (6, 9)], [-1, 0, 1, 0], [4, 2, 1, 3], 0),
        ([(0, 10), (0, 10), (0, 10)], [-1, 0, 1], [0, 0, 10], 0),
        ([(0, 5), (5, 10)], [-1, -1], [5, 5], 0),
        ([(0, 10), (4, 4), (4, 6)], [-1, 0, 1], [8, 2, 0], 0),
        ([(0, 10), (8, 15), (12, 13)], [-1, 0, 1], [8, 6, 1], 1),
        ([(0, 20), (0, 8), (5, 12)], [-1, 0, 1], [8, 5, 7], 1),
    ],
)
def test_by_hand(spans: Spans, parent: list[int], own: list[int], overlaps: int) -> None:
    nesting = nest(*arrays(spans))
    assert nesting.parent.tolist() == parent
    assert nesting.self_time.tolist() == own
    assert nesting.num_overlaps == overlaps


SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30)).map(lambda p: (p[0], p[0] + p[1])), max_size=30)


@given(SPANS)
@example([(0, 8), (5, 12), (0, 20)])
def test_self_times_share_out_the_union(spans: Spans) -> None:
    nesting = nest(*arrays(spans))
    assert (nesting.self_time >= 0).all()
    assert nesting.self_time.sum() == union(spans)


@given(SPANS)
def test_a_parent_is_the_last_opened_that_is_still_open(spans: Spans) -> None:
    start, dur = arrays(spans)
    for row, parent in enumerate(parents(start, dur).tolist()):
        open_ = [i for i in range(row) if start[i] + dur[i] > start[row]]
        assert parent == (max(open_) if open_ else -1)


@st.composite
def trees(draw: st.DrawFn, low: int = 0, high: int = 200, depth: int = 4) -> Spans:
    """Properly nested spans, as a program without skew makes them."""
    spans: Spans = []
    at = low
    while depth and high - at >= 2 and draw(st.booleans()):
        start = draw(st.integers(at, high - 1))
        end = draw(st.integers(start + 1, high))
        spans += [(start, end), *draw(trees(start, end, depth - 1))]
        at = end
    return spans


@given(trees())
def test_of_proper_trees_self_time_is_duration_less_children(spans: Spans) -> None:
    start, dur = arrays(spans)
    nesting = nest(start, dur)
    expected = dur.copy()
    np.subtract.at(expected, nesting.parent[nesting.parent >= 0], dur[nesting.parent >= 0])
    assert nesting.num_overlaps == 0
    assert nesting.self_time.tolist() == expected.tolist()


@given(SPANS, st.data())
def test_threads_are_nested_each_alone(spans: Spans, data: st.DataObject) -> None:
    start, dur = arrays(spans)
    thread = np.array([data.draw(st.integers(0, 2)) for _ in spans], np.int32)
    whole = nest_threads(start, dur, thread)
    for number in range(3):
        rows = np.flatnonzero(thread == number)
        alone = nest(start[rows], dur[rows])
        assert whole.self_time[rows].tolist() == alone.self_time.tolist()
        assert whole.parent[rows].tolist() == [int(rows[p]) if p >= 0 else -1 for p in alone.parent]


def test_unsorted_and_negative_events_are_refused() -> None:
    with pytest.raises(ValueError, match="sorted"):
        nest(np.array([5, 1]), np.array([1, 1]))
    with pytest.raises(ValueError, match="negative"):
        nest(np.array([1]), np.array([-1]))
