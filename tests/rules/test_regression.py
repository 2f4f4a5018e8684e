"""A report against an earlier one: what is a regression, what is noise, what grew, and what cannot be compared."""

from __future__ import annotations

import math

import numpy as np
import pytest
from msgspec.structs import replace

from gobrrr.ledger.model.ledger import HostGroup, LineGroup, OpGroup
from gobrrr.ledger.steps.median_interval import median_interval
from gobrrr.recording.model.facts import Span
from gobrrr.recording.model.setup import Setup
from gobrrr.rules.model.finding import Finding, Quantity, Saving
from gobrrr.rules.verdict.build import build
from gobrrr.rules.verdict.regression import MOST, elsewhere, held_against, line_times, ratio_interval
from gobrrr.rules.verdict.report import LineTime, Report
from tests.support import report_samples as samples

MS = samples.MS
ATTENTION = Span("model.py", 36, "Attention.forward")


def report(wall_ms: float, spread: float = 0.01, *, lines: dict[str, float] | None = None, **changes: object) -> Report:
    """A step of so many ms, sure within `spread`, of which the lines take so many ms each."""
    step = samples.step(wall_ms, low_ns=(1 - spread) * wall_ms * MS, high_ns=(1 + spread) * wall_ms * MS)
    ledger = samples.starved_ledger(step=step, accounts=samples.accounts(wall_ms, data_wait=wall_ms / 10))
    told = tuple(LineTime(name, "forward", ms * MS, ATTENTION) for name, ms in (lines or {}).items())
    return replace(build(ledger, samples.machine(), [], host="here"), lines=told, **changes)


def crowded(severity: str, starved: float) -> Finding:
    return Finding("BRR905", "other-processes", "host", severity, Saving(), "other processes kept 1.7 cores busy",
                   evidence={"starved": Quantity(starved, "1")})  # fmt: skip


def test_the_interval_of_a_ratio_covers_it_95_times_in_100() -> None:
    draw, covered, ratio = np.random.default_rng(7), 0, 1.3
    for _ in range(1500):
        reports = []
        for middle in (ratio, 1.0):
            walls = middle * np.exp(draw.normal(0, 0.2, 40)) * 100 * MS
            low, high = median_interval(walls)
            step = samples.step(1.0, plain_wall_ns=float(np.median(walls)), low_ns=low, high_ns=high)
            reports.append(replace(samples.balanced(), step=build(samples.starved_ledger(step=step), None, []).step))
        _, low, high = ratio_interval(*reports)
        covered += low <= ratio <= high
    assert 0.93 < covered / 1500 < 0.975


def test_each_limit_of_the_ratio_is_made_of_the_two_that_lie_on_its_side() -> None:
    """Shortest: the shortest step of now over the longest of before."""

    def between(low: float, high: float) -> Report:
        return replace(report(100.0), step=replace(report(100.0).step, low_ns=low * MS, high_ns=high * MS))

    assert ratio_interval(between(100.0, 100.0), between(80.0, 100.0)) == pytest.approx((1.0, 1.0, 1.25))
    assert ratio_interval(between(100.0, 100.0), between(100.0, 125.0)) == pytest.approx((1.0, 0.8, 1.0))
    assert ratio_interval(between(80.0, 100.0), between(100.0, 100.0)) == pytest.approx((1.0, 0.8, 1.0))
    assert ratio_interval(between(100.0, 125.0), between(100.0, 100.0)) == pytest.approx((1.0, 1.0, 1.25))


@pytest.mark.parametrize(
    ("now", "spread", "verdict", "said"),
    [(100.0, 0.01, "steady", "not surely longer"), (104.0, 0.01, "steady", "not surely by 10 %"),
     (130.0, 0.01, "regression", "1.30 times as long"), (130.0, 0.30, "steady", "not surely longer"),
     (80.0, 0.01, "steady", "has become shorter")],
)  # fmt: skip
def test_only_what_the_statistics_hold_up_is_a_regression(now: float, spread: float, verdict: str, said: str) -> None:
    found = held_against(report(now, spread), report(100.0))
    assert found.verdict == verdict and said in found.sentence


def test_the_tolerance_is_what_must_surely_be_exceeded() -> None:
    assert held_against(report(130.0), report(100.0), 0.25).verdict == "regression"
    assert held_against(report(130.0), report(100.0), 0.29).verdict == "steady"


