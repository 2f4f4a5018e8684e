"""BRR701: waiting for other ranks."""

from __future__ import annotations

from collections.abc import Iterator

from gobrrr.ledger.devicemodel import DeviceLedger
from gobrrr.ledger.model import Ledger
from gobrrr.machine.model import Machine
from gobrrr.machine.peaks import link_rate
from gobrrr.recording.categories import is_communication
from gobrrr.rules.cores import micro_steps
from gobrrr.rules.evidence import count, time, worth_telling
from gobrrr.rules.lines import loop_line
from gobrrr.rules.model import Finding, Quantity, finding, rule
from gobrrr.rules.shapes import costliest_line, total
from gobrrr.units import byte_rate, duration, share, size

EXPOSED = 0.05
"""Share of the step in communication that nothing hides (TraceLens 5 %; tb_plugin 10 % of all communication)."""
FAR = 0.1
"""Of the link's data sheet, at their fastest: below it something else carries them, shared memory or a network
(proposed; nccl-tests reaches 0.7 and more over NVLink with large messages)."""
LARGE = 1 << 20
"""Bytes per call from which the link and no latency should bound it (nccl-tests' curves are steep below)."""
WAITED = 0.1
"""Share of a kind's time from which what lies above its fastest calls is told."""
OVERLAP = "Overlap it (larger buckets, gradient_as_bucket_view), send less (bf16, no_sync), and compare the ranks."
SLOW_LINK = (
    "The devices' own link does not carry it: see which one does (NCCL_DEBUG=INFO, nvidia-smi topo -m; rocm-smi "
    "--showtopo), then overlap it or send less (bf16, no_sync)."
)


@rule(
    "BRR701",
    "exposed-communication",
    "communication",
    needs={"plain"},
)
def exposed_communication(ledger: Ledger, machine: Machine) -> Iterator[Finding]:
    """Collectives that the step waits for. The wait may be for a slow rank: one rank's account cannot tell."""
    cost = ledger.account("communication")
    if cost < EXPOSED * ledger.wall or not worth_telling(ledger, 0.6 * cost):
        return
    ops = [op for op in ledger.ops if is_communication(op.name)]
    calls = sum(op.calls for op in ops if op.name.startswith("c10d::"))
    micro = micro_steps(ledger)
    skip = f" Wrap all but the last of {micro:.0f} micro-steps in model.no_sync()." if micro > 1 else ""
    yield finding(
        "BRR701",
        ledger,
        low=0.1 * cost,
        expected=0.6 * cost,
        ceiling=cost,
        message=f"{duration(cost)} ({share(cost / ledger.wall)}) of the step goes to collectives that nothing hides, "
        "a slow rank's delay included" + "".join(_told(ledger.device)),
        advice=(SLOW_LINK if any(_far_below(ledger.device)) else OVERLAP) + skip,
        where=costliest_line(op for op in ops if op.where) or loop_line(ledger),
        evidence={"communication": time(cost), "collectives": count(calls), "op_time": time(total(ops))}
        | _bus(ledger.device),
        confidence="measured",
    )


def _told(device: DeviceLedger | None) -> Iterator[str]:
    """The dearest kind: its rate on the bus, and what of it was waiting."""
    if device is None or not device.transfers:
        return
    one, link = device.transfers[0], link_rate(device.name)
    of = f", {share(one.bus_rate / link)} of the link's data sheet" if link else ""
    yield f"; {one.kind}s of {size(one.bytes / one.calls)} ran at {byte_rate(one.bus_rate)} on the bus{of}"
    if one.ns - one.fastest_ns >= WAITED * one.ns:
        yield (
            f", {duration(one.ns - one.fastest_ns)} of their {duration(one.ns)} more than the fastest of each size "
            "takes: later ranks, or a link that others use"
        )


def _far_below(device: DeviceLedger | None) -> Iterator[str]:
    """Kinds that even at their fastest leave a link idle that is there, with messages that are large enough for it."""
    if device is None or not (link := link_rate(device.name)):
        return
    for one in device.transfers:
        at_best = one.bus_bytes / one.fastest_ns * 1e9 if one.fastest_ns else 0.0
        if at_best < FAR * link and one.bytes >= LARGE * one.calls:
            yield one.kind


def _bus(device: DeviceLedger | None) -> dict[str, Quantity]:
    """Bus bandwidth by kind, beside the link's data sheet; nothing where the file has no sizes."""
    if device is None or not device.transfers:
        return {}
    found = {}
    for one in device.transfers:
        name = one.kind.replace("-", "_")
        found[f"{name}_bus"] = Quantity(round(one.bus_rate), "B/s")
        found[f"{name}_time"] = time(one.ns)
        found[f"{name}_beyond_fastest"] = time(one.ns - one.fastest_ns)
    link = link_rate(device.name)
    return found | ({"link": Quantity(round(link), "B/s")} if link else {})
