"""Two recordings held against each other: figures counted by hand, and the real pairs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from gobrrr.cli.main import main
from gobrrr.ledger.comparison import Side, compared
from gobrrr.ledger.model.ledger import StepStats
from gobrrr.ledger.ops.op_times import OpTime, op_times
from gobrrr.recording.trace_files.sources import Source, read
from gobrrr.report.forms.formats import PLAIN, render
from tests.pipeline.test_files import Event, event, kernel, training, write

TRACES = Path(os.environ.get("GOBRRR_TRACES", "../shared/traces"))


def product(ts: float, host: float, device: float, correlation: int, tid: int = 1) -> list[Event]:
    """aten::linear around aten::mm, which launches a kernel."""
    shapes = {"Input Dims": [[8, 16], [16, 4]], "Input type": ["float", "float"]}
    return [
        event("aten::linear", ts, host + 20, tid=tid),
        event("aten::mm", ts + 10, host, tid=tid, **shapes),
        event("cudaLaunchKernel", ts + 15, 5, "cuda_runtime", tid=tid, correlation=correlation),
        kernel("sgemm", ts + 40, device, correlation),
    ]


def test_ops_own_their_self_time_and_the_kernels_that_they_launch(tmp_path: Path) -> None:
    events = [e for i in range(3) for e in product(1000 * i, 50, 300, i + 1, tid=1 + i % 2)]
    trace = read(Source(str(write(tmp_path / "a.json", events))))
    begin = int(trace.ops.start.min())
    found = op_times(trace, np.array([[begin, begin + 3_000_000]]))
    linear, mm = ("aten::linear", ""), ("aten::mm", "8x16 16x4")
    assert found[mm] == OpTime(3.0, 150_000, 900_000, 150_000, 900_000, linear)
    assert found[linear] == OpTime(3.0, 60_000, 0.0, 210_000, 900_000)


@pytest.mark.parametrize(
    ("plain_ms", "said"), [(10, "whose steps took 12.0 ms (A) and 12.0 ms (B)"), (12, ""), (0, "")]
)
def test_whose_times_the_ops_have_is_said_where_they_are_not_the_steps(plain_ms: float, said: str) -> None:
    one = {("aten::mm", "8x8"): OpTime(1, 9e6)}
    sides = (replace(side(name, plain_ms or 12), profiled_ns=12e6 if plain_ms else 0.0) for name in "ab")
    told = render(compared(*sides, ((), ()), (one, one)), "text", PLAIN).decode()
    assert "mm" in told and ("the profiler's" in told) == bool(said) and said in told


def side(name: str, step_ms: float, *codes: str) -> Side:
    return Side(source=name, step_ns=step_ms * 1e6, num_steps=50, codes=codes)


def test_more_than_noise_or_not() -> None:
    draw = np.random.default_rng(1)
    slow, fast, same = (m * 1e6 * draw.normal(1, 0.03, 50) for m in (10, 8, 10))
    found = compared(side("a", 10, "BRR208"), side("b", 8, "BRR401"), (slow, fast), ({}, {}))
    assert found.verdict.startswith("B is 1.25 times as fast as A")
    assert found.low < 1.25 < found.high and found.low > 1
    assert (found.appeared, found.vanished) == (("BRR401",), ("BRR208",))
    assert compared(side("a", 10), side("b", 10), (slow, same), ({}, {})).verdict.startswith("No difference")
    assert compared(side("b", 8), side("a", 10), (fast, slow), ({}, {})).verdict.startswith("A is 1.25 times")
    assert "too few" in compared(side("a", 10), side("b", 8), (slow[:3], fast[:3]), ({}, {})).verdict
    assert "no steps" in compared(side("a", 10), side("b", 0), (slow, ()), ({}, {})).verdict


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"kind": "inference"}, "a step of A is one of training, of B one of inference"),
        ({"num_params": 9}, "the model of A has 8 parameters, that of B 9"),
        ({"unreliable": True}, "the steps of B are unreliable"),
        ({"num_params": None}, ""),
    ],
)
def test_what_is_not_alike_gets_no_factor_in_its_headline(changed: dict[str, Any], why: str) -> None:
    draw = np.random.default_rng(1)
    walls = tuple(m * 1e6 * draw.normal(1, 0.03, 50) for m in (10, 8))
    a, b = (replace(side(name, ms), kind="training", num_params=8) for name, ms in (("a", 10), ("b", 8)))
    found = compared(a, replace(b, **changed), walls, ({}, {}))
    assert found.verdict.startswith(f"Not comparable: {why}" if why else "B is 1.25 times")
    assert found.a.step_ns == 1e7, "the figures stay"


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    """200 pairs of 20 steps without a difference: at most one in eight called different."""
    draw = np.random.default_rng(2)
    told = 0
    for _ in range(200):
        walls = draw.lognormal(0, 0.05, 20) * 1e7, draw.lognormal(0, 0.05, 20) * 1e7
        a, b = (side(name, float(np.median(w)) / 1e6) for name, w in zip("ab", walls, strict=True))
        told += not compared(a, b, walls, ({}, {})).verdict.startswith("No difference")
    assert told <= 25


def test_ops_are_ranked_by_what_they_take_more_or_less() -> None:
    a = {("aten::mm", "8x8"): OpTime(10, 1e6, 7.6e6), ("aten::add", ""): OpTime(5, 1e5)}
    b = {("aten::mm", "8x8"): OpTime(10, 1e6, 1e6), ("aten::gelu", ""): OpTime(1, 2e5)}
    found = compared(side("a", 10), side("b", 4), ((), ()), (a, b))
    assert [op.name for op in found.ops] == ["aten::mm", "aten::gelu", "aten::add"]
    assert found.ops[0].ratio == pytest.approx(7.6) and found.ops[0].delta == pytest.approx(-6.6e6)
    assert found.ops[1].ratio is None


CONV, NORM = ("aten::_convolution", "8x3x9x9 4x3x3x3"), ("aten::batch_norm", "8x4x9x9")


def backend(conv: str, norm: str, calls: float, times: tuple[float, float], device: tuple[float, float]) -> Any:
    """Ops of one side: wrappers that cost next to nothing, and the backend's own in them; times in ms of all calls."""
    rows = {CONV: OpTime(calls, 0, within=("aten::conv2d", "")), NORM: OpTime(calls, 0)}
    for name, around, host, kernels in zip((conv, norm), (CONV, NORM), times, device, strict=True):
        rows[(name, around[1])] = OpTime(calls, host * 1e6, kernels * 1e6, within=around)
    return rows


