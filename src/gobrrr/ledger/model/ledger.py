"""The Ledger noun: where every nanosecond and byte of a step went. Every figure is per step of the plain run."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from gobrrr.ledger.model.device import DeviceLedger, DeviceMemory
from gobrrr.ledger.model.gauged import Gauged
from gobrrr.ledger.model.op_tables import OpTable
from gobrrr.ledger.model.since import Since
from gobrrr.ledger.steps.decoding import Decoding
from gobrrr.ledger.steps.serving import ServingClass
from gobrrr.recording.model.facts import Facts, InputFacts, Span

ACCOUNTS = (
    "data_wait",  # the loop waited for its batch
    "compute",  # the floor of ops whose floor is FLOPs / ceiling
    "bandwidth",  # the floor of ops whose floor is bytes / ceiling
    "inefficiency",  # op time above its floor and its dispatch
    "uncounted",  # ops whose work is not modelled: time known, floor not
    "dispatch",  # what torch itself costs per op
    "host",  # Python and native host work between ops
    "communication",
    "sync",
    "stalled",  # the device had its next work, and did not begin it
    "copy",
    "compile",
    "gc",
    "unattributed",
)
PHASES = ("data", "forward", "loss", "backward", "optimizer", "other")


class Account(msgspec.Struct, frozen=True):
    """Nanoseconds of a median plain step that one cause owns; `share` is of the step."""

    account: str
    ns: float
    share: float


class OpGroup(msgspec.Struct, frozen=True):
    """All calls of one op with the same shapes, dtypes, phase and user line, summed and divided by the steps.

    `ns` is self time: ops called inside it have their own groups. `flops` and `bytes` are per step, null where the op
    is not modelled. `ns` = `floor_ns` + `dispatch_ns` + inefficiency (uncounted ops have floor 0).
    """

    name: str
    """aten::mm; backward ops too."""
    shapes: tuple[tuple[int, ...], ...] = ()
    dtypes: tuple[str, ...] = ()
    """float, double, c10::BFloat16, c10::Half, long int, Scalar, ... as the profiler writes them, one per input."""
    strides: tuple[tuple[int, ...], ...] = ()
    concrete: tuple[str, ...] = ()
    phase: str = "other"
    where: tuple[Span, ...] = ()
    """User lines, innermost first; for a backward op those of the forward op that made its node."""
    calls: float = 0.0
    ns: float = 0.0
    floor_ns: float = 0.0
    dispatch_ns: float = 0.0
    flops: float | None = None
    bytes: float | None = None
    bound: str | None = None
    """compute or bandwidth: which floor was the higher; null where not modelled."""
    parents: tuple[str, ...] = ()
    """Names of the enclosing ops and annotations, outermost first (aten::linear; Optimizer.step#AdamW.step)."""
    order: int = 0
    """Position of its first call among the ops of the step: sorts groups as they ran."""
    leaf: bool = True
    """It calls no other op: the work is here, not in its children."""
    recomputed: bool = False
    """A forward op that ran again in backward."""
    fate: str = ""
    """What becomes of its result, as far as torch's ops show. constant: the same in every step; repeated: as another
    op's of the step; earlier: backward of a graph that an earlier step made; carried: read from an earlier step, whose
    graph backward goes through again; for no weight: no weight and no state of the training depends on it."""
    read: float = 1.0
    """Share of its result that ops read, where most of a product is not read."""
    elsewhere: bool = False
    """It took far less than its work takes here (on the meta device, say): that work is not counted."""
    in_a_row: float = 1.0
    """How many of its calls follow each other in a loop of a line or two, with nothing between but such light ops."""


class HostGroup(msgspec.Struct, frozen=True):
    """Main-thread time outside torch ops, by user line. `library`: the package whose code ran, "" the user's own."""

    where: tuple[Span, ...]
    ns: float
    phase: str = "other"
    library: str = ""
    functions: tuple[str, ...] = ()
    """Library functions seen innermost, most time first ("torch.serialization.save", "copy.deepcopy")."""
    calls: float | None = None
    hot: tuple[tuple[str, float], ...] = ()
    """A trace's library function that has most of it, then those that it calls, with their shares of `ns`."""


class LineGroup(msgspec.Struct, frozen=True):
    """Wall time of the main thread by innermost user line, ops included: from the sampler in unprofiled steps."""

    where: tuple[Span, ...]
    ns: float
    phase: str = "other"
    library: tuple[str, ...] = ()
    """Library functions below that line, innermost first, most frequent stack (module.function)."""
    libraries: tuple[tuple[str, float], ...] = ()
    """Every library function seen anywhere below that line, with its ns per step (inclusive)."""
    waiting: bool = False
    num_samples: int | None = None
    """That it is made of; null where nobody counted."""
    held: float | None = None
    """Part of `ns` held by a call of the system that waits (a timer, a lock, a pipe, a socket, another process) and
    writes nothing; null where nobody looked. So are the next two."""
    writing: float | None = None
    """Held by a call that writes."""
    written: float | None = None
    """Bytes handed to calls that write."""
    own_share: float | None = None
    """Share of `ns` with no library function below the line (torch's computing is in it); null where nobody looked."""
    hot: tuple[tuple[str, float], ...] = ()
    """As a HostGroup has it."""
    stage: str = ""
    """Main thread's work in a wait for the loader: sampling (indices), receiving (a ready batch); else empty."""
    cpu_share: float | None = None
    """Share of `ns` on a processor; null where nobody looked."""
    usual_share: float | None = None
    """Share of `ns` that it takes in a step of at most twice the median: 0 (only long ones have it) to 2."""


class WorkerGroup(msgspec.Struct, frozen=True):
    """A loader worker's time by innermost user line: ns per batch; kind: getitem, collate, other."""

    loader: int
    kind: str
    where: tuple[Span, ...]
    ns: float
    libraries: tuple[tuple[str, float], ...] = ()
    cpu_share: float | None = None
    own_share: float | None = None
    """As a LineGroup has it."""


class WorkerMemory(msgspec.Struct, frozen=True):
    """Bytes that the loop's workers hold alone, all of them together."""

    workers: int
    """That were read."""
    held: int
    growth_per_batch: float | None = None
    """Steady growth, of the worker in the middle. Null where they were read at too few batches to tell."""


class SampleTime(msgspec.Struct, frozen=True):
    """Time to make one sample, by its index in the data set: ns, and ns on a processor; null where not known."""

    index: int
    ns: float
    cpu_ns: float | None = None


class Statement(msgspec.Struct, frozen=True):
    """A statement of the program's source, as ast.unparse writes it: of a compound one its first line."""

    span: Span
    text: str
    around: tuple[str, ...] = ()
    """First lines of the loops and other compound statements around it in its function, the innermost first."""
    module: str = ""
    """The whole file."""
    places: dict[str, int] = {}
    """Lines of the file's statements by their first lines, as ast.unparse writes them; of equal ones none."""


class StepStats(msgspec.Struct, frozen=True):
    """Steps of the loop that takes the time. ns; `plain_wall_ns` is the median without profiler, `wall_ns` with it."""

    count: int = 0
    plain_count: int = 0
    plain_wall_ns: float = 0.0
    low_ns: float = 0.0
    high_ns: float = 0.0
    """95 % interval of the median plain step."""
    p95_ns: float | None = None
    p99_ns: float | None = None
    """99th percentile in ns of the plain steps that are told; null of too few."""
    quartile_spread: float = 0.0
    """(p75 - p25) / median of the plain steps; steps in which an epoch begins are held against their own median."""
    wall_ns: float = 0.0
    profiled_count: int = 0
    warmup_count: int = 0
    kind: str = "training"
    """training (an update, a backward pass), inference (a top-level forward) or loop (gobrrr.steps, a loader)."""
    loop: str = ""
    """Kind and number of the loop, with a colon between."""
    mean_ns: float = 0.0
    """Mean with the outliers in: epochs' ends, checkpoints."""
    outlier_ns: float = 0.0
    """mean - median: what rare slow steps add to each step."""
    averaged: bool = False
    """`plain_wall_ns` is the mean, as all figures of a trace are."""
    drift: float = 0.0
    """Change of the median from the first to the last third of the plain steps, as a share."""
    overhead_share: float = 0.0
    """Share of the plain step that watching cost, measured in this run: on average over watched steps and rests."""
    overhead_low: float | None = None
    overhead_high: float | None = None
    """95 % interval of it; null where the hooks never rested, and it is the least that they can have cost."""
    waits: tuple[float, ...] = ()
    """Data wait of each plain step, ns, in order."""
    walls: tuple[float, ...] = ()
    beside_ns: float = 0.0
    """Median of the plain steps beside the profiled ones, which are held against it where steps grow; 0 of none."""
    lingering: float = 0.0
    """How much longer steps after the profiled window took than those before it, where a device works; 0 of few."""
    attached: bool = False  # too few came before, so that plain ones are among those after it
    seen_ns: float = 0.0
    """All steps of all loops together."""
    process_cpu_ns: float | None = None
    """CPU time of the process from its start to the last step that was seen; null where it was not read."""
    batches: int = 0
    """Batches of the loaders in a usual plain step; 0 where none was seen."""
    backwards: int = 0
    updates: tuple[tuple[int, int], ...] = ()
    """(optimizer, its updates in a usual plain step)."""
    between_share: float = 0.0
    """Share between steps of the time from first to last step: of a file whose steps do not follow on each other."""
    outside_ns: float = 0.0
    """Part of a step outside of the range that marks it, in a file."""

    @property
    def average_ns(self) -> float:
        """With what rare slow steps add: whoever waits for an epoch waits for them too, so rates are of it."""
        return max(self.plain_wall_ns, self.mean_ns) if self.averaged else self.plain_wall_ns + self.outlier_ns

    @property
    def lengthens(self) -> bool:
        """Steps take longer and longer: by a tenth over 30 (proposed: eleven on a busy machine looked like it)."""
        return self.drift > 0.1 and self.count >= 30

    @property
    def grown_ns(self) -> float:
        """By how much the median step is longer than the first, where steps lengthen evenly: first and last third lie
        two thirds of all growth apart, the median half of it above the first."""
        return 0.75 * self.drift / (1 + self.drift / 2) * self.plain_wall_ns if self.lengthens else 0.0


class OtherLoop(msgspec.Struct, frozen=True):
    """A loop that was seen and not diagnosed, with its share of the watched time."""

    name: str
    share: float
    count: int
    waits: float = 0.0
    """Share of its steps' time in which it waits for its loader."""
    beside: int = 0
    """Steps of the main loop while it was seen: not those that a rest counted."""
    apart: bool = False
    """It was seen only before the main loop's first step or after its last: a test at the end, a prediction."""
    times: int = 0
    """Stretches between two steps of the main loop, while it was seen, in which it ran."""
    between: float = 0.0
    """Its share of the watched time in these."""
    where: Span | None = None
    """The user's line that makes its forwards."""
    after: float = 0.0
    """Part of `between` after the last of its steps, by the longest of them: a checkpoint, a plot, a metric."""
    before: float = 0.0
    """Part of `between` that comes between the update and the first of its steps: a log, a histogram."""


class MemoryLedger(msgspec.Struct, frozen=True):
    """Bytes by what they are for; null where not seen."""

    parameters: int | None = None
    gradients: int | None = None
    optimizer_state: int | None = None
    activations: int | None = None
    inputs: int | None = None
    runtime: int | None = None
    """The interpreter and torch, as they were before the program made anything."""
    workspace: int | None = None
    """Peak minus all that is named here."""
    peak: int | None = None
    alive_at_peak: tuple[tuple[str, int], ...] = ()
    growth_per_step: float | None = None
    bytes_per_parameter: float | None = None
    """(parameters + gradients + optimizer state) / number of parameters; mixed-precision Adam costs 16 to 18."""


class Roofline(msgspec.Struct, frozen=True):
    """The step against the ceilings measured here. MFU here: model FLOPs (recomputation subtracted where it is seen,
    causal attention not halved, a multiply-add is two) / step time / the ceiling of `dtype` at this run's threads."""

    flops: float = 0.0
    bytes: float = 0.0
    floor_ns: float = 0.0
    mfu: float | None = None
    hfu: float | None = None
    """With what was computed twice counted twice; null where nothing was."""
    dtype: str = "fp32"
    ceiling_flop_rate: float | None = None
    ceiling_byte_rate: float | None = None
    """Ceiling of memory, bytes per second, for what does not fit into caches."""
    speed_of_light: float | None = None
    """floor_ns / step: how near the step as written is to what the machine can do."""
    ceiling: str = ""
    """Where the ceiling comes from, where it was not measured on this machine."""
    not_counted_share: float = 0.0
    not_counted: tuple[tuple[str, float], ...] = ()
    """Ops that are not modelled with their share of the step."""
    raised: float = 1.0
    """Factor by which the ceilings were raised, since the whole step beat them."""


class Ways(msgspec.Struct, frozen=True):
    """Reach of each way to make batches of a program's own lengths, simulated: tokens over tokens computed on."""

    pad_to_cap: float
    pad_in_collate: float
    """To the longest of a random batch."""
    bucketing: float
    packing: float
    packing_bound: float
    """Bound that no packing can exceed."""
    long_share: float
    """Sequences longer than half the widest batch: no two of them share a row."""
    nothing_to_gain: bool
    """By packing."""


class Sequences(msgspec.Struct, frozen=True):
    """Sequences of the batches that the loop's loader gave, as far as they were looked at."""

    batches: int
    """That were looked at."""
    batch_size: int
    widest: int
    """Columns of the widest batch."""
    real_share: float
    """Tokens over tokens computed on."""
    longest_share: float
    """The same, were each batch padded to its longest row."""
    tokens_per_step: float
    tokens_per_s: float | None = None
    """Real ones, slow steps with them."""
    lengths: tuple[tuple[int, int], ...] = ()
    """(tokens, sequences that have so many)."""
    several: bool = False
    """A sample has several, each padded by itself; all else is of the first."""
    masked: bool = False
    """Batches have an attention_mask that says what a token is."""
    given: InputFacts | None = None
    """One of them as the model got it."""
    ways: Ways | None = None


class Ledger(msgspec.Struct, frozen=True):
    """The whole account of a median plain step."""

    step: StepStats
    accounts: tuple[Account, ...] = ()
    phases: tuple[tuple[str, float], ...] = ()
    """(phase, ns per plain step); they sum to the step."""
    ops: tuple[OpGroup, ...] = ()
    host: tuple[HostGroup, ...] = ()
    lines: tuple[LineGroup, ...] = ()
    workers: tuple[WorkerGroup, ...] = ()
    worker_memory: WorkerMemory | None = None
    slow_samples: tuple[SampleTime, ...] = ()
    """The longest of those that were seen being made, the longest first."""
    loops: tuple[OtherLoop, ...] = ()
    memory: MemoryLedger = MemoryLedger()
    roofline: Roofline = Roofline()
    facts: Facts = Facts()
    samples_per_step: float | None = None
    """Rows of the batches that a step gets; null where no loader says."""
    steps_per_epoch: float | None = None
    sequences: Sequences | None = None
    """Null where the model works on none, or their lengths were not seen."""
    statements: tuple[Statement, ...] = ()
    """Source of the lines that take time, where its files are as they were when the program ran."""
    threads: int = 1
    missing: tuple[str, ...] = ()
    """Gaps of the recording, in words: band 9 reads it."""
    signals: frozenset[str] = frozenset()
    """ops, shapes, stacks, samples, plain, device, workers, facts."""
    device: DeviceLedger | None = None
    device_ops: tuple[OpGroup, ...] = ()
    """As `ops`, with the time of the kernels that each launched and its floor on the device."""
    tables: tuple[OpTable, ...] = ()
    """All ops of the profiled steps by op, shape, line and module, as they were under the profiler."""
    serving: tuple[ServingClass, ...] = ()
    """Steps of a serving engine by kind, where it has marked them."""
    decoding: Decoding | None = None
    """Tokens of transformers' generate(), where it was called."""
    scaled_by: float = 1.0
    """Factor that fits all ops of the profiled steps to the plain one, without what the instruments added:
    far from 1 it is not known which of them were the longer ones."""
    gauged: Gauged | None = None
    since: Since | None = None
    """Null where no look in the middle of the run was asked for."""
    """Null where nobody sampled the computer's gauges."""
    of_device: bool = False
    """This is the device's view: `ops` are those of `device_ops`."""

    @property
    def wall(self) -> float:
        """Nanoseconds of the median plain step: what every saving is a part of."""
        return self.step.plain_wall_ns

    @property
    def device_memory(self) -> DeviceMemory | None:
        """The accelerator's memory, where one works and its allocations were recorded."""
        return self.device.memory if self.device is not None else None

    @property
    def device_phases(self) -> tuple[tuple[str, float], ...]:
        """Kernel time by the phase that launched it, ns per step."""
        sums = {name: sum(op.ns for op in self.device_ops if op.phase == name) for name in PHASES}
        return tuple((name, ns) for name, ns in sums.items() if ns)

    def account(self, name: str) -> float:
        """Nanoseconds per step of one account, 0 where it is absent."""
        return sum(a.ns for a in self.accounts if a.account == name)

    def phase(self, name: str) -> float:
        """Nanoseconds per step of one phase."""
        return sum(ns for phase, ns in self.phases if phase == name)

    @property
    def groups(self) -> Iterator[OpGroup | HostGroup]:
        """All ops and all that lies between them."""
        yield from self.ops
        yield from self.host

    def named(self, *names: str) -> Iterator[OpGroup]:
        """Op groups whose name is one of `names`."""
        wanted = frozenset(names)
        return (op for op in self.ops if op.name in wanted)
