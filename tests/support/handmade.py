"""Ledgers, op groups and a machine made by hand, so that a rule's test says only what it is about."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gobrrr.ledger.model.ledger import Account, Ledger, OpGroup, StepStats
from gobrrr.machine.model.machine import CopyCeiling, Machine, Measured
from gobrrr.recording.model.facts import Facts, Settings, Span
from gobrrr.rules import ask, load
from gobrrr.rules.model.finding import WORDS, Finding
from gobrrr.rules.model.views import device_view

MS = 1e6
ALL_SIGNALS = frozenset({"ops", "shapes", "stacks", "samples", "plain", "device", "workers", "facts"})
LINE = Span("train.py", 42, "forward")
OTHER_LINE = Span("train.py", 99, "main")


def measured(median: float, unit: str = "FLOP/s") -> Measured:
    """A figure with no spread to speak of."""
    return Measured(median, 0.98 * median, 1.02 * median, 9, unit)


def machine(**rates: float) -> Machine:
    """Two cores, 100 GFLOP/s fp32 per core, 20 GB/s, 1 us dispatch, 1 us per page; `rates` are GFLOP/s at one core."""
    gflops = {"fp64": 50.0, "fp32": 100.0, "fp32_medium": 100.0, "bf16": 100.0, "fp16": 100.0, **rates}
    return Machine(
        fingerprint="hand",
        cpu="made by hand",
        isa=("avx2",),
        logical_cores=2,
        memory_bytes=16 << 30,
        effective_cores=measured(2, "1"),
        matmul={
            "1": {name: measured(rate * 1e9) for name, rate in gflops.items()},
            "all": {name: measured(2 * rate * 1e9) for name, rate in gflops.items()},
        },
        copy=tuple(
            CopyCeiling(size, threads, measured(rate * 1e9, "B/s"))
            for threads in (1, 2)
            for size, rate in ((1 << 20, 100.0), (1 << 28, 20.0))
        ),
        dispatch=measured(1000, "ns"),
        fresh_page=measured(1000, "ns"),
        fp32_error=2.5e-7,
        fp32_medium_error=5.7e-7,
        threads=2,
    )


def op(name: str, *shapes: tuple[int, ...], dtype: str = "float", ms: float = 1.0, **fields: Any) -> OpGroup:
    """An op group of `ms` per step on LINE; `dtype` is every input's unless `dtypes` is given."""
    given = {"dtypes": (dtype,) * len(shapes), "phase": "forward", "where": (LINE,), "calls": 1.0, **fields}
    given.setdefault("strides", tuple(_dense(shape) for shape in shapes))
    given.setdefault("floor_ns", 0.8 * ms * MS)
    given.setdefault("bound", "bandwidth")
    return OpGroup(name="aten::" + name, shapes=shapes, ns=ms * MS, **given)


def product(
    m: int, k: int, n: int, *, gflops: float = 180.0, name: str = "mm", dtype: str = "float", **fields: Any
) -> OpGroup:
    """A matrix product that runs at `gflops`."""
    work = 2.0 * m * k * n
    given = {"flops": work, "bound": "compute", **fields}
    return op(name, (m, k), (k, n), dtype=dtype, ms=work / gflops / MS, **given)


def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.insert(0, step)
        step *= size
    return tuple(strides)


@dataclass
class Case:
    """A step of `ms` made of `ops`, on a machine."""

    ops: tuple[OpGroup, ...] = ()
    ms: float = 100.0
    facts: Facts = field(default_factory=lambda: Facts(settings=Settings(matmul_precision="highest")))
    machine: Machine = field(default_factory=machine)
    signals: frozenset[str] = ALL_SIGNALS
    step: StepStats = field(default_factory=lambda: StepStats(count=60, plain_count=50, kind="training"))
    phases: tuple[tuple[str, float], ...] = ()
    accounts: tuple[Account, ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def ledger(self) -> Ledger:
        """The ledger; ops get the order in which they were given, unless they say another."""
        ordered = tuple(
            group if group.order else msgspec.structs.replace(group, order=place)
            for place, group in enumerate(self.ops, 1)
        )
        step = msgspec.structs.replace(self.step, plain_wall_ns=self.ms * MS)
        return Ledger(
            step=step,
            ops=ordered,
            facts=self.facts,
            threads=2,
            signals=self.signals,
            phases=self.phases,
            accounts=self.accounts,
            **self.extra,
        )

    def raised(self, code: str) -> list[Finding]:
        """What rule `code` says, checked for what every finding owes: an ordered saving within the step."""
        ledger = self.ledger
        found = ask(load()[code], ledger, self.machine, device_view(ledger, self.machine))
        for each in found:
            assert each.code == code
            saving = each.saving
            most = max(ledger.wall, ledger.step.mean_ns) if each.rare else ledger.wall
            most = math.inf if each.between else most
            assert 0 <= saving.low_ns <= saving.expected_ns <= saving.ceiling_ns <= most
            assert saving.ceiling_ns > 0 or each.cost_bytes, "no finding without a cost in time or bytes"
            assert "nan" not in each.message and each.advice
            assert len(each.message.split()) <= WORDS, each.message
            assert all(len(said.split()) <= WORDS for said in re.split(r"[.?] ", each.advice)), each.advice
        return found
