"""A running program as blocks: its steps and their trend, what they go to, memory, cores, doubts, ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gobrrr import units
from gobrrr.recording.live import now
from gobrrr.recording.live.now import DeviceNow, Now, Process
from gobrrr.report.forms.formats import View
from gobrrr.report.told.bars import bar, finite, spark, tenths
from gobrrr.report.told.blocks import Fact, Groups, Line, clipped, facts

UNKNOWN = "not known yet"
BAR, HISTORY = 20, 32
"""Columns of a bar, and of the steps' history."""
DOUBTS, DOUBT, DEVICE = 4, 180, 70
"""Doubts that are told at most, and characters of one and of a device's name: they fit 100 columns."""
DEVICES = 8
"""Devices that are told at most."""
OLD_NS = 5e9
"""Age of gauges, read ten times a second and in long runs more seldom, from which it is told."""
SAME = 0.0005
"""A change that is none when it is printed."""
SAID = {
    now.WAITING: "has made no step yet",
    now.ELSEWHERE: "runs where it cannot be seen from here, as its recording says",
    now.CUT: "ended without a word: it was killed, or crashed",
}
STYLES = {now.RUNNING: "bold green", now.CUT: "bold red"}
DOING = {
    now.RESTING: "the hooks rest: steps are counted, parts are those of the last that were watched",
    now.LOOKING: "looked at closely now: such steps take longer and do not count",
    now.OVER: "not watched any more",
}


def blocks(found: Now, view: View) -> Groups:
    """All of it."""
    lines = [rank(one) for one in found.processes] if count(found) else []
    more = [f"{found.more_processes} more with --json"] if found.more_processes else []
    return [[*body(found), *facts([("ranks", [*lines, *more]), ("next", [found.next])])]]


def body(found: Now) -> list[Fact]:
    """The program and the first of its processes."""
    first = found.processes[0] if found.processes else None
    told = [("program", _program(found, first))]
    if first is not None and first.steps:
        told += [("step", _step(first)), ("trend", _trend(first)), ("parts", _parts(first))]
    elif found.state != now.WAITING:
        told.append(("step", ["no whole step is in its recording"]))
    if first is not None:
        told += [("memory", _memory(first)), ("devices", _devices(found)), ("cores", _cores(first))]
        told += [("doubts", _doubts(found))]
    return facts(told)


def count(found: Now) -> int:
    """Count the processes that have a line each: where there is one alone, none."""
    num = len(found.processes) + found.more_processes
    return num if num > 1 else 0


def _program(found: Now, first: Process | None) -> list[Line]:
    """The program, whether it still runs, and for how long."""
    said = SAID.get(found.state, found.state)
    if first is not None and first.ran_ns is not None and found.state in (now.RUNNING, now.WAITING):
        said += f" for {long(first.ran_ns)} (pid {first.pid})"
    elif first is not None and first.ran_ns is not None and found.state == now.ENDED:
        said += f" after {long(first.ran_ns)}"
    read = f"; reading its recording: {units.share(found.read)}" if found.read < 1 else ""
    return [((found.program, "bold cut"),), ((said, STYLES.get(found.state, "bold")), read)]


def _doubts(found: Now) -> list[Line]:
    """The doubts of all processes, each said once."""
    said = list(dict.fromkeys(clipped(text, DOUBT) for one in found.processes for text in one.doubts))
    more = [f"{len(said) - DOUBTS + 1} more with --json"] if len(said) > DOUBTS else []
    return [*said[: DOUBTS - 1 if more else DOUBTS], *more]


def _step(one: Process) -> list[Line]:
    """Now against the run, and how many."""
    first = f"{UNKNOWN}: no plain step has ended"
    if one.late_ns is not None and one.median_ns is not None:
        late = f"median {units.duration(one.late_ns)} of the last {one.late_steps} steps"
        first = f"{late}, {units.duration(one.median_ns)} over the run"
    rate = "" if one.samples_per_s is None else f", {one.samples_per_s:,.0f} samples/s"
    counted = f"{one.steps:,} step{'s' if one.steps != 1 else ''}, by {one.kind}{rate}"
    return [((first, "bold"),), counted, DOING.get(one.watching, "") if one.state == now.RUNNING else ""]


def _trend(one: Process) -> list[Line]:
    """The history as a row of heights, and what it comes to as a figure."""
    if one.change is None:
        return [UNKNOWN]
    told = f"steps of {units.duration(min(one.history_ns))} to {units.duration(max(one.history_ns))}"
    change, way = finite(one.change), "as long as"
    if abs(change) >= SAME:
        way = f"{units.share(abs(change))} {'longer' if change > 0 else 'shorter'} than"
    return [f"{spark(_at_most(one.history_ns, HISTORY))}  {told}", f"the run's last quarter has steps {way} the first"]


