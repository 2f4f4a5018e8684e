"""Least cost of every op of the window: its work, counted once over the tree of ops, at this machine's ceilings. And
the step against them: FLOPs, bytes, floor, MFU, and what was not counted."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gobrrr.ledger.host.host_ops import HostOps
from gobrrr.ledger.model.device import DeviceWork
from gobrrr.ledger.model.ledger import OpGroup, Roofline
from gobrrr.ledger.model.sums import sums
from gobrrr.ledger.work import Assigned, Work, assign
from gobrrr.machine.model.machine import Machine
from gobrrr.recording.model.columns import numbered
from gobrrr.recording.model.trace import Flags, Signature, Trace

# torch's dtype names in a trace, as the machine's ceilings name them.
CEILING_OF = {
    "float": "fp32", "double": "fp64", "c10::BFloat16": "bf16", "c10::Half": "fp16", "signed char": "int8",
    "unsigned char": "int8", "c10::complex<float>": "fp32", "c10::complex<double>": "fp64",
    "c10::Float8_e4m3fn": "fp8", "c10::Float8_e5m2": "fp8", "c10::Float8_e4m3fnuz": "fp8",
    "c10::Float8_e5m2fnuz": "fp8",
}  # fmt: skip
_INTEGERS = {
    "long int": "int64", "long": "int64", "long long": "int64", "__int64": "int64", "int": "int32",
    "short int": "int16", "short": "int16", "bool": "bool",
}  # fmt: skip
_PRICED = frozenset(CEILING_OF.values())
BY_FLOPS = frozenset({"matmul", "convolution", "attention", "rnn", "solve"})
ELSEWHERE = {"compute": 4.0, "bandwidth": 10.0}
"""Multiple of its ceiling from which work was not done here: tensors on the meta device, work of another device that
only was queued. A ceiling from a busy moment is some 2 too low, and caches are some 5 times as fast as what a copy of
that size reaches. Proposed."""
_BOUNDS = {None: 0} | {bound: number for number, bound in enumerate(ELSEWHERE, 1)}


def dtype_of(dtypes: Iterable[str]) -> str:
    """An op's dtype: of its first input that is floating or of 8 bits, else of the first; fp32 if none is recorded."""
    known = [CEILING_OF.get(name) or _INTEGERS.get(name) for name in dtypes]
    return next((key for key in known if key in _PRICED), None) or next((key for key in known if key), "fp32")


def in_tf32(name: str, dtype: str, tf32: Collection[str]) -> str:
    """Return the dtype that an op in fp32 runs in, where those of these names run in TF32."""
    return "tf32" if dtype == "fp32" and name in tf32 else dtype


class Prices:
    """Prices work by this machine's ceilings at the run's threads; `tf32`: names of ops whose fp32 runs in TF32."""

    def __init__(
        self, machine: Machine, threads: int, matmul_precision: str | None, tf32: Collection[str] = ()
    ) -> None:
        self._machine, self._threads, self._tf32 = machine, threads, tf32
        self._precision = matmul_precision
        self.priced = True

    @classmethod
    def none(cls, machine: Machine) -> Prices:
        """Prices nothing: the ops only launch work elsewhere."""
        prices = cls(machine, 1, None)
        prices.priced = False
        return prices

    def floor(self, work: Work, dtypes: tuple[str, ...], name: str = "") -> tuple[float, str]:
        """Nanoseconds that the work of an op takes at least, and which ceiling says so: compute or bandwidth."""
        by_bytes = 1e9 * work.bytes / self._machine.byte_rate(work.bytes, self._threads)
        dtype, convolved = in_tf32(name, dtype_of(dtypes), self._tf32), work.kind == "convolution"
        rate = self.flop_rate(dtype, convolved) if work.kind in BY_FLOPS else None
        flops = work.flops if work.least_flops is None else work.least_flops
        by_flops = 1e9 * flops / rate if rate else 0.0
        return max(by_bytes, by_flops), "compute" if by_flops > by_bytes else "bandwidth"

    def memory_rate(self) -> float:
        """Ceiling for what is larger than every cache, bytes per second."""
        return self._machine.byte_rate(math.inf, self._threads)

    def ceiling(self, bound: str, dtype: str) -> float:
        """Return the ceiling of work of that bound: FLOP/s where it is compute, else bytes/s of memory."""
        return (self.flop_rate(dtype) or 0.0) if bound == "compute" else self.memory_rate()

    def flop_rate(self, dtype: str, convolved: bool = False) -> float | None:
        """Ceiling for a dtype, FLOP/s; without units for it, that of the dtype that it is computed in."""
        fp32 = self._machine.fp32_path(self._precision, convolved)
        ways = (fp32 if dtype == "fp32" else dtype, *(("bf16",) if dtype == "fp8" else ()), "fp32")
        return next((rate for way in ways if (rate := self._machine.flop_rate(way, self._threads))), None)


