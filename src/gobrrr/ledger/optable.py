"""Op groups: calls of one op with the same shapes, phase and user line, priced against the machine's ceilings."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gobrrr.ledger.hostops import HostOps
from gobrrr.ledger.model import OpGroup
from gobrrr.ledger.places import Places
from gobrrr.ledger.work import Work, work_of
from gobrrr.machine.model import Machine
from gobrrr.recording.facts import Span
from gobrrr.recording.trace import Signature, Trace

# torch's dtype names in a trace, as the machine's ceilings name them.
CEILING_OF = {
    "float": "fp32", "double": "fp64", "c10::BFloat16": "bf16", "c10::Half": "fp16", "signed char": "int8",
    "unsigned char": "int8", "c10::complex<float>": "fp32", "c10::complex<double>": "fp64",
}  # fmt: skip
COMMUNICATION = ("c10d::", "gloo:", "nccl:", "mpi:", "record_param_comms")


@dataclass(frozen=True)
class Price:
    """What one call must cost at least: `floor` ns, which ceiling sets it, and the work. None where not modelled."""

    floor: float
    bound: str | None
    work: Work | None


class Prices:
    """Prices a call by name and signature, each once."""

    def __init__(self, machine: Machine, threads: int, matmul_precision: str | None) -> None:
        self._machine, self._threads = machine, threads
        self._fp32 = "fp32" if matmul_precision in (None, "highest") else "fp32_medium"
        self._known: dict[tuple[str, int], Price] = {}

    def of(self, name: str, number: int, signature: Signature | None) -> Price:
        """The price of one call."""
        known = self._known.get((name, number))
        if known is None:
            known = self._known[(name, number)] = self._price(name, signature)
        return known

    def _price(self, name: str, signature: Signature | None) -> Price:
        if signature is None:
            return Price(0.0, None, None)
        work = work_of(name, signature.shapes, signature.dtypes, signature.concrete, signature.strides)
        if work is None:
            return Price(0.0, None, None)
        by_bytes = 1e9 * work.bytes / self._machine.byte_rate(work.bytes, self._threads)
        rate = self.flop_rate(signature.dtypes) if work.kind in ("matmul", "convolution", "attention", "rnn") else None
        by_flops = 1e9 * work.flops / rate if rate else 0.0
        return Price(max(by_bytes, by_flops), "compute" if by_flops > by_bytes else "bandwidth", work)

    def flop_rate(self, dtypes: tuple[str, ...]) -> float | None:
        """Ceiling for the first floating or 8-bit dtype among the inputs."""
        key = next((CEILING_OF[d] for d in dtypes if d in CEILING_OF), "fp32")
        key = self._fp32 if key == "fp32" else key
        return self._machine.flop_rate(key, self._threads) or self._machine.flop_rate("fp32", self._threads)


def origins(host: HostOps, places: Places) -> npt.NDArray[np.int32]:
    """The place each row belongs to: its own; for backward rows that of the forward op that made the node."""
    made: dict[int, int] = {}
    ops = host.ops
    found = host.place.copy()
    sequence, backward = ops.sequence.tolist(), ops.is_backward.tolist()
    inherited: list[int] = []
    for row in range(len(host)):
        above = int(host.parent[row])
        source = -1
        if host.phase[row] == "backward":
            source = made.get(sequence[row], -1) if sequence[row] >= 0 else -1
            if source < 0 and above >= 0:
                source = inherited[above]
        elif sequence[row] >= 0 and not backward[row]:
            made[sequence[row]] = int(host.place[row])
        inherited.append(source)
        if source >= 0:
            found[row] = source
    return found


def op_groups(
    host: HostOps, trace: Trace, places: Places, prices: Prices, num_steps: int, dispatch_ns: float
) -> list[OpGroup]:
    """All groups of the window, per step, in the order of their first call. Annotations have none of their own."""
    origin = origins(host, places)
    sums: dict[tuple[Any, ...], list[float]] = {}
    first: dict[tuple[Any, ...], int] = {}
    chains = _chains(host)
    for row in np.flatnonzero(host.is_op).tolist():
        name, signature = host.name(row), int(host.ops.signature[row])
        key = (name, signature, host.phase[row], int(origin[row]), chains[row], bool(host.leaf[row]))
        entry = sums.get(key)
        if entry is None:
            entry = sums[key] = [0.0, 0.0]
            first[key] = row
        entry[0] += 1
        entry[1] += float(host.own[row])
    return [
        _group(key, calls, ns, first[key], trace, places, prices, num_steps, dispatch_ns)
        for key, (calls, ns) in sums.items()
    ]


def _group(
    key: tuple[Any, ...], calls: float, ns: float, order: int, trace: Trace, places: Places, prices: Prices,
    num_steps: int, dispatch_ns: float,
) -> OpGroup:  # fmt: skip
    name, number, phase, origin, parents, leaf = key
    signature = trace.signatures[number] if number >= 0 else None
    price = prices.of(name, number, signature)
    work = price.work if leaf or price.floor > 0 else None
    floor = min(calls * price.floor, ns) if work else 0.0
    dispatch = min(ns - floor, calls * dispatch_ns)
    where: tuple[Span, ...] = places.places[origin].where
    return OpGroup(
        name, _shapes(signature), signature.dtypes if signature else (), _shapes(signature, "strides"),
        signature.concrete if signature else (), phase, where, calls / num_steps, ns / num_steps, floor / num_steps,
        dispatch / num_steps, calls * work.flops / num_steps if work else None,
        calls * work.bytes / num_steps if work else None, price.bound if work else None, parents, order, leaf,
    )  # fmt: skip


def _shapes(signature: Signature | None, field: str = "shapes") -> tuple[tuple[int, ...], ...]:
    """Shapes with lists of tensors left out as (): OpGroup holds plain shapes."""
    found = getattr(signature, field) if signature is not None else ()
    return tuple(tuple(s) if all(isinstance(n, int) for n in s) else () for s in found)


def _chains(host: HostOps) -> list[tuple[str, ...]]:
    """Names of the enclosing ops and annotations of each row, outermost first."""
    known: dict[tuple[tuple[str, ...], str], tuple[str, ...]] = {}
    found: list[tuple[str, ...]] = []
    names: list[str] = []
    for row in range(len(host)):
        above = int(host.parent[row])
        chain: tuple[str, ...] = ()
        if above >= 0:
            key = (found[above], names[above])
            chain = known.setdefault(key, (*found[above], names[above]))
        found.append(chain)
        names.append(host.name(row))
    return found


def is_communication(name: str) -> bool:
    """Whether an op is a collective or its transport."""
    return name.startswith(COMMUNICATION)


def by_phase(groups: list[OpGroup]) -> dict[str, float]:
    """Nanoseconds per phase."""
    sums: dict[str, float] = defaultdict(float)
    for group in groups:
        sums[group.phase] += group.ns
    return sums
