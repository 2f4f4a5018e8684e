"""How does one rank hand back its collectives, call by call? A few numbers of each, so that a thousand ranks fit.

A call is known on all ranks by its group and its number in it: the one that the file gives ("Seq"), else which call of
its kind and group it is in the profiler's step of that number, in the order in which they were launched. Of the part of
a call that nothing hides it keeps where it lies, as a curve over the time before the call's end: which of it is waiting
is known only beside the other ranks.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
import numpy.typing as npt

from gobrrr.ledger.device.launchers import innermost
from gobrrr.ledger.job.collectives import KINDS, kind_of, sent
from gobrrr.ledger.steps.step_windows import step_spans
from gobrrr.recording.model.trace import COMMUNICATION, Collective, Kernels, Ops, Trace, lanes, launch_rows
from gobrrr.recording.run_folder.run import Recording
from gobrrr.recording.trace_files.categories import is_communication
from gobrrr.spans import Ints, as_spans, lengths, union

Floats = npt.NDArray[np.float64]
CALLS, OF_ALL = 512, 1 << 17
"""A rank hands back so many at most, the first ones, and all ranks together: 73 bytes each, 9.1 MiB."""
KNOTS = 6
"""Points of a call's curve, beside its two ends: exact for three stretches that something hides."""
IN_A_STEP, MOST = 1 << 24, 1 << 35
"""Calls in a step, and steps, that a number of 64 bits can tell apart."""
CHARS = 200  # characters of a group's name or ranks; proposed: bounds the file; two cut to one would settle it
NAMES = tuple(kind for kind, _ in KINDS)
ROW = np.dtype(
    [("number", "<i8"), ("kind", "<i1"), ("size", "<f8"), ("ns", "<f4"), ("bare", "<f4"), ("at", "<f4", (KNOTS,)),
     ("bare_at", "<f4", (KNOTS,))]
)  # fmt: skip
"""`kind` into NAMES, -1 unknown; `size` in bytes as nccl-tests counts them, 0 unknown; `ns` of the kernel; `bare` those
with no other work beside it, `bare_at` those in its last `at` ns."""


class GroupCalls(msgspec.Struct, frozen=True):
    """One rank's calls of one process group."""

    group: str
    """As the file names it; empty where it does not, or calls it by its stream alone."""
    ranks: str
    """Ranks of the group, as text; 'stream 0' and so on where the file names no group."""
    size: int
    """Ranks in the group; 0 unknown."""
    numbered: bool
    """The file numbers the calls; else their order does."""
    rows: bytes
    """Calls as bytes, in records of ROW."""

    def table(self) -> npt.NDArray[np.void]:
        """The rows, sorted by number."""
        return np.frombuffer(self.rows, ROW)


class Calls(msgspec.Struct, frozen=True):
    """One rank's collectives in its steps."""

    groups: tuple[GroupCalls, ...] = ()
    ns: float = 0.0
    """Time in ns of all kernels of collectives that are told here, summed as they were recorded."""
    bare_ns: float = 0.0
    """Part of `ns` that nothing hides."""
    told: int = 0
    count: int = 0
    """How many there are: more than are told where they were too many."""


