"""Samples of gauges become figures of the steps, against hand formulas; what they make of a report."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from gobrrr.ledger.device.gauged import gauged
from gobrrr.ledger.model.gauged import DeviceGauged, Gauged
from gobrrr.machine.gauges.readings import POWER, THERMAL, GaugedDevice, Head, Link, Reading, Sample
from gobrrr.recording.model.steps import Step
from gobrrr.recording.run_folder.gauges_file import Gauges
from gobrrr.recording.run_folder.run import Ints
from gobrrr.rules import load
from gobrrr.rules.model.finding import Finding
from tests.support.handmade import Case

MS, S, GIB = 10**6, 10**9, 1 << 30
NOTHING: Ints = np.zeros((0, 4), np.int64)
BOARD = GaugedDevice("H100", 80 * GIB, 700.0, 700.0, 1_980, True)


def steps(count: int, each_ns: int = 100 * MS, begin: int = 10 * S) -> list[Step]:
    return [Step(begin + i * each_ns, begin + (i + 1) * each_ns, 0) for i in range(count)]


def gauges(*, watts: float = 300.0, until: float = 20.0, cpu_watts: float = 0.0, **fields: Any) -> Gauges:
    """Ten samples a second from 8 s on: a device of so many watts from the first one on."""
    times = np.arange(8.0, until, 0.1)
    first = Reading(busy=0.0, used=GIB)
    made = [Reading(busy=0.8, used=9 * GIB, watts=watts, joules=watts * t, clock_mhz=1_700, **fields) for t in times]
    return Gauges(Head((BOARD,)), tuple(
        Sample(int(t * S), (replace(each, busy=first.busy, used=first.used) if t < 9 else each,), cpu_watts * t or None)
        for t, each in zip(times, made, strict=True)
    ))  # fmt: skip


def test_joules_per_step_are_the_counters_difference_over_the_steps() -> None:
    found = gauged(gauges(watts=300.0, cpu_watts=50.0), NOTHING, steps(60), steps(60))
    assert found is not None
    [device] = found.devices
    assert device.joules_per_step == pytest.approx(300.0 * 0.1)
    assert found.cpu_joules_per_step == pytest.approx(50.0 * 0.1)
    assert found.joules_per_step == pytest.approx(35.0)
    assert (found.seconds, device.busy_share, device.watts) == pytest.approx((6.0, 0.8, 300.0))


def test_steps_that_nobody_watched_spend_energy_too() -> None:
    every = steps(60)
    found = gauged(gauges(), NOTHING, [each for i, each in enumerate(every) if i % 3 == 0 or i == 59], every)
    assert found is not None and found.joules_per_step == pytest.approx(30.0)


@pytest.mark.parametrize("count", [5, 19])
def test_two_seconds_are_the_least_that_energy_is_told_of(count: int) -> None:
    found = gauged(gauges(), NOTHING, steps(count), steps(count))
    assert found is not None and found.joules_per_step is None


@pytest.mark.parametrize(
    "joules",
    [
        lambda t: 1234.0,
        lambda t: 300 * (t if t < 13 else t - 13),
        lambda t: (300 * t + 4_294_967.296 - 3_900) % 4_294_967.296,
    ],
    ids=["stands still", "begins anew", "wraps"],
)
def test_a_counter_that_does_not_grow_tells_no_energy(joules: Any) -> None:
    made = gauges()
    odd = tuple(replace(each, devices=(replace(each.devices[0], joules=joules(each.t / S)),)) for each in made.samples)
    found = gauged(Gauges(made.head, odd), NOTHING, steps(60), steps(60))
    assert found is not None and found.devices[0].joules_per_step is None


@pytest.mark.parametrize(("until", "told"), [(12.96, True), (12.75, False)])
def test_steps_behind_the_last_sample_need_what_the_others_need(until: float, told: bool) -> None:
    found = gauged(gauges(until=until), NOTHING, steps(30), steps(30))
    assert found is not None and found.devices[0].joules_per_step == (pytest.approx(30.0) if told else None)


def test_a_counter_that_stopped_before_the_steps_did_tells_no_energy() -> None:
    found = gauged(gauges(until=14.0), NOTHING, steps(60), steps(60))
    assert found is not None and found.devices[0].joules_per_step is None


@pytest.mark.parametrize("apart", [0.4, 3.2])
def test_samples_of_long_runs_lie_apart_and_tell_energy_all_the_same(apart: float) -> None:
    made = gauges(until=400.0)
    seldom = tuple(each for i, each in enumerate(made.samples) if not i or each.t % int(apart * S) < S // 10)
    every = steps(3_000, begin=10 * S)
    kept = tuple(each for each in seldom if each.t <= every[-1].end)
    found = gauged(Gauges(made.head, kept), NOTHING, every, every)
    assert found is not None and found.joules_per_step == pytest.approx(30.0, rel=0.02)


def test_a_sampler_that_begins_after_the_program_says_nothing_of_others() -> None:
    events = np.array([[8 * S - 1, 0, 0, 0]], np.int64)
    busy = gauges()
    late = Gauges(
        busy.head, tuple(replace(each, devices=(replace(each.devices[0], busy=1.0),)) for each in busy.samples)
    )
    found = gauged(late, events, steps(60), steps(60))
    assert found is not None and (found.devices[0].others, found.devices[0].busy_before) == (None, None)


def test_a_device_that_the_program_does_not_use_is_not_told() -> None:
    idle = Gauges(Head((BOARD,)), tuple(Sample(int(t * S), (Reading(busy=1.0, used=9 * GIB),)) for t in range(8, 20)))
    found = gauged(idle, NOTHING, steps(60), steps(60))
    assert found is not None and found.devices == ()


def test_clocks_are_those_of_the_time_at_work() -> None:
    made = gauges()
    held = tuple(
        Sample(each.t, (replace(each.devices[0], why=(POWER,) if i % 4 else (), clock_mhz=1_500 if i % 4 else 1_900),))
        for i, each in enumerate(made.samples)
    )
    found = gauged(Gauges(made.head, held), NOTHING, steps(60), steps(60))
    assert found is not None
    [device] = found.devices
    [(reason, share)] = device.held_back
    assert reason == POWER and share == pytest.approx(0.75, abs=0.03)
    assert (device.clock_mhz, device.free_clock_mhz) == (1_500, 1_900)


def changed(made: Gauges, **fields: Any) -> DeviceGauged:
    """The device with other readings: each field has a value for sample i."""
    samples = tuple(
        replace(each, devices=(replace(each.devices[0], **{name: value(i) for name, value in fields.items()}),))
        for i, each in enumerate(made.samples)
    )
    found = gauged(Gauges(made.head, samples), NOTHING, steps(60), steps(60))
    assert found is not None
    return found.devices[0]


def test_a_clock_of_a_device_that_idles_says_nothing() -> None:
    device = changed(gauges(), busy=lambda i: 0.9 if i % 2 else 0.1, clock_mhz=lambda i: 1_700 if i % 2 else 345,
                     why=lambda i: () if i % 2 else (POWER,))  # fmt: skip
    assert (device.clock_mhz, device.held_back) == (1_700, ())


def test_of_several_reasons_the_longest_comes_first() -> None:
    device = changed(gauges(), why=lambda i: (THERMAL,) if i % 5 == 0 else (POWER,) if i % 5 < 4 else ())
    assert [reason for reason, _ in device.held_back] == [POWER, THERMAL]


def test_the_link_is_the_widest_that_was_seen_and_errors_are_those_of_this_run() -> None:
    idle, working = Link(1, 16, 5, 16), Link(5, 8, 5, 16)
    device = changed(gauges(), link=lambda i: None if i % 3 == 0 else idle if i % 3 == 1 else working,
                     errors=lambda i: None if i % 2 else 7 + (i > 60) if i < 90 else 2)  # fmt: skip
    assert (device.link, device.errors) == (working, 1)


def test_memory_in_use_before_the_program_is_others_where_the_driver_names_nobody() -> None:
    found = gauged(gauges(), NOTHING, steps(60), steps(60))
    assert found is not None and (found.devices[0].others, found.devices[0].used) == (GIB, 9 * GIB)
    named = gauged(gauges(ours=7 * GIB, others=2 * GIB), NOTHING, steps(60), steps(60))
    assert named is not None and (named.devices[0].ours, named.devices[0].others) == (7 * GIB, 2 * GIB)


def test_a_stranger_of_a_moment_holds_nothing() -> None:
    assert changed(gauges(ours=7 * GIB), others=lambda i: 30 * GIB if i == 25 else 0).others == 0


def test_a_driver_that_stops_to_answer_is_told() -> None:
    found = [gauged(gauges(until=until), NOTHING, steps(60), steps(60)) for until in (13.0, 15.9)]
    assert [each and each.why_none for each in found] == ["the driver gave no answer for the last 3 s", ""]


def test_nobody_sampled_nothing_is_told() -> None:
    assert gauged(None, NOTHING, steps(60), steps(60)) is None
    assert gauged(Gauges(Head(why_none="no driver")), NOTHING, steps(60), steps(60)) == Gauged(why_none="no driver")


def told(code: str, **fields: Any) -> list[Finding]:
    board = DeviceGauged("H100", busy_share=0.9, limit_w=700.0, default_limit_w=700.0, **fields)
    case = Case(extra={"gauged": Gauged((board,))})
    return list(load()[code].check(case.ledger, case.machine))


HELD = {"clock_mhz": 1_500.0, "free_clock_mhz": 1_900.0}


@pytest.mark.parametrize(
    ("held", "clocks", "severity"),
    [(((POWER, 0.04),), HELD, None), (((POWER, 0.06),), HELD, "note"), (((THERMAL, 0.6),), HELD, "warning"),
     (((POWER, 0.6),), {"clock_mhz": 1_850.0, "free_clock_mhz": 1_900.0}, "note"), (((POWER, 0.9),), {}, "note"),
     ((), HELD, None)],
)  # fmt: skip
def test_a_clock_that_is_held_back_is_told_with_its_reason(held: Any, clocks: Any, severity: str | None) -> None:
    found = told("BRR912", held_back=held, **clocks)
    assert [each.severity for each in found] == [severity] * bool(severity)
    assert not found or held[0][0] in found[0].message


def test_what_a_lower_clock_costs_at_most_is_its_share_of_the_busy_step() -> None:
    [found] = told("BRR912", held_back=((POWER, 0.8),), **HELD)
    assert found.evidence["cost"].value == pytest.approx((1 - 1_500 / 1_900) * 0.9 * 100e6)


def test_a_limit_that_somebody_lowered_is_named() -> None:
    [found] = told("BRR912", held_back=((POWER, 0.8),), **HELD)
    assert "full power" in found.advice
    board = DeviceGauged("H100", limit_w=400.0, default_limit_w=700.0, held_back=((POWER, 0.8),))
    case = Case(extra={"gauged": Gauged((board,))})
    [found] = load()["BRR912"].check(case.ledger, case.machine)
    assert "700 W" in found.advice


@pytest.mark.parametrize(
    ("others", "busy", "severity"),
    [
        (100 << 20, 0.0, None),
        (GIB, 0.0, "note"),
        (0, 0.2, "note"),
        (GIB, 0.9, "warning"),
        (0, 0.9, "note"),
        (None, None, None),
    ],
)
def test_others_on_the_device_are_told(others: int | None, busy: float | None, severity: str | None) -> None:
    found = told("BRR913", others=others, busy_before=busy)
    assert [each.severity for each in found] == [severity] * bool(severity)


def test_the_devices_set_up_is_told_where_it_is_less_than_it_could_be() -> None:
    assert not told("BRR914", link=Link(1, 16, 5, 16), persistent=True, errors=0)  # an idle link slows down by itself
    narrow = told("BRR914", link=Link(5, 8, 5, 16), persistent=False, errors=2)
    assert [each.severity for each in narrow] == ["note", "note", "warning"]
    assert "8 of 16" in narrow[0].message
