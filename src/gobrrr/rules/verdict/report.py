"""The Report noun (JSON schema gobrrr.report/1): what all renderers show. Built by
rules.verdict.build, never changed."""

from __future__ import annotations

import msgspec

from gobrrr.ledger.model.device import DeviceMemory, DeviceOp
from gobrrr.ledger.model.gauged import Gauged
from gobrrr.ledger.model.ledger import Account, MemoryLedger, OtherLoop, Roofline
from gobrrr.ledger.model.op_tables import OpTable
from gobrrr.ledger.model.since import Since
from gobrrr.ledger.steps.decoding import Decoding
from gobrrr.ledger.steps.serving import ServingClass
from gobrrr.recording.model.facts import SavedTensor, Wrapper
from gobrrr.recording.model.facts import Span as Line
from gobrrr.recording.model.setup import Setup
from gobrrr.rules.memory.out_of_memory import Diagnosis
from gobrrr.rules.model.finding import Finding, Rehearsed

SCHEMA = "gobrrr.report/1"
LISTED = 10
"""Ops of a device on a page."""


class Verdict(msgspec.Struct, frozen=True):
    """Bound of the step, and in at most 25 words its cause, place and saving."""

    bound: str
    sentence: str


class Confidence(msgspec.Struct, frozen=True):
    """How far the report can be relied on: high, fair or low, and the one reason that matters most."""

    level: str
    reason: str
    code: str = ""
    """Rule of band 9 that gives the reason; empty where none does."""
    settle: str = ""
    """How to raise it; empty where it is high."""


class Step(msgspec.Struct, frozen=True):
    """The step: `wall_ns` as captured (with the profiler), `plain_wall_ns` without; low, high: 95 % of the median."""

    count: int
    wall_ns: int
    plain_wall_ns: int
    low_ns: int = 0
    high_ns: int = 0
    kind: str = "training"
    profiled_count: int = 0
    warmup_count: int = 0
    plain_count: int = 0
    p95_ns: int | None = None
    p99_ns: int | None = None
    """Null where steps are so few that none lies beyond it."""
    samples: float | None = None
    """Samples of one step; null where no loader says how many."""
    samples_per_s: float | None = None
    """Samples per second, slow steps included."""
    epoch_steps: float | None = None
    """Steps of one epoch; null where the data set has no length."""
    outlier_ns: int = 0
    """Mean time per step that rare slow steps (ends of epochs, checkpoints) add to the step that is told; 0 where that
    is their mean already."""
    holds: tuple[tuple[str, int], ...] = ()
    """(batches, an optimizer's updates, backward passes; how many of them) where a step holds more than one of any."""
    loop: str = ""
    """Loop that the steps are of, in a word for `gobrrr tune`."""
    averaged: bool = False
    """The step is the mean of those that a trace holds, not their median."""
    unmarked: bool = False
    """A trace does not say where its steps end: all of it is one."""

    def whole_ns(self, rare: bool) -> int:
        """Return the ns that shares are of (rules.model.whole): the mean step for what lies in slow ones, else the
        median one."""
        return self.plain_wall_ns + (self.outlier_ns if rare else 0)


class Span(msgspec.Struct, frozen=True):
    """First to last device event."""

    busy_share: float


class Device(msgspec.Struct, frozen=True):
    """An accelerator, where one was seen. `busy_share` is of the step."""

    name: str
    busy_share: float
    span: Span
    classes: tuple[tuple[str, float], ...] = ()
    """(class of kernel, share of the kernels' time), the largest first."""
    longest: tuple[tuple[str, float, float], ...] = ()
    """(kernel, calls per step, share of the kernels' time): those that take most."""
    phases: tuple[tuple[str, float], ...] = ()
    """Kernel time per step by the phase that launched it, ns."""
    underfilled_share: float | None = None
    """Share of kernel time in kernels with less than one block per multiprocessor; null where not recorded."""
    awaited_share: float = 0.0
    """Share of the step in which the host stands in a synchronising call while the device works."""
    memory: DeviceMemory | None = None
    work: tuple[DeviceOp, ...] = ()
    """Ops by the kernels that they launched, those that take most first, against the roofline's ceiling."""
    by_shape: tuple[DeviceOp, ...] = ()
    """Products, convolutions and attention again, each shape by itself."""

    @property
    def listed(self) -> tuple[DeviceOp, ...]:
        """Return the ops that a page has room for."""
        return self.work[:LISTED]

    @property
    def listed_shapes(self) -> tuple[DeviceOp, ...]:
        """The same by shape."""
        return self.by_shape[: 4 * LISTED]


class OpShare(msgspec.Struct, frozen=True):
    """All calls of one op from one line, per step. `ns` is self time; rates are null where the op is not modelled."""

    name: str
    calls: float
    ns: float
    share: float
    """Share of the step."""
    phase: str = "other"
    flops_per_s: float | None = None
    bytes_per_s: float | None = None
    bound: str | None = None
    where: Line | None = None
    """The user's innermost line; of a backward op that of its forward op."""
    shapes: str = ""
    """Shapes of the tensors in the calls that take most: '32x512, 512x2048'."""


