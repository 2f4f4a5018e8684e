"""What is said of traces whose truth is known: accounts, findings, the cause, and silence where it is open."""

from __future__ import annotations

import copy
import random
import statistics
from pathlib import Path

import pytest

from gobrrr.ledger.job.ranks import OF_THE_DEVICE, Job
from gobrrr.machine.model.machine import UNKNOWN
from gobrrr.pipeline.traces import diagnose, diagnosed
from gobrrr.recording.trace_files.limits import DEFAULT
from gobrrr.recording.trace_files.sources import Source
from gobrrr.report.text.report import render
from gobrrr.rules.verdict.report import Report
from tests.pipeline.grown import CAUSES, Grown, grow

BOUND = {cause: cause for cause in CAUSES} | {"stalled": "unreliable"}


def told(trace: Grown, folder: Path) -> Report:
    return diagnosed(Source(str(trace.write(folder / "trace.json"))), UNKNOWN, DEFAULT)


def accounts(report: Report) -> dict[str, float]:
    """Shares; what bounds the device's own work is none of the truth's affair."""
    found = {account.account: account.share for account in report.ledger}
    return found | {"work": sum(found.pop(name, 0.0) for name in OF_THE_DEVICE)}


def check(trace: Grown, report: Report) -> None:
    """Accounts are those planted, fill the step, and hold what findings claim."""
    found, truth = accounts(report), trace.truth()
    wrong = {name: (found.get(name, 0.0), share) for name, share in truth.items()
             if abs(found.get(name, 0.0) - share) > 0.01}  # fmt: skip
    assert not wrong
    assert sum(found.values()) == pytest.approx(1, abs=0.001)
    assert report.device and report.device.awaited_share == pytest.approx(trace.awaited(), abs=0.01)
    assert report.step.wall_ns == pytest.approx(1000 * statistics.mean(trace.walls()), rel=0.01)
    wall = report.step.plain_wall_ns
    for finding in report.findings:
        assert finding.saving.expected_ns <= finding.saving.ceiling_ns <= 1.01 * wall


@pytest.mark.parametrize("cases", [60, pytest.param(210, marks=pytest.mark.slow)])
def test_the_cause_is_that_which_was_planted(cases: int, tmp_path: Path) -> None:
    missed = []
    for seed in range(cases):
        cause = CAUSES[seed % len(CAUSES)]
        trace = grow(seed, cause)
        report = told(trace, tmp_path)
        check(trace, report)
        if report.verdict.bound != BOUND[cause]:
            missed.append((seed, cause, report.verdict.sentence))
    assert len(missed) <= 0.05 * cases, missed


OWNERS = {"BRR401": "data_wait", "BRR501": "sync", "BRR502": "copy", "BRR701": "communication"}


@pytest.mark.parametrize("cause", CAUSES)
def test_no_finding_claims_more_than_its_account_holds(cause: str, tmp_path: Path) -> None:
    report = told(grow(7, cause), tmp_path)
    held = {account.account: account.ns for account in report.ledger}
    for finding in report.findings:
        if finding.code in OWNERS:
            assert finding.saving.ceiling_ns <= held.get(OWNERS[finding.code], 0.0) * 1.001


def with_kernels(share: float) -> Grown:
    trace, draw = grow(3, "overhead"), random.Random(1)
    trace.events = [e for e in trace.events if e["cat"] != "kernel" or draw.random() < share]
    return trace


def without_correlations() -> Grown:
    trace = grow(3, "overhead")
    for event in trace.events:
        if event["cat"] == "cuda_runtime":
            event["args"].pop("correlation")
    return trace


@pytest.mark.parametrize("trace", [with_kernels(0.2), with_kernels(0.0), without_correlations()])
def test_where_rows_are_missing_nothing_is_loud(trace: Grown, tmp_path: Path) -> None:
    is_silent(told(trace, tmp_path))


@pytest.mark.parametrize("cause", CAUSES)
def test_where_the_file_ends_in_a_step_nothing_is_loud(cause: str, tmp_path: Path) -> None:
    path = grow(3, cause).write(tmp_path / "trace.json")
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 6 // 10])
    is_silent(diagnosed(Source(str(path)), UNKNOWN, DEFAULT))


def is_silent(report: Report) -> None:
    assert report.verdict.bound == "unreliable"
    loud = [f.code for f in report.findings if f.severity != "note" and not f.code.startswith("BRR9")]
    assert not loud, (report.verdict.sentence, loud)


