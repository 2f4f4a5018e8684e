"""Facts that capture notes beside times: the program's settings, loaders, optimizers, modules and tensors.

Every field has a default, and null means "not seen": capture fills what it could see, rules ask before they use.
All times are nanoseconds, all sizes bytes, unless a name says otherwise.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

Number = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]
Workers = Annotated[int, msgspec.Meta(ge=0, le=1 << 16)]
Length = Annotated[int, msgspec.Meta(ge=1, le=1 << 24)]
MAX_LENGTHS = 1 << 16
"""Different lengths that a recording may hold; capture stops at an eighth of it."""


class Span(msgspec.Struct, frozen=True):
    """A place in source code: the executing line, not the function's first one."""

    file: str
    line: int
    function: str = ""

    @property
    def place(self) -> tuple[str, int]:
        """File and line: the function is theirs already."""
        return self.file, self.line


class SourceFacts(msgspec.Struct, frozen=True):
    """A library that keeps samples in shards, and how the data set that comes from it is set."""

    kind: str = ""
    """One of capture.facts.loader_facts.KINDS: datasets (a table), datasets stream, webdataset, streaming."""
    wrapped: bool = False
    """It is inside an object of the program's, which may ask it for one sample after the other."""
    shares: bool = False
    """Workers share its samples by themselves: each has its own part."""
    shards: Number | None = None
    """Number of shards that it shares out, where a shard is one worker's: those of this process."""
    format: str = ""
    """Format of its rows (torch, numpy); empty for Python objects."""
    numbers: bool = False
    """A column holds lists of numbers."""
    batched: bool = False
    """It gives batches, not samples."""
    batch_size: Number | None = None
    predownload: Number | None = None
    """Samples that it fetches ahead."""
    remote: bool = False
    """Its shards are fetched from elsewhere."""
    evicts: bool = False
    """It is shuffled over more shards than its cache_limit lets it keep."""


class LoaderFacts(msgspec.Struct, frozen=True):
    """A DataLoader as it was used. `iter_ns` has one entry per epoch: from iter() to the first request for a batch."""

    id: int
    num_workers: Workers = 0
    batch_size: int | None = None
    persistent_workers: bool = False
    pin_memory: bool = False
    prefetch_factor: int | None = None
    dataset: str = ""
    dataset_span: Span | None = None
    """Where the dataset's __getitem__ (or __iter__) is defined."""
    in_memory: bool = False
    """The dataset is a TensorDataset, or indexes a tensor or array that it holds."""
    one_by_one: bool = True
    """Samples are indexed one at a time, not by a batch of indices."""
    length: int | None = None
    stream: bool = False
    """An IterableDataset: samples come one after the other, and each worker has all of them."""
    source: SourceFacts | None = None
    """The library that its data set comes from, where it is a known one."""
    collate: str = ""
    collate_span: Span | None = None
    created_span: Span | None = None
    """The user's line that iterates over it."""
    num_batches: int = 0
    step_batches: float = 0.0
    """Batches that a step of the main loop takes, mean: an evaluation between the steps takes others."""
    num_looked: int = 0
    """Batches of which it was seen whether making them drew from a global random stream; without workers alone."""
    num_drew: int = 0
    """For how many of them one was drawn from."""
    num_compared: int = 0
    """Batches of a stream's workers that were compared with the one before them."""
    num_equal: int = 0
    """How many of those were equal to it."""
    unseen_epochs: int = 0
    """Epochs that began while the hooks rested: they are not in the following columns."""
    iter_ns: tuple[int, ...] = ()
    first_wait_ns: tuple[int, ...] = ()
    """The wait for the first batch of each epoch."""
    first_step_ns: tuple[int, ...] = ()
    """From that batch to the end of its step: starting workers take cores, and pages that a fork shares are copied."""
    end_wait_ns: tuple[int, ...] = ()
    """The request that finds each epoch over: workers that do not persist are stopped in it."""

    def per_step(self, num_steps: int) -> int:
        """Batches that a step takes, one at least; where none is seen to be a step's, of all and so many steps."""
        return max(1, round(self.step_batches or (self.num_batches / num_steps if num_steps else 1)))

    @property
    def num_epochs(self) -> int:
        """Epochs that were seen to begin."""
        return len(self.iter_ns) + self.unseen_epochs

    @property
    def comes_again(self) -> bool:
        """Say whether samples were given that had been given before, as far as numbers say."""
        given = self.num_batches * (self.batch_size or 1)
        return self.num_epochs > 1 and self.length is not None and given > self.length


