"""Why a program ran out of memory, in a sentence, with how much was missing and what would have made it fit."""

from __future__ import annotations

import msgspec

from gobrrr.recording.model.out_of_memory import OutOfMemory
from gobrrr.rules.memory.shortage import Shortage, crowded, groups, kept_by_container, shortage, spare, unseen
from gobrrr.rules.memory.way import Way, with_together
from gobrrr.rules.memory.ways import ways
from gobrrr.rules.verdict.place import Source, no_source
from gobrrr.rules.verdict.place import short as place
from gobrrr.units import calls, several, size

MAIN = 0.5
"""Share of what is in use from which one role, holder or result is the reason (proposed)."""
SCATTERED = 0.1
"""Share of what torch has reserved that must be free before fragmentation is the reason (proposed: pytorch #35901 and
its like tell of half; a few percent are always between tensors)."""
SEGMENT = 64 << 20
"""Bytes beyond a request that the driver must have free before it is called room: torch asks for segments of up to
20 MiB, and contexts keep some."""
BESIDE = 256 << 20
"""Bytes of context and libraries from which they are told."""
_ROLES = {"activations": "activations kept for backward", "variables": "variables of the failed lines",
          "optimizer state": "the optimizer's state", "other tensors": "tensors that the program keeps",
          "forward activations": "results of layers that the failed forward still needs",
          "arrays": "arrays that the program keeps",
          "Python numbers": "numbers that are Python objects"}  # fmt: skip


class Diagnosis(msgspec.Struct, frozen=True):
    """An allocation that failed, why it did, and the ways that would have made it fit."""

    failed: OutOfMemory
    sentence: str
    reason: str
    shortage: Shortage
    ways: tuple[Way, ...] = ()
    schema: str = "gobrrr.out-of-memory/1"


def diagnosis(oom: OutOfMemory, source: Source = no_source) -> Diagnosis:
    """Return why a program ran out of memory and what would have made it fit. `source` reads a line of it."""
    short = shortage(oom)
    line = source(oom.lines[0].file, oom.lines[0].line) if oom.lines else ""
    return Diagnosis(
        oom, _sentence(oom), _reason(oom, short), short, tuple(with_together(ways(oom, short, line), short))
    )


def _sentence(oom: OutOfMemory) -> str:
    name, op = oom.in_backward or ("", "")
    name = oom.layer or name
    layer = f", layer {name}" if name else f", backward of {op}" if op else ""
    at = f" at {place(oom.lines[0])}{layer}" if oom.lines else ""
    first = "in the first step" if oom.phase in ("forward", "backward", "optimizer") else "before the first step"
    step = "" if oom.steps is None else f"after {several('step', oom.steps)}" if oom.steps else first
    when = ", ".join(filter(None, (oom.phase, step)))
    said = f"{f' {size(oom.asked)} asked' if oom.asked else ''}{at}"
    return f"Out of memory{':' if said else ''}{said}{f' ({when})' if when else ''}"


def _reason(oom: OutOfMemory, short: Shortage) -> str:
    """Return in a sentence why it did not fit."""
    roles = oom.roles()
    total, (role, held) = sum(roles.values()), next(iter(roles.items()), ("", 0))
    kept = kept_by_container(oom)
    grew = f"{kept.name} keeps {kept.length:,} tensors, {calls(kept.growth_per_step)} more per step" if kept else ""
    if oom.kind == "killed":
        return (
            f"The kernel ended the process: the machine or its group had no memory left{f'; {grew}' if grew else ''}."
        )
    if oom.kind == "worker":
        if "Bus error" in oom.text or "shared memory" in oom.text:
            return (
                "A worker of the loader found no room in shared memory (/dev/shm), through which workers send batches."
            )
        return "A worker of the loader was killed: the machine or its group had no memory left."
    if told := _of_device(oom):
        return told
    if grew:
        return f"Memory grew: {grew}."
    if oom.carried and oom.steps:
        return f"{oom.carried} brings the graph of the {several('step', oom.steps)} before."
    if oom.summed:
        name, terms = oom.summed[0]
        return f"{name} is a sum of {terms:,} results that all keep their graphs."
    if short.limit and short.asked > short.limit:
        return f"This one result is larger than all memory that {short.whose} has."
    if short.used and short.asked > MAIN * (short.used + short.asked):
        return "This one result is larger than all that is in use."
    if not total:
        return _unseen(oom, short)
    if short.asked > total:
        return "This one result is larger than all tensors and arrays that are alive."
    if total < unseen(oom):
        return "Most of it is not seen from Python: temporaries of one op, libraries, objects, or freed memory."
    start = "" if oom.steps else ": too large from the start"
    if held > MAIN * total:
        first = next(iter(groups(oom, role)), None)
        where = f", most of it in {first.name}" if first and first.name and first.num_bytes > MAIN * held else ""
        return f"{size(held)} is held by {_ROLES.get(role, role)}{where}{start}."
    return f"Memory was full: {', '.join(f'{size(held)} {role}' for role, held in list(roles.items())[:3])}."


def _of_device(oom: OutOfMemory) -> str:
    """The reason by an accelerator's own figures, where those say enough."""
    device = oom.device
    if device is None or not oom.on_device:
        return ""
    asked, total = oom.asked or 0, device.total or 0
    if total and asked > total:
        return "This one result is larger than the whole device."
    if total and (device.allocated or 0) > total:
        return "The driver has moved tensors into the host's memory already: they are more than the device holds."
    if held := crowded(oom):
        return f"Others hold {size(held)} of the device's {size(total)}."
    if asked and device.free and device.free > asked + SEGMENT:
        return "The device has room for it: a limit was reached (memory fraction, MIG), or others have left since."
    if asked and spare(oom) >= asked and spare(oom) > SCATTERED * (device.reserved or 0):
        return f"Torch has {size(spare(oom))} reserved and free, but no block of {size(asked)}: memory is fragmented."
    return ""


def _unseen(oom: OutOfMemory, short: Shortage) -> str:
    """The reason where nobody looked at what was alive."""
    device = oom.device
    if device is None or not oom.on_device:
        return "The host's memory, or the process's limit, had no room for it; what held it is not known."
    if not device.allocated:
        return "The device is full, for a library beside torch too; the message has no figures."
    beside = (device.in_process or 0) - (device.reserved or device.allocated)
    more = f"; context and libraries take {size(beside)} more" if beside > BESIDE else ""
    return f"The program's tensors hold {size(device.allocated)} of {size(device.total or device.allocated)}{more}."
