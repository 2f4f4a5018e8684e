"""A machine as blocks: ceilings with their spread, what follows from them, and what to doubt."""

from __future__ import annotations

from collections.abc import Sequence

from gobrrr import units
from gobrrr.machine.model.doubts import REMEDY, amount
from gobrrr.machine.model.machine import DeviceCeilings, Machine, Measured
from gobrrr.machine.model.peaks import peak_of
from gobrrr.report.forms.formats import View
from gobrrr.report.told.blocks import Cell, Groups, Sentence, Table, facts

DTYPES = ("fp64", "fp32", "fp32_medium", "tf32", "bf16", "fp16", "int8")
Row = tuple[str, ...]
WORTH_SAYING = 1.1
"""Ratios nearer to 1 than this drown in the spread of a quiet machine (5 to 14 %)."""


def blocks(machine: Machine, view: View) -> Groups:
    """Its tables, what follows from them, and what to doubt."""
    threads = f"{machine.threads} threads"
    both = ("", "1 thread", threads) if machine.threads > 1 else ("", "1 thread")
    tables = [
        _table("Matrix products", both, _products(machine)),
        _table("Copies, read plus written, by working set", both, _copies(machine)),
        _table("Costs", ("", "each"), [("dispatch of one small op", figure_text(machine.dispatch)),
                                       ("minor fault of a fresh page", figure_text(machine.fresh_page))]),
    ]  # fmt: skip
    if machine.device:
        tables.append(_device(machine.device))
    doubts = (*machine.doubts, REMEDY) if machine.doubts else ()
    lists = facts([("What follows", insights(machine)), ("Doubts", doubts)])
    return [[_heading(machine), *(table for table in tables if table.rows), *lists]]


def _table(title: str, heads: Row, rows: Sequence[Row]) -> Table:
    """Names, and figures beside them."""
    shown = tuple((head, at > 0) for at, head in enumerate(heads))
    return Table(title, shown, tuple(tuple(map(Cell, row)) for row in rows))


def _heading(machine: Machine) -> Sentence:
    cores = f"{machine.logical_cores} logical cores"
    if machine.quota:
        cores += f", quota {machine.quota:.2g}"
    got = machine.effective_cores
    if got.median:
        cores += f", effective {got.median:.1f} ({got.low:.1f} to {got.high:.1f})"
    told = [cores, units.size(machine.memory_bytes), f"torch {machine.torch_version}"]
    isa = ", ".join(machine.isa) or "no vector instructions named"
    lines = (f"{machine.cpu}: {', '.join(told)}", isa, "Ceilings: attainable, measured here (quartiles)")
    return Sentence(tuple(((line, "bold"),) for line in lines))


def _products(machine: Machine) -> list[Row]:
    one, most = machine.matmul.get("1", {}), machine.matmul.get("all", {})
    names = {"fp32_medium": "fp32, precision medium"}
    columns = (one, most) if machine.threads > 1 else (one,)
    return [(names.get(dtype, dtype), *(figure_text(figures.get(dtype)) for figures in columns))
            for dtype in DTYPES if dtype in one or dtype in most]  # fmt: skip


def _copies(machine: Machine) -> list[Row]:
    counts = (1, machine.threads) if machine.threads > 1 else (1,)
    rates = {(copy.working_set, copy.threads): copy.rate for copy in machine.copy}
    sizes = sorted({copy.working_set for copy in machine.copy})
    return [(units.size(size), *(figure_text(rates.get((size, count))) for count in counts)) for size in sizes]


def _device(device: DeviceCeilings) -> Table:
    peak = peak_of(device.name)
    source = f" (data sheet: {peak.source})" if peak else " (no data sheet known)"
    title = f"{device.name}, {units.size(device.memory_bytes)}, capability {device.capability}{source}"
    sheets = {dtype: peak.flop_rate(dtype) if peak else None for dtype in DTYPES}
    return _table(title, ("", "measured here", "data sheet"), [
        *((dtype, figure_text(device.matmul[dtype]), units.flop_rate(sheet) if sheet else "-")
          for dtype, sheet in sheets.items() if dtype in device.matmul),
        ("copy within the device", figure_text(device.copy), units.byte_rate(peak.byte_rate) if peak else "-"),
        ("copy from pinned memory", figure_text(device.pinned), "-"),
        ("copy from pageable memory", figure_text(device.pageable), "-"),
        ("launch", figure_text(device.launch), "-"),
    ])  # fmt: skip