def test_one_op_of_two_backends_is_matched_by_what_encloses_it() -> None:
    """The course's tables: a convolution of 3340 calls and 1195 ms on a CPU, of 2432 calls, 52.891 ms on the host and
    51.405 ms of kernels on a GPU: 8.34 times a call."""
    cpu = backend("aten::mkldnn_convolution", "aten::native_batch_norm", 3340, (1195, 100), (0, 0))
    gpu = backend("aten::cudnn_convolution", "aten::cudnn_batch_norm", 2432, (52.891, 10), (51.405, 5))
    rows = {op.name: op for op in compared(side("a", 10), side("b", 4), ((), ()), (cpu, gpu)).ops}
    assert set(rows) == {CONV[0], NORM[0]}
    assert rows[CONV[0]].by == ("aten::mkldnn_convolution", "aten::cudnn_convolution")
    assert rows[CONV[0]].ratio == pytest.approx(1195 / 3340 * 2432 / (52.891 + 51.405)) == pytest.approx(8.34, abs=0.01)
    assert rows[CONV[0]].delta == pytest.approx((52.891 + 51.405 - 1195) * 1e6)
    assert rows[NORM[0]].by == ("aten::native_batch_norm", "aten::cudnn_batch_norm")


def test_of_several_ops_inside_the_one_that_takes_most_is_named() -> None:
    cpu = backend("aten::mkldnn_convolution", "aten::native_batch_norm", 10, (50, 5), (0, 0))
    gpu = backend("aten::cudnn_convolution", "aten::cudnn_batch_norm", 10, (5, 5), (9, 5))
    cpu |= {("aten::reorder", ""): OpTime(10, 1e6, within=CONV)}
    (row,) = (op for op in compared(side("a", 10), side("b", 4), ((), ()), (cpu, gpu)).ops if op.name == CONV[0])
    assert row.by == ("aten::mkldnn_convolution", "aten::cudnn_convolution") and row.a is not None
    assert row.a.host_ns == 51e6


