"""From the profiled step to the plain one: what the instruments added comes off where they added it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gobrrr.ledger.build import _grown
from gobrrr.ledger.host.gaps import Gaps
from gobrrr.ledger.model.accounts import accounts, phases
from gobrrr.ledger.model.ledger import HostGroup, OpGroup, StepStats
from gobrrr.ledger.steps.scaling import (
    MAX_ADDED,
    MAX_GROWTH,
    NOTHING_SEEN,
    PER_CALL,
    PER_LINE,
    PER_OP,
    STRETCH,
    Scaled,
    Seen,
    gap_added,
    scale,
)
from gobrrr.recording.model.facts import Facts
from tests.support.timelines import MS, US

D = 1000.0
"""Nanoseconds of a dispatch."""


def leaf(ns: float, calls: float = 1, floor: float = 0.0, phase: str = "forward") -> tuple[OpGroup, float]:
    dispatch = min(ns - floor, calls * D)
    op = OpGroup("aten::mm", phase=phase, calls=calls, ns=ns, floor_ns=floor, dispatch_ns=dispatch, bound="compute")
    return op, 0.0


def wrapper(ns: float, children: float, phase: str = "forward") -> tuple[OpGroup, float]:
    dispatch = min(ns, (1 + children) * D)
    op = OpGroup("aten::linear", phase=phase, calls=1, ns=ns, dispatch_ns=dispatch, leaf=False)
    return op, PER_OP * D * children


def gap(ns: float, ops: float = 1, lines: float = 1, phase: str = "forward") -> tuple[HostGroup, float]:
    return HostGroup((), ns, phase), D * ((PER_OP + PER_CALL) * ops + PER_LINE * lines)


def seen(*pairs: tuple[OpGroup | HostGroup, float], waited: float = 0.0) -> Seen:
    ops = [(g, added) for g, added in pairs if isinstance(g, OpGroup)]
    host = [(g, added) for g, added in pairs if isinstance(g, HostGroup)]
    return Seen([g for g, _ in ops], [a for _, a in ops], [g for g, _ in host], [a for _, a in host], waited)


def total(scaled: Scaled) -> float:
    return sum(g.ns for g in [*scaled.ops, *scaled.host] if g.phase != "data")


def test_a_profile_of_the_plain_steps_length_is_left_as_it_is() -> None:
    scaled = scale(seen(leaf(8 * MS, floor=MS), wrapper(10 * US, 3), gap(2 * MS)), data=MS, plain=11 * MS + 10 * US)
    assert [op.ns for op in scaled.ops] == [8 * MS, 10 * US]
    assert [group.ns for group in scaled.host] == [2 * MS]
    assert (scaled.added, scaled.factor) == (0.0, 1.0)


def test_a_step_of_few_long_ops_is_scaled_as_a_whole() -> None:
    """The profile ran on a busier machine: its 10 ms of NumPy are not the profiler's doing, and keep their share."""
    scaled = scale(seen(leaf(90 * MS), gap(10 * MS, ops=2, lines=3)), data=0.0, plain=90 * MS)
    assert scaled.ops[0].ns == pytest.approx(81 * MS, rel=1e-3)
    assert scaled.host[0].ns == pytest.approx(9 * MS, rel=2e-3)


def test_nothing_gives_up_more_than_nine_tenths() -> None:
    """A gap of which the instruments are said to be all: something ran there."""
    step = Seen([leaf(900 * US)[0]], [0.0], [HostGroup((), 100 * US, "forward")], [1000 * US], 0.0)
    scaled = scale(step, data=0.0, plain=500 * US)
    assert scaled.added == 90 * US
    assert scaled.host[0].ns / scaled.ops[0].ns == pytest.approx(10 / 900)


def test_a_step_of_tiny_ops_gives_up_what_was_recorded_around_them() -> None:
    """The figures of a real step: 392 ops that work, 475 that call 663 others, 205 gaps; 0.7 ms plain, 1.5 profiled."""
    step = seen(leaf(172 * US, calls=392), wrapper(460 * US, 663), gap(831 * US, ops=205, lines=26))
    scaled = scale(step, data=0.0, plain=700 * US)
    assert total(scaled) == pytest.approx(700 * US)
    assert scaled.ops[0].ns == pytest.approx(172 * US, rel=0.05), "ops that work are as long as profiled"
    assert 50 * US <= scaled.ops[1].ns <= 130 * US, "most of the callers' time was the profiler"
    assert 400 * US <= scaled.host[0].ns <= 480 * US


