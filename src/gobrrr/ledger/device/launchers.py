"""Which op launched a kernel: the innermost one that is open on the launching thread when the launch begins."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gobrrr.recording.model.trace import Kernels, Ops, Runtime, launch_rows

Rows = npt.NDArray[np.int64]


def launchers(kernels: Kernels, launches: Runtime, ops: Ops, parent: npt.NDArray[np.int32]) -> Rows:
    """For every kernel the row of its op in `ops`, sorted by start; -1 where its launch is unknown or lies in none."""
    row = launch_rows(kernels, launches)
    found = np.full(len(kernels), -1, np.int64)
    found[row >= 0] = innermost(ops, parent, launches.start, launches.thread)[row[row >= 0]]
    return found


def time_launched(kernels: Kernels, launcher: Rows, num_rows: int) -> Rows:
    """ns of the kernels that each of so many rows launched itself; `launcher`: the row of each, -1 where not known."""
    found = np.zeros(num_rows, np.int64)
    np.add.at(found, launcher[launcher >= 0], kernels.dur[launcher >= 0])
    return found


def innermost(ops: Ops, parent: npt.NDArray[np.int32], times: Rows, threads: npt.NDArray[np.int32]) -> Rows:
    """The row of the innermost op that is open on a thread at a time, -1 where none is; of many of both."""
    found = np.full(len(times), -1, np.int64)
    ends = ops.start + ops.dur
    for thread in np.unique(threads).tolist():
        mine, rows = np.flatnonzero(threads == thread), np.flatnonzero(ops.thread == thread)
        if not len(rows):
            continue
        before = np.searchsorted(ops.start[rows], times[mine], "right") - 1
        row = np.where(before >= 0, rows[np.maximum(before, 0)], -1)
        while np.any(closed := (row >= 0) & (ends[np.maximum(row, 0)] <= times[mine])):
            row[closed] = parent[row[closed]]
        found[mine] = row
    return found