def test_what_grew_is_named_by_op_and_line() -> None:
    before = report(100.0, lines={"aten::bmm": 20.0, "aten::mm": 30.0, "aten::gelu": 1.0})
    now = report(140.0, lines={"aten::bmm": 50.0, "aten::mm": 29.0, "aten::exp": 12.0, "aten::gelu": 1.1})
    grown = held_against(now, before).grown
    assert [(g.what, round(g.delta_ns / MS), g.where) for g in grown] == [
        ("aten::bmm", 30, ATTENTION), ("aten::exp", 12, ATTENTION)
    ]  # fmt: skip


def test_a_function_that_moved_in_its_file_or_checkout_is_the_same() -> None:
    before = report(100.0, lines={"aten::mm": 30.0})
    moved = LineTime("aten::mm", "forward", 60.0 * MS, Span("/ci/build/model.py", 99, "Attention.forward"))
    now = replace(report(140.0), lines=(moved,))
    (grown,) = held_against(now, before).grown
    assert grown.before_ns == 30.0 * MS and grown.where == moved.where


def test_where_no_line_grew_an_account_is_named() -> None:
    (first, *_) = held_against(report(200.0), report(100.0)).grown
    assert first.where is None and first.what == "unattributed" and round(first.delta_ns / MS) == 90


def test_what_a_full_list_does_not_hold_took_at_most_its_last() -> None:
    before = report(100.0, lines={f"aten::op{n}": 2.0 for n in range(MOST)})
    now = report(140.0, lines={"aten::new": 30.0})
    assert held_against(now, before).grown[0].before_ns == 2.0 * MS


def test_what_other_processes_took_is_no_regression() -> None:
    before, slow = report(100.0), report(130.0)
    for severity, starved, verdict in (("note", 0.1, "regression"), ("note", 0.2, "unreliable"),
                                       ("warning", 0.0, "unreliable")):  # fmt: skip
        now = replace(slow, findings=(crowded(severity, starved),))
        assert held_against(now, before).verdict == verdict, (severity, starved)
    barely = replace(report(115.0), findings=(crowded("warning", 0.0),))
    assert held_against(barely, before).verdict == "unreliable"  # whatever the tolerance calls a regression
    lightly = replace(before, findings=(crowded("note", 0.1),))
    assert held_against(slow, lightly).verdict == "regression"  # a note about the baseline does not stop a comparison
    as_ever = replace(report(100.0), findings=(crowded("warning", 0.5),))
    assert held_against(as_ever, before).verdict == "steady"  # without them it would be shorter still
    assert "record it again" in held_against(before, as_ever).sentence


def test_what_is_not_alike_is_not_compared() -> None:
    good = report(100.0)
    few = replace(good, step=replace(good.step, plain_count=5))
    inference = replace(good, step=replace(good.step, kind="inference"))
    for now, before, said in (
        (samples.unreliable(), good, "this run is unreliable itself"), (good, few, "the baseline has 5 plain steps"),
        (inference, good, "of the baseline is one of training"),
        (replace(good, offline=True), good, "under a profiler"),
    ):  # fmt: skip
        found = held_against(now, before)
        assert found.verdict == "unreliable" and said in found.sentence and math.isnan(found.ratio)


def test_another_machine_is_known_by_its_fingerprint_or_its_device() -> None:
    assert "another computer (Example CPU" in elsewhere(report(100.0), "there", None)
    assert elsewhere(report(100.0), "here", None) == elsewhere(report(100.0), "", None) == ""
    on_gpu = report(100.0, device=samples_device("V100"))
    assert "recorded on V100, this on H100" in elsewhere(on_gpu, "here", "H100")
    assert elsewhere(on_gpu, "here", None) == ""  # before it has run


def samples_device(name: str) -> object:
    from gobrrr.rules.verdict.report import Device
    from gobrrr.rules.verdict.report import Span as Busy

    return Device(name, 0.5, Busy(0.6))