class OptimizerFacts(msgspec.Struct, frozen=True):
    """One optimizer and its setting. Its tensors are those that it updates: frozen ones are none of them."""

    id: int
    kind: str = ""
    fused: bool | None = None
    foreach: bool | None = None
    num_tensors: int = 0
    num_elements: int = 0
    param_bytes: int = 0
    state_bytes: int = 0
    grad_bytes: int = 0
    supports_fused: bool = False
    span: Span | None = None
    """The user's line that calls step()."""
    micro_steps: float = 1.0
    """Backward passes per update."""
    shapes: tuple[tuple[tuple[int, ...], int], ...] = ()
    """Shapes of its parameters, with how many have each."""
    buckets: tuple[int, ...] = ()
    """Bytes of the buckets in which DistributedDataParallel would sum their gradients, the first that comes first."""
    options: dict[str, float | bool | tuple[float, ...]] = {}
    """Its first group's numbers and switches (lr, betas, weight_decay, amsgrad, ...)."""


class ModuleFacts(msgspec.Struct, frozen=True):
    """A module that the program calls itself (not from inside another module)."""

    id: int
    kind: str = ""
    num_params: int = 0
    param_bytes: int = 0
    shared_param_bytes: int = 0
    """Bytes of parameters shared with modules listed before it: a program may call a model and a part of it."""
    trainable_params: int = 0
    frozen: tuple[tuple[float, ...], ...] = ()
    """A few of those that do not train as they were looked at last: version, address, a number."""
    frozen_moved: bool | None = None
    """Whether those that do not train changed between two looks, as a student's average does; null after one look."""
    training: bool = True
    grad_enabled: bool = True
    compiled: bool = False
    calls_per_step: float = 0.0
    repeated_inputs: float = 0.0
    """Calls per step whose inputs (storage, version, shape) were already given to this module in the same step."""
    repeated_span: Span | None = None
    repeated_span_calls: float = 0.0
    """Calls of the module from that line per step, repeats or not."""
    hooks: int = 0
    """Hooks on it and its parts, at the last look."""
    hooks_per_step: float = 0.0
    """How many more each step leaves there, from the first look to the last."""
    repeated_share: float | None = None
    """Elements that it was given again over all that it was given at that line."""
    span: Span | None = None


class OrphanFacts(msgspec.Struct, frozen=True):
    """Parameters that get gradients and are in no optimizer."""

    num_tensors: int = 0
    num_elements: int = 0
    num_bytes: int = 0
    names: tuple[str, ...] = ()
    span: Span | None = None


class InputFacts(msgspec.Struct, frozen=True):
    """An input of a top-level forward, looked at once. `pad_share`: the share of trailing repeats."""

    shape: tuple[int, ...] = ()
    dtype: str = ""
    num_bytes: int = 0
    pad_share: float | None = None
    pad_value: float | None = None
    longest: int | None = None
    """Length of the longest row without its padding; null where not looked at."""
    span: Span | None = None
    made: bool = False
    """A result with a graph, as a loss is given one: no data of the program's."""
    extends: bool | None = None
    """True where integers one longer than those that came in their place before are those and one more."""
    turned: bool = False
    """The model or a part of it takes the length first and the batch second (batch_first=False)."""