def test_a_file_without_marks_of_steps_is_one_step(tmp_path: Path) -> None:
    trace = grow(7, "data")
    trace.events = [e for e in trace.events if not e["name"].startswith("ProfilerStep")]
    report = told(trace, tmp_path)
    found, truth = accounts(report), trace.truth()
    assert report.step.count == 1 and report.step.unmarked
    assert found["data_wait"] == pytest.approx(truth["data_wait"], abs=0.01)
    assert "; waits 38 of the 46.3 ms," in report.verdict.sentence and " step " not in report.verdict.sentence
    assert "does not say where a step ends" in next(f.message for f in report.findings if f.code == "BRR901")


@pytest.mark.parametrize(
    ("shapes", "stacks", "told"),
    [
        (True, True, None), (False, True, "profile(record_shapes=True) "), (True, False, "profile(with_stack=True) "),
        (False, False, "profile(record_shapes=True, with_stack=True) "),
    ],
)  # fmt: skip
def test_what_would_settle_it_is_the_next_thing_to_type(
    shapes: bool, stacks: bool, told: str | None, tmp_path: Path
) -> None:
    trace = Grown(shapes=shapes, stacks=stacks)
    for _ in range(4):
        begin = trace.now
        trace.python(50)
        trace.op(20, 50)
        trace.sync(3)
        trace.end_of_step(begin)
    page = render(diagnosed(Source(str(trace.write(tmp_path / "trace.json"))), UNKNOWN, DEFAULT), width=120)
    assert ("profile(" in page.split("next ")[-1]) is bool(told) and (told or "next") in page


def test_marks_that_stand_twice_are_one_step(tmp_path: Path) -> None:
    trace = grow(7, "data")
    once = told(trace, tmp_path)
    trace.events += [dict(e) for e in trace.events if e["name"].startswith("ProfilerStep")]
    twice = told(trace, tmp_path)
    assert (twice.step.count, twice.step.wall_ns) == (len(trace.steps), once.step.wall_ns)
    assert accounts(twice) == accounts(once) and not twice.step.unmarked


@pytest.mark.parametrize("worth", [0.0, 0.004, 0.03, 0.5])
def test_kernels_of_one_stream_that_overlap_cannot_be_right(worth: float, tmp_path: Path) -> None:
    trace = grow(3, "communication")
    work = [e for e in trace.events if e.get("cat") == "kernel"]
    whole = sum(e["dur"] for e in work)
    longest = max(work, key=lambda e: e["dur"])
    trace.events.append(longest | {"dur": worth * whole / (1 - worth)}) if worth else None
    found = [f.severity for f in told(trace, tmp_path).findings if "overlap" in f.evidence]
    assert found == ({0.03: ["note"], 0.5: ["critical"]}.get(worth, []))


def test_one_endless_kernel_hides_no_overlap(tmp_path: Path) -> None:
    trace = grow(3, "communication")
    first = next(e for e in trace.events if e.get("cat") == "kernel")
    trace.events.append(first | {"dur": 10**9})
    assert "critical" in [f.severity for f in told(trace, tmp_path).findings if "overlap" in f.evidence]


@pytest.mark.parametrize(("device", "level"), [(1, "critical"), (2, "note")])
def test_from_hopper_on_kernels_may_begin_before_the_last_one_ends(device: int, level: str, tmp_path: Path) -> None:
    trace = Grown(device=device)
    for _ in range(4):
        begin = trace.now
        for _ in range(20):
            trace.op(20, 100)
        trace.sync(3)
        trace.end_of_step(begin)
    for event in [e for e in trace.events if e.get("cat") == "kernel"][::5]:
        event["dur"] += 30
    assert [f.severity for f in told(trace, tmp_path).findings if "overlap" in f.evidence] == [level]


@pytest.mark.parametrize(("pause", "bound"), [(20, "compute"), (2_000_000, "unreliable")])
def test_one_pause_in_many_steps_is_not_the_steps_cause(pause: int, bound: str, tmp_path: Path) -> None:
    trace = Grown()
    for step in range(30):
        begin = trace.now
        for _ in range(20):
            trace.op(15, 200)
        trace.python(pause if step == 14 else 20)
        trace.sync(3)
        trace.end_of_step(begin)
    assert told(trace, tmp_path).verdict.bound == bound


def test_one_event_in_each_step_may_be_most_of_what_the_device_did(tmp_path: Path) -> None:
    """Few of all events, and 96 % of the time: that they are lost is said first."""
    trace = Grown()
    for _ in range(10):
        begin = trace.now
        for kernel in (5000, *([10] * 60)):
            trace.op(15, kernel)
        trace.sync(3)
        trace.end_of_step(begin)
    for event in trace.events:
        if event.get("cat") == "kernel" and event["dur"] == 5000:
            event["dur"] = -5
    report = told(trace, tmp_path)
    assert report.verdict.bound == "unreliable" and "are damaged (negative duration: 10)" in report.verdict.sentence


