"""The rows of a running program: its steps and their trend, what they go to, memory, cores, ranks."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from gobrrr import units
from gobrrr.recording.live import now
from gobrrr.recording.live.now import Process
from gobrrr.report.text.bars import bar, finite, tenths
from gobrrr.report.text.page import Page, phrase

UNKNOWN = "not known yet"
_LEVELS, _ASCII = "▁▂▃▄▅▆▇█", "_.:-=+*#"
BAR, HISTORY = 20, 32
"""Columns of a bar, and of the steps' history."""
USUAL, FAR = 0.1, 2.0
"""Share of the median that the height of a history spans at least, and times it that is as high as it gets: noise
does not look like a trend, and one long step does not flatten all others."""
SAME = 0.0005
"""A change that is none when it is printed."""
DOING = {
    now.RESTING: "the hooks rest: steps are counted, parts are those of the last that were watched",
    now.LOOKING: "looked at closely now: such steps take longer and do not count",
    now.OVER: "not watched any more",
}


def steps(one: Process, page: Page) -> list[RenderableType]:
    """Now against the run, how many, the trend, the parts."""
    first = f"{UNKNOWN}: no plain step has ended"
    if one.late_ns is not None and one.median_ns is not None:
        first = (
            f"{units.duration(one.late_ns)} now (last {one.late_steps}), {units.duration(one.median_ns)} over the run"
        )
    rate = "" if one.samples_per_s is None else f", {one.samples_per_s:,.0f} samples/s"
    counted = f"{one.steps:,} step{'s' if one.steps != 1 else ''}, by {page.clean(one.kind)}{rate}"
    doing = [Text(DOING[one.watching])] if one.watching in DOING and one.state == now.RUNNING else []
    return [
        page.row("step", Text(first, style="bold"), Text(counted), *doing),
        page.row("trend", *trend(one, page)),
        parts(one, page),
    ]


def trend(one: Process, page: Page) -> list[Text]:
    """The history as a row of heights, and what it comes to as a figure."""
    if one.change is None:
        return [Text(UNKNOWN)]
    told = f"{units.duration(min(one.history_ns))} to {units.duration(max(one.history_ns))}"
    change = finite(one.change)
    way = (
        f"{units.share(abs(change))} {'longer than' if change > 0 else 'shorter than'}"
        if abs(change) >= SAME
        else "as long as"
    )
    said = f"last quarter {way} the first"
    drawn = spark(_at_most(one.history_ns, HISTORY), page.ascii_only)
    return [Text(f"{drawn}  {told}"), Text(said)]


def _at_most(values: Sequence[float], most: int) -> list[float]:
    """Neighbours as their mean, until they are no more than `most`."""
    found = list(values)
    while len(found) > most:
        found = [sum(found[i : i + 2]) / len(found[i : i + 2]) for i in range(0, len(found), 2)]
    return found


def spark(values: Sequence[float], ascii_only: bool = False) -> str:
    """A character for each value, the higher the larger."""
    levels = _ASCII if ascii_only else _LEVELS
    middle = sorted(values)[len(values) // 2] if values else 0.0
    low = min([*values, middle * (1 - USUAL)])
    high = min(max([*values, middle * (1 + USUAL)]), FAR * middle)
    if high <= low:
        return levels[0] * len(values)
    steps = len(levels) - 1
    return "".join(levels[round(steps * (min(value, high) - low) / (high - low))] for value in values)


def parts(one: Process, page: Page) -> RenderableType:
    """Return the parts of the last watched steps, as bars that sum to the whole."""
    if not one.parts:
        return page.row("parts", Text(UNKNOWN))
    percents = iter(tenths([part.share for part in one.parts if part.share is not None]))
    lines = []
    for part in one.parts:
        if part.ns is None or part.share is None:
            lines.append(phrase(f"{page.clean(part.name):<10} not seen"))
        else:
            drawn = bar(part.share, BAR, ascii_only=page.ascii_only)
            figures = f"{units.duration(part.ns):>8}  {next(percents):5.1f} %"
            lines.append(Text(f"{page.clean(part.name):<10} {drawn:<{BAR}} {figures}"))
    return page.row("parts", *lines)


def memory(one: Process, page: Page) -> list[RenderableType]:
    """Resident, and of the device where there is one."""
    size = (
        f"resident: {UNKNOWN}"
        if one.rss_bytes is None
        else f"{units.size(one.rss_bytes)} resident{_growing(one.rss_growth)}"
    )
    lines = [Text(size)]
    if one.device_bytes is not None:
        lines.append(Text(f"{units.size(one.device_bytes)} of the device's, in tensors{_growing(one.device_growth)}"))
    elif one.device is not None:
        lines.append(Text(f"of {page.clip(one.device, page.body - 20)}: {UNKNOWN}"))
    return [page.row("memory", *lines)]


def _growing(growth: float | None) -> str:
    if growth is None:
        return f"; growth {UNKNOWN}"
    return f"; {'-' if growth < 0 else '+'}{units.size(abs(growth))} per step"


def cores(one: Process, page: Page) -> list[RenderableType]:
    """Return how many cores the program and other processes keep busy, and how long its threads wait for one."""
    if one.state == now.WAITING:
        return []
    if one.busy_cores is None:
        return [page.row("cores", Text(UNKNOWN))]
    others = "others' load not known" if one.other_cores is None else f"others keep {one.other_cores:.1f} busy"
    wanted = "not known how long its threads wait for one"
    if one.starved is not None:
        wanted = f"none for {units.share(one.starved)} of the time that its threads wanted one"
    return [page.row("cores", Text(f"{one.busy_cores:.1f} busy with it, {others}"), Text(wanted))]


def rank(one: Process, page: Page) -> Text:
    """One process in a line."""
    name = f"{one.rank if one.rank is not None else '-':>4} pid {one.pid:<8}"
    step = f"{units.duration(one.late_ns)} now" if one.late_ns is not None else UNKNOWN
    wait = next((part.share for part in one.parts if part.name == "data wait"), None)
    waits = "" if wait is None else f", {units.share(wait)} waiting for data"
    size = "" if one.rss_bytes is None else f", {units.size(one.rss_bytes)}"
    return Text(page.clip(f"{name} {one.state}: {one.steps:,} steps, {step}{size}{waits}", page.body))


def long(ns: float) -> str:
    """Say how long something has run: '72 s', '12 min', '3 h 12 min'."""
    seconds = int(finite_s(ns))
    if seconds < 120:
        return f"{seconds} s"
    minutes = seconds // 60
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def finite_s(ns: float) -> float:
    """Seconds that can be told: a file may say anything."""
    return max(0.0, min(ns / 1e9, 1e9))
