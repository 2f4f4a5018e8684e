"""The optimizer update that a window ends in: the profiler stops before torch closes its annotation, and drops it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gobrrr.ledger.steps.step_windows import within
from gobrrr.recording.model import event_kinds
from gobrrr.recording.model.trace import USER_ANNOTATION, Ops
from gobrrr.recording.run_folder.run import Recording, Window

Ints = npt.NDArray[np.int64]
_STEP = "Optimizer.step#"


def with_open_updates(
    recording: Recording, window: Window, ops: Ops, names: tuple[str, ...], spans: Ints
) -> tuple[Ops, tuple[str, ...]]:
    """`ops`, those within `spans`, with an annotation for every update that the journal has there and the trace has
    not, named as torch would name it."""
    events = recording.events
    begun = events[(events[:, 1] == event_kinds.UPDATE_BEGIN) & within(events[:, 0] + window.offset, spans)]
    for begin, _, number, _ in begun.tolist():
        if len(ops) and not _annotated(ops, names, begin + window.offset):
            end = _end(recording, window, begin, number)
            names = names if (name := _name(recording, number)) in names else (*names, name)
            ops = ops.with_rows([names.index(name)], [begin + window.offset], [end - begin], USER_ANNOTATION)
    return ops, names


def _annotated(ops: Ops, names: tuple[str, ...], time: int) -> bool:
    around = (ops.kind == USER_ANNOTATION) & (ops.start <= time) & (ops.start + ops.dur >= time)
    return any(names[number].startswith(_STEP) for number in np.unique(ops.name[around]).tolist())


def _end(recording: Recording, window: Window, begin: int, number: int) -> int:
    """When the update ended: a journal cut short has no end for its last one, the window's stands for it."""
    events = recording.events
    ends = events[(events[:, 1] == event_kinds.UPDATE_END) & (events[:, 2] == number) & (events[:, 0] >= begin), 0]
    return min(int(ends[0]), window.ended) if len(ends) else window.ended


def _name(recording: Recording, number: int) -> str:
    for facts in recording.raw_facts:
        entries = facts.get("optimizers")
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict) and entry.get("id") == number and entry.get("kind"):
                return f"{_STEP}{entry['kind']}.step"
    return f"{_STEP}Optimizer.step"
