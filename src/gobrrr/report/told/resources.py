"""Where the step's time and bytes go, against the machine's ceilings: accounts, roofline, tokens, memory, loops."""

from __future__ import annotations

from collections.abc import Iterator

from gobrrr import units
from gobrrr.ledger.model.device import DeviceMemory
from gobrrr.ledger.model.gauged import DeviceGauged
from gobrrr.ledger.model.ledger import Roofline
from gobrrr.recording.model.facts import SavedTensor
from gobrrr.report.told.bars import tenths
from gobrrr.report.told.blocks import CUT, Cell, Fact, Line, Table, facts, time_cell
from gobrrr.rules.verdict.place import short
from gobrrr.rules.verdict.report import Report, Tokens

# account -> (style, gloss): green is work at the ceiling, yellow torch's loss, red time that no op ran
ACCOUNTS = {
    "data_wait": ("red", "waiting for the next batch"),
    "compute": ("green", "least time for its FLOPs"),
    "bandwidth": ("green", "least time for memory traffic"),
    "inefficiency": ("yellow", "ops beyond that least time"),
    "uncounted": ("yellow", "ops of unknown least time"),
    "dispatch": ("yellow", "torch's own cost for each op"),
    "host": ("red", "Python and native between ops"),
    "communication": ("red", "waiting for other ranks"),
    "sync": ("red", "idle caused by synchronisation"),
    "stalled": ("red", "idle though work was queued"),
    "copy": ("red", "copies that nothing hides"),
    "compile": ("red", "compiling in the steady state"),
    "gc": ("red", "Python's garbage collection"),
    "unattributed": ("dim", "claimed by no account"),
}
ON_DEVICE = {
    "inefficiency": "kernels beyond that least time",
    "uncounted": "kernels of unknown least time",
    "dispatch": "idle: the host is in torch or CUDA",
    "host": "idle: Python and native code",
    "data_wait": "idle: waiting for the batch",
    "communication": "collectives that nothing hides",
}
"""Accounts that mean something else where a device works."""
WITHOUT_OPS = {
    "dispatch": "idle: the host is in calls of CUDA",
    "host": "idle: the host is outside of CUDA",
}
"""And where no op of torch was recorded that could tell more."""
LIGHT = "speed of light: the least time for the step's work at the ceilings, over the step's time"
CONVENTION = "a multiply-add is 2 FLOPs, causal attention not halved"
NUM_LOOPS = 4  # other loops named at most; proposed: fit on a line; settled by programs that have more


def gloss(account: str, report: Report) -> str:
    """Return what an account means, on a device or without one."""
    told = ON_DEVICE if report.ops else ON_DEVICE | WITHOUT_OPS
    own = told.get(account, "") if report.device else ""
    return own or ACCOUNTS.get(account, ("", ""))[1]


def accounts(report: Report) -> list[Table]:
    """The ledger, whose shares add up as printed."""
    percents = tenths([account.share for account in report.ledger])
    rows = tuple(
        (Cell(each.account.replace("_", " ")), Cell(f"{percent:.1f} %", percent), time_cell(each.ns))
        for each, percent in zip(report.ledger, percents, strict=True)
    )
    heads = (("account", False), ("share", True), ("per step", True))
    return [Table("Where the time goes", heads, rows, folded=True)] if rows else []


def phases(report: Report) -> list[Fact]:
    """All in the step's unit, so that they compare at a glance."""
    wall = report.step.plain_wall_ns
    unit = units.duration(wall).split(" ")[1]
    parts = " · ".join(f"{name} {units.bare(ns, wall)}" for name, ns in report.phases if ns > 0)
    return facts([("phases", [f"{parts} {unit}" if parts else ""])])


def resources(report: Report) -> list[Fact]:
    """The step against the machine's ceilings, real tokens, and the loops that were seen beside this one."""
    tokens = [_tokens(report.tokens)] if report.tokens is not None else []
    return facts([("roofline", [*roofline(report)]), ("tokens", tokens)])