@dataclass(frozen=True)
class RowPrices:
    """Per row of HostOps. `work` and `bound` are None where nothing is modelled, and for wrappers."""

    floor: list[float]
    work: list[Work | None]
    bound: list[str | None]
    elsewhere: frozenset[int] = frozenset()
    """Rows whose work was not done here."""
    owner: list[int] = field(default_factory=list)
    """The row that answers for the time of each; empty where nothing is priced."""

    @cached_property
    def owners(self) -> npt.NDArray[np.int64]:
        """`owner` as a column; where nothing is priced each row answers for itself."""
        return np.array(self.owner or range(len(self.work)), np.int64)

    @cached_property
    def modelled(self) -> Flags:
        """Mark rows whose work is known."""
        return np.array([work is not None for work in self.work], bool)

    @cached_property
    def bounded(self) -> Flags:
        """Mark rows with a bound."""
        return np.array([bound is not None for bound in self.bound], bool)

    @cached_property
    def flops(self) -> npt.NDArray[np.float64]:
        """FLOPs of each row, 0 of work that is not known."""
        return np.array([work.flops if work is not None else 0.0 for work in self.work], float)

    @cached_property
    def bytes(self) -> npt.NDArray[np.float64]:
        """Bytes of each row, 0 of work that is not known."""
        return np.array([work.bytes if work is not None else 0.0 for work in self.work], float)


def assigned(
    host: HostOps, trace: Trace, updated: Mapping[str, float]
) -> tuple[list[str], list[Signature | None], Assigned]:
    """Each row's name and the record of its call, and whose each work is."""
    names = [host.names[n] for n in host.ops.name.tolist()]
    recorded = [trace.signatures[n] if n >= 0 else None for n in host.ops.signature.tolist()]
    return names, recorded, assign(names, host.parent.tolist(), recorded, updated)


def row_prices(host: HostOps, trace: Trace, prices: Prices, updated: Mapping[str, float]) -> RowPrices:
    """The floor of every row, never more than its self time. What an op's floor has over that goes to the ops that it
    calls to do its work: mean is priced whole, and the sum inside it takes the time.

    `updated` is the number of elements that one step of each optimizer class updates.
    """
    count = len(host)
    if not prices.priced:
        return RowPrices([0.0] * count, [None] * count, [None] * count)
    names, recorded, (works, owner) = assigned(host, trace, updated)
    spare, bound = _priced(host, names, works, recorded, prices)
    elsewhere = _elsewhere(host, owner, spare, bound)
    for row in elsewhere:
        works[row], bound[row], spare[row] = None, None, 0.0
    floor = [0.0] * count
    for row in np.flatnonzero(host.own).tolist():  # the others take no time, and leave what is spare
        above = owner[row]
        if spare[above]:
            floor[row] = min(spare[above], float(host.own[row]))
            spare[above] -= floor[row]
        bound[row] = bound[above] or bound[row]
    return RowPrices(
        floor, [w if b is not None else None for w, b in zip(works, bound, strict=True)], bound, elsewhere, owner
    )


def _elsewhere(host: HostOps, owner: list[int], floors: list[float], bound: list[str | None]) -> frozenset[int]:
    """Rows of ops whose calls with the same inputs took, with all that they own, far less than any work here takes."""
    kind = np.array([_BOUNDS[each] for each in bound], np.int64)
    calls, first = numbered([host.ops.name, host.ops.signature, kind])
    times = np.array((0.0, *ELSEWHERE.values()))[kind[first]]
    least, spent = np.bincount(calls, floors), np.bincount(calls[owner], host.own.astype(float), len(first))
    return frozenset(np.flatnonzero(((times > 0) & (least > times * spent))[calls]).tolist())


