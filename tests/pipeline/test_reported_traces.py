"""Traces of public repositories that were read wrongly: what is said of each, against its events' own arithmetic."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from gobrrr.cli.main import main
from gobrrr.machine.model.machine import UNKNOWN
from gobrrr.pipeline.traces import diagnosed
from gobrrr.recording.trace_files.categories import NODE
from gobrrr.recording.trace_files.limits import DEFAULT
from gobrrr.recording.trace_files.sources import Source
from gobrrr.rules.verdict.report import Report
from tests.ledger.test_device_ledger import call, kernel, op

FOLDER = Path(os.environ.get("GOBRRR_TRACES") or Path(__file__).parents[2] / ".." / "shared" / "traces") / "reported"
real = pytest.mark.skipif(not FOLDER.is_dir(), reason="no real traces: set GOBRRR_TRACES to their folder")
MS = 1e6


def told(name: str, folder: Path) -> Report:
    path = FOLDER / f"{name}.gz"
    if name.endswith(".sqlite"):
        path = folder / name
        path.write_bytes(gzip.decompress((FOLDER / f"{name}.gz").read_bytes()))
    return diagnosed(Source(str(path)), UNKNOWN, DEFAULT)


def account(report: Report, name: str) -> float:
    return {each.account: float(each.ns) for each in report.ledger}[name] / MS


@real
def test_a_range_round_the_loops_body_leaves_out_the_wait_for_its_batch(tmp_path: Path) -> None:
    report = told("sc22_baseline.sqlite", tmp_path)
    assert report.verdict.bound == "data" and report.step.plain_wall_ns / MS == pytest.approx(765, rel=0.03)
    assert report.device is not None and report.device.busy_share * report.step.plain_wall_ns / MS == pytest.approx(
        131, 0.02
    )


@real
def test_what_takes_a_program_down_is_no_step(tmp_path: Path) -> None:
    report = told("memfusion.sqlite", tmp_path)
    assert report.verdict.bound == "compute" and report.step.plain_wall_ns < 7 * MS


@real
def test_the_first_launches_that_load_modules_are_start_up(tmp_path: Path) -> None:
    report = told("tokenomics_llama.json", tmp_path)
    assert report.verdict.bound == "unreliable" and "start-up" in report.verdict.sentence
    assert account(report, "communication") == pytest.approx(313, abs=1)


@real
def test_an_op_that_computes_on_the_host_is_named_with_its_line(tmp_path: Path) -> None:
    report = told("kf_log.json", tmp_path)
    assert "BRR505" in report.verdict.sentence and "cell:18" in report.verdict.sentence
    (found,) = (each for each in report.findings if each.code == "BRR505")
    assert found.saving.ceiling_ns / MS == pytest.approx(17.8 / 3, rel=0.02) and "randn" in found.message


@real
def test_kernels_of_deepep_communicate_and_what_is_hidden_is_no_headline(tmp_path: Path) -> None:
    report = told("dsv3_train.json", tmp_path)
    assert account(report, "communication") == pytest.approx(4.2, abs=0.1)
    assert "ep::" not in report.verdict.sentence


def launched(name: str, ts: float, dur: float, number: int) -> list[dict[str, object]]:
    return [call("cudaLaunchKernel", ts, 5, number), kernel(name, ts + 10, dur, correlation=number)]


def written(folder: Path, *events: dict[str, object]) -> Report:
    path = folder / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": list(events)}))
    return diagnosed(Source(str(path)), UNKNOWN, DEFAULT)


def test_a_long_op_that_launches_something_is_on_its_way_to_that(tmp_path: Path) -> None:
    """One of 8 ms with a launch at its end is torch's own time; the same without one is work on the host."""
    steps = [op(f"ProfilerStep#{n}", n * 10_000, 10_000, "user_annotation") for n in range(5)]
    busy = [event for n in range(5) for event in launched("gemm", n * 10_000 + 8_100, 1_500, n + 1)]
    long = [op("aten::sort", n * 10_000, 8_000) for n in range(5)]
    inside = [op("aten::sort", n * 10_000, 8_200) for n in range(5)]
    apart, within = written(tmp_path, *steps, *busy, *long), written(tmp_path, *steps, *busy, *inside)
    assert [f.code for f in apart.findings if f.code == "BRR505"] and account(apart, "host") >= 8
    assert not [f.code for f in within.findings if f.code == "BRR505"] and account(within, "dispatch") >= 8


def test_the_longest_kernel_is_the_one_that_nothing_hides(tmp_path: Path) -> None:
    steps = [op(f"ProfilerStep#{n}", n * 10_000, 10_000, "user_annotation") for n in range(5)]
    work = [event for n in range(5) for event in launched("relu", n * 10_000 + 10, 9_000, n + 1)]
    beside = [kernel("copy_like", n * 10_000 + 100, 8_800, stream=8, correlation=n + 1) for n in range(5)]
    first = [event for n in range(5) for event in launched("tanh", n * 10_000 + 9_100, 700, n + 101)]
    report = written(tmp_path, *steps, *work, *beside, *first)
    assert "longest kernel: tanh" in report.verdict.sentence