def test_an_op_that_several_call_is_charged_to_none_of_them(tmp_path: Path) -> None:
    """Called three times by conv, twice by attn: whose time it is cannot be told by op."""

    def side_of(inner: str, times: tuple[int, int]) -> Any:
        events, t = [], 0
        for caller, count, took in (("aten::conv", 3, times[0]), ("aten::attn", 2, times[1])):
            for _ in range(count):
                events += [event(caller, t, took + 20), event(inner, t + 10, took)]
                t += took + 50
        trace = read(Source(str(write(tmp_path / f"{inner[6:]}.json", events))))
        begin = int(trace.ops.start.min())
        return op_times(trace, np.array([[begin, begin + 10**9]]))

    mkl, cudnn = side_of("aten::mkl", (100, 1000)), side_of("aten::cudnn", (100, 3000))
    found = compared(side("a", 10), side("b", 4), ((), ()), (mkl, cudnn)).ops
    assert all(op.by is None for op in found) and {op.name for op in found} >= {"aten::mkl", "aten::cudnn"}


def test_what_one_side_alone_does_is_nobodys_counterpart() -> None:
    """A has a convolution of its own backend, B only the wrapper; an op without anything around it; an op in itself."""
    cpu = backend("aten::mkldnn_convolution", "aten::native_batch_norm", 10, (5, 5), (0, 0))
    bare: Any = {CONV: OpTime(10, 1e6), ("aten::loop", ""): OpTime(1, 1e6, within=("aten::loop", ""))}
    found = compared(side("a", 10), side("b", 4), ((), ()), (cpu, bare)).ops
    assert all(op.by is None for op in found)
    assert sum(op.a.host_ns for op in found if op.a) == pytest.approx(10e6)
    assert sum(op.b.host_ns for op in found if op.b) == pytest.approx(2e6)


def test_no_time_is_lost_or_counted_twice_by_matching() -> None:
    draw = np.random.default_rng(0)
    names = [f"aten::op{i}" for i in range(12)]
    for _ in range(200):
        sides = []
        for _ in range(2):
            there = [(name, "") for name in names if draw.random() < 0.6]
            sides.append({key: OpTime(1, float(draw.integers(1, 99)), within=there[draw.integers(len(there))])
                          for key in there})  # fmt: skip
        found = compared(side("a", 10), side("b", 4), ((), ()), (sides[0], sides[1])).ops
        assert sum(op.a.host_ns for op in found if op.a) == sum(op.host_ns for op in sides[0].values())
        assert sum(op.b.host_ns for op in found if op.b) == sum(op.host_ns for op in sides[1].values())


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = (str(write(tmp_path / f"{n}.json", training(wait=w))) for n, w in (("a", 500), ("b", 10)))
    assert main(["compare", a, b]) == 0
    shown = capsys.readouterr().out
    assert (
        "takes 1.00 times as long per step as" in shown
        and "only A" in shown
        and "BRR405" in shown
        and "\nmm  " in shown
    )
    assert main(["compare", a, b, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["vanished"] == ["BRR405"]
    assert main(["compare", a, str(tmp_path)]) == 2
    assert "name one of them" in capsys.readouterr().err


def test_a_recording_without_steps_is_told_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a run whose program ended before its first step."""
    from gobrrr.pipeline import judging

    real = judging.judged
    a, b = (str(write(tmp_path / f"{n}.json", training(wait=10))) for n in ("a", "b"))
    monkeypatch.setattr(judging, "judged", lambda *args: (replace(real(*args)[0], step=StepStats()), real(*args)[1]))
    assert main(["compare", a, b]) == 2
    said = capsys.readouterr().err
    assert f"{a} has no steps to compare" in said and f"gobrrr report {a}" in said


@pytest.mark.skipif(not TRACES.is_dir(), reason="needs the real traces: set GOBRRR_TRACES")
def test_the_real_pairs(capsys: pytest.CaptureFixture[str]) -> None:
    folder = TRACES / "kineto"
    assert main(["compare", *(str(folder / f"v100_resnet50_workers{n}.json.gz") for n in (0, 4))]) == 0
    assert capsys.readouterr().out.startswith("B is 1.26 times as fast as A")
    names = ("a100_trace_diff_control", "v100_trace_diff_test")
    assert main(["compare", *(str(TRACES / "hta" / f"{name}.json.gz") for name in names)]) == 0
    assert capsys.readouterr().out.startswith("A is 1.52 times as fast as B")
