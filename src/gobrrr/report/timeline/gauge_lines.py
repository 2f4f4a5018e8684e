"""The gauges over the run's time, decimated, with the loop and the closer looks; out of a recording. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gobrrr.ledger.device.gauged import is_used
from gobrrr.recording.run_folder.run import Recording

POINTS, DEVICES = 200, 16
"""Points of a line, and devices, at most."""


class GaugeLine(NamedTuple):
    """One gauge: its name, its points (ns since the first sample, mean of what was read around it) and its limit."""

    name: str
    points: tuple[tuple[int, float], ...]
    limit: float | None = None


class GaugeLines(NamedTuple):
    """Lines by device, the processor's last; when the loop ran and when it was looked at closely, ns."""

    ns: int
    devices: tuple[tuple[str, tuple[GaugeLine, ...]], ...]
    loop: tuple[int, int] | None = None
    windows: tuple[tuple[int, int], ...] = ()


def gauge_lines(recording: Recording) -> GaugeLines | None:
    """Return them for the devices that the program uses; None where no gauges were sampled."""
    if recording.gauges is None or len(recording.gauges.samples) < 2:
        return None
    head, samples = recording.gauges.head, recording.gauges.samples
    begin, whole = samples[0].t, samples[-1].t - samples[0].t
    at = np.array([sample.t - begin for sample in samples], float)

    def drawn(name: str, values: Sequence[float | None], limit: float | None = None) -> list[GaugeLine]:
        told = np.array(values, float)  # None becomes NaN
        known = np.isfinite(told)
        pieces = np.minimum((at[known] * POINTS / whole).astype(int), POINTS - 1)
        points = [(int(at[known][pieces == each].mean()), float(told[known][pieces == each].mean()))
                  for each in np.unique(pieces)]  # fmt: skip
        return [GaugeLine(name, tuple(points), limit)] if len(points) > 1 else []

    found = []
    for i, device in enumerate(head.devices[:DEVICES]):
        if is_used(i, samples):
            read = [sample.devices[i] for sample in samples]
            found.append((device.name, (
                *drawn("busy", [each.busy for each in read], 1.0),
                *drawn("power", [each.watts for each in read], device.limit_w),
                *drawn("clock", [each.clock_mhz for each in read], device.most_clock_mhz),
                *drawn("memory", [each.used for each in read], device.memory_bytes),
            )))  # fmt: skip
    joules = np.array([sample.cpu_joules for sample in samples], float)
    watts = np.diff(joules, prepend=np.nan) / np.diff(at, prepend=np.nan) * 1e9
    watts[watts < 0] = np.nan  # the counter began anew
    found.append(("processor", tuple(drawn("power", watts.tolist()))))
    steps = recording.main.steps if recording.main is not None else ()
    spans = [(max(0, a - begin), min(whole, b - begin)) for a, b in (
        *([(steps[0].start, steps[-1].end)] if steps else []), *((each.began, each.ended) for each in recording.windows)
    )]  # fmt: skip
    devices = tuple((name, lines) for name, lines in found if lines)
    windows = tuple(span for span in spans[bool(steps) :] if span[0] < span[1])
    return GaugeLines(whole, devices, spans[0] if steps else None, windows) if devices else None