@pytest.mark.parametrize(("every", "damaged"), [(1000, False), (20, True)])
def test_events_that_cannot_be_right_are_left_out_and_told(every: int, damaged: bool, tmp_path: Path) -> None:
    trace = grow(3, "overhead")
    for event in trace.events[::every]:
        event["dur"] = -event["dur"] - 1
    report = told(trace, tmp_path)
    assert (report.verdict.bound == "unreliable") is damaged
    assert any("negative duration" in f.message for f in report.findings if f.code == "BRR906") is damaged


@pytest.mark.parametrize("seed", range(5))
def test_waits_without_a_rhythm_are_the_loaders_and_no_reason_to_say_nothing(seed: int, tmp_path: Path) -> None:
    draw, trace = random.Random(seed), Grown()
    for _ in range(20):
        begin = trace.now
        trace.wait(draw.randrange(8000, 14_000) if draw.random() < 0.4 else 60)
        for _ in range(20):
            trace.op(15, 120)
        trace.sync(3)
        trace.end_of_step(begin)
    report = told(trace, tmp_path)
    assert report.verdict.bound == "data", report.verdict.sentence
    check(trace, report)


def test_rare_slow_samples_are_not_too_few_workers_as_well(tmp_path: Path) -> None:
    trace = Grown()
    for step in range(20):
        begin = trace.now
        trace.wait(11_000 if step in (2, 3, 9, 14, 15) else 60)
        for _ in range(20):
            trace.op(15, 120)
        trace.sync(3)
        trace.end_of_step(begin)
    report = told(trace, tmp_path)
    assert [f.code for f in report.findings if f.severity != "note" and f.code != "BRR110"] == ["BRR407"]
    check(trace, report)


def test_steps_that_differ_beside_their_waits_too_are_bound_by_what_takes_most(tmp_path: Path) -> None:
    draw, trace = random.Random(1), Grown()
    for _ in range(20):
        begin = trace.now
        trace.wait(draw.choice((60, 9000)))
        for _ in range(20):
            trace.op(15, 120)
        trace.python(draw.choice((60, 30_000)))
        trace.sync(3)
        trace.end_of_step(begin)
    assert told(trace, tmp_path).verdict.bound == "host", "9.8 of 17.6 ms on average, where 5.4 are waits"


def test_of_a_file_all_figures_are_of_the_mean_step(tmp_path: Path) -> None:
    """Pauses of the host leave what the device does in a step as it is."""
    trace = Grown()
    for pause in (60, 30_000, 60, 60, 30_000):
        begin = trace.now
        for _ in range(20):
            trace.op(15, 120)
        trace.python(pause)
        trace.sync(3)
        trace.end_of_step(begin)
    report = told(trace, tmp_path)
    assert report.device and report.device.busy_share * report.step.plain_wall_ns == pytest.approx(20 * 120e3, rel=0.01)
    assert report.step.averaged and report.step.plain_wall_ns == pytest.approx(1000 * statistics.mean(trace.walls()))
    check(trace, report)


def test_one_launch_in_a_second_is_not_bound_by_launching(tmp_path: Path) -> None:
    trace = Grown()
    for _ in range(6):
        begin = trace.now
        trace.python(1_000_000)
        trace.op(15, 5)
        trace.sync(3)
        trace.end_of_step(begin)
    report = told(trace, tmp_path)
    assert report.verdict.bound == "host" and "BRR504" not in {finding.code for finding in report.findings}


def test_the_capture_of_a_graph_is_no_step(tmp_path: Path) -> None:
    trace = grow(4, "overhead")
    launches = [event for event in trace.events if "LaunchKernel" in event["name"]]
    first, last = min(e["ts"] for e in launches), max(e["ts"] + e["dur"] for e in launches)
    kept = {launches[0]["args"]["correlation"]}
    trace.events = [e for e in trace.events if e["cat"] != "kernel" or e["args"]["correlation"] in kept]
    begin, end = (copy.deepcopy(launches[1]) for _ in range(2))
    begin |= {"name": "cudaStreamBeginCapture", "ts": first - 5, "dur": 1, "args": {"correlation": 900_001}}
    end |= {"name": "cudaStreamEndCapture", "ts": last + 5, "dur": 1, "args": {"correlation": 900_002}}
    trace.events += [begin, end]
    report = told(trace, tmp_path)
    assert report.verdict.bound == "unreliable" and "captured into a graph" in report.verdict.sentence


def test_the_late_rank_is_named_and_its_account(tmp_path: Path) -> None:
    for rank, cause in enumerate(("none", "none", "data", "none")):
        grow(11, cause, rank=rank).write(tmp_path / f"rank{rank}.json")
    job = diagnose([str(tmp_path)])
    assert isinstance(job, Job)
    assert (job.bound, job.slowest, job.because) == ("straggler", 2, "data_wait")
