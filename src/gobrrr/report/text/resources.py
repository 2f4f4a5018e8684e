"""Resources of the step in the text report: the machine's ceilings, the bytes, and the other loops that were seen."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from gobrrr import units
from gobrrr.ledger.model.device import DeviceMemory
from gobrrr.ledger.model.ledger import MemoryLedger, Roofline
from gobrrr.recording.model.facts import SavedTensor
from gobrrr.report.text.page import Page, phrase
from gobrrr.rules.verdict.place import short
from gobrrr.rules.verdict.report import Report, Tokens

CONVENTION = "a multiply-add is 2 FLOPs, causal attention not halved"
MEMORY = ("parameters", "gradients", "optimizer_state", "activations", "inputs", "runtime", "workspace", "peak")


def resources(report: Report, page: Page) -> list[RenderableType]:
    """The step against the machine's ceilings, the bytes, and the loops that were seen beside this one."""
    block: list[RenderableType] = []
    if report.roofline.floor_ns or report.roofline.flops:
        block.append(page.row("roofline", *_roofline(report.roofline, report, page)))
    if report.tokens is not None:
        block.append(page.row("tokens", _tokens(report.tokens)))
    memory = _memory(report, page)
    if memory:
        block.append(page.row("memory", *memory))
    if report.loops:
        seen = (f"{page.clean(o.name)} {units.share(o.share)} ({o.count} steps)" for o in report.loops[:4])
        more = f", and {len(report.loops) - 4} more" if len(report.loops) > 4 else ""
        block.append(page.row("loops", Text(f"also seen: {', '.join(seen)}{more}")))
    return block


def _roofline(roof: Roofline, report: Report, page: Page) -> list[Text]:
    wall = report.step.plain_wall_ns
    if roof.ceiling:
        return _device_roofline(roof, wall, page)
    achieved = units.flop_rate(1e9 * roof.flops / wall) if wall else "?"
    first = f"{achieved} achieved"
    if roof.ceiling_flop_rate and roof.mfu is not None:
        ceiling = units.flop_rate(roof.ceiling_flop_rate)
        same = achieved.split(" ")[-1] == ceiling.split(" ")[-1]
        threads = f"{report.threads} thread{'s' if report.threads != 1 else ''}"
        first = f"{achieved.split(' ')[0] if same else achieved} of {ceiling} measured in {page.clean(roof.dtype)}"
        first += f" ({threads}): MFU {units.share(roof.mfu)}"
    light = f", speed of light {units.share(roof.speed_of_light)}" if roof.speed_of_light is not None else ""
    hole = f"not counted: {units.share(roof.not_counted_share)} of the step{_named(roof, page)}"
    return [
        phrase(first, (light, "bold")),
        phrase((f"MFU: {CONVENTION}", "dim")),
        phrase((page.clip(hole, page.body), "dim")),
    ]


def _named(roof: Roofline, page: Page) -> str:
    holes = ", ".join(page.clean(name.removeprefix("aten::")) for name, _ in roof.not_counted[:3])
    return f" ({holes})" if holes else ""


def _device_roofline(roof: Roofline, wall: float, page: Page) -> list[Text]:
    """MFU over the whole step, and whose ceiling that is."""
    first = f"{units.flop_rate(1e9 * roof.flops / wall) if wall else '?'} achieved"
    if roof.ceiling_flop_rate and roof.mfu is not None:
        first += (
            f" of {units.flop_rate(roof.ceiling_flop_rate)} in {page.clean(roof.dtype)}: MFU {units.share(roof.mfu)}"
        )
    elif roof.ceiling_flop_rate:
        first = f"{first.removesuffix(' achieved')} counted: no MFU, for most of the kernels' time is not counted"
    if roof.hfu is not None:
        first += f", HFU {units.share(roof.hfu)} with what is computed twice"
    light = f", speed of light {units.share(roof.speed_of_light)}" if roof.speed_of_light is not None else ""
    hole = f"{units.share(roof.not_counted_share)} of the step{_named(roof, page)}"
    lines = [f"ceilings: {page.clean(roof.ceiling)}", f"MFU: {CONVENTION}; kernels not counted: {hole}"]
    return [phrase(first, (light, "bold")), *(phrase((line, "dim")) for line in lines)]


