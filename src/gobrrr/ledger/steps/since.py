"""What became of the steps since the run's first ones, or since the look before, where a look was asked for: Since."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from gobrrr.ledger.comparison import counterparts
from gobrrr.ledger.device.gauged import gauged
from gobrrr.ledger.model.since import Since
from gobrrr.ledger.ops.op_times import op_times
from gobrrr.ledger.steps.median_interval import mean_interval
from gobrrr.ledger.steps.step_stats import rests_told
from gobrrr.ledger.steps.step_windows import step_spans
from gobrrr.ledger.steps.watching_cost import watching
from gobrrr.recording.model import event_kinds as ev
from gobrrr.recording.model.facts import HeldGraph
from gobrrr.recording.model.steps import Step
from gobrrr.recording.model.vitals import memory_kind
from gobrrr.recording.model.warmup import warmup
from gobrrr.recording.run_folder.run import Recording

FEWEST, MOST, BEGIN = 10, 200, 0.1
"""Steps then and now below which nothing is said; the most of then, and the share of the time until the look in which
they lie: steps that lengthen have done so soon."""
BLOCKS = 5
"""Stretches of steps whose medians make an interval: steps that follow each other are slow together."""
GREW, GREW_BYTES = 0.02, 16 << 20
"""Share and bytes by which memory is told to have changed (proposed: allocators keep some MiB more with time)."""
CLOCKED = 0.05
"""Change of a device's clock from which it is told (proposed)."""
READINGS = 5
"""Readings of memory that say how much it was then."""
OPS, OP_SHARE = 3, 0.02
"""Ops that are named, and the share of the step by which each must have changed."""


def since(recording: Recording, plain: list[Step], held: Sequence[HeldGraph] = ()) -> Since | None:
    """Return the change until the look that counts, to `plain`, the ledger's steps; null where none was asked for, or
    too few steps came before."""
    main, look = recording.main, recording.look
    if main is None or not look:
        return None
    sizes, rests = {step.sizes for step in plain}, bool(rests_told(recording, watching(recording)))
    usual = [step for step in main.steps if (step.rests if rests else step.plain) and step.sizes in sizes]
    early = _early([step for step in usual if step.end <= look], recording)
    late = [step for step in usual if plain and step.start >= plain[0].start]
    if min(len(early), len(late)) < FEWEST or late[0].start < look:
        return None
    then, now = (float(np.median([step.wall for step in steps])) for steps in (early, late))
    (least, most), (low, high) = (_interval(steps) for steps in (early, late))
    if least <= 0:  # no clock of ours stands still: a damaged file
        return None
    begin = recording.earlier[0].began if recording.earlier is not None else early[0].start
    found = Since(
        step=1 + sum(step.end <= begin for step in main.steps), looked=recording.earlier is not None, then_ns=then,
        now_ns=now, low=low / most - 1, high=high / least - 1, clocks=_clocks(recording, early, plain),
        memory=_grew(recording, memory_kind(recording.events), early[0].start),
        device_memory=_grew(recording, ev.DEVICE, early[0].start),
        kept=tuple((each.name, each.length) for each in held if each.growth_per_step >= 0.5)[:1],
    )  # fmt: skip
    return msgspec.structs.replace(found, ops=_ops(recording, now)) if found.changed else found


def _early(before: list[Step], recording: Recording) -> list[Step]:
    """The first of the steps before the look: since our facts were noted or a look was over, where those are enough."""
    events, look = recording.events, recording.look
    marks = events[np.isin(events[:, 1], (ev.ASIDE, ev.WINDOW_END)) & (events[:, 0] < look), 0]
    last = int(marks.max(initial=0))
    found = [step for step in before if step.start >= last]
    found = found if len(found) > FEWEST else before
    found = found[warmup([step.wall for step in found]) :]
    end = found[0].start + BEGIN * (look - found[0].start) if found else 0
    return found[: max(FEWEST, min(MOST, sum(step.end <= end for step in found)))]


def _interval(steps: list[Step]) -> tuple[float, float]:
    """95 % interval of the length of a step, by the medians of stretches."""
    blocks = np.array_split([float(step.wall) for step in steps], BLOCKS)
    return mean_interval([float(np.median(block)) for block in blocks])


def _grew(recording: Recording, kind: int, begin: int) -> int | None:
    """Bytes more at the look, before its own windows, which the profiler fills, than at the begin."""
    events, look = recording.events, recording.look
    opened = events[(events[:, 1] == ev.WINDOW_BEGIN) & (events[:, 0] >= look), 0]
    end = opened.min(initial=np.iinfo(np.int64).max)
    t, size = events[events[:, 1] == kind][:, [0, 3]].T
    then, now = size[(t >= begin) & (t < look)][:READINGS], size[(t >= look) & (t < end)]
    if not len(then) or not len(now):
        return None
    grew = float(np.median(now) - np.median(then))
    return round(grew) if abs(grew) >= max(GREW_BYTES, GREW * float(np.median(then))) else None


def _clocks(recording: Recording, early: list[Step], late: list[Step]) -> tuple[tuple[str, float, float], ...]:
    """Clocks of the devices at work, where they are others now."""
    then, now = (gauged(recording.gauges, recording.events, steps, steps) for steps in (early, late))
    pairs = zip(then.devices if then else (), now.devices if now else (), strict=False)
    known = ((a.name, a.clock_mhz, b.clock_mhz) for a, b in pairs if a.clock_mhz and b.clock_mhz)
    return tuple((name, a, b) for name, a, b in known if abs(b / a - 1) >= CLOCKED)


def _ops(recording: Recording, step_ns: float) -> tuple[tuple[str, float, float], ...]:
    """Ops whose time changed most between two looks."""
    window, trace = recording.window("profile"), recording.trace
    if recording.earlier is None or window is None or trace is None:
        return ()
    looks = (recording.earlier, (window, trace))
    times = [op_times(seen, step_spans(recording, each) + each.offset) for each, seen in looks]
    rows = sorted(counterparts(times[0], times[1]), key=lambda row: (-abs(row.delta), row.name, row.shapes))
    return tuple((row.name, *row.ns) for row in rows[:OPS] if abs(row.delta) >= OP_SHARE * step_ns)
