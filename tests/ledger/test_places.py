"""Line logs replayed: which line, module and phase at which nanosecond."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr import words
from gobrrr.ledger.host.places import NOWHERE, Place, Places, replay
from gobrrr.recording.run_folder.run import LineLog
from tests.support.timelines import OFFSET, Timeline


def at(places: Places, steady: int) -> Place:
    return places.places[int(places.at(np.array([steady + OFFSET]))[0])]


def replayed(timeline: Timeline) -> Places:
    return replay(timeline.profiled().lines, OFFSET)


def lines(place: Place) -> list[tuple[str, int]]:
    return [(span.function, span.line) for span in place.where]


def test_frames_nest_and_are_named_innermost_first() -> None:
    timeline = Timeline()
    begin = timeline.now
    with timeline.frame("main", 1):
        timeline.line(10, 100)
        with timeline.frame("forward", 20):
            timeline.line(21, 100, "forward")
        timeline.run(100)
        timeline.line(11, 100)
    places = replayed(timeline)
    assert lines(at(places, begin + 50)) == [("main", 10)]
    assert lines(at(places, begin + 150)) == [("forward", 21), ("main", 10)]
    assert lines(at(places, begin + 250)) == [("main", 10)], "back at the calling line"
    assert lines(at(places, begin + 350)) == [("main", 11)]
    assert at(places, begin + 401) == NOWHERE
    assert at(places, begin - 1) == NOWHERE


def test_a_moment_belongs_to_the_event_that_begins_at_it() -> None:
    timeline = Timeline()
    begin = timeline.now
    with timeline.frame("main", 1):
        timeline.line(10, 100)
        timeline.line(11, 100)
    assert lines(at(replayed(timeline), begin + 100)) == [("main", 11)]


def test_modules_and_backward_passes_are_known_inside_and_forgotten_after() -> None:
    timeline = Timeline()
    begin = timeline.now
    with timeline.frame("main", 1):
        timeline.line(10, 100)
        with timeline.module("GPT"):
            timeline.run(100)
            with timeline.module("GPT.block"):
                timeline.run(100)
            timeline.run(100)
        with timeline.backward():
            timeline.run(100)
        timeline.run(100)
    places = replayed(timeline)
    found = [at(places, begin + t) for t in (50, 150, 250, 350, 450, 550)]
    assert [place.module for place in found] == ["", "GPT", "GPT.block", "GPT", "", ""]
    assert [place.backward for place in found] == [False, False, False, False, True, False]
    assert {tuple(lines(place)) for place in found} == {(("main", 10),)}


def test_a_loop_over_the_same_lines_makes_few_places() -> None:
    timeline = Timeline()
    with timeline.frame("main", 1):
        for _ in range(1000):
            timeline.line(10, 5)
            timeline.line(11, 5)
    places = replayed(timeline)
    assert len(places.times) == 2002
    assert len(places.places) == 1 + 1 + 2, "nowhere, the call, the two lines"


def test_no_log_is_nowhere() -> None:
    for log in (None, LineLog()):
        places = replay(log, OFFSET)
        assert not places.known
        assert places.at(np.array([1, 2, 3])).tolist() == [0, 0, 0]
        assert places.places == (NOWHERE,)


EVENT = st.tuples(st.integers(-1, 8), st.integers(-2, 3), st.integers(-5, 5))


@given(st.lists(EVENT, max_size=60))
def test_a_log_that_began_or_ended_anywhere_is_replayed(events: list[tuple[int, int, int]]) -> None:
    """Returns without calls, ends without begins, numbers of no code: the log is a stranger's file."""
    columns = [list(column) for column in zip(*events, strict=True)] or [[], [], []]
    log = LineLog((("a.py", "f", 1), ("b.py", "g", 1)), ("Net",), list(range(len(events))), *columns)
    places = replay(log, 0)
    assert len(places.times) == len(events)
    assert all(0 <= state < len(places.places) for state in places.states.tolist())
    for place in places.places:
        assert {span.file for span in place.where} <= {"a.py", "b.py"}
        assert place.module in ("", "Net")


@pytest.mark.parametrize("op", [words.BACKWARD_END, words.MODULE_END, words.RETURN])
def test_an_end_of_what_ran_before_the_window_undoes_nothing_later(op: int) -> None:
    events = [(op, 0, 0), (words.BACKWARD, 0, 0), (words.MODULE, 0, 0), (words.CALL, 0, 3)]
    log = LineLog((("a.py", "f", 1),), ("Net",), [1, 2, 3, 4], *[list(c) for c in zip(*events, strict=True)])
    place = replay(log, 0).places[-1]
    assert (place.backward, place.module, lines(place)) == (True, "Net", [("f", 3)])
