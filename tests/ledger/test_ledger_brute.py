"""The ledger's arithmetic of stretches of time, against sets of single nanoseconds."""

# ruff: noqa: E501  (a case is a line)
from __future__ import annotations

import dataclasses
import math
import random

import numpy as np
import pytest

from gobrrr.ledger.device.device_side import _ahead, _overlap, _short, _span_busy, _underfilled, exposed, may_overlap
from gobrrr.ledger.device.idle import LAUNCH_NS, stalls
from gobrrr.ledger.device.launchers import innermost
from gobrrr.ledger.job.calls import KNOTS, ROW, _bare, bare_in_the_last
from gobrrr.ledger.job.collectives import bus_factor, kind_of, sent
from gobrrr.ledger.steps.median_interval import _coverage, mean_interval, median_interval
from gobrrr.ledger.steps.step_stats import percentile
from gobrrr.ledger.steps.step_windows import UNUSUAL, after_watching, alike
from gobrrr.recording.model.trace import COMMUNICATION, KERNEL, MEMCPY, MEMSET, Collective, Kernels, Ops, Runtime, lanes
from gobrrr.spans import as_spans, gaps, union
from tests.support.spans_drawn import ROUNDS, apart, array, drawn, moments


def test_steps_that_took_far_longer_are_not_alike() -> None:
    """At most half as long again as the median; a wait is no work, and of three nobody says what is usual."""
    walls, waits = np.array([100, 100, 150, 151, 90]), np.zeros(5)
    assert UNUSUAL == 1.5
    assert alike(walls, waits).tolist() == [True, True, True, False, True]
    assert alike(walls + np.array([0, 0, 0, 900, 0]), np.array([0, 0, 0, 951, 0])).all()
    assert alike(np.array([1, 1, 99]), np.zeros(3)).all()
    assert alike(np.array([1, 1, 1, 99]), np.zeros(4)).tolist() == [True, True, True, False]
    assert alike(np.array([1, 1, 1, 1]), np.array([5, 0, 0, 0])).all()


def test_a_step_begins_with_what_follows_the_hook() -> None:
    """The first op or line after its begin; after half a millisecond at most, and within it."""
    spans = array([(0, 2_000_000), (2_000_000, 2_100_000), (3_000_000, 4_000_000)])
    ops, lines = np.array([300_000, 2_090_000]), np.array([200_000, 2_095_000, 3_000_000])
    assert after_watching(spans, ops, lines).tolist() == [
        [200_000, 2_000_000],
        [2_090_000, 2_100_000],
        [3_000_000, 4_000_000],
    ]
    assert after_watching(spans).tolist() == [[500_000, 2_000_000], [2_100_000, 2_100_000], [3_500_000, 4_000_000]]


def kernels(*rows: tuple[int, int, int, int]) -> Kernels:
    """(start, dur, stream, kind) each; blocks per multiprocessor are 0.5 on stream 1, 2 on 2, unknown elsewhere."""
    start, dur, stream, kind = np.array(rows, np.int64).reshape(-1, 4).T
    zero, num = np.zeros(len(rows), np.int64), np.arange(len(rows))
    fill = np.select([stream == 1, stream == 2], [0.5, 2.0], np.nan)
    return Kernels(
        zero.astype(np.int32),
        start,
        dur,
        zero,
        stream,
        num,
        zero - 1,
        kind.astype(np.int8),
        zero,
        fill,
        (zero - 1).astype(np.int32),
    )


def test_streams_of_two_devices_are_two_and_there_are_no_more_lanes_than_streams() -> None:
    """A file of 200 KB named a device and a stream for each of its events, and took a GB of memory for it."""
    found = dataclasses.replace(kernels(*[(0, 1, n, KERNEL) for n in range(50)]), device=np.arange(50))
    assert sorted(lanes(found).tolist()) == list(range(50))
    found = dataclasses.replace(
        kernels((0, 1, 7, KERNEL), (1, 1, 7, KERNEL), (2, 1, 7, KERNEL)), device=np.array([0, 1, 0])
    )
    assert lanes(found).tolist() == [0, 1, 0]


@pytest.mark.parametrize("seed", ROUNDS)
def test_what_nothing_hides(seed: int) -> None:
    chance = random.Random(seed)
    rows = sorted(
        (at, 1 + end - at, chance.randrange(3), chance.choice((KERNEL, MEMCPY)))
        for at, end in drawn(seed, 9) or [(3, 5)]
    )
    held = kernels(*rows)
    copies = moments((a, a + d) for a, d, _, kind in rows if kind == MEMCPY)
    others = moments((a, a + d) for a, d, _, kind in rows if kind != MEMCPY)
    assert exposed(held, held.kind == MEMCPY) == len(copies - others)
    first, last = min(copies | others), max(copies | others)
    assert _span_busy(held) == pytest.approx(len(copies | others) / (last - first + 1))
    lanes = [moments((a, a + d) for a, d, stream, _ in rows if stream == s) for s in range(3)]
    share = 1 - sum(map(len, lanes)) / sum(d for _, d, _, _ in rows)
    assert _overlap(held, True) == pytest.approx(share)
    beside = sum(any(b + e > a for b, e, s, _ in rows[:i] if s == stream) for i, (a, _, stream, _) in enumerate(rows))
    assert _overlap(held, False) == pytest.approx(max(share, beside / len(rows)))


