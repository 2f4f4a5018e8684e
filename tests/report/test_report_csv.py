"""Ops as a table: the columns that people know, and nothing that a spreadsheet would run."""

from __future__ import annotations

import csv
import io

import msgspec
import pytest

from gobrrr.ledger.model.device import DeviceOp
from gobrrr.report.forms.csv import to_csv
from gobrrr.rules.verdict.report import Device, OpShare, Report, Span, Step, Verdict
from gobrrr.system.escape import plain

STEP = Step(plain_wall_ns=10e6, wall_ns=10e6, low_ns=10e6, high_ns=10e6, count=3)
REPORT = Report(verdict=Verdict("compute", "."), step=STEP)
MM = DeviceOp("aten::mm", "bf16", 4, 2e6, 8e9, 4 * 2**20, 1e6, "compute", 8e12)


def told(report: Report) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(to_csv(report))))


def on_device(*work: DeviceOp, by_shape: tuple[DeviceOp, ...] = ()) -> list[dict[str, str]]:
    device = Device("GPU", 0.8, Span(0.9), work=work, by_shape=by_shape)
    return told(msgspec.structs.replace(REPORT, device=device))


def test_an_op_of_the_device_by_hand() -> None:
    (row,) = on_device(MM)
    figures = {name: float(row[name]) for name in row if name not in ("name", "Compute Spec", "Roofline Bound",
                                                                      "Input Dims", "Source")}  # fmt: skip
    assert figures == pytest.approx(
        {
            "operation_count": 4, "Kernel Time (µs)_sum": 2000, "Kernel Time (µs)_mean": 500, "Percentage (%)": 25,
            "Cumulative Percentage (%)": 25, "GFLOPS": 2, "Data Moved (MB)": 1, "TFLOPS/s_mean": 4,
            "FLOPS/Byte": 8e9 / 4 / 2**20, "TB/s_mean": 4 * 2**20 / 2e-3 / 1e12, "Pct Roofline_mean": 50,
        }, rel=1e-5
    )  # fmt: skip
    assert (row["Roofline Bound"], row["Compute Spec"]) == ("COMPUTE_BOUND", "bf16")


def test_what_is_told_by_shape_is_not_told_again() -> None:
    one, two = (msgspec.structs.replace(MM, ns=ns, shapes=shapes) for ns, shapes in ((5e5, "1x2"), (15e5, "3x4")))
    other = msgspec.structs.replace(MM, name="aten::add", ns=7e5)
    rows = on_device(MM, other, by_shape=(one, two))
    assert [(row["name"], row["Input Dims"]) for row in rows] == [
        ("aten::mm", "3x4"), ("aten::add", ""), ("aten::mm", "1x2")
    ]  # fmt: skip
    assert float(rows[-1]["Cumulative Percentage (%)"]) == pytest.approx(100 * 27e5 / 8e6, rel=1e-5)


def test_a_rate_above_the_peak_is_none() -> None:
    (row,) = on_device(msgspec.structs.replace(MM, floor_ns=2e6))
    assert row["TFLOPS/s_mean"] == row["Pct Roofline_mean"] == "" and row["GFLOPS"] == "2"


@pytest.mark.parametrize("name", ["=1+1", "+x", "-x", "@SUM(A1)", "\t=1", "  =1", "\uff1d1", "\uff0b1"])
def test_no_name_is_a_formula(name: str) -> None:
    (row,) = told(msgspec.structs.replace(REPORT, ops=(OpShare(name, 1, 1e6, 0.1),)))
    assert row["name"] == f"'{plain(name)}"


def test_no_name_begins_a_row_or_moves_a_cursor() -> None:
    (row,) = told(msgspec.structs.replace(REPORT, ops=(OpShare("a\r=1;=2\x1b[2J", 1, 1e6, 0.1),)))
    assert row["name"] == "a =1;=2"


def test_an_op_of_the_host() -> None:
    (row,) = told(msgspec.structs.replace(REPORT, ops=(OpShare("a,b", 2, 1e6, 0.1, flops_per_s=2e12),)))
    assert (row["name"], row["TFLOPS/s_mean"], row["TB/s_mean"], row["Percentage (%)"]) == ("a,b", "2", "", "10")


def test_what_its_shapes_leave_of_an_op_is_a_row_of_its_own() -> None:
    shape = msgspec.structs.replace(MM, ns=MM.ns / 4, calls=MM.calls / 4, flops=MM.flops / 4, bytes=MM.bytes / 4,
                                    floor_ns=MM.floor_ns / 4, shapes="2x2, 2x2")  # fmt: skip
    rows = on_device(MM, by_shape=(shape,))
    assert [row["Input Dims"] for row in rows] == ["all others", "2x2, 2x2"]
    assert sum(float(row["Kernel Time (µs)_sum"]) for row in rows) == pytest.approx(MM.ns / 1000)
    assert sum(float(row["operation_count"]) for row in rows) == pytest.approx(MM.calls)
