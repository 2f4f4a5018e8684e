"""The end of a program that ran out of memory: what was asked for, what held memory, and what would have fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gobrrr.recording.model.out_of_memory import DeviceState, Group, OutOfMemory
from gobrrr.report.told.blocks import Block, Fact, Groups, Line, Sentence
from gobrrr.rules.memory.out_of_memory import Diagnosis
from gobrrr.rules.memory.shortage import unseen
from gobrrr.rules.memory.way import NUM_WAYS, Way
from gobrrr.rules.verdict.place import short
from gobrrr.units import calls, several, shape_text, size

NUM_GROUPS = 3
"""Groups of a role that are told (proposed: what one screen holds)."""
OWN = 250
"""MiB of address space that watching takes (measured: 258 of a small training)."""
FITS = {True: "fits", False: "not enough alone", None: "may fit"}


def blocks(found: Diagnosis) -> Groups:
    """Return what is told of it: the failed allocation first, then who held memory, then the ways out."""
    oom = found.failed
    return [
        [Sentence((((f"{found.sentence}.", "bold red"),), found.reason))],
        [Fact("asked", list(_asked(found))), *_held(oom)],
        ways_out(found.ways),
    ]


def _asked(found: Diagnosis) -> Iterator[Line]:
    oom, short_by = found.failed, found.shortage
    given = ", ".join(f"{each.name} {shape_text(each.shape)} {each.dtype}" for each in oom.inputs)
    if given:
        yield f"with {given}"
    if len(oom.lines) > 1:
        yield "called from " + ", ".join(short(line) for line in oom.lines[1:4])
    if short_by.limit is not None:
        coming = f", {size(short_by.to_come)} of the step still to come" if short_by.to_come else ""
        yield f"{size(short_by.used)} in use of {size(short_by.limit)} that {short_by.whose} has{coming}"
        if short_by.whose.endswith("(ulimit -v)"):
            yield f"{OWN} MiB of that address space are gobrrr's own threads and reserve, though they hold no memory"
    if oom.device is not None and oom.on_device:
        yield from _device(oom.device)
    for each in oom.grown:
        at = f" at {short(each.span)}" if each.span is not None else ""
        yield f"grew: {each.name}{at} keeps {each.length:,} tensors, {calls(each.growth_per_step)} more per step"
    if not oom.alive and oom.text:
        yield f"the message: {oom.text[:160]}"
    yield from oom.notes


def _device(device: DeviceState) -> Iterator[Line]:
    known = [(device.allocated, "held by tensors"), (device.reserved, "reserved by torch"),
             (device.in_process, "in the process"), (device.others, "in other processes"), (device.free, "free"),
             (device.largest_free_block, "the largest free block")]  # fmt: skip
    said = ", ".join(f"{size(value)} {what}" for value, what in known if value is not None)
    if said:
        yield f"GPU {device.number}: {said}"
    if device.times > 1:
        yield f"{several('allocation', device.times)} failed; the cache was emptied {several('time', device.retries)}"


def _held(oom: OutOfMemory) -> list[Block]:
    """Memory by role, the largest first, and what nobody saw."""
    roles = oom.alive.get(oom.place, ())
    if not roles:
        return []
    lines: list[Line] = []
    for role in roles:
        if role.num_bytes >= 1 << 20:
            groups = ", ".join(map(_group, role.groups[:NUM_GROUPS]))
            lines.append(f"{size(role.num_bytes):>9}  {role.role}: {groups}")
    if oom.device is not None and oom.on_device:
        rest, what = (oom.device.allocated or 0) - sum(role.num_bytes for role in roles), "temporaries"
    else:
        rest, what = unseen(oom), "temporaries, objects, freed memory that is kept"
        if oom.process.runtime:
            lines.append(f"{size(oom.process.runtime):>9}  interpreter and torch, from the start")
    if rest > 0:
        lines.append(f"{size(rest):>9}  unknown: libraries, {what}")
    return [Fact("held", lines)]


def _group(group: Group) -> str:
    what = " ".join(filter(None, (group.name, group.op)))
    return f"{what + ' ' if what else ''}{group.count} x {shape_text(group.shape)} {group.dtype}"


def ways_out(ways: Sequence[Way]) -> list[Block]:
    """Return the ways, numbered, with their bytes, whether they are enough, and what becomes of the numbers."""
    lines: list[Line] = [(f"{number}. {_told(way)}",) for number, way in enumerate(ways[:NUM_WAYS], 1)]
    return [Fact("to fit", lines)] if lines else []


def _told(way: Way) -> str:
    saved = f"saves about {size(way.saves)}, " if way.saves else ""
    exact = f"; {way.exact}" if way.exact else ""
    return f"{way.what} ({saved}{FITS[way.fits]}{exact})"