def _priced(
    host: HostOps, names: list[str], works: list[Work | None], recorded: list[Signature | None], prices: Prices
) -> tuple[list[float], list[str | None]]:
    """Floor and bound of every row by its own work; a wrapper has none, a view has one of no time."""
    known: dict[tuple[int, int, str], tuple[float, str]] = {}
    floors, bounds = [0.0] * len(works), [None] * len(works)  # type: list[float], list[str | None]
    for row, (name, work, call, leaf, is_op) in enumerate(
        zip(names, works, recorded, host.leaf.tolist(), host.is_op.tolist(), strict=True)
    ):
        if work is None or not is_op or (work.flops == work.bytes == 0 and not leaf):
            continue
        key = (id(work), id(call), name)  # both are held as long as this runs; hashing them takes longer
        if key not in known:
            known[key] = prices.floor(work, call.dtypes if call is not None else (), name)
        floors[row], bounds[row] = known[key]
    return floors, bounds


MAX_NAMED = 8  # uncounted ops, longest first; proposed: a person reads few; a longer list asked for would settle it
COUNTED = 0.5
"""Share of the kernels' time from which on the rest may be left out of a utilisation. Proposed."""


def roofline(ops: list[OpGroup], plain: float, prices: Prices) -> Roofline:
    """Return the roofline of ops outside the wait for data. `dtype` is that of most FLOPs. Where no work is known (the
    ops only launch it elsewhere) there is no utilisation, which is not one of zero."""
    counted = [op for op in ops if op.phase != "data" and op.flops is not None]
    flops = sum(op.flops or 0.0 for op in counted)
    by_dtype = sums((dtype_of(op.dtypes), op.flops or 0.0) for op in counted)
    dtype = max(by_dtype, key=lambda d: by_dtype[d]) if by_dtype else "fp32"
    ceiling = prices.flop_rate(dtype)
    mfu, hfu = _utilisation(flops, sum(op.flops or 0.0 for op in counted if op.recomputed), ceiling, plain)
    unknown = (op for op in ops if op.phase != "data" and (op.leaf or op.elsewhere) and op.bound is None)
    missing = sums((op.name, op.ns) for op in unknown)
    floor = sum(op.floor_ns for op in counted)
    ranked = sorted(missing.items(), key=lambda item: -item[1])[:MAX_NAMED]
    return Roofline(
        flops=flops, bytes=sum(op.bytes or 0.0 for op in counted), floor_ns=floor,
        mfu=mfu if counted else None, hfu=hfu, dtype=dtype, ceiling_flop_rate=ceiling,
        ceiling_byte_rate=prices.memory_rate() if counted else None,
        speed_of_light=floor / plain if counted and plain else None,
        not_counted_share=sum(missing.values()) / plain if plain else 0.0,
        not_counted=tuple((name, ns / plain) for name, ns in ranked) if plain else (),
    )  # fmt: skip


def device_roofline(work: DeviceWork, plain: float) -> Roofline:
    """Return the roofline of an accelerator's kernels. Floors are added up, so streams that overlap can pass the speed
    of light only where they do. No MFU and no speed of light where most of the kernels' time is that of uncounted work:
    "MFU 0.0 %" said of such a step that it does nothing."""
    flops, floor = work.flops, work.compute_ns + work.bandwidth_ns
    mfu, hfu = _utilisation(flops, work.recomputed_flops, work.ceiling_flop_rate, plain)
    known = work.counted_ns >= COUNTED * work.kernel_ns
    if not known:
        mfu = hfu = None
    return Roofline(
        flops=flops, bytes=sum(op.bytes for op in work.ops), floor_ns=floor,
        mfu=mfu, hfu=hfu, dtype=work.dtype, ceiling_flop_rate=work.ceiling_flop_rate,
        ceiling_byte_rate=work.ceiling_byte_rate,
        speed_of_light=floor / plain if plain and known else None,
        ceiling=work.ceiling, not_counted_share=(work.kernel_ns - work.counted_ns) / plain if plain else 0.0,
        not_counted=tuple((name, ns / plain) for name, ns in work.not_counted) if plain else (),
    )  # fmt: skip


def _utilisation(
    flops: float, repeated: float, ceiling: float | None, plain: float
) -> tuple[float | None, float | None]:
    """MFU without what was computed again, and HFU with it where anything was."""
    if not ceiling or not plain:
        return None, None
    rate = 1e9 / plain / ceiling
    return (flops - repeated) * rate, flops * rate if repeated else None
