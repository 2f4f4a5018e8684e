"""How fast did collectives move their bytes? Bus bandwidth as nccl-tests defines it, from the sizes in the file.

The bus bandwidth of a call is bytes / time x a factor of its kind and the number of ranks, by which it can be held
against a link whatever the collective and however many take part (nccl-tests, doc/PERFORMANCE.md). The time is that of
the kernel on this rank, in which it also waits for later ranks: calls of the same size take at least what the fastest
of them took, and what the others take longer is waiting, or a link that others use.
"""

from __future__ import annotations

import re
from collections import defaultdict

from gobrrr.ledger.devicemodel import Transfer
from gobrrr.recording.trace import COMMUNICATION, Collective, Kernels, Trace

BYTES = {
    "double": 8, "long": 8, "float": 4, "int": 4, "half": 2, "bfloat16": 2, "short": 2, "byte": 1, "char": 1, "bool": 1,
}  # fmt: skip
_FLOAT8 = re.compile(r"float8")
KINDS = (
    ("reduce-scatter", re.compile(r"reduce_?scatter")),
    ("all-reduce", re.compile(r"all_?reduce")),
    ("all-gather", re.compile(r"all_?gather")),
    ("all-to-all", re.compile(r"all_?to_?all")),
    ("broadcast", re.compile(r"broadcast")),
    ("reduce", re.compile(r"reduce")),
    ("send", re.compile(r"send|recv")),
)


def transfers(trace: Trace, kernels: Kernels, num_steps: int) -> tuple[Transfer, ...]:
    """By kind, most time first, per step: of the collectives whose sizes the file has."""
    sized: dict[tuple[str, float, float], list[int]] = defaultdict(list)
    rows = kernels.take((kernels.kind == COMMUNICATION) & (kernels.collective >= 0) & (kernels.dur > 0))
    known = {number: measure(trace.collectives[number]) for number in set(rows.collective.tolist())}
    for number, dur in zip(rows.collective.tolist(), rows.dur.tolist(), strict=True):
        if (size := known[number]) is not None:
            sized[size].append(dur)
    found = []
    for kind in sorted({kind for kind, _, _ in sized}):
        same = [(num_bytes, bus, durs) for (name, num_bytes, bus), durs in sized.items() if name == kind]
        found.append(
            Transfer(
                kind,
                calls=sum(len(durs) for _, _, durs in same) / num_steps,
                bytes=sum(num_bytes * len(durs) for num_bytes, _, durs in same) / num_steps,
                ns=sum(sum(durs) for _, _, durs in same) / num_steps,
                fastest_ns=sum(min(durs) * len(durs) for _, _, durs in same) / num_steps,
                bus_bytes=sum(bus * len(durs) for _, bus, durs in same) / num_steps,
            )
        )
    return tuple(sorted(found, key=lambda one: -one.ns))


def measure(call: Collective) -> tuple[str, float, float] | None:
    """(kind, bytes as nccl-tests counts them, those times the kind's bus factor); None where the file does not say."""
    kind = next((kind for kind, pattern in KINDS if pattern.search(call.name.lower())), None)
    dtype = call.dtype.lower().removeprefix("c10::")
    width = 1 if _FLOAT8.match(dtype) else BYTES.get(dtype)
    elements = (
        max(call.in_elements, call.out_elements) if kind in ("all-gather", "reduce-scatter") else call.in_elements
    )
    if kind is None or width is None or elements <= 0 or call.group_size < 2:
        return None
    others = (call.group_size - 1) / call.group_size
    factor = {"all-reduce": 2 * others, "all-gather": others, "reduce-scatter": others, "all-to-all": others}
    return kind, float(elements * width), elements * width * factor.get(kind, 1.0)