def loops(report: Report) -> list[Fact]:
    """The loops that were seen beside this one."""
    seen = ", ".join(f"{each.name} {units.share(each.share)} ({each.count} steps)" for each in report.loops[:NUM_LOOPS])
    more = f", and {len(report.loops) - NUM_LOOPS} more" if len(report.loops) > NUM_LOOPS else ""
    return facts([("loops", [f"also seen: {seen}{more}" if seen else ""])])


def roofline(report: Report) -> Iterator[Line]:
    """The rate that was reached of the ceiling, and what is not counted."""
    roof, wall = report.roofline, report.step.plain_wall_ns
    if not (roof.floor_ns or roof.flops):
        return
    achieved = units.flop_rate(1e9 * roof.flops / wall) if wall else "?"
    light = f", speed of light {units.share(roof.speed_of_light)}" if roof.speed_of_light is not None else ""
    if roof.ceiling:
        yield _on_device(roof, achieved), (light, "bold")
        yield ((f"ceilings: {roof.ceiling}", "dim"),)
        yield ((f"MFU: {CONVENTION}; kernels whose work is not known: {hole(roof)}", "dim"),)
        yield ((LIGHT if light else "", "dim"),)
        return
    first = f"{achieved} achieved"
    if roof.ceiling_flop_rate and roof.mfu is not None:
        ceiling = units.flop_rate(roof.ceiling_flop_rate)
        same = achieved.split(" ")[-1] == ceiling.split(" ")[-1]
        threads = units.several("thread", report.threads)
        first = f"{achieved.split(' ')[0] if same else achieved} of {ceiling} measured in {roof.dtype} ({threads}): "
        first += f"MFU {units.share(roof.mfu)}"
    yield first, (light, "bold")
    yield ((f"MFU: {CONVENTION}", "dim"),)
    yield ((LIGHT if light else "", "dim"),)
    yield ((f"ops whose work is not known: {hole(roof)}", CUT),)


def hole(roof: Roofline) -> str:
    """'13.2 % of the step (sqrt, div)': the part whose work is not counted."""
    names = ", ".join(name.removeprefix("aten::") for name, _ in roof.not_counted[:3])
    return f"{units.share(roof.not_counted_share)} of the step{f' ({names})' if names else ''}"


def _on_device(roof: Roofline, achieved: str) -> str:
    """MFU over the whole step."""
    first = f"{achieved} achieved"
    if roof.ceiling_flop_rate and roof.mfu is not None:
        first += f" of {units.flop_rate(roof.ceiling_flop_rate)} in {roof.dtype}: MFU {units.share(roof.mfu)}"
    elif roof.ceiling_flop_rate:
        first = f"{achieved} counted: no MFU, for most of the kernels' time is not counted"
    return first + (f", HFU {units.share(roof.hfu)} with what is computed twice" if roof.hfu is not None else "")


def _tokens(tokens: Tokens) -> str:
    """Return the rate of real tokens, their share of those computed on, and the MFU that is useful."""
    rate = f"{tokens.per_s:,.0f} real ones per second, " if tokens.per_s is not None else ""
    useful = f": useful MFU {units.share(tokens.useful_mfu)}" if tokens.useful_mfu is not None else ""
    return f"{rate}{units.share(tokens.real_share)} of those computed on ({tokens.batches} batches){useful}"


