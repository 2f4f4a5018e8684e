"""A Machine as text: a table of ceilings with their spread, what they mean, and what to doubt."""

from __future__ import annotations

import io
from typing import IO

from gobrrr import units
from gobrrr.machine.model.doubts import REMEDY, amount
from gobrrr.machine.model.machine import DeviceCeilings, Machine, Measured
from gobrrr.machine.model.peaks import peak_of
from gobrrr.report.machine.insights import insights

DTYPES = ("fp64", "fp32", "fp32_medium", "tf32", "bf16", "fp16", "int8")
WIDTH = 100  # columns where there is no terminal, as in the text report (report/text/report.py)
Row = tuple[str, ...]


def text(machine: Machine) -> str:
    """Plain text, the same everywhere."""
    out = io.StringIO()
    _print(machine, out, terminal=False)
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


def show(machine: Machine, out: IO[str]) -> None:
    """Write the tables to `out`: with colour and in its width on a terminal, as plain text elsewhere."""
    if out.isatty():
        _print(machine, out, terminal=True)
    else:
        out.write(text(machine))


def _print(machine: Machine, out: IO[str], terminal: bool) -> None:
    from rich.console import Console

    console = Console(
        file=out, force_terminal=terminal, width=None if terminal else WIDTH, highlight=False, markup=False
    )
    console.print(_heading(machine), style="bold" if terminal else "")
    for title, header, rows in _tables(machine):
        if rows:
            console.print(table(title, header, rows))
    doubts = (*machine.doubts, REMEDY) if machine.doubts else ()
    for title, lines in (("What follows", insights(machine)), ("Doubts", doubts)):
        if lines:
            console.print(_list(title, lines))


def _heading(machine: Machine) -> str:
    cores = f"{machine.logical_cores} logical cores"
    if machine.quota:
        cores += f", quota {machine.quota:.2g}"
    got = machine.effective_cores
    if got.median:
        cores += f", effective {got.median:.1f} ({got.low:.1f} to {got.high:.1f})"
    facts = [cores, units.size(machine.memory_bytes), f"torch {machine.torch_version}"]
    isa = ", ".join(machine.isa) or "no vector instructions named"
    return f"{machine.cpu}: {', '.join(facts)}\n{isa}\nCeilings: attainable, measured here (quartiles)"


def _tables(machine: Machine) -> list[tuple[str, Row, list[Row]]]:
    threads = f"{machine.threads} threads"
    both = ("", "1 thread", threads) if machine.threads > 1 else ("", "1 thread")
    tables: list[tuple[str, Row, list[Row]]] = [
        ("Matrix products", both, _products(machine)),
        ("Copies, read plus written, by working set", both, _copies(machine)),
        ("Costs", ("", "each"), _costs(machine)),
    ]
    if machine.device:
        tables += [(_device_title(machine.device), ("", "measured here", "data sheet"), _device(machine.device))]
    return tables


def _products(machine: Machine) -> list[Row]:
    one, most = machine.matmul.get("1", {}), machine.matmul.get("all", {})
    rows = []
    for dtype in DTYPES:
        if dtype in one or dtype in most:
            name = "fp32, precision medium" if dtype == "fp32_medium" else dtype
            figures = (one.get(dtype), most.get(dtype)) if machine.threads > 1 else (one.get(dtype),)
            rows.append((name, *(figure_text(figure) for figure in figures)))
    return rows


def _copies(machine: Machine) -> list[Row]:
    counts = (1, machine.threads) if machine.threads > 1 else (1,)
    rates = {(copy.working_set, copy.threads): copy.rate for copy in machine.copy}
    sizes = sorted({copy.working_set for copy in machine.copy})
    return [(units.size(size), *(figure_text(rates.get((size, count))) for count in counts)) for size in sizes]


def _costs(machine: Machine) -> list[Row]:
    return [
        ("dispatch of one small op", figure_text(machine.dispatch)),
        ("minor fault of a fresh page", figure_text(machine.fresh_page)),
    ]


def _device_title(device: DeviceCeilings) -> str:
    peak = peak_of(device.name)
    source = f" (data sheet: {peak.source})" if peak else " (no data sheet known)"
    return f"{device.name}, {units.size(device.memory_bytes)}, capability {device.capability}{source}"


def _device(device: DeviceCeilings) -> list[Row]:
    peak = peak_of(device.name)
    rows: list[Row] = []
    for dtype in DTYPES:
        if dtype in device.matmul:
            sheet = peak.flop_rate(dtype) if peak else None
            rows.append((dtype, figure_text(device.matmul[dtype]), units.flop_rate(sheet) if sheet else "-"))
    memory = units.byte_rate(peak.byte_rate) if peak else "-"
    rows.append(("copy within the device", figure_text(device.copy), memory))
    rows.append(("copy from pinned memory", figure_text(device.pinned), "-"))
    rows.append(("copy from pageable memory", figure_text(device.pageable), "-"))
    rows.append(("launch", figure_text(device.launch), "-"))
    return rows


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


def _list(title: str, lines: tuple[str, ...]) -> object:
    from rich.table import Table

    grid = Table(
        title=f"\n{title}", title_justify="left", title_style="bold", box=None, show_header=False, pad_edge=True
    )
    grid.add_column(width=1)
    grid.add_column()
    for line in lines:
        grid.add_row("-", line)
    return grid


def table(title: str, header: Row, rows: list[Row]) -> object:
    from rich.table import Table

    table = Table(title=f"\n{title}", title_justify="left", title_style="bold", box=None, padding=(0, 3, 0, 2))
    for number, name in enumerate(header):
        table.add_column(name, justify="left" if number == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table