def test_shares_of_kernels() -> None:
    """Short is below 10 us, of what computes and no graph launched; a grid that leaves multiprocessors empty has under one block for each."""
    held = kernels(
        (0, 9_999, 1, KERNEL),
        (20_000, 10_000, 2, KERNEL),
        (40_000, 30_001, 0, KERNEL),
        (90_000, 5, 0, MEMCPY),
        (95_000, 5, 0, MEMSET),
    )
    launched = np.zeros(len(held), bool)
    assert _short(held, launched) == pytest.approx(1 / 3) and _short(held, ~launched) == 0
    assert _underfilled(held) == pytest.approx(9_999 / 19_999)
    assert _underfilled(kernels((0, 5, 0, KERNEL))) is None
    assert _short(kernels((0, 5, 0, MEMCPY)), launched[:1]) == 0 and _overlap(kernels((0, 0, 0, KERNEL)), True) == 0
    assert [may_overlap(c) for c in ("8.9", "9.0", "10.3", "", "gfx90a")] == [False, True, True, False, False]
    delays = np.array([-100] * 10 + [50] * 90)
    assert _ahead(delays) == 100 and _ahead(delays[6:]) == 0 and _ahead(np.zeros(0, np.int64)) == 0


def test_a_stall_is_idle_although_the_next_kernel_was_launched() -> None:
    """Launched and returned at 100 us, begun at 200: what lies beyond the 20 us that starting may take."""
    held = kernels(
        (0, 50_000, 1, KERNEL), (200_000, 10_000, 1, KERNEL), (200_000, 10_000, 2, KERNEL), (215_000, 5_000, 1, KERNEL)
    )
    number = np.arange(4)
    launches = Runtime(
        number.astype(np.int32),
        np.array([0, 90_000, 95_000, 199_000]),
        np.full(4, 10_000),
        number.astype(np.int32),
        number,
        number,
    )
    idle = gaps(union(as_spans(held.start, held.dur)), 0, 300_000)
    assert LAUNCH_NS == 20_000
    assert stalls(held, launches, idle).tolist() == [[120_000, 200_000]]
    late = Runtime(
        number.astype(np.int32),
        np.array([0, 185_000, 186_000, 199_000]),
        np.full(4, 10),
        number.astype(np.int32),
        number,
        number,
    )
    assert not len(stalls(held, late, idle))
    early = Runtime(
        number.astype(np.int32),
        np.array([0, 10_000, 11_000, 199_000]),
        np.full(4, 10),
        number.astype(np.int32),
        number,
        number,
    )
    assert stalls(held, early, idle).tolist() == [[70_000, 200_000]]


@pytest.mark.parametrize("seed", ROUNDS)
def test_the_innermost_open_op(seed: int) -> None:
    """On two threads, ops nest; found by looking at all of them."""
    chance = random.Random(seed)
    rows: list[tuple[int, int, int]] = []

    def nest(begin: int, end: int, thread: int) -> None:
        while end - begin > 1 and chance.random() < 0.7:
            at = chance.randrange(begin, end - 1)
            until = chance.randrange(at + 1, end)
            rows.append((at, until, thread))
            nest(at + 1, until, thread)
            begin = until

    nest(0, 40, 0), nest(0, 40, 3)
    rows.sort(key=lambda row: (row[0], -row[1]))
    if not rows:
        return
    open_at = [
        [i for i, (a, b, t) in enumerate(rows) if t == thread and a <= time < b]
        for thread in (0, 3)
        for time in range(40)
    ]
    inner = [max(found, key=lambda i: rows[i][0]) if found else -1 for found in open_at]
    parent = [
        max(
            (j for j, (a, b, t) in enumerate(rows) if t == row[2] and a < row[0] and row[1] <= b),
            key=lambda j: rows[j][0],
            default=-1,
        )
        for row in rows
    ]
    start, end, thread = np.array(rows, np.int64).T
    zero = np.zeros(len(rows), np.int32)
    ops = Ops(
        **{name: zero for name in Ops.__annotations__}
        | {"start": start, "dur": end - start, "thread": thread.astype(np.int32)}
    )  # type: ignore[arg-type]
    times, threads = np.tile(np.arange(40), 2), np.repeat([0, 3], 40).astype(np.int32)
    assert innermost(ops, np.array(parent, np.int32), times, threads).tolist() == inner
    assert innermost(ops, np.array(parent, np.int32), times, threads + 1).tolist() == [-1] * 80


@pytest.mark.parametrize("seed", ROUNDS)
def test_how_much_of_a_calls_end_is_bare(seed: int) -> None:
    """With three stretches beside it at most, all corners are kept: exact for every part of the call's end."""
    others = [(a, b) for a, b in apart(seed)[:3] if b > a]
    call = kernels((5, 30, 1, COMMUNICATION))
    table = np.zeros(1, ROW)
    table["ns"] = 30
    _bare(table, call, kernels(*((a, b - a, 2, KERNEL) for a, b in others)))
    bare = set(range(5, 35)) - moments(others)
    assert len(others) * 2 <= KNOTS and table["bare"][0] == len(bare)
    for last in range(31):
        assert bare_in_the_last(table, np.array([float(last)]))[0] == pytest.approx(
            len(bare & set(range(35 - last, 35))), abs=1e-4
        )