def test_shares_are_held_against_each_other_whatever_the_machine() -> None:
    def waits(wall_ms: float, share: float) -> Report:
        ledger = samples.starved_ledger(
            step=samples.step(wall_ms), accounts=samples.accounts(wall_ms, data_wait=share * wall_ms, compute=1.0)
        )
        return build(ledger, None, [])

    assert held_against(waits(30.0, 0.11), waits(100.0, 0.1), shares=True).verdict == "steady"
    found = held_against(waits(30.0, 0.4), waits(100.0, 0.1), shares=True)
    assert (
        found.verdict == "regression" and "data wait has 40.0 % of the step, 10.0 % in the baseline" in found.sentence
    )
    assert held_against(waits(300.0, 0.1), waits(100.0, 0.1), shares=True).verdict == "steady"


def test_a_share_is_as_sure_as_its_step_and_useful_work_may_have_more() -> None:
    def has(account: str, share: float, **limits: float) -> Report:
        step = samples.step(100.0, **{name: ms * MS for name, ms in limits.items()})
        parts = samples.accounts(100.0, **{account: 100 * share, "host": 100 * (0.9 - share)})
        return build(samples.starved_ledger(step=step, accounts=parts), None, [])

    def verdict(now: Report, before: Report) -> str:
        return held_against(now, before, shares=True).verdict

    was = has("data_wait", 0.1)
    assert verdict(has("data_wait", 0.25), was) == "regression"
    assert verdict(has("data_wait", 0.25, high_ns=200.0), was) == "steady"  # 0.125 at least
    assert verdict(has("data_wait", 0.25), has("data_wait", 0.1, low_ns=50.0)) == "steady"  # 0.2 at most
    for useful in ("compute", "bandwidth"):
        assert verdict(has(useful, 0.8), has(useful, 0.1)) == "steady"


def test_lines_are_held_against_each_other_by_shares_where_the_steps_are() -> None:
    before = report(100.0, lines={"aten::bmm": 20.0, "aten::mm": 20.0})
    now = replace(report(30.0, lines={"aten::bmm": 12.0, "aten::mm": 6.0}), ledger=samples.accounts(30.0, host=15.0))
    (grown,) = [growth for growth in held_against(now, before, shares=True).grown if growth.where]
    assert grown.what == "aten::bmm" and grown.before_ns == pytest.approx(6.0 * MS)  # 20 % of a step then, 40 % now


@pytest.mark.parametrize("turned", [False, True])
def test_of_lines_that_take_as_long_the_first_is_named(turned: bool) -> None:
    """Whatever order they come in: two reports of one run must name the same line."""
    two = [OpGroup("aten::mm", phase="forward", where=(Span("model.py", n, "Net.forward"),), ns=MS) for n in (7, 9)]
    (line,) = line_times(samples.starved_ledger(ops=tuple(two[::-1] if turned else two), host=(), lines=()))
    assert (line.where.line, line.ns) == (7, 2 * MS)


def test_the_lines_of_a_ledger_are_summed_by_function() -> None:
    other = Span("model.py", 40, "Attention.forward")
    ledger = samples.starved_ledger(
        ops=(OpGroup("aten::mm", phase="forward", where=(ATTENTION,), ns=2 * MS),
             OpGroup("aten::mm", phase="forward", where=(other,), ns=3 * MS),
             OpGroup("aten::mm", phase="data", where=(other,), ns=9 * MS), OpGroup("aten::add", ns=1 * MS)),
        host=(HostGroup((other,), 1 * MS, "forward"), HostGroup((other,), 0.5 * MS, "forward", "sklearn")),
        lines=(LineGroup((samples.TRAIN,), 41 * MS, "data"), LineGroup((other,), 7 * MS, "forward")),
    )  # fmt: skip
    assert [(line.name, line.ns / MS, line.where) for line in line_times(ledger)] == [
        ("data wait", 41, samples.TRAIN), ("aten::mm", 5, other), ("Python", 1, other), ("sklearn", 0.5, other)
    ]  # fmt: skip


def test_variables_and_remedies_that_differ_are_told() -> None:
    setups = [
        Setup(1, variables={"KMP_BLOCKTIME": value}, remedies=names) for value, names in (("0", ()), ("1", ("a",)))
    ]
    then, now = (replace(report(100.0), setup=setup) for setup in setups)
    assert held_against(now, then).notes == (
        "also different: KMP_BLOCKTIME 1 in this run, 0 in the baseline",
        "also different: remedies a in this run, none in the baseline",
    )
    assert held_against(now, replace(then, setup=None)).notes == ()