def test_a_part_of_a_file_is_diagnosed_by_its_steps_or_its_seconds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Six steps of 10 ms, of which the device works 9 ms in the first three and 3 ms in the others."""
    events = [op(f"ProfilerStep#{n}", n * 10_000, 10_000, "user_annotation") for n in range(4, 10)]
    for n in range(4, 10):
        events += launched("gemm", n * 10_000 + 100, 9_000 if n < 7 else 3_000, n)
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))

    def busy(*words: str) -> float:
        assert main(["diagnose", str(path), "--json", *words]) == 0
        return float(json.loads(capsys.readouterr().out)["device"]["busy_share"])

    assert [busy(*words) for words in ((), ("--steps", "4-6"), ("--steps", "8"), ("--from", "0.03"))] == pytest.approx(
        [0.6, 0.9, 0.3, 0.3], abs=0.01
    )
    assert busy("--from", "0.01", "--until", "0.041") == pytest.approx(0.7, abs=0.01)
    for words in (("--steps", "1-3"), ("--from", "5"), ("--steps", "8-x")):
        assert main(["diagnose", str(path), *words]) == 2
        assert "gobrrr: error:" in capsys.readouterr().err


@pytest.mark.parametrize("busy_us, bound", [(9_900, "compute"), (5_000, "unreliable")])
def test_a_device_that_hardly_idles_needs_no_launch_to_be_judged(busy_us: int, bound: str, tmp_path: Path) -> None:
    steps = [op(f"ProfilerStep#{n}", n * 10_000, 10_000, "user_annotation") for n in range(5)]
    replays = [call("cudaGraphLaunch", n * 10_000, 20, n + 1) for n in range(5)]
    work = [kernel("ampere_sgemm_128x64_nn", n * 10_000 + 50, busy_us, correlation=n + 1) for n in range(5)]
    assert written(tmp_path, *steps, *replays, *work).verdict.bound == bound


def test_one_long_gap_among_few_steps_is_none_of_the_loops(tmp_path: Path) -> None:
    """Four steps of 10 ms, an evaluation of a second before the last."""
    starts = (0, 10_100, 20_200, 1_030_200)
    steps = [op(f"ProfilerStep#{n}", start, 10_000, "user_annotation") for n, start in enumerate(starts)]
    work = [event for n, start in enumerate(starts) for event in launched("gemm", start + 10, 9_000, n + 1)]
    assert written(tmp_path, *steps, *work).step.plain_wall_ns == pytest.approx(10.1 * MS, rel=0.02)


def test_a_part_that_cannot_be_chosen_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trace.json"
    events = [event for n in range(5) for event in launched("gemm", n * 1_000, 900, n + 1)]
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    for words in (("--from", "100"), ("--until", "-1"), ("--steps", "1-2")):
        assert main(["diagnose", str(path), *words]) == 2
        assert "gobrrr: error:" in capsys.readouterr().err
    assert main(["diagnose", str(path), "--from", "0.001"]) == 0


@pytest.mark.skipif(not (FOLDER.parent / "kineto").is_dir(), reason="no real traces: set GOBRRR_TRACES to their folder")
def test_backward_of_a_file_without_sequence_numbers_is_in_the_tables(tmp_path: Path) -> None:
    whole = FOLDER.parent / "kineto" / "v100_resnet50_workers0.json.gz"
    document = json.loads(gzip.decompress(whole.read_bytes()))
    for event in document["traceEvents"]:
        for key in ("Sequence number", "Fwd thread id"):
            event.get("args", {}).pop(key, None)
    bare = tmp_path / "bare.json"
    bare.write_text(json.dumps(document))
    seen, wanted = (diagnosed(Source(str(path)), UNKNOWN, DEFAULT).device for path in (bare, whole))
    assert seen is not None and wanted is not None and dict(seen.phases) == pytest.approx(dict(wanted.phases))
    assert [each.name for each in seen.work] == [each.name for each in wanted.work]


@pytest.mark.parametrize(("name", "is_node"), [
    ("ReluBackward1", True), ("torch::autograd::AccumulateGrad", True), ("CompiledBackward", True),
    ("autograd::engine::evaluate_function: MmBackward0", True), ("aten::threshold_backward", False),
    ("Backward pass", False),
    ("LossBackwardHook", False), ("my_Backward", False),
])  # fmt: skip
def test_a_node_is_known_by_its_name(name: str, is_node: bool) -> None:
    assert (NODE.match(name) is not None) is is_node
