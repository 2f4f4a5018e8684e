"""BRR912 to 914: what the device's own gauges say against the measurement: a clock held back, others, its set-up."""

from __future__ import annotations

from collections.abc import Iterator

from gobrrr.ledger.model.gauged import DeviceGauged
from gobrrr.ledger.model.ledger import Ledger
from gobrrr.machine.gauges.readings import POWER
from gobrrr.machine.model.machine import Machine
from gobrrr.rules.model.evidence import ratio, time
from gobrrr.rules.model.finding import Cause, Quantity, rule
from gobrrr.rules.validity.measurement import doubt
from gobrrr.units import duration, share, size

HELD_BACK, LONG_HELD_BACK = 0.05, 0.5
"""Shares of the time at work in which a clock is held back, for a note and for a warning (proposed)."""
COSTS = 0.1
"""Share of the step that it costs, from which it is a warning too (proposed: as a crowded CPU moves medians)."""
BUSY_FOR_OTHERS = 0.05
"""Share of the time in which a device works for others, from which it is told (proposed)."""
OTHERS_BYTES = 512 << 20
"""Bytes that others hold, from which they are told: idle contexts of a desktop hold less (proposed)."""


def gauges(ledger: Ledger) -> tuple[DeviceGauged, ...]:
    """Return the devices' gauges; none where nobody sampled."""
    return ledger.gauged.devices if ledger.gauged is not None else ()


@rule("BRR912", "compute")
def device_held_back(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """The device ran at a lower clock than it was asked for: power cap, heat or supply."""
    for each in gauges(ledger):
        if not each.held_back or each.held_back[0][1] < HELD_BACK:
            continue
        reason, part = each.held_back[0]
        free, clock = each.free_clock_mhz or 0.0, each.clock_mhz or 0.0
        if each.most_clock_mhz and clock >= each.most_clock_mhz:
            continue  # a reason is there, and costs nothing
        lost = max(0.0, 1 - clock / free) if free else 0.0
        cost = lost * (each.busy_share or 0.0) * ledger.wall
        slower = f": {clock:,.0f} of {free:,.0f} MHz, at most {duration(cost)} of a step" if lost else ""
        limit = f" of {each.limit_w:.0f} W" if reason == POWER and each.limit_w else ""
        yield doubt(
            "warning" if part >= LONG_HELD_BACK and cost >= COSTS * ledger.wall else "note",
            f"{reason}{limit} held the clock of {each.name} back {share(part)} of its busy time{slower}",
            _advice(each, reason),
            {"held_back": ratio(part), "cost": time(cost)},
        )


def _advice(each: DeviceGauged, reason: str) -> str:
    if reason != POWER:
        return "Look after its cooling and supply; figures of a cool and of a hot device do not compare."
    lowered = each.limit_w and each.default_limit_w and each.limit_w < 0.99 * each.default_limit_w
    if lowered:
        return f"Somebody has lowered its limit from {each.default_limit_w:.0f} W: nvidia-smi -pl raises it."
    return "That is its full power: only fewer FLOPs, or cheaper ones (bf16 for fp32), make it faster."


@rule("BRR913", "host")
def others_on_device(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Other processes use the device: kernels take turns, and their memory is missing."""
    for each in gauges(ledger):
        others, busy = each.others or 0, each.busy_before or 0.0
        if others < OTHERS_BYTES and busy < BUSY_FOR_OTHERS:
            continue
        held = f"others hold {size(others)} of {each.name}" if others else f"{each.name} works for others"
        works = f"; it was busy {share(busy)} of the time before this program began" if busy >= BUSY_FOR_OTHERS else ""
        yield doubt(
            "warning" if busy >= 0.5 and others >= OTHERS_BYTES else "note",
            f"{held}{works}",
            "Find them with nvidia-smi, and measure again without them: kernels of two programs take turns.",
            {"others": Quantity(others, "B"), "busy_before": ratio(busy)},
        )


@rule("BRR914", "transfer")
def device_set_up(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """The device is not set up as its board allows: a narrow link, a driver that unloads, broken memory."""
    for each in gauges(ledger):
        link = each.link
        if link is not None and link.width < link.most_width:
            yield doubt(
                "note", f"{each.name} has {link.width} of {link.most_width} PCIe lanes: copies take longer",
                "Look at the slot and its riser, or ask who runs the machine: nvidia-smi -q -d PCIE shows the link.",
                {"width": Quantity(link.width, "1"), "most": Quantity(link.most_width, "1")},
            )  # fmt: skip
        if each.persistent is False:
            yield doubt(
                "note", f"{each.name}'s driver unloads when nobody uses it: each start waits for it",
                "nvidia-smi -pm 1 keeps it loaded (persistence mode).",
            )  # fmt: skip
        if each.errors:
            yield doubt(
                "warning", f"{each.name} had {each.errors} memory errors that it could not correct",
                "Results may be wrong: stop using this device until it was checked.",
                {"errors": Quantity(each.errors, "1")},
            )  # fmt: skip
