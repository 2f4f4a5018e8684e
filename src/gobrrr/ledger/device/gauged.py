"""The gauges' samples become figures of the steps: energy by counters, clocks while at work, memory by whom. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from statistics import fmean, median

import numpy as np

from gobrrr.ledger.model.gauged import DeviceGauged, Gauged
from gobrrr.machine.gauges.counter import LEAST_NS, USED
from gobrrr.machine.gauges.readings import NO_ANSWER, GaugedDevice, Link, Sample
from gobrrr.recording.model.steps import Step
from gobrrr.recording.model.vitals import plain_stretches
from gobrrr.recording.run_folder.gauges_file import Gauges
from gobrrr.recording.run_folder.run import Ints

SECOND = 1_000_000_000  # ns
MISSED = 0.05
"""Share of the steps' time that may lie behind the last sample: they are taken to need what the others need."""
AT_WORK = 0.5
"""Share of a sampling period in which a device works, from which its clock is that of work. Proposed."""
HUNG_S = 2.0
"""Seconds without a sample from which the driver is said to give no answer (proposed)."""
FEW = 5
"""Samples that are too few for a clock."""
BEFORE_NS = SECOND // 2
"""After the first sample, before which the program is not started: Python and torch are still being loaded."""


def gauged(gauges: Gauges | None, events: Ints, plain: list[Step], every: Sequence[Step]) -> Gauged | None:
    """Return the figures of the loop outside of closer looks; None where nobody sampled. `every`: all of its steps."""
    if gauges is None:
        return None
    if not plain or not gauges.samples:
        return Gauged(samples=len(gauges.samples), why_none=gauges.head.why_none)
    stretches = plain_stretches(events, plain)
    steps = sum(any(a <= step.start and step.end <= b for a, b in stretches) for step in every)
    first, last = plain[0].start, plain[-1].end
    inside = [sample for sample in gauges.samples if first <= sample.t <= last]
    begun = min(gauges.samples[0].t + BEFORE_NS, int(events[0, 0]) if len(events) else first)
    before = [sample for sample in gauges.samples if sample.t <= begun]
    per_step = _per_step(gauges.samples, stretches, steps)
    devices = tuple(
        _device(device, i, gauges.samples, inside, before, per_step) for i, device in enumerate(gauges.head.devices)
        if is_used(i, gauges.samples)
    )  # fmt: skip
    seconds = sum(b - a for a, b in stretches) / SECOND
    late = (last - gauges.samples[-1].t) / SECOND
    hung = f"{NO_ANSWER} for the last {late:.0f} s" if late > max(HUNG_S, 3 * _apart(gauges.samples)) else ""
    why = "; ".join(filter(None, (gauges.head.why_none, hung)))
    return Gauged(devices, per_step(lambda sample: sample.cpu_joules), seconds, len(inside), why)


def _apart(samples: Sequence[Sample]) -> float:
    """Seconds between the last two samples."""
    return (samples[-1].t - samples[-2].t) / SECOND if len(samples) > 1 else 0.0


Counter = Callable[[Sample], float | None]


def _per_step(
    samples: Sequence[Sample], stretches: list[tuple[int, int]], steps: int
) -> Callable[[Counter], float | None]:
    """Return the function from a counter to joules per step; None where it is not there, or steps are too short."""

    def joules(counter: Counter) -> float | None:
        known = [(sample.t, value) for sample in samples if (value := counter(sample)) is not None]
        times, values = np.array(known, float).reshape(-1, 2).T
        last = known[-1][0] if known else 0
        covered = [(a, min(b, last)) for a, b in stretches if known and known[0][0] <= a < last]
        length, whole = (sum(b - a for a, b in each) for each in (covered, stretches))
        if not steps or length < max(LEAST_NS, (1 - MISSED) * whole) or (np.diff(values) < 0).any():
            return None
        spent = sum(float(np.diff(np.interp([a, b], times, values))[0]) for a, b in covered)
        return spent / (steps * length / whole) or None

    return joules


def is_used(i: int, samples: Sequence[Sample]) -> bool:
    """Whether the program's processes hold memory of it; where the driver names none, whether its memory grew."""
    readings = [sample.devices[i] for sample in samples]
    if any(each.ours is not None for sample in samples for each in sample.devices):
        return any(each.ours for each in readings)
    used = _known(each.used for each in readings)
    return bool(used) and max(used) - used[0] >= USED


def _device(
    device: GaugedDevice, i: int, samples: Sequence[Sample], inside: Sequence[Sample], before: Sequence[Sample],
    per_step: Callable[[Counter], float | None],
) -> DeviceGauged:  # fmt: skip
    during, early = ([sample.devices[i] for sample in part] for part in (inside, before))
    everything = [sample.devices[i] for sample in samples]
    working = [each for each in during if each.clock_mhz and (each.busy is None or each.busy >= AT_WORK)]
    free = [each.clock_mhz for each in working if not each.why and each.clock_mhz]
    reasons = {reason for each in working for reason in each.why}
    held = ((reason, sum(reason in each.why for each in working) / len(working)) for reason in reasons)
    errors = _known(each.errors for each in everything)
    others = _known(each.others for each in everything)
    return DeviceGauged(
        device.name, _mean(each.busy for each in during), _mean(each.sm for each in during),
        _mean(each.tensor for each in during), _mean(each.watts for each in during), device.limit_w,
        device.default_limit_w, per_step(lambda sample: sample.devices[i].joules),
        median(each.clock_mhz for each in working if each.clock_mhz) if len(working) >= FEW else None,
        device.most_clock_mhz, median(free) if len(free) >= FEW else None,
        tuple(sorted(held, key=lambda each: (-each[1], each[0]))),
        max(_known(each.celsius for each in during), default=None), device.memory_bytes,
        max(_known(each.used for each in everything), default=None),
        max(_known(each.ours for each in everything), default=None),
        int(median(others)) if others else max(_known(each.used for each in early[:1]), default=None),
        _mean(each.busy for each in early),
        max((each.link for each in everything if each.link), key=_wide, default=None), device.persistent,
        sum(max(0, b - a) for a, b in pairwise(errors)) if errors else None,
    )  # fmt: skip


def _wide(link: Link) -> tuple[int, int]:
    return link.generation * link.width, link.width


def _known(values: Iterable[float | None]) -> list[int]:
    return [int(value) for value in values if value is not None]


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
