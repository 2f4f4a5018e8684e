"""The ops of a step as a table for a spreadsheet or pandas, in the columns of TraceLens' unified_perf_summary.csv.

Per step, where TraceLens sums the whole file; MB are 2**20 bytes there and here, TB and TFLOP powers of ten.
"""

from __future__ import annotations

import csv
import io
import unicodedata
from collections import defaultdict
from collections.abc import Iterator

from msgspec.structs import replace

from gobrrr.ledger.model.device import DeviceOp
from gobrrr.rules.verdict.report import Device, OpShare, Report
from gobrrr.system.escape import plain

COLUMNS = (
    "name", "operation_count", "Kernel Time (µs)_sum", "Kernel Time (µs)_mean", "Percentage (%)",
    "Cumulative Percentage (%)", "GFLOPS", "Data Moved (MB)", "FLOPS/Byte", "TFLOPS/s_mean", "TB/s_mean",
    "Compute Spec", "Roofline Bound", "Pct Roofline_mean", "Input Dims", "Source",
)  # fmt: skip
LEAST = 0.01
"""Share of an op's time below which what its shapes leave is rounding."""
FORMULA = ("=", "+", "-", "@")
"""Spreadsheets take what begins so for a formula, in signs of full width too (OWASP, CSV injection); an apostrophe
makes it text."""


def to_csv(report: Report, view: object = None) -> str:
    """A line for each op (200 of them and 200 shapes at most), the costliest first: by the kernels that it launched
    where a device worked, those that are told apart by shape so; else by its own time on the CPU ("Kernel Time" all the
    same)."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow(COLUMNS)
    total = 0.0
    for name, calls, ns, part, rest in sorted(_rows(report), key=lambda row: -row[2]):
        total += part
        mean = ns / calls / 1000 if calls else None
        writer.writerow(_cell(value) for value in (name, calls, ns / 1000, mean, 100 * part, 100 * total, *rest))
    return out.getvalue()


Row = tuple[str, float, float, float, tuple[float | str | None, ...]]
"""name, calls, ns, share of the device's busy time (of the step on the CPU), the other columns."""


def _rows(report: Report) -> Iterator[Row]:
    device = report.device
    if device is None or not device.work:
        yield from map(_of_host, report.ops)
        return
    busy = device.busy_share * report.step.plain_wall_ns
    for op in (*device.by_shape, *_rest(device)):
        yield _of_device(op, busy)


def _rest(device: Device) -> Iterator[DeviceOp]:
    """Ops that are not told apart by shape, and what is left of those whose shapes are too many."""
    told: dict[tuple[str, str], list[DeviceOp]] = defaultdict(list)
    for op in device.by_shape:
        told[op.name, op.dtype].append(op)
    for op in device.work:
        shapes = told[op.name, op.dtype]
        left = op.ns - sum(one.ns for one in shapes)
        if not shapes or left > LEAST * op.ns:
            yield replace(
                op, ns=left, calls=op.calls - sum(one.calls for one in shapes),
                flops=op.flops - sum(one.flops for one in shapes), bytes=op.bytes - sum(one.bytes for one in shapes),
                floor_ns=op.floor_ns - sum(one.floor_ns for one in shapes), shapes="all others" if shapes else "",
            )  # fmt: skip


def _of_device(op: DeviceOp, busy: float) -> Row:
    calls = max(op.calls, 1)
    rates = (op.flops / op.ns / 1e3, op.bytes / op.ns / 1e3) if op.believed else (None, None)
    return op.name, op.calls, op.ns, op.ns / busy if busy else 0.0, (
        op.flops / calls / 1e9, op.bytes / calls / 2**20, op.flops / op.bytes if op.bytes else None, *rates,
        op.dtype, f"{op.bound.upper()}_BOUND", 100 * op.floor_ns / op.ns if op.believed else None, op.shapes, "",
    )  # fmt: skip


def _of_host(op: OpShare) -> Row:
    tera = [rate / 1e12 if rate is not None else None for rate in (op.flops_per_s, op.bytes_per_s)]
    line = f"{op.where.file}:{op.where.line}" if op.where else ""
    bound = f"{op.bound.upper()}_BOUND" if op.bound else ""
    return op.name, op.calls, op.ns, op.share, (None, None, None, *tera, "", bound, None, "", line)


def _cell(value: float | str | None) -> float | str | None:
    """Texts are quoted, numbers are not (QUOTE_NONNUMERIC)."""
    if isinstance(value, str):
        text = plain(value)
        return f"'{text}" if unicodedata.normalize("NFKC", text).lstrip().startswith(FORMULA) else text
    if value is None:
        return None
    rounded = float(f"{value:.6g}")
    return int(rounded) if rounded.is_integer() else rounded
