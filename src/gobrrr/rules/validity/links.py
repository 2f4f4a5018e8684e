"""BRR909: can the device's work be tied to the calls that launched it, and these to one process and one clock?"""

from __future__ import annotations

from collections.abc import Iterator

from gobrrr.ledger.device.device_side import may_overlap
from gobrrr.ledger.model.device import DeviceLedger
from gobrrr.ledger.model.ledger import Ledger
from gobrrr.machine.model.machine import Machine
from gobrrr.rules.model.evidence import ratio, time
from gobrrr.rules.model.finding import Cause, rule
from gobrrr.rules.validity.measurement import MOSTLY, REPLAYED, doubt
from gobrrr.units import duration, share

OVERLAP = 0.01
"""Share of the device's work from which it is told (proposed): at most 0.0024 in 18 real traces."""
HARDLY_IDLE = 0.05
"""Share of the step that a device idles below which no host could make it faster (proposed)."""


@rule("BRR909", "host")
def device_work_without_a_launch(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Kernels that a graph replayed, or whose launch was not recorded, belong to no op and no line; launches whose
    kernels are not there leave the device idle where it worked."""
    device = ledger.device
    if device is None and "launches" in ledger.signals:
        yield doubt(
            "critical",
            "kernels were launched, and none of them is in the file: what the device did, and when, is not known",
            "Record again with nsys profile --trace=cuda,nvtx and no other profiler beside."
            if "nsys" in ledger.signals
            else "Record again with the accelerator's activities (ProfilerActivity.CUDA) and no other profiler beside.",
            {"not_recorded": ratio(1.0)},
        )  # fmt: skip
    yield from _impossible(ledger)
    if device is not None:
        yield from _unknown(ledger, device)


def _unknown(ledger: Ledger, device: DeviceLedger) -> Iterator[Cause]:
    """Work that no launch in the file explains, and launches without their work."""
    most, what, advice = max(
        (
            device.replayed_share,
            f"{share(device.replayed_share)} of the device's time was launched by replaying graphs: which op or line "
            "it belongs to cannot be told",
            "Record the same steps without CUDA graphs for causes; busy and idle hold as they are.",
        ),
        (
            device.unlinked_share,
            f"of {share(device.unlinked_share)} of the device's events the launch was not recorded: which op or line "
            "they belong to cannot be told",
            "Record again from a step earlier, so that what launched them is in the file.",
        ),
        (
            device.unseen_share,
            f"{share(device.unseen_share)} of the kernels that were launched are not in the file: the device may have "
            "worked where it looks idle",
            "Record again, with larger buffers of the profiler or fewer steps, so that no kernel is dropped.",
        ),
        (
            device.captured_share,
            f"{share(device.captured_share)} of the launches were captured into a graph and ran nothing: this makes a "
            "graph, and is no step",
            "Record what replays it, or the same steps without CUDA graphs for causes.",
        ),
        key=lambda told: told[0],
    )
    if most < REPLAYED:
        return
    # Graphs launched in a run that was watched leave its steps, busy and idle time as they are, and a device that
    # hardly idles is bound by its own work, whoever launched it: these are judged.
    stays = most == device.replayed_share and "offline" not in ledger.signals
    works = most in (device.replayed_share, device.unlinked_share) and device.idle_ns < HARDLY_IDLE * ledger.wall
    yield doubt(
        "note" if most < MOSTLY else "warning" if stays or works else "critical",
        what,
        advice,
        {
            "replayed": ratio(device.replayed_share),
            "unlinked": ratio(device.unlinked_share),
            "not_recorded": ratio(device.unseen_share),
            "captured": ratio(device.captured_share),
        },
    )  # fmt: skip


def _impossible(ledger: Ledger) -> Iterator[Cause]:
    """Links that cannot be: between processes, and from a launch to what ran before it."""
    if "joined" in ledger.signals:
        yield doubt(
            "critical",
            "ops of several processes are in this one file: which of them launched what cannot be told",
            "Give the file that each process wrote, as it is: gobrrr diagnose RANK0.json RANK1.json",
        )  # fmt: skip
    device = ledger.device
    if device is not None and device.overlap_share >= OVERLAP:
        yield doubt(
            "critical" if device.overlap_share >= (MOSTLY if may_overlap(device.capability) else REPLAYED) else "note",
            f"kernels of one stream overlap in {share(device.overlap_share)} of the device's work: their times cannot "
            "be right",
            "Record again; give one file of one process and one device, as the profiler wrote it.",
            {"overlap": ratio(device.overlap_share)},
        )  # fmt: skip
    if device is not None and device.ahead_ns > 0:
        yield doubt(
            "critical" if device.ahead_ns > REPLAYED * ledger.wall else "note",
            f"kernels begin {duration(device.ahead_ns)} before they are launched: the clocks differ, so what the "
            "device idles for is not known",
            "Record again, with warm-up steps in the profiler's schedule; a newer driver or torch mends the clocks.",
            {"ahead": time(device.ahead_ns)},
        )  # fmt: skip
