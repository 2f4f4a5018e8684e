"""One trace, once read: frozen columns of events, whichever year, vendor or unit they were written in.

All times are int64 nanoseconds since the Unix epoch where the trace says when it was (`baseTimeNanoseconds`, or
absolute microseconds), durations int64 nanoseconds. Columns of one table have one length and are sorted by start, the
longer event first, so that a parent stands before its children. -1 is "not recorded" in every integer column that has
no other use for it. Names are data from a stranger: raw, as long as NAME_CHARS at most, and not yet safe to print.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from gobrrr.spans import among

Ints = npt.NDArray[np.int64]
Ids = npt.NDArray[np.int32]
Codes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]
Shape = tuple[Any, ...]
"""() for a scalar or a non-tensor, (3, 4) for a tensor, ((3, 4), (3, 4)) for a list of tensors."""

NAME_CHARS = 8192
"""Templates make kernel names of some thousand characters; what is longer than this is cut."""
NO_TIME = np.int64(-(2**63))

# Kinds of host events (Ops.kind).
CPU_OP, USER_ANNOTATION, PYTHON_FUNCTION, OVERHEAD, OTHER = range(5)
# Kinds of device events (Kernels.kind).
KERNEL, MEMCPY, MEMSET, COMMUNICATION, DEVICE_ANNOTATION, DEVICE_SYNC = range(6)

T = TypeVar("T", bound="Columns")


@dataclass(frozen=True, eq=False)
class Columns:
    """A table whose fields are arrays of one length."""

    def __len__(self) -> int:
        return len(getattr(self, dataclasses.fields(self)[0].name))

    def take(self: T, index: npt.NDArray[Any] | slice) -> T:
        """The rows that an index array, a boolean mask or a slice picks."""
        return type(self)(**{f.name: getattr(self, f.name)[index] for f in dataclasses.fields(self)})


@dataclass(frozen=True)
class ThreadInfo:
    """A host thread; ids are text where the trace has text."""

    pid: int | str
    tid: int | str
    name: str = ""


@dataclass(frozen=True)
class Signature:
    """Inputs that an op was called with, one entry each; each tuple is empty where it was not recorded."""

    shapes: tuple[Shape, ...] = ()
    dtypes: tuple[str, ...] = ()
    """As the profiler writes them: float, c10::BFloat16, long int, TensorList, Scalar, ''."""
    strides: tuple[Shape, ...] = ()
    concrete: tuple[str, ...] = ()
    """Values of scalars and lists of them as text, '' for tensors."""


@dataclass(frozen=True)
class Collective:
    """Facts that a communication library tells of its own call; counts are elements of `dtype`, -1 where not said."""

    name: str = ""
    dtype: str = ""
    in_elements: int = -1
    out_elements: int = -1
    group_size: int = -1
    group: str = ""
    ranks: str = ""
    """The group's, as text; of a large group the first ones alone."""
    seq: int = -1
    """Its number among the calls of its group, the same on all ranks."""


@dataclass(frozen=True, eq=False)
class Ops(Columns):
    """Everything that ran on the host: torch ops, annotations, Python functions, the profiler's own overhead."""

    name: Ids
    """Into Trace.names."""
    start: Ints
    dur: Ints
    thread: Ids
    """Into Trace.threads."""
    kind: Codes
    """CPU_OP, USER_ANNOTATION, PYTHON_FUNCTION, OVERHEAD or OTHER."""
    signature: Ids
    """Into Trace.signatures."""
    sequence: Ints
    """Number of the autograd node: a forward op and the backward op of its node have the same."""
    forward_thread: Ints
    """torch's number of the thread that ran the forward; above 0 in backward ops alone."""
    external_id: Ints
    """Launches and kernels of this op have the same; ids grow in order of entry."""
    is_backward: Flags
    """The event is a node of the backward pass, or lies within one on its thread."""
    stack: Ids
    """Into Trace.stacks: the Python stack as text, innermost frame first, in the format of 2021."""
    collective: Ids
    """Into Trace.collectives."""

    def with_rows(self, names: list[int], starts: list[int], durs: list[int], kind: int) -> Ops:
        """The same with events more on the thread of the first, each before what begins with it and is no longer; what
        else is said of an event is not recorded."""
        if not names or not len(self):
            return self
        own = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        rows = {name: np.full(len(names), -1).astype(column.dtype) for name, column in own.items()}
        rows |= {"name": np.array(names), "start": np.array(starts), "dur": np.array(durs)}
        rows |= {"kind": np.full(len(names), kind), "is_backward": np.zeros(len(names), bool)}
        rows["thread"] = np.repeat(self.thread[:1], len(names))
        joined = {name: np.concatenate((rows[name].astype(column.dtype), column)) for name, column in own.items()}
        return Ops(**joined).take(np.lexsort((-joined["dur"], joined["start"])))


