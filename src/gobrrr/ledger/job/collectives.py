"""How fast did collectives move their bytes? Bus bandwidth as nccl-tests defines it, from the sizes in the file.

The bus bandwidth of a call is bytes / time x a factor of its kind and the number of ranks, by which it can be held
against a link whatever the collective and however many take part (nccl-tests, doc/PERFORMANCE.md). The time is that of
the kernel on this rank, in which it also waits for later ranks: calls of the same size take at least what the fastest
of them took, and what the others take longer is waiting, or a link that others use. Where the other ranks' files are
there too, ledger/job/lateness.py tells waiting and transfer apart.
"""

from __future__ import annotations

import re
from collections import defaultdict
from functools import lru_cache

import numpy as np

from gobrrr.ledger.model.device import SizedCalls, Transfer
from gobrrr.ledger.work.tensor import element
from gobrrr.recording.model.trace import COMMUNICATION, Collective, Kernels, Trace

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
        sizes = tuple(
            SizedCalls(
                num_bytes, calls=len(durs) / num_steps, ns=sum(durs) / num_steps,
                fastest_ns=min(durs) * len(durs) / num_steps, bus_bytes=bus * len(durs) / num_steps,
            )
            for num_bytes, bus, durs in sorted(same, key=lambda one: -sum(one[2]))
        )  # fmt: skip
        found.append(Transfer(kind, sizes))
    return tuple(sorted(found, key=lambda one: -one.ns))


def measure(call: Collective) -> tuple[str, float, float] | None:
    """(kind, bytes as nccl-tests counts them, those times the kind's bus factor); None where the file does not say."""
    kind, num_bytes = kind_of(call.name), sent(call)
    if kind is None or not num_bytes or call.group_size < 2:
        return None
    return kind, num_bytes, num_bytes * bus_factor(kind, call.group_size)


@lru_cache(4096)
def kind_of(name: str) -> str | None:
    """Return the collective that the name of a call, an op or a kernel means; None where it says none."""
    return next((kind for kind, pattern in KINDS if pattern.search(name.lower())), None)


def sent(call: Collective) -> float:
    """Bytes of a call as nccl-tests counts them; 0 where the file does not say."""
    _, width = element(call.dtype) or (None, 0)
    gathers = kind_of(call.name) in ("all-gather", "reduce-scatter")
    elements = max(call.in_elements, call.out_elements) if gathers else call.in_elements
    return float(max(0, elements) * width)


def bus_factor(kind: str, num_ranks: int) -> float:
    """Return the factor that bytes are multiplied by (nccl-tests, doc/PERFORMANCE.md)."""
    others = (num_ranks - 1) / num_ranks
    factor = {"all-reduce": 2 * others, "all-gather": others, "reduce-scatter": others, "all-to-all": others}
    return factor.get(kind, 1.0)


def within_a_host(trace: Trace, kernels: Kernels) -> bool:
    """Whether all ranks fit in the devices of this rank's host, and it drives the one of its own number.

    A file lists the devices that its process could see. Where it saw its own alone, or ranks are spread over hosts,
    nobody knows from the file what lies between them.
    """
    world, rank = trace.properties.world_size, trace.properties.rank
    if not world or rank is None or world > len(trace.properties.devices):
        return False
    used = np.unique(kernels.device[kernels.kind == COMMUNICATION]).tolist()
    return bool(used == [rank])