def test_bytes_on_the_bus_are_nccl_tests() -> None:
    """doc/PERFORMANCE.md: 2 (n - 1) / n for all-reduce, (n - 1) / n for gather, scatter and all-to-all, else 1."""
    factors = {
        kind: bus_factor(kind, 4)
        for kind in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "reduce", "send")
    }
    assert factors == {
        "all-reduce": 1.5,
        "all-gather": 0.75,
        "reduce-scatter": 0.75,
        "all-to-all": 0.75,
        "broadcast": 1,
        "reduce": 1,
        "send": 1,
    }
    names = {"allreduce": "all-reduce", "ncclDevKernel_AllReduce_Sum": "all-reduce", "_allgather_base": "all-gather", "all_gather": "all-gather",
             "reduce_scatter": "reduce-scatter", "ReduceScatter": "reduce-scatter", "all_to_all": "all-to-all", "alltoall": "all-to-all",
             "broadcast": "broadcast", "reduce": "reduce", "ncclDevKernel_SendRecv": "send", "recv": "send", "gemm": None}  # fmt: skip
    assert {name: kind_of(name) for name in names} == names
    for dtype, width in {
        "Float": 4,
        "c10::Half": 2,
        "BFloat16": 2,
        "Double": 8,
        "Long": 8,
        "Int": 4,
        "Byte": 1,
        "Float8_e4m3fn": 1,
        "odd": 0,
    }.items():
        assert sent(Collective(name="allreduce", dtype=dtype, in_elements=7, out_elements=9)) == 7 * width
    assert sent(Collective(name="all_gather", dtype="Float", in_elements=7, out_elements=28)) == 112
    assert sent(Collective(name="reduce_scatter", dtype="Float", in_elements=28, out_elements=7)) == 112


@pytest.mark.parametrize("n", [2, 3, 6, 7, 12, 30])
def test_order_statistics_cover_the_median_as_the_binomial_says(n: int) -> None:
    exact = [1 - 2 * sum(math.comb(n, k) for k in range(i + 1)) / 2**n for i in range(n)]
    found = _coverage(n)
    assert found.tolist() == pytest.approx(exact[: len(found)]) and len(found) >= max(1, (n - 1) // 2)
    values = [float(v) ** 2 for v in range(1, n + 1)]
    low, high = median_interval(list(reversed(values)))
    assert values[0] <= low <= np.median(values) <= high <= values[-1]
    whole = [(values[i], values[n - 1 - i]) for i, cover in enumerate(exact[: n // 2]) if cover >= 0.95]
    if whole:  # within the narrowest pair that surely covers, without the widest that does not
        assert whole[-1][0] <= low and high <= whole[-1][1]
    narrow = [(values[i], values[n - 1 - i]) for i, cover in enumerate(exact[: n // 2]) if cover < 0.95]
    if narrow and whole:
        assert low <= narrow[0][0] and narrow[0][1] <= high
    if not whole:
        assert (low, high) == (values[0], values[-1])


def test_the_median_of_ten_by_hettmansperger_and_sheather() -> None:
    """Ten values: the 2nd to 9th cover 97.85 %, the 3rd to 8th 89.06 %; I = 0.0285 / 0.0879 = 0.3242 of the way, and
    lambda = (n - d) I / (d + (n - 2 d) I) with d = 2."""
    part = (1 - 2 * 11 / 1024 - 0.95) / (90 / 1024)
    inner = 8 * part / (2 + 6 * part)
    assert median_interval(list(range(1, 11))) == (pytest.approx(2 + inner), pytest.approx(9 - inner))


@pytest.mark.parametrize(
    ("num", "t"), [(2, 12.706), (3, 4.303), (4, 3.182), (6, 2.571), (11, 2.228), (31, 2.042), (121, 1.980)]
)
def test_the_interval_of_a_mean_is_students(num: int, t: float) -> None:
    """Half of the values 0, half 1 (one more 0 of an odd number): beside a table of t; within the values' range."""
    values = [i % 2 for i in range(num)]
    mean = sum(values) / num
    half = t * math.sqrt(sum((v - mean) ** 2 for v in values) / (num - 1) / num)
    low, high = mean_interval(values)
    assert low == pytest.approx(max(0.0, mean - half), abs=0.01) and high == pytest.approx(
        min(1.0, mean + half), abs=0.01
    )


def test_a_percentile_needs_steps_beyond_it() -> None:
    walls = list(range(1, 102))
    assert percentile(walls, 0.95) == pytest.approx(96) and percentile(walls, 0.99) == pytest.approx(100)
    assert (
        percentile(walls[:99], 0.99) is None
        and percentile(walls[:20], 0.95) is not None
        and percentile(walls[:19], 0.95) is None
    )