def test_a_traced_loop_in_python_gives_up_its_lines_and_an_equally_long_call_does_not() -> None:
    """20,000 lines of Python took 1.2 us each under the trace function, as long as one call into a library."""
    loop, call = gap(24 * MS, ops=0, lines=20_000), gap(24 * MS, ops=0, lines=1)
    scaled = scale(seen(leaf(10 * MS), loop, call), data=0.0, plain=46 * MS)
    assert scaled.host[0].ns == pytest.approx(12 * MS, rel=0.01)
    assert scaled.host[1].ns == pytest.approx(24 * MS, rel=0.01)


def test_ops_inside_the_wait_keep_their_share_of_it() -> None:
    """No workers: the dataset's Python is traced, so the profiled wait is 2.5 times the plain one."""
    inside = leaf(90 * MS, phase="data")
    scaled = scale(seen(inside, leaf(10 * MS), waited=250 * MS), data=100 * MS, plain=110 * MS)
    assert scaled.ops[0].ns == pytest.approx(36 * MS)
    assert scaled.ops[1].ns == 10 * MS


def test_ops_inside_a_shorter_wait_do_not_grow() -> None:
    scaled = scale(seen(leaf(MS, phase="data"), waited=MS), data=100 * MS, plain=110 * MS)
    assert scaled.ops[0].ns == MS


def test_a_profile_much_too_short_leaves_the_rest_to_nobody() -> None:
    scaled = scale(seen(leaf(10 * MS, floor=8 * MS)), data=0.0, plain=100 * MS)
    assert scaled.ops[0].ns == MAX_GROWTH * 10 * MS
    assert scaled.ops[0].floor_ns == 8 * MS, "work is no dearer because the step was slow"
    found = {a.account: a.ns for a in accounts(scaled.ops, scaled.host, 0.0, 100 * MS, 0.0)}
    assert found["unattributed"] == 80 * MS


def test_where_later_steps_are_longer_they_do_more_of_the_same() -> None:
    op, added = leaf(10 * MS, calls=3, floor=4 * MS)
    counted = (replace(op, flops=5.0, dispatch_ns=1 * MS), added)
    scaled = scale(seen(counted), data=0.0, plain=100 * MS, longer=10.0)
    (longer,) = scaled.ops
    assert (longer.ns, longer.floor_ns, longer.dispatch_ns) == (100 * MS, 40 * MS, 10 * MS)
    assert (longer.calls, longer.flops, longer.bytes) == (30, 50.0, None)


def test_nothing_seen_is_nothing_scaled() -> None:
    assert scale(NOTHING_SEEN, 5.0, 10.0) == Scaled([], [])
    assert scale(seen(leaf(10.0)), 0.0, 0.0).ops[0].ns == 0.0


def test_a_gap_is_charged_one_record_and_every_line() -> None:
    import numpy as np

    gaps = Gaps(
        np.array([0, 30, 100]), np.array([30, 40, 110]), np.zeros(3, np.int32), ("other",) * 3, np.array([0, 0, 1]),
        np.array([False, True, False]),
    )  # fmt: skip
    around = PER_OP + PER_CALL
    assert gap_added(gaps) == pytest.approx([0.75 * around, 0.25 * around + PER_LINE, around])


NS = st.floats(0, 1e9)
COUNT = st.floats(0, 1e5)
OP = st.one_of(
    st.builds(leaf, NS, COUNT, st.just(0.0), st.sampled_from(["data", "forward", "backward", "optimizer"])),
    st.builds(lambda ns, share: leaf(ns, 1, share * ns), NS, st.floats(0, 1)),
    st.builds(wrapper, NS, COUNT, st.sampled_from(["data", "forward", "backward"])),
)
GAP = st.builds(gap, NS, COUNT, COUNT, st.sampled_from(["forward", "backward", "other"]))
PAIRS = st.lists(st.one_of(OP, GAP), max_size=12)


@given(PAIRS, NS, st.floats(0, 1), st.floats(0, 1e9))
def test_whatever_was_seen_the_parts_fit_the_step(pairs: list, plain: float, share: float, waited: float) -> None:
    profiled, data = seen(*pairs, waited=waited), share * plain
    scaled = scale(profiled, data, plain)
    before = sum(g.ns for g in [*profiled.ops, *profiled.host] if g.phase != "data")
    assert total(scaled) <= plain - data + 1e-6 * plain + 1e-3
    assert sum(op.ns for op in scaled.ops if op.phase == "data") <= data * (1 + 1e-9) + 1e-3
    if plain - data <= before:
        assert total(scaled) == pytest.approx(plain - data, rel=1e-6, abs=1e-3), "an inflated profile fits exactly"
    for op in scaled.ops:
        assert op.ns >= 0 and op.floor_ns >= 0 and op.dispatch_ns >= 0
        assert op.floor_ns + op.dispatch_ns <= op.ns * (1 + 1e-9) + 1e-6


