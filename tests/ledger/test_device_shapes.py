"""Products by shape: the time of their kernels, their FLOPs by hand, and the kernels of ops that they call."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gobrrr.machine.model.machine import UNKNOWN
from gobrrr.pipeline.traces import diagnosed
from gobrrr.recording.trace_files.limits import DEFAULT
from gobrrr.recording.trace_files.sources import Source
from gobrrr.report.text.report import render
from gobrrr.rules.verdict.report import Report
from tests.pipeline.grown import COMPUTE, Grown

SMALL, LARGE = [[64, 512], [512, 256]], [[1024, 512], [512, 256]]


def product(trace: Grown, shapes: list[list[int]], kernel: int, name: str = "aten::mm") -> None:
    trace.op(20, kernel, name)
    trace.events[-3]["args"] |= {"Input Dims": shapes, "Input type": ["float", "float"]}


def told(trace: Grown, folder: Path) -> Report:
    return diagnosed(Source(str(trace.write(folder / "trace.json"))), UNKNOWN, DEFAULT)


@pytest.fixture
def report(tmp_path: Path) -> Report:
    trace = Grown(device=1)
    for _ in range(3):
        begin = trace.now
        product(trace, SMALL, 50)
        product(trace, LARGE, 200)
        product(trace, SMALL, 70)
        trace.op(20, 30, "aten::add")
        trace.sync(3)
        trace.end_of_step(begin)
    return told(trace, tmp_path)


def test_calls_of_one_shape_are_one_row(report: Report) -> None:
    assert report.device is not None
    rows = [(op.name, op.shapes, op.calls, op.ns, op.flops) for op in report.device.by_shape]
    assert rows == [
        ("aten::mm", "1024x512, 512x256", 1, 200_000, 2 * 1024 * 512 * 256),
        ("aten::mm", "64x512, 512x256", 2, 120_000, 2 * 2 * 64 * 512 * 256),
    ]


def test_the_rate_is_that_of_the_row_and_none_above_the_peak(report: Report) -> None:
    """On an A100 19.5 TFLOP/s in fp32: 1.34 and 0.28 are below."""
    page = render(report, width=120)
    assert "mm fp32  x1     200 us  1.34 TFLOP/s" in page
    assert "mm fp32  x2     120 us   280 GFLOP/s" in page
    assert "1024x512, 512x256" in render(report, width=80)


def test_what_cannot_have_run_so_fast_has_no_rate(tmp_path: Path) -> None:
    trace = Grown(device=1)
    for _ in range(3):
        begin = trace.now
        product(trace, [[4096, 512], [512, 512]], 50)  # 43 TFLOP/s
        trace.sync(3)
        trace.end_of_step(begin)
    page = render(told(trace, tmp_path), width=120)
    row = next(line for line in page.splitlines() if "4096x512, 512x512" in line)
    assert "at peak" in row and "FLOP/s" not in row


def test_a_backward_has_the_kernels_of_the_ops_inside_of_it(tmp_path: Path) -> None:
    """convolution_backward of 8 x 16 x 32 x 32 with 16 x 16 x 3 x 3 is one op for the weight and one for the input."""
    trace = Grown(device=1)
    shapes, inner = [[8, 16, 32, 32], [8, 16, 32, 32], [16, 16, 3, 3]], "aten::cudnn_convolution_backward_weight"
    for _ in range(3):
        begin = trace.now
        trace.now += 5
        start, dims = trace.now, {"Input Dims": shapes, "Input type": ["float"] * 3}
        for kernel in (90, 60):
            product(trace, [[16, 16, 3, 3], *shapes[:2]], kernel, inner)
        trace.row("cpu_op", "aten::cudnn_convolution_backward", start - 2, trace.now + 2, **dims)
        trace.now += 10
        trace.sync(3)
        trace.end_of_step(begin)
    found = told(trace, tmp_path).device
    assert found is not None
    (row,) = found.by_shape
    assert (row.ns, row.calls) == (150_000, 1)
    assert row.flops == pytest.approx(2 * 2 * 8 * 16 * 32 * 32 * 16 * 3 * 3)
    assert row.shapes == "8x16x32x32, 8x16x32x32, 16x16x3x3"


@pytest.mark.parametrize("shapes", [True, False])
def test_nothing_is_told_without_shapes_or_of_an_unknown_device(shapes: bool, tmp_path: Path) -> None:
    trace = Grown(shapes=shapes)
    begin = trace.now
    trace.op(20, 50, stream=COMPUTE)
    trace.end_of_step(begin)
    document = trace.document()
    if shapes:
        document["deviceProperties"][0] |= {"name": "Nobody's 3000", "computeMajor": 77}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(document))
    report = diagnosed(Source(str(path)), UNKNOWN, DEFAULT)
    assert report.device is not None and report.device.by_shape == ()
    assert "by shape" not in render(report, width=120)


def test_steps_that_differ_have_the_same_time_by_shape_as_by_op(tmp_path: Path) -> None:
    """The mean step is told: of one long and four short ones both tables hold all of it."""
    trace = Grown(device=1)
    for kernel in (50, 50, 900, 50, 50):
        begin = trace.now
        product(trace, SMALL, kernel)
        trace.sync(3)
        trace.end_of_step(begin)
    found = told(trace, tmp_path).device
    assert found is not None and found.work[0].ns == pytest.approx(220_000)
    assert found.by_shape[0].ns == pytest.approx(found.work[0].ns)
    assert found.by_shape[0].flops == pytest.approx(found.work[0].flops)