def gauges(report: Report, brief: bool = False) -> Iterator[Line]:
    """Use, power and clock of each device as its driver tells them, then the energy of a step."""
    found = report.gauged
    if found is None:
        return
    for each in found.devices:
        yield ", ".join(filter(None, _gauges(each)))
    joules, ranks = found.joules_per_step, report.world_size or 1  # the devices are those of all ranks
    samples = report.step.samples * ranks if report.step.samples else None
    if joules is not None:
        told = sum(each.joules_per_step is not None for each in found.devices)
        part = "devices" if told == len(found.devices) else f"{told} of {units.several('device', len(found.devices))}"
        of = " and ".join([part] * bool(found.devices) + ["processor"] * (found.cpu_joules_per_step is not None))
        one = f", {units.energy(joules / samples)} per sample" if samples else ""
        one += f", {units.energy(1e6 * joules / samples)} per million" if samples else ""
        epoch = f", {units.energy(joules * report.step.epoch_steps)} per epoch" if report.step.epoch_steps else ""
        yield f"energy of {of}: {units.energy(joules)} per step{one}{epoch} (counters, {found.seconds:.0f} s)"
    if found.why_none and not brief:
        yield ((f"not measurable here: {found.why_none}", "dim"),)


def _gauges(each: DeviceGauged) -> Iterator[str]:
    """The parts of a device's line; empty ones are left out."""
    yield f"{each.name}: busy {units.share(each.busy_share)} of the loop" if each.busy_share is not None else each.name
    yield f"SMs {units.share(each.sm_share)}" if each.sm_share is not None else ""
    yield f"tensor cores {units.share(each.tensor_share)}" if each.tensor_share is not None else ""
    limit = f" of {each.limit_w:.0f}" if each.limit_w else ""
    yield f"{each.watts:.0f}{limit} W" if each.watts is not None else ""
    most = f" of {each.most_clock_mhz:,}" if each.most_clock_mhz else ""
    yield f"{each.clock_mhz:,.0f}{most} MHz" if each.clock_mhz is not None else ""
    yield f"{each.celsius:.0f} °C" if each.celsius is not None else ""
    held = each.ours if each.ours is not None else each.used
    whole = f" of {units.size(each.memory_bytes)}" if each.memory_bytes else ""
    yield f"memory {units.size(held)}{whole}" if held is not None else ""


def device_memory(memory: DeviceMemory) -> Iterator[Line]:
    """The peak, what was reserved for it, and by which op at which line it was reached."""
    over = " above what was there at the start" if memory.since_start else ""
    has = "; the device has " if over else " of "
    of = f"{has}{units.size(memory.capacity)}" if memory.capacity else ""
    reserved = f", {units.size(memory.reserved)} reserved" if memory.reserved is not None else ""
    place = f" at {short(memory.where[0])}" if memory.where else ""
    yield f"peak {units.size(memory.peak)}{over}{of}{reserved}"
    if memory.op:
        yield ((f"reached in {memory.op.removeprefix('aten::')}{place}", CUT),)
    if memory.driver_calls >= 1:
        yield ((f"{memory.driver_calls:.0f} calls to the driver per step: the allocator finds no room", CUT),)
    if memory.growth_per_step:
        yield ((f"grows {units.size(memory.growth_per_step)} per step", CUT),)


def memory_notes(report: Report) -> Iterator[Line]:
    """Return what stands out beside the sizes: bytes per parameter, growth, what was kept and what was alive."""
    memory = report.memory
    notes = []
    if memory.bytes_per_parameter is not None:
        notes.append(f"{memory.bytes_per_parameter:.1f} bytes per parameter (mixed-precision Adam: 16 to 18)")
    if memory.growth_per_step is not None and memory.growth_per_step >= 1:
        notes.append(f"grows {units.size(memory.growth_per_step)} per step")
    saved = ", ".join(f"{each.op.removeprefix('aten::')} in {saver(each)} {units.size(each.num_bytes)}"
                      for each in report.saved[:3])  # fmt: skip
    alive = ", ".join(f"{name} {units.size(size)}" for name, size in memory.alive_at_peak[:3])
    lines = ["; ".join(notes), saved and f"saved most: {saved}", alive and f"alive at the peak: {alive}"]
    yield from (((line, CUT),) for line in lines if line)


def saver(saved: SavedTensor) -> str:
    """The module that saved it, or the user's line where no module ran."""
    span = saved.span
    return saved.module or (f"{span.file.rsplit('/', 1)[-1]}:{span.line}" if span else "?")
