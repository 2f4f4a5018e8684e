"""Which collectives did threads of the host carry, as gloo's, in the profiled steps? Told as those of a device are.

A call is known on all ranks by the number of its step, from the first that was made, and which of its kind it is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import msgspec
import numpy as np
import numpy.typing as npt

from gobrrr.ledger.job.calls import CALLS, NAMES, ROW, Calls, GroupCalls, numbers
from gobrrr.ledger.job.collectives import kind_of
from gobrrr.ledger.job.own_steps import step_ends
from gobrrr.ledger.steps.step_windows import step_spans
from gobrrr.ledger.work.tensor import element
from gobrrr.recording.model.trace import Signature
from gobrrr.recording.run_folder.run import Recording

OF_HOST = ("gloo:", "mpi:", "ucc:")
"""How the names of such calls begin."""


def host_calls(recording: Recording, world_size: int, most: int = CALLS) -> tuple[Calls, int]:
    """(the first `most` collectives of the profiled steps, steps); none where a device carries them."""
    window, trace, main = recording.window("profile"), recording.trace, recording.main
    if window is None or trace is None or main is None or not window.steps:
        return Calls(), 0
    spans = step_spans(recording, window) + window.offset
    ours = np.array([name.startswith(OF_HOST) for name in trace.names], bool)
    ops = trace.ops.take(ours[trace.ops.name] & (trace.ops.dur > 0))
    ops = ops.take((ops.start >= spans[0, 0]) & (ops.start < spans[-1, 1]))
    if not len(ops):
        return Calls(), 0
    first = int(np.searchsorted(step_ends(recording.events, main.key), spans[0, 0] - window.offset + 1, "right"))
    names = [trace.names[name] for name in ops.name.tolist()]
    kinds = np.array([NAMES.index(kind) if (kind := kind_of(name)) else -1 for name in names], np.int64)
    ops = ops.take(np.argsort(ops.start + ops.dur, kind="stable"))
    ends = ops.start + ops.dur
    alone = ends - np.maximum(ops.start, np.append(ops.start[:1], ends[:-1]))  # several threads may wait at once
    table = np.zeros(len(ops), ROW)
    step = first + np.searchsorted(spans[:, 0], ops.start, "right")
    table["number"] = numbers(np.zeros(len(ops), np.int64), kinds, step, ops.start)
    table["kind"], table["ns"], table["bare"] = kinds, alone, alone
    table["at"], table["bare_at"] = alone[:, None], alone[:, None]
    signatures = [trace.signatures[at] if at >= 0 else Signature() for at in ops.signature.tolist()]
    table["size"] = [  # of an all-gather nccl-tests counts all ranks' parts, and each rank names its own
        _size(signature) * (world_size if name == NAMES.index("all-gather") else 1)
        for signature, name in zip(signatures, kinds.tolist(), strict=True)
    ]
    told = np.sort(table[np.argsort(ops.start, kind="stable")][:most], order="number")
    group = GroupCalls("", "all ranks", world_size, numbered=True, rows=told.tobytes())
    total = float(told["ns"].sum())
    return Calls((group,), total, total, len(told), len(table)), len(spans)


def in_common(ranks: Sequence[Calls]) -> list[Calls]:
    """The calls from the latest first one to the earliest last one: one rank's window may open a step before
    another's."""
    tables = [calls.groups[0].table() for calls in ranks if calls.groups]
    if len(tables) < len(ranks):
        return list(ranks)
    first, last = (pick(table["number"][at] for table in tables) for pick, at in ((max, 0), (min, -1)))
    kept = [table[(table["number"] >= first) & (table["number"] <= last)] for table in tables]
    return [_cut(calls, table) for calls, table in zip(ranks, kept, strict=True)]


def _cut(calls: Calls, table: npt.NDArray[np.void]) -> Calls:
    total = float(table["ns"].sum())
    group = msgspec.structs.replace(calls.groups[0], rows=table.tobytes())
    return Calls((group,), total, total, len(table), len(table))


def _size(signature: Signature) -> float:
    """Bytes of the tensors that a call was given; 0 where their types are not known."""
    sizes = [
        prod(shape) * known[1]
        for shape, dtype in zip(signature.shapes, signature.dtypes, strict=False)
        if (known := element(dtype)) is not None
    ]
    return float(sum(sizes))
