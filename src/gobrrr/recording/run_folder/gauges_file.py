"""The gauges that were sampled beside a run, read back: lines of JSON, each checked; what is torn is left out."""

from __future__ import annotations

from pathlib import Path

import msgspec

from gobrrr.machine.gauges.readings import Head, Sample
from gobrrr.system import files
from gobrrr.system.run_folder import GAUGES

MOST = 256 << 20
"""Bytes that are read: days of ten devices."""


class Gauges(msgspec.Struct, frozen=True):
    """What the gauges said while a program ran."""

    head: Head
    samples: tuple[Sample, ...] = ()

    def silent_ns(self, end: int) -> int:
        """Return the ns until `end` (steady) in which the driver gave no sample: it hung, or was ended."""
        return max(0, end - self.samples[-1].t) if self.samples else 0


def read_gauges(folder: Path) -> Gauges | None:
    """Return them; None where nobody sampled, or the file is none of ours."""
    try:
        first, *rest = files.read(folder / GAUGES, MOST).splitlines()
        head = msgspec.json.decode(first, type=Head)
    except (OSError, ValueError, msgspec.MsgspecError):
        return None
    samples: list[Sample] = []
    for line in rest:
        try:
            found = msgspec.json.decode(line, type=Sample)
        except (ValueError, msgspec.MsgspecError):
            continue
        if len(found.devices) == len(head.devices) and (not samples or found.t > samples[-1].t):
            samples.append(found)
    return Gauges(head, tuple(samples))