def _tokens(tokens: Tokens) -> Text:
    """Return the rate of real tokens, their share of those computed on, and the MFU that is useful."""
    rate = f"{tokens.per_s:,.0f} real ones per second, " if tokens.per_s is not None else ""
    useful = f": useful MFU {units.share(tokens.useful_mfu)}" if tokens.useful_mfu is not None else ""
    return phrase(f"{rate}{units.share(tokens.real_share)} of those computed on ({tokens.batches} batches){useful}")


def _memory(report: Report, page: Page) -> list[Text]:
    """Two lines of a table, then what stands out."""
    if report.device and report.device.memory:
        return _device_memory(report.device.memory, page)
    memory = report.memory
    sizes = [(name.split("_")[0], getattr(memory, name)) for name in MEMORY]
    cells = [(name, units.size(value)) for name, value in sizes if value is not None]
    if not cells:
        return []
    widths = [max(len(name), len(value)) for name, value in cells]
    while sum(widths) + len(widths) > page.body and len(cells) > 2:  # the peak stays
        least = min(range(len(cells) - 1), key=lambda i: dict(sizes).get(cells[i][0]) or 0)
        del cells[least], widths[least]
    gap = "  " if sum(widths) + 2 * len(widths) <= page.body else " "
    names = gap.join(f"{name:>{width}}" for (name, _), width in zip(cells, widths, strict=True))
    values = gap.join(f"{value:>{width}}" for (_, value), width in zip(cells, widths, strict=True))
    return [phrase((names, "dim")), Text(values), *_memory_notes(memory, report, page)]


def _device_memory(memory: DeviceMemory, page: Page) -> list[Text]:
    """The peak, what was reserved for it, and by which op at which line it was reached."""
    over = " above what was there at the start" if memory.since_start else ""
    has = "; the device has " if over else " of "
    of = f"{has}{units.size(memory.capacity)}" if memory.capacity else ""
    reserved = f", {units.size(memory.reserved)} reserved" if memory.reserved is not None else ""
    place = f" at {short(memory.where[0])}" if memory.where else ""
    lines = [f"peak {units.size(memory.peak)}{over}{of}{reserved}"]
    if memory.op:
        lines.append(f"reached in {page.clean(memory.op.removeprefix('aten::'))}{page.clean(place)}")
    if memory.driver_calls >= 1:
        lines.append(f"{memory.driver_calls:.0f} calls to the driver per step: the allocator finds no room")
    if memory.growth_per_step:
        lines.append(f"grows {units.size(memory.growth_per_step)} per step")
    return [Text(lines[0]), *(phrase((page.clip(line, page.body), "dim")) for line in lines[1:])]


def _memory_notes(memory: MemoryLedger, report: Report, page: Page) -> list[Text]:
    notes = []
    if memory.bytes_per_parameter is not None:
        notes.append(f"{memory.bytes_per_parameter:.1f} bytes per parameter (mixed-precision Adam: 16 to 18)")
    if memory.growth_per_step is not None and memory.growth_per_step >= 1:
        notes.append(f"grows {units.size(memory.growth_per_step)} per step")
    savers = ((s.op.removeprefix("aten::"), saver(s), s.num_bytes) for s in report.saved[:3])
    saved = ", ".join(f"{page.clean(op)} in {page.clean(at)} {units.size(size)}" for op, at, size in savers)
    alive = ", ".join(f"{page.clean(name)} {units.size(size)}" for name, size in memory.alive_at_peak[:3])
    lines = ["; ".join(notes), saved and f"saved most: {saved}", alive and f"alive at the peak: {alive}"]
    return [phrase((page.clip(line, page.body), "dim")) for line in lines if line]


def saver(saved: SavedTensor) -> str:
    """The module that saved it, or the user's line where no module ran."""
    span = saved.span
    return saved.module or (f"{span.file.rsplit('/', 1)[-1]}:{span.line}" if span else "?")