class LengthFacts(msgspec.Struct, frozen=True):
    """Sequences in the batches of one loader that were looked at, many of a run."""

    loader: int
    lengths: Annotated[tuple[tuple[Length, Number], ...], msgspec.Meta(max_length=MAX_LENGTHS)] = ()
    """(tokens, sequences that have so many), shortest first; those without a token are only in `rows`."""
    batches: Number = 0
    rows: Number = 0
    cells: Number = 0
    """Rows times columns of every batch: what the model works on."""
    to_longest: Number = 0
    """The same, were each batch as wide as its longest row."""
    narrowest: Number = 0
    widest: Number = 0
    """Columns of the batches."""
    source: str = ""
    """mask, where batches said what a token is, or pad: runs of the value that rows end with."""
    several: bool = False
    """A sample has several sequences, each padded by itself: what sorts one leaves the others as they are."""
    turned: bool = False
    """The batches have a column for each sequence, not a row: rows and columns are told here as if they had rows."""

    @property
    def tokens(self) -> int:
        """Real ones."""
        return sum(length * number for length, number in self.lengths)

    @property
    def fits(self) -> bool:
        """Say whether its figures can be those of batches: a recording may say anything."""
        sequences = sum(number for _, number in self.lengths)
        longest = max((length for length, number in self.lengths if number), default=0)
        return (
            0 < sequences <= self.rows
            and 0 < self.batches <= self.rows
            and longest <= self.widest
            and self.narrowest <= self.widest
            and self.tokens <= self.to_longest <= self.cells <= self.rows * self.widest
        )


class PictureFacts(msgspec.Struct, frozen=True):
    """Work that the program's source does with pixels: the sampler says what the lines cost."""

    floats: tuple[Span, ...] = ()
    """Lines that make bytes floats or scale them, of files that divide by the 255 levels of a byte."""
    chains: tuple[tuple[Span, ...], ...] = ()
    """Lines of resizes that one picture goes through, in that order."""


class DenormalFacts(msgspec.Struct, frozen=True):
    """Share of subnormal values among the sampled values of a parameter, an input or a saved activation."""

    name: str = ""
    share: float = 0.0
    span: Span | None = None


class HeldGraph(msgspec.Struct, frozen=True):
    """A container of the program that keeps tensors, and by how many items it grew per step."""

    name: str = ""
    kind: str = ""
    length: int = 0
    growth_per_step: float = 0.0
    span: Span | None = None
    """The line that adds to it, where it was found in the source; else the loop."""
    graph: bool = True
    """Its tensors have their graphs."""
    storage_bytes: Number = 0
    """Bytes that its last item holds: of a view all of what it is a view of."""
    own_bytes: Number = 0
    """Bytes of that item's own elements."""


class CompileFacts(msgspec.Struct, frozen=True):
    """torch.compile in the steady state."""

    used: bool = False
    recompiles: int = 0
    """Compilations after the first step that was measured as steady."""
    recompile_ns: int = 0
    reasons: tuple[str, ...] = ()
    graph_breaks: int = 0
    """Distinct graph breaks since the program's start."""
    break_reasons: tuple[str, ...] = ()
    break_spans: tuple[Span, ...] = ()
    num_graphs: int = 0
    span: Span | None = None
    limit_hit: bool = False


class SavedTensor(msgspec.Struct, frozen=True):
    """Activations kept for backward, summed by who saved them. Storages are counted once, parameters not at all."""

    module: str = ""
    op: str = ""
    num_bytes: int = 0
    count: int = 0
    span: Span | None = None


class ChildFacts(msgspec.Struct, frozen=True):
    """Processes that the program started, as they stood when the watching ended."""

    processes: int = 0
    """Started with multiprocessing, loader workers not counted."""
    cpu_ns: int = 0
    """CPU time of all processes that have ended and were waited for, whoever started them."""
    loaders_ns: int = 0
    """CPU time of the loader workers among them."""
    own_ns: int = 0

    @property
    def others_ns(self) -> int:
        """CPU time of those that are no loader workers."""
        return max(0, self.cpu_ns - self.loaders_ns)


class Settings(msgspec.Struct, frozen=True):
    """Global switches of torch and of the process, as they stood in the steady state; null where not known."""

    threads: int | None = None
    cores: int | None = None
    """CPUs on which the process may run."""
    anomaly: bool | None = None
    deterministic: bool | None = None
    matmul_precision: str | None = None
    flush_denormal: bool | None = None
    default_dtype: str | None = None
    autocast: str | None = None
    profiler_on: bool | None = None
    debug_env: tuple[str, ...] = ()
    """Environment variables that slow torch down on purpose (TORCH_SHOW_CPP_STACKTRACES, CUDA_LAUNCH_BLOCKING...)."""
    trainer: str = ""
    """The library whose loop it is, of capture.facts.program_facts.TRAINERS; empty where the program writes its own."""
    trainer_span: Span | None = None
    arguments_span: Span | None = None
    """The user's lines that run it, and that make it or the object that holds its arguments."""
    argument_lines: dict[str, int] = {}
    """The line of each argument that is given there."""
    padding_span: Span | None = None
    """The user's line that says padding="max_length"."""
    mkldnn: bool | None = None
    anomaly_span: Span | None = None
    deterministic_span: Span | None = None
    threads_span: Span | None = None
    """The user's line that set it, where it was found in the source of the program's files."""