class Tokens(msgspec.Struct, frozen=True):
    """Figures of the sequences that the model works on, as far as batches were looked at."""

    real_share: float
    """Tokens over tokens computed on: the rest is padding."""
    batches: int
    """Batches that were looked at."""
    per_s: float | None = None
    """Effective tokens per second: real ones, over the median plain step."""
    useful_mfu: float | None = None
    """MFU times the share of real tokens."""


class Waste(msgspec.Struct, frozen=True):
    """Cost of a finding in each hour, as its saving: low <= expected <= ceiling."""

    code: str
    low: float
    expected: float
    ceiling: float
    remedies: tuple[tuple[str, float], ...] = ()
    """(remedy, what it saves in each hour), of those that were rehearsed."""


class Money(msgspec.Struct, frozen=True, kw_only=True):
    """Cost at a price per hour; the currency is the user's."""

    per_hour: float
    step: float
    epoch: float | None = None
    million_samples: float | None = None
    million_tokens: float | None = None
    wastes: tuple[Waste, ...] = ()
    """Hourly costs of the findings, in their order."""


class LineTime(msgspec.Struct, frozen=True):
    """Time that one function of the program spends in one op (or in Python, or waiting for data), ns per step: two
    reports of one program are compared by it."""

    name: str
    phase: str
    ns: float
    where: Line
    """The line in it that takes most."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is told. Fields may join; those of gobrrr.report/1 keep name and meaning."""

    schema: str = SCHEMA
    verdict: Verdict
    confidence: Confidence | None = None
    """Null in reports of older versions."""
    step: Step
    device: Device | None = None
    ledger: tuple[Account, ...] = ()
    findings: tuple[Finding, ...] = ()
    phases: tuple[tuple[str, float], ...] = ()
    ops: tuple[OpShare, ...] = ()
    """The ops that take most of the step, the first ten."""
    tables: tuple[OpTable, ...] = ()
    """All ops of the profiled steps by op, by shape, by line and by module."""
    lines: tuple[LineTime, ...] = ()
    """Largest times by op and function, ops and what lies between them: more than `ops` shows, for `gobrrr check`."""
    loops: tuple[OtherLoop, ...] = ()
    serving: tuple[ServingClass, ...] = ()
    """A serving engine's steps: decode and prefill told apart."""
    decoding: Decoding | None = None
    """Tokens of transformers' generate(), where it was called."""
    memory: MemoryLedger = MemoryLedger()
    saved: tuple[SavedTensor, ...] = ()
    """The largest activations kept for backward, by the module and op that saved them."""
    out_of_memory: Diagnosis | None = None
    """Why the program died of memory; null where it did not."""
    roofline: Roofline = Roofline()
    tokens: Tokens | None = None
    """Null where the model works on no sequences, or their lengths were not seen."""
    gauged: Gauged | None = None
    """The computer's gauges over the steps; null where nobody sampled them."""
    since: Since | None = None
    """What became of the steps until the look that was asked for (`gobrrr run --from-step`, `--on-signal`)."""
    money: Money | None = None
    """Null where nobody named a price."""
    overhead_share: float = 0.0
    overhead_low: float | None = None
    overhead_high: float | None = None
    """95 % interval of the share; null where it was not measured, and is the least that watching can have cost."""
    profiler_overhead_share: float = 0.0
    missing: tuple[str, ...] = ()
    rehearsed: tuple[Rehearsed, ...] = ()
    """Every remedy that was played on this run's ops, those that lose as well, whether or not a finding has it."""
    skipped_rules: tuple[tuple[str, str], ...] = ()
    """(code, why it could not be judged)."""
    command: tuple[str, ...] = ()
    exit_code: int | None = None
    rank: int | None = None
    world_size: int | None = None
    wrappers: tuple[Wrapper, ...] = ()
    """What each DistributedDataParallel is set to."""
    threads: int = 1
    fusable: bool | None = None
    """An optimizer of torch's has a fused kernel that it does not use; null where nobody watched."""
    compiled: bool = False
    """All modules with parameters, of those that the program calls, are compiled by itself."""
    machine: str = ""
    host: str = ""
    """Fingerprint of the computer that it ran on; empty where nobody looked."""
    versions: dict[str, str] = {}
    setup: Setup | None = None
    """What the run was started with; null where nobody noted it: in older reports, and those of traces."""
    offline: bool = False
    """It is of a file that a profiler left: no step ran without one."""
    recording: str = ""
    """The folder of the recording, relative to the working directory where it lies below it."""

    @property
    def confidence_line(self) -> str:
        """'Confidence: fair: the steps drift by 30 % (BRR902); run it again': the level, why, and what to do. Empty in
        reports of older versions."""
        it = self.confidence
        if it is None:
            return ""
        told = bool(it.settle) and (it.level == "low" or bool(it.code and it.code in self.verdict.sentence))
        reason = "as the headline says" if told else f"{it.reason}{f' ({it.code})' if it.code else ''}"
        return f"Confidence: {it.level}: {reason}{f'; {it.settle}' if it.settle else ''}"
