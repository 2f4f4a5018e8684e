"""The gauges that were sampled beside a run, read back: lines of JSON, each checked; what is torn is left out."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec

from gobrrr.machine.gauges.readings import Head, Sample
from gobrrr.system import files
from gobrrr.system.run_folder import GAUGES

MOST = 256 << 20
"""Bytes that are read: days of ten devices."""
END = 64 << 10
"""Bytes of its begin and of its end in which the head and the newest sample lie."""


class Gauges(msgspec.Struct, frozen=True):
    """The gauges while a program ran."""

    head: Head
    samples: tuple[Sample, ...] = ()


def newest(folder: Path) -> tuple[Gauges, float] | None:
    """Return the newest sample alone, and when the file was written (Unix s), reading its ends; None without one."""
    try:
        with files.opened(folder / GAUGES) as file:
            first, written = file.readline(END), os.fstat(file.fileno()).st_mtime
            file.seek(max(len(first), file.seek(0, os.SEEK_END) - END))
            last = file.read(END).splitlines()
        head = msgspec.json.decode(first, type=Head)
    except (OSError, ValueError, msgspec.MsgspecError):
        return None
    for line in reversed(last):
        with contextlib.suppress(ValueError, msgspec.MsgspecError):  # torn: it is being written, or the end cuts it
            found = msgspec.json.decode(line, type=Sample)
            return (Gauges(head, (found,)), written) if len(found.devices) == len(head.devices) else None
    return None


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