def calls_each(num_ranks: int) -> int:
    """How many calls each of so many ranks may hand back: memory does not grow with their number."""
    return max(1, min(CALLS, OF_ALL // num_ranks))


def calls(recording: Recording, trace: Trace, most: int = CALLS) -> Calls:
    """Return the first `most` collective kernels of the recording's steps; empty where there are none."""
    window = recording.window("profile")
    communicates = trace.kernels.kind == COMMUNICATION
    if window is None or not window.steps or not communicates.any():
        return Calls()
    spans = step_spans(recording, window) + window.offset
    kernels = trace.kernels.take(communicates & (trace.kernels.dur > 0))
    rows = launch_rows(kernels, trace.runtime)
    launched = np.where(rows >= 0, trace.runtime.start[rows], kernels.start) if len(trace.runtime) else kernels.start
    group, kind = _groups(trace, kernels), _kinds(trace, kernels, rows)
    number = numbers(group, kind, _major(trace, kernels, rows, launched), launched)
    inside = np.flatnonzero((kernels.start >= spans[0, 0]) & (kernels.start < spans[-1, 1]))
    first = inside[np.argsort(launched[inside], kind="stable")][:most]
    kernels, group = kernels.take(first), group[first]
    table = np.zeros(len(first), ROW)
    table["number"], table["kind"], table["ns"] = number[first], kind[first], kernels.dur
    table["size"] = [sent(trace.collectives[i]) if i >= 0 else 0.0 for i in kernels.collective.tolist()]
    _bare(table, kernels, trace.kernels.take(~communicates))
    found = tuple(_of_group(trace, kernels, table, np.flatnonzero(group == one)) for one in np.unique(group))
    return Calls(found, float(kernels.dur.sum()), float(table["bare"].sum()), len(first), len(inside))


def _of_group(trace: Trace, kernels: Kernels, table: npt.NDArray[np.void], rows: npt.NDArray[np.intp]) -> GroupCalls:
    said, ordered = _said(trace, kernels, int(rows[0])), np.sort(table[rows], order="number")
    ranks = said.ranks[:CHARS] or ("" if said.group else f"stream {lanes(kernels)[rows[0]]}")  # ids differ by rank
    return GroupCalls(said.group[:CHARS], ranks, max(0, said.group_size), said.seq >= 0, ordered.tobytes())


def _said(trace: Trace, kernels: Kernels, row: int) -> Collective:
    at = int(kernels.collective[row])
    return trace.collectives[at] if at >= 0 else Collective()


def _groups(trace: Trace, kernels: Kernels) -> Ints:
    """A number for each kernel's group: named by the file, else its stream's."""
    known: dict[tuple[str, str], int] = {}
    named = [known.setdefault((c.group, c.ranks), len(known)) if c.group or c.ranks else -1 for c in trace.collectives]
    by_name = np.array([*named, -1], np.int64)[kernels.collective]
    return np.where(by_name >= 0, by_name, len(known) + lanes(kernels))


def _major(trace: Trace, kernels: Kernels, rows: npt.NDArray[np.intp], launched: Ints) -> Ints:
    """The file's own number of each call, else that of the profiler's step in which it was launched; -1 before it."""
    said = np.array([*(c.seq for c in trace.collectives), -1], np.int64)[kernels.collective]
    step = np.zeros(len(kernels), np.int64)
    if len(trace.steps) and (rows >= 0).any():
        at = np.searchsorted(trace.steps.start, launched, "right") - 1
        step = np.where((at >= 0) & (rows >= 0), trace.steps.number[np.maximum(at, 0)], -1)
    return np.minimum(np.where(said >= 0, said, step), MOST)


def numbers(group: Ints, kind: Ints, major: Ints, launched: Ints) -> Ints:
    """One for each call in its group: of those of one kind and major number, the place in the order of their launches.
    Ranks send and receive as often as they please, and still count their all-reduces alike."""
    order = np.lexsort((launched, major, kind, group))
    keys = np.stack((group, kind, major))[:, order]
    places = np.arange(len(order))
    new = np.concatenate(([True], (keys[:, 1:] != keys[:, :-1]).any(axis=0)))
    nth = places - np.maximum.accumulate(np.where(new, places, 0))
    found = np.zeros(len(order), np.int64)
    found[order] = ((keys[2] * (len(NAMES) + 1)) + keys[1] + 1) * IN_A_STEP + nth
    return found


def _kinds(trace: Trace, kernels: Kernels, rows: npt.NDArray[np.intp]) -> Ints:
    """Into NAMES: by the file's own word, else by the op that launched it, else by the kernel's name."""
    ops = _around(trace, rows)
    said = [
        _code(trace.collectives[said].name if said >= 0 else "", op, trace.names[name])
        for said, op, name in zip(kernels.collective.tolist(), ops, kernels.name.tolist(), strict=True)
    ]
    return np.array(said, np.int64)


def _code(*names: str) -> int:
    kind = next((kind for name in names if (kind := kind_of(name))), None)
    return NAMES.index(kind) if kind else -1


def _around(trace: Trace, rows: npt.NDArray[np.intp]) -> Iterator[str]:
    """Names of the ops of collectives that were open when these rows of the runtime began."""
    meant = np.array([is_communication(name) and kind_of(name) is not None for name in trace.names], bool)
    ops: Ops = trace.ops.take(meant[trace.ops.name])
    at = np.maximum(rows, 0)
    if not len(ops) or not len(trace.runtime):
        return iter([""] * len(rows))
    alone = np.full(len(ops), -1, np.int32)
    found = innermost(ops, alone, trace.runtime.start[at], trace.runtime.thread[at])
    return (
        trace.names[ops.name[op]] if op >= 0 and row >= 0 else ""
        for op, row in zip(found.tolist(), rows.tolist(), strict=True)
    )


def _bare(table: npt.NDArray[np.void], kernels: Kernels, others: Kernels) -> None:
    """How much of each call no other work runs beside, and how that grows backwards from the call's end."""
    begins, ends = union(as_spans(others.start, others.dur)).T
    spans = zip(kernels.start.tolist(), (kernels.start + kernels.dur).tolist(), strict=True)
    for row, (begin, end) in enumerate(spans):
        at = slice(int(np.searchsorted(ends, begin, "right")), int(np.searchsorted(begins, end, "left")))
        hidden = np.stack((end - np.minimum(ends[at], end), end - np.maximum(begins[at], begin)), axis=1)[::-1]
        corners = hidden.reshape(-1)
        covered = np.repeat(np.cumsum(lengths(hidden)), 2)
        covered[::2] -= lengths(hidden)
        bare = corners - covered
        table["bare"][row] = (end - begin) - (covered[-1] if len(covered) else 0)
        picked = _picked(len(corners))
        table["at"][row], table["bare_at"][row] = end - begin, table["bare"][row]
        table["at"][row, : len(picked)], table["bare_at"][row, : len(picked)] = corners[picked], bare[picked]


def _picked(count: int) -> npt.NDArray[np.intp]:
    """The corners that are kept: all where they are few, else more of those near the end, where the transfer is."""
    if count <= KNOTS:
        return np.arange(count)
    return np.unique(np.geomspace(1, count, KNOTS).round().astype(int)) - 1


def bare_in_the_last(table: npt.NDArray[np.void], last: Floats) -> Floats:
    """ns of each row in which nothing runs beside it, of its last so many ns: between the knots in proportion."""
    zero = np.zeros((len(table), 1))
    x = np.concatenate((zero, table["at"], table["ns"][:, None]), axis=1).astype(float)
    y = np.concatenate((zero, table["bare_at"], table["bare"][:, None]), axis=1).astype(float)
    wide = np.diff(x)
    share = np.clip(last[:, None] - x[:, :-1], 0, wide) / np.where(wide > 0, wide, 1)
    found: Floats = (share * np.diff(y)).sum(axis=1)
    return found