@given(PAIRS, NS)
def test_no_group_grows_where_the_profile_was_the_longer_one(pairs: list, plain: float) -> None:
    profiled = seen(*pairs)
    before = sum(g.ns for g in [*profiled.ops, *profiled.host] if g.phase != "data")
    scaled = scale(profiled, 0.0, plain)
    limit = 1.0 if before >= plain else min(MAX_GROWTH, plain / before if before else 1.0)
    old = [g for g in profiled.ops if g.phase == "data"] + [g for g in profiled.ops if g.phase != "data"]
    for group, was in zip([*scaled.ops, *scaled.host], [*old, *profiled.host], strict=True):
        assert group.ns <= was.ns * limit * (1 + 1e-9) + 1e-6


@given(PAIRS, NS)
def test_the_instruments_take_no_more_than_they_can(pairs: list, plain: float) -> None:
    profiled = seen(*pairs)
    scaled = scale(profiled, 0.0, plain)
    own = [a for g, a in zip(profiled.ops, profiled.ops_added, strict=True) if g.phase != "data"]
    assert scaled.added <= STRETCH * (sum(own) + sum(profiled.host_added)) * (1 + 1e-9) + 1e-6
    assert scaled.added <= MAX_ADDED * sum(g.ns for g in [*profiled.ops, *profiled.host]) * (1 + 1e-9) + 1e-6


@given(PAIRS, NS, st.floats(0, 1), st.floats(0, 1e8))
def test_accounts_and_phases_sum_to_the_step(pairs: list, plain: float, share: float, gc_ns: float) -> None:
    data = share * plain
    scaled = scale(seen(*pairs, waited=data), data, plain)
    found = accounts(scaled.ops, scaled.host, data, plain, gc_ns)
    assert sum(a.ns for a in found) == pytest.approx(plain, rel=1e-6, abs=20.0)
    assert all(a.ns >= -1e-6 * plain - 1e-3 for a in found)
    assert len({a.account for a in found}) == len(found)
    assert {a.account for a in found} >= {"unattributed"}
    by_phase = phases(scaled.ops, scaled.host, data, plain)
    assert sum(ns for _, ns in by_phase) == pytest.approx(plain, rel=1e-6, abs=10.0)
    assert all(ns >= 0 for _, ns in by_phase)


@pytest.mark.parametrize(
    ("name", "leaf_", "bound", "account"),
    [
        ("aten::mm", True, "compute", "inefficiency"),
        ("mine::fused", True, None, "uncounted"),
        ("aten::linear", False, None, "uncounted"),
        ("Torch-Compiled Region: 0/0", False, None, "uncounted"),
        ("TorchDynamo Cache Lookup", True, None, "dispatch"),
        ("c10d::allreduce_", True, None, "communication"),
        ("CompiledFxGraph (dynamo_timed)", True, None, "compile"),
    ],
)
def test_every_nanosecond_of_an_op_has_an_account(name: str, leaf_: bool, bound: str | None, account: str) -> None:
    """A fused kernel that compiled code runs itself is no overhead of dispatching."""
    op = OpGroup(name, ns=10 * MS, calls=1, dispatch_ns=D, bound=bound, leaf=leaf_, phase="forward")
    found = {a.account: a.ns for a in accounts([op], [], 0.0, 10 * MS, 0.0)}
    assert found[account] >= 10 * MS - D
    assert sum(found.values()) == 10 * MS


def test_collections_are_taken_from_the_time_between_ops() -> None:
    group = HostGroup((), 3 * MS, "other")
    found = {a.account: a.ns for a in accounts([], [group], 0.0, 3 * MS, 5 * MS)}
    assert found["gc"] == 3 * MS
    assert "host" not in found


@pytest.mark.parametrize(
    ("facts", "times"),
    [
        (Facts(), 2.0),
        (Facts(process_load=1.9, waiting_load=0.1), 2.0),
        (Facts(process_load=1.0, waiting_load=0.9), 1.0),  # another job came: the same work took longer
        (Facts(process_load=1.0, stolen_load=0.5), 1.0),
    ],
)
def test_longer_steps_on_a_machine_that_got_busier_do_no_more_work(facts: Facts, times: float) -> None:
    assert _grown(StepStats(plain_wall_ns=20.0, beside_ns=10.0), facts) == times
    assert _grown(StepStats(plain_wall_ns=10.0, beside_ns=20.0), facts) == 1.0
    assert _grown(StepStats(plain_wall_ns=10.5, beside_ns=10.0), facts) == 1.0