def _at_most(values: Sequence[float], most: int) -> list[float]:
    """Neighbours as their mean, until they are no more than `most`."""
    found = list(values)
    while len(found) > most:
        found = [sum(found[i : i + 2]) / len(found[i : i + 2]) for i in range(0, len(found), 2)]
    return found


def _parts(one: Process) -> list[Line]:
    """Parts of the last watched steps, as bars that sum to the whole."""
    percents = iter(tenths([part.share for part in one.parts if part.share is not None]))
    lines: list[Line] = []
    for part in one.parts:
        if part.ns is None or part.share is None:
            lines.append(f"{part.name:<10} not seen")
        else:
            figures = f"{units.duration(part.ns):>8}  {next(percents):5.1f} %"
            lines.append(f"{part.name:<10} {bar(part.share, BAR):<{BAR}} {figures}")
    return lines or [UNKNOWN]


def _memory(one: Process) -> list[Line]:
    """Resident, and of the device where there is one."""
    device = ""
    if one.device_bytes is not None:
        device = f"{units.size(one.device_bytes)} of the device's, in tensors{_growing(one.device_growth)}"
    elif one.device is not None:
        device = f"of {clipped(one.device, DEVICE)}: {UNKNOWN}"
    if one.rss_bytes is None:
        return [f"resident: {UNKNOWN}", device]
    return [f"{units.size(one.rss_bytes)} resident{_growing(one.rss_growth)}", device]


def _devices(found: Now) -> list[Line]:
    """'H100: busy 87 %, 412 of 700 W, 1,755 MHz, 61 °C, 12.0 of 80.0 GiB', and how old that is."""
    more = [f"{len(found.devices) - DEVICES} more with --json"] if len(found.devices) > DEVICES else []
    late = found.devices_ns is not None and found.devices_ns > OLD_NS
    old = [f"read {long(found.devices_ns or 0)} ago: the driver answers no more"] if found.devices and late else []
    return [*(", ".join(filter(None, _device(each))) for each in found.devices[:DEVICES]), *more, *old]


def _device(each: DeviceNow) -> Iterator[str]:
    name = clipped(each.name, DEVICE)
    yield f"{name}: busy {100 * each.busy:.0f} %" if each.busy is not None else name
    limit = f" of {each.limit_w:.0f}" if each.limit_w else ""
    yield f"{each.watts:.0f}{limit} W" if each.watts is not None else ""
    yield f"{each.clock_mhz:,} MHz" if each.clock_mhz is not None else ""
    yield f"{each.celsius} °C" if each.celsius is not None else ""
    whole = units.size(each.memory_bytes or 0)
    used = units.size(each.used).removesuffix(f" {whole.split(' ')[1]}") if each.used is not None else ""
    yield (f"{used} of {whole}" if each.memory_bytes else units.size(each.used or 0)) if used else ""


def _growing(growth: float | None) -> str:
    if growth is None:
        return f"; growth {UNKNOWN}"
    return f"; {'-' if growth < 0 else '+'}{units.size(abs(growth))} per step"


def _cores(one: Process) -> list[Line]:
    """Cores that the program and other processes keep busy, and how long its threads wait for one."""
    if one.state == now.WAITING:
        return []
    if one.busy_cores is None:
        return [UNKNOWN]
    others = "others' load not known" if one.other_cores is None else f"others keep {one.other_cores:.1f} busy"
    wanted = "not known how long its threads wait for one"
    if one.starved is not None:
        wanted = f"its threads had no core for {units.share(one.starved)} of the time that they wanted one"
    return [f"{one.busy_cores:.1f} busy with this program, {others}", wanted]


def rank(one: Process) -> Line:
    """One process in a line."""
    name = f"{one.rank if one.rank is not None else '-':>4} pid {one.pid:<8}"
    step = f"{units.duration(one.late_ns)} now" if one.late_ns is not None else UNKNOWN
    wait = next((part.share for part in one.parts if part.name == "data wait"), None)
    waits = "" if wait is None else f", {units.share(wait)} waiting for data"
    size = "" if one.rss_bytes is None else f", {units.size(one.rss_bytes)}"
    return ((f"{name} {one.state}: {one.steps:,} steps, {step}{size}{waits}", "cut"),)


def long(ns: float) -> str:
    """Say how long something has run: '72 s', '12 min', '3 h 12 min'."""
    seconds = int(max(0.0, min(ns / 1e9, 1e9)))  # a file may say anything
    if seconds < 120:
        return f"{seconds} s"
    minutes = seconds // 60
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