@dataclass(frozen=True, eq=False)
class Kernels(Columns):
    """Everything that ran on an accelerator."""

    name: Ids
    start: Ints
    dur: Ints
    device: Ints
    stream: Ints
    correlation: Ints
    """The launch in Trace.runtime with the same number; -1 where the launch was not recorded."""
    external_id: Ints
    """The op that launched it; -1 where not recorded."""
    kind: Codes
    """KERNEL, MEMCPY, MEMSET, COMMUNICATION (DEVICE_ANNOTATION, DEVICE_SYNC in their own tables)."""
    bytes: Ints
    """Bytes of copies and sets."""
    blocks_per_sm: npt.NDArray[np.float64]
    """Blocks of the grid per multiprocessor; NaN where not recorded."""
    collective: Ids


@dataclass(frozen=True, eq=False)
class Runtime(Columns):
    """Calls into the accelerator's runtime and driver: launches, copies, synchronisations."""

    name: Ids
    start: Ints
    dur: Ints
    thread: Ids
    correlation: Ints
    external_id: Ints


def launch_rows(kernels: Kernels, runtime: Runtime) -> npt.NDArray[np.intp]:
    """The row of `runtime` that launched each kernel, -1 where that was not recorded, or where calls one after another
    have its number: which of them it was cannot be told. Of nested ones (a driver's in a runtime's) it is the outer."""
    order = np.argsort(runtime.correlation, kind="stable")
    if not len(order):
        return np.full(len(kernels), -1, np.intp)
    known, start = runtime.correlation[order], runtime.start[order]
    again = (known[1:] == known[:-1]) & (start[1:] >= (start + runtime.dur[order])[:-1])
    at = np.minimum(np.searchsorted(known, kernels.correlation), len(order) - 1)
    told = (known[at] == kernels.correlation) & (kernels.correlation >= 0)
    return np.where(told & ~among(kernels.correlation, known[1:][again]), order[at], -1)


def lanes(kernels: Kernels) -> npt.NDArray[np.intp]:
    """A number for each event's stream, from 0: streams of two devices have two."""
    device, stream = (np.unique(column, return_inverse=True)[1] for column in (kernels.device, kernels.stream))
    lane = device * (int(stream.max(initial=0)) + 1) + stream
    found: npt.NDArray[np.intp] = np.unique(lane, return_inverse=True)[1]  # as many streams as events may be named
    return found


@dataclass(frozen=True, eq=False)
class Flows(Columns):
    """Links from the forward op that made an autograd node to the backward op that ran it."""

    forward: Ints
    forward_thread: Ids
    backward: Ints


@dataclass(frozen=True, eq=False)
class Steps(Columns):
    """The windows of profiler.step()."""

    number: Ints
    start: Ints
    dur: Ints
    thread: Ids


@dataclass(frozen=True, eq=False)
class Markers(Columns):
    """gobrrr's own marks: names that start with `gobrrr.`, as instants (dur 0) or annotations."""

    name: Ids
    start: Ints
    dur: Ints
    thread: Ids


@dataclass(frozen=True, eq=False)
class Memory(Columns):
    """Allocations (bytes > 0) and frees (bytes < 0)."""

    start: Ints
    thread: Ids
    bytes: Ints
    address: Ints
    total_allocated: Ints
    total_reserved: Ints
    device_type: Ints
    """0 CPU, 1 CUDA, 6 HIP: c10::DeviceType."""
    device: Ints


@dataclass(frozen=True)
class Properties:
    """Facts that the file tells of the run beside its events. A flag is None where the file does not say."""

    devices: tuple[dict[str, Any], ...] = ()
    distributed: dict[str, Any] = field(default_factory=dict)
    record_shapes: bool | None = None
    with_stack: bool | None = None
    profile_memory: bool | None = None
    base_time: int = 0
    """ns that were added to every time."""
    profiler: str = "torch"
    """Name of the recorder: torch (Kineto) or nsys."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Everything else at the document's top level."""

    @property
    def rank(self) -> int | None:
        """This process's rank, None where the file does not say."""
        rank = self.distributed.get("rank")
        return rank if isinstance(rank, int) else None

    @property
    def world_size(self) -> int | None:
        """Number of ranks, None where the file does not say."""
        size = self.distributed.get("world_size")
        return size if isinstance(size, int) else None


@dataclass(frozen=True, eq=False)
class Trace:
    """One process's trace."""

    source: str
    """The file's name, for messages."""
    names: tuple[str, ...]
    threads: tuple[ThreadInfo, ...]
    signatures: tuple[Signature, ...]
    stacks: tuple[str, ...]
    collectives: tuple[Collective, ...]
    ops: Ops
    kernels: Kernels
    device_annotations: Kernels
    """The user's annotations as spans on the device's streams; they are no work and count in no busy time."""
    runtime: Runtime
    flows: Flows
    steps: Steps
    markers: Markers
    memory: Memory
    properties: Properties
    signals: frozenset[str]
    """Data that are there: ops, shapes, stacks, device, links (kernels with a launch), memory, steps, flows, python.
    foreign: nothing in the file is of PyTorch."""
    skipped: Counter[str]
    """Events that were left out, by reason."""
    truncated: bool = False
    note: str = ""
    """Parts that are missing and where the file broke, in words; empty for a whole file."""

    def name(self, index: int) -> str:
        """The raw name with this id."""
        return self.names[index]

    def ids(self, *names: str) -> Ids:
        """Ids of those of `names` that occur."""
        wanted = frozenset(names)
        return np.array([i for i, name in enumerate(self.names) if name in wanted], np.int32)
