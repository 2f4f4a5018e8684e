"""A disk's readings as a table: what a layout of the data set costs, cold and warm."""

from __future__ import annotations

from typing import IO

from gobrrr import units
from gobrrr.machine.measure.disk import Disk, Reading
from gobrrr.report.machine.table import WIDTH, table

COLD = "Cold is for this computer: the host of a virtual disk, or a file server, may hold the data in its memory."


def show(disk: Disk, folder: str, out: IO[str]) -> None:
    """Write the table to `out`; plain where that is no terminal."""
    from rich.console import Console

    width = None if out.isatty() else WIDTH
    console = Console(file=out, force_terminal=out.isatty(), width=width, highlight=False, markup=False, soft_wrap=True)
    console.print(f"{folder}: {disk.samples:,} samples of {units.size(disk.sample_bytes)}, read in one process")
    ways = list(dict.fromkeys((one.layout, one.order) for one in disk.readings))
    found = {(one.layout, one.order, one.cold): one for one in disk.readings}
    rows = [(f"{way[0]}, {way[1]}", *(_text(found.get((*way, cold))) for cold in (True, False))) for way in ways]
    console.print(table("Reading", ("", "cold", "warm"), rows))
    partly = ["* of a part of the samples: the time was up"] if any(not one.complete for one in disk.readings) else []
    cold = [COLD] if any(one.cold for one in disk.readings) else []
    for line in (*partly, *cold, *disk.notes):
        console.print(line)


def _text(reading: Reading | None) -> str:
    if reading is None:
        return "-"
    mark = "" if reading.complete else " *"
    return f"{units.byte_rate(reading.rate)}, {reading.samples_per_second:,.0f}/s{mark}"