class Wrapper(msgspec.Struct, frozen=True):
    """A DistributedDataParallel and its arguments; `id` is its number among the modules."""

    id: int
    bucket_bytes: int = 0
    ranks: int = 0
    """Ranks that sum gradients with it."""
    find_unused_parameters: bool = False
    gradient_as_bucket_view: bool = False
    static_graph: bool = False
    broadcast_buffers: bool = True


class RankFacts(msgspec.Struct, frozen=True):
    """This process among the ranks of its job."""

    rank: int
    world_size: int
    backend: str = ""
    batches: tuple[int, ...] = ()
    """Checksums of the first batches that loaders handed out, in order."""
    wrappers: tuple[Wrapper, ...] = ()


class Facts(msgspec.Struct, frozen=True):
    """Everything noted beside times."""

    settings: Settings = Settings()
    loaders: tuple[LoaderFacts, ...] = ()
    optimizers: tuple[OptimizerFacts, ...] = ()
    modules: tuple[ModuleFacts, ...] = ()
    orphans: OrphanFacts | None = None
    inputs: tuple[InputFacts, ...] = ()
    counted_steps: int = 1
    """In which they were noted."""
    lengths: tuple[LengthFacts, ...] = ()
    pictures: PictureFacts = PictureFacts()
    denormals: tuple[DenormalFacts, ...] = ()
    held_graphs: tuple[HeldGraph, ...] = ()
    compile: CompileFacts = CompileFacts()
    children: ChildFacts | None = None
    ranks: RankFacts | None = None
    """Null where no process group of several ranks is set up."""
    saved: tuple[SavedTensor, ...] = ()
    saved_total: int | None = None
    gc_ns_per_step: float | None = None
    gc_runs_per_step: float | None = None
    gc_usual_ns: float | None = None
    gc_by_hand: float | None = None
    """ns of collections in the usual step, without rare ones; the share that gc.collect() has of them. Runs are of the
    kind that took more."""
    eval_span: Span | None = None
    """The user's line that puts a model into evaluation mode, where one does."""
    gc_span: Span | None = None
    gc_library: Span | None = None
    """The user's line that calls gc.collect(), where one does; or a library's, in a function that runs the loop."""
    rss_growth_per_step: float | None = None
    rss_bytes: int | None = None
    peak_rss_bytes: int | None = None
    device_peak_bytes: int | None = None
    """Most that tensors held on the device that holds most, by its allocator; the two below likewise."""
    device_reserved_bytes: int | None = None
    device_capacity_bytes: int | None = None
    device_failed: int | None = None
    """Allocations that failed on it; where the program went on, it has caught them."""
    device_growth_per_step: float | None = None
    runtime_bytes: int | None = None
    """Resident when torch had been imported: the interpreter and torch, before the program made anything."""
    memory_limit: int | None = None
    swap_used: int | None = None
    minor_faults_per_step: float | None = None
    minor_faults_before: float | None = None
    """The same before the first window, warm-up left out: what a profiler leaves in the heap may end them."""
    minor_faults_after: float | None = None
    other_load: float | None = None
    """Cores that other processes kept busy while the plain steps ran, mean; of the cores that this one may use."""
    process_load: float | None = None
    """Cores that this process kept busy, its loader workers not counted, mean over the plain steps."""
    waiting_load: float | None = None
    """Threads of this process that were ready to run and had no core, mean; null where the kernel does not tell."""
    stolen_load: float | None = None
    """Cores' worth of time that the host took from the CPUs of this process, mean."""

    @property
    def main_loader(self) -> LoaderFacts | None:
        """The loader that serves the main loop's steps: of most of their batches, or of all where none is known."""
        return max(self.loaders, key=lambda each: (each.step_batches, each.num_batches), default=None)