def figure_text(figure: Measured | None) -> str:
    """'211 GFLOP/s (205 to 214)', the unit repeated where it changes; '-' where it was not measured."""
    if figure is None or not figure.count:
        return "-"
    low, high = (amount(value, figure.unit) for value in (figure.low, figure.high))
    middle = amount(figure.median, figure.unit)
    unit = middle.rpartition(" ")[2]
    if all(value.endswith(f" {unit}") for value in (low, high)):
        low, high = (value.removesuffix(f" {unit}") for value in (low, high))
    return f"{middle} ({low} to {high})"


def insights(machine: Machine) -> tuple[str, ...]:
    """Sentences, the most general first; those for which a figure is missing are left out."""
    dtypes = (_dtype(machine, dtype) for dtype in ("fp32_medium", "bf16", "fp16", "int8", "fp64"))
    each = machine.dispatch.median
    ops = f"Python can start {1e9 / each:,.0f} small ops per second." if each else ""
    return tuple(filter(None, (_cores(machine), *dtypes, _ridge(machine), _pages(machine), ops, _reached(machine))))


def ratio(machine: Machine, dtype: str) -> float | None:
    """How many times faster a dtype's matrix product is than fp32's at all threads; None if either is missing."""
    one, other = (machine.flop_rate(name, machine.threads) for name in (dtype, "fp32"))
    return one / other if one and other else None


def _certain(machine: Machine, dtype: str) -> bool:
    """Whether the quartiles of a dtype's product and fp32's are apart."""
    products = machine.matmul.get("all") or machine.matmul.get("1", {})
    one, other = products.get(dtype), products.get("fp32")
    return one is not None and other is not None and (one.low > other.high or one.high < other.low)


def _times(factor: float) -> str:
    return f"{factor:.0f}x" if factor >= 9.95 else f"{factor:.1f}x"


def _cores(machine: Machine) -> str:
    got, seen = machine.effective_cores.median, machine.usable_cores or machine.logical_cores
    if not got or got >= 0.9 * seen:
        return ""
    return f"{seen} cores are there, but parallel work gets {got:.1f}: more threads or workers than that only compete."


def _dtype(machine: Machine, dtype: str) -> str:
    factor = ratio(machine, dtype)
    if factor is None or 1 / WORTH_SAYING < factor < WORTH_SAYING or not _certain(machine, dtype):
        return ""
    name = 'fp32 under set_float32_matmul_precision("medium")' if dtype == "fp32_medium" else dtype
    said = f"{_times(factor)} as fast as" if factor > 1 else f"{_times(1 / factor)} slower than"
    if dtype != "fp32_medium":
        return f"{name}: {said} fp32."
    errors = f"relative error {machine.fp32_medium_error:.1e} against {machine.fp32_error:.1e}"
    return f"{name}: {said} fp32, {'the same' if machine.medium_is_fp32 else 'at a lower'} accuracy ({errors})."


def _ridge(machine: Machine) -> str:
    """The arithmetic intensity below which memory binds, per dtype."""
    largest = max((copy.working_set for copy in machine.copy), default=0)
    rates = {dtype: machine.flop_rate(dtype, machine.threads) for dtype in ("fp32", "bf16")}
    moved = machine.byte_rate(largest, machine.threads)
    points = [f"{rate / moved:.0f} ({dtype})" for dtype, rate in rates.items() if rate]
    if not largest or not points:
        return ""
    return f"Below {' or '.join(points)} FLOP per byte of main memory, memory is what binds."


def _pages(machine: Machine) -> str:
    """A fresh page against reading and writing as much memory that is there already."""
    largest = max((copy.working_set for copy in machine.copy), default=0)
    if not machine.fresh_page.median or not largest:
        return ""
    warm = 4096 / machine.byte_rate(largest, machine.threads) * 1e9
    fresh = machine.fresh_page.median
    return (
        f"A fresh 4 KiB page costs {units.duration(fresh)}, copying one that is there {units.duration(warm)}: "
        f"large tensors that are allocated anew each time pay {_times(1 + fresh / warm)}."
    )


def _reached(machine: Machine) -> str:
    """The share of the data sheet's bf16 or fp16 peak that a plain product reaches."""
    peak = peak_of(machine.device.name) if machine.device else None
    if machine.device is None or peak is None:
        return ""
    for dtype in ("bf16", "fp16", "fp32"):
        reached, sheet = machine.device.matmul.get(dtype), peak.flop_rate(dtype)
        if reached and sheet:
            share = units.share(reached.median / sheet)
            return f"{dtype} products reach {share} of {units.flop_rate(sheet)} ({peak.label})."
    return ""
