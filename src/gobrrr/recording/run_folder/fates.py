"""The fate of each op's result: read in part, of use to no weight, or computed before; by the dataflow window."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gobrrr.recording.run_folder.dataflow_file import NO_WEIGHT, steps_of
from gobrrr.recording.run_folder.earlier_graphs import earlier_graphs
from gobrrr.recording.run_folder.outer_ops import ENGINE, Step
from gobrrr.recording.run_folder.repeated_ops import repeated_ops
from gobrrr.recording.run_folder.unread_results import for_no_weight, partly_read
from gobrrr.recording.trace_files.limits import Limits

ANY = ("any",)
"""Stands for all shapes: batches may be as long as they like."""
Fates = dict[tuple[str, tuple[Any, ...], bool], tuple[float, ...]]
"""By an op's name, the shapes of its tensors (and ANY), and whether it is backward's, for each of its calls in a step:
CONSTANT, TWICE, NO_WEIGHT, EARLIER, CARRIED, the share of its result that is read where it is small (below 1), or 0.
Where all are 0 it is left out."""


def fates(path: Path, unchanged: Sequence[str], limits: Limits, own: Sequence[str] = ()) -> Fates:
    """Read them from a dataflow window's file; empty where it holds fewer than two whole steps. `unchanged`, `own`:
    kinds of tensors, as of repeated_ops(); own is given for what only infers.

    Raises OSError, UnicodeDecodeError and msgspec's errors where the file cannot be read.
    """
    *steps, rest = steps_of(path, limits)
    if len(steps) < 2:
        return {}
    *before, step, after = map(Step, steps)
    unread = {
        **earlier_graphs(before, step), **dict.fromkeys(for_no_weight(before, step, after), NO_WEIGHT),
        **partly_read(step, after),
    }  # fmt: skip
    found, known = _by_key(step, unread), _by_key(after, repeated_ops(steps, rest, unchanged, own))
    for key, calls in known.items():
        others = found.get(key, calls)
        found[key] = tuple(map(max, calls, others)) if len(others) == len(calls) else calls
    return found


def _by_key(step: Step, known: Mapping[int, float]) -> Fates:
    calls: dict[Any, list[float]] = defaultdict(list)
    for op in step.every:
        for shapes in (op.key[1], ANY):
            calls[op.name, shapes, step.within(op, ENGINE)].append(known.get(op.id, 0))
    return {key: tuple(each) for key, each in calls.items() if any(each)}
