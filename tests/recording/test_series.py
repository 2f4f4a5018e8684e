"""Vital signs of late: counters read at different paces and rated over the same time; sizes that are thinned out."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest

from gobrrr.recording.live.live_state import LATE_NS, MOST_LATE, Sizes, Vitals
from gobrrr.recording.model import event_kinds
from gobrrr.recording.model.vitals import MAX_SAMPLES
from gobrrr.rules.model.cores import without_core

TENTH, SECOND = 10**8, 10**9
ALONE, STARVED = (1.0, 1.0, 0.0), (0.2, 2.0, 0.8)
"""Cores that it keeps busy, that all do, and that its threads wait for."""


def readings(*periods: tuple[float, tuple[float, float, float]], waited: int = 10) -> Iterator[list[int]]:
    """As capture writes them: CPU and BUSY each 0.1 s, WAITED each second (or after `waited` tenths)."""
    own = busy = wait = moment = 0.0
    for seconds, (cpu, all_of_them, waits) in periods:
        for _ in range(round(10 * seconds)):
            own, busy, wait = own + TENTH * cpu, busy + TENTH * all_of_them, wait + TENTH * waits
            moment += 1
            yield [int(moment) * TENTH, event_kinds.CPU, 0, int(own)]
            if not moment % waited:
                yield [int(moment) * TENTH, event_kinds.WAITED, 0, int(wait)]
            yield [int(moment) * TENTH, event_kinds.BUSY, 0, int(busy)]


def fed(rows: list[list[int]], piece: int = 50) -> Vitals:
    vitals = Vitals()
    for first in range(0, len(rows), piece):
        vitals.feed(np.array(rows[first : first + piece], np.int64))
    return vitals


def starved(vitals: Vitals) -> float | None:
    own, busy, waited = (vitals.rate(kind) for kind in (event_kinds.CPU, event_kinds.BUSY, event_kinds.WAITED))
    assert own is not None and busy is not None
    return without_core(own, busy - own, waited, None)


@pytest.mark.parametrize("piece", [1, 50, 10**6])
def test_who_has_the_cores_is_of_the_last_seconds_for_all_counters(piece: int) -> None:
    crowd_came = fed(list(readings((117, ALONE), (13, STARVED))), piece)
    assert starved(crowd_came) == pytest.approx(0.8, abs=0.01)
    assert crowd_came.rate(event_kinds.CPU) == pytest.approx(0.2, abs=0.01)
    crowd_left = fed(list(readings((117, STARVED), (13, ALONE))), piece)
    assert starved(crowd_left) == pytest.approx(0.0, abs=0.001)


def test_all_counters_are_rated_over_the_time_of_the_one_that_is_read_most_seldom() -> None:
    vitals = fed(list(readings((1.0, (0.0, 0.0, 0.0)), (5, STARVED), (0.8, (0.0, 0.0, 0.0)))))
    assert vitals.rate(event_kinds.WAITED) == pytest.approx(0.8)
    assert vitals.rate(event_kinds.CPU) == pytest.approx(0.2), "over the same seconds"


def test_steps_that_are_longer_than_late_still_have_a_rate() -> None:
    rows = [
        [n * 3 * LATE_NS, kind, 0, n * LATE_NS]
        for n in range(1, 5)
        for kind in (event_kinds.CPU, event_kinds.BUSY, event_kinds.WAITED)
    ]
    vitals = fed(rows, 3)
    assert [vitals.rate(kind) for kind in (event_kinds.CPU, event_kinds.BUSY, event_kinds.WAITED)] == [
        pytest.approx(1 / 3)
    ] * 3


def test_a_counter_that_is_not_told_any_more_is_not_known_and_holds_no_other_back() -> None:
    waits = list(readings((30, STARVED)))
    silent = [
        row for row in readings((30, STARVED), (15, ALONE)) if row[1] != event_kinds.WAITED and row[0] > 30 * SECOND
    ]
    vitals = fed(waits + silent)
    assert vitals.rate(event_kinds.WAITED) is None
    assert vitals.rate(event_kinds.CPU) == pytest.approx(1.0)


def rising(num: int, first: int = 0) -> Sizes:
    sizes = Sizes()
    for n in range(first, first + num):
        sizes.add(n * SECOND, n << 20)
    return sizes


def test_readings_are_thinned_out_from_the_first_on() -> None:
    sizes = rising(2 * MAX_SAMPLES + 1)
    assert [t for t, _ in sizes._kept] == [2 * n * SECOND for n in range(MAX_SAMPLES + 1)], "the first among them"
    for n in range(2 * MAX_SAMPLES + 1, 10 * MAX_SAMPLES):
        sizes.add(n * SECOND, n << 20)
    assert len(sizes._kept) <= 2 * MAX_SAMPLES
    assert len({b - a for (a, _), (b, _) in pairwise(sizes._kept)}) == 1, "as far apart as before, through all of it"
    assert sizes.growth(SECOND) == pytest.approx(1 << 20)


@pytest.mark.parametrize(("readings", "known"), [(16, False), (17, True)])
def test_growth_is_that_of_sixteen_steps_at_least(readings: int, known: bool) -> None:
    assert rising(readings).growth(SECOND) == (pytest.approx(1 << 20) if known else None)


def test_readings_without_number_take_no_room_without_end() -> None:
    vitals = fed([[1, event_kinds.CPU, 0, n] for n in range(10 * MOST_LATE)], 10**6)
    assert len(vitals._late[event_kinds.CPU]) == MOST_LATE
    assert vitals.rate(event_kinds.CPU) is None
