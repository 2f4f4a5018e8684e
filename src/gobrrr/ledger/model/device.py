"""The accelerator's side of a step: its work, its idle, its memory. A part of the Ledger noun; per step."""

from __future__ import annotations

import msgspec

from gobrrr.recording.model.facts import Span


class DeviceOp(msgspec.Struct, frozen=True):
    """All calls of one op in one dtype, by the kernels that it launched. Per step."""

    name: str
    dtype: str
    """fp32, tf32, bf16, fp16, fp64, fp8, int8 or int64, ..."""
    calls: float
    ns: float
    """Kernel time."""
    flops: float
    bytes: float
    floor_ns: float
    """Least ns that the work takes at the ceiling; never more than `ns`."""
    bound: str
    """compute or bandwidth: which floor was the higher for most of it."""
    ceiling: float
    """FLOP/s of what is bound by compute, else bytes/s: what `rate` is held against."""
    shapes: str = ""
    """Shapes of its tensors, where calls of different shapes are told apart: '32x512, 512x2048'."""

    @property
    def believed(self) -> bool:
        """A rate at the ceiling or above is none: what was counted may have come from a cache, or did not happen."""
        return self.floor_ns < self.ns and self.rate < self.ceiling

    @property
    def rate(self) -> float:
        """FLOP/s of what is bound by compute, else bytes/s."""
        return 1e9 * (self.flops if self.bound == "compute" else self.bytes) / self.ns if self.ns else 0.0

    @property
    def reached(self) -> float:
        """`rate` as a share of its ceiling. Where calls are bound by different things their floor is a larger one."""
        return self.rate / self.ceiling if self.believed else 1.0


class DeviceWork(msgspec.Struct, frozen=True):
    """Kernels against FLOPs and bytes of the ops that launched them. ns per step, summed over streams."""

    ops: tuple[DeviceOp, ...] = ()
    kernel_ns: float = 0.0
    counted_ns: float = 0.0
    """Part of `ns` in ops whose work is modelled: `compute_ns` and `bandwidth_ns` of that is their floor."""
    compute_ns: float = 0.0
    bandwidth_ns: float = 0.0
    dtype: str = "fp32"
    """That of most FLOPs, with its ceiling."""
    ceiling_flop_rate: float | None = None
    ceiling_byte_rate: float | None = None
    ceiling: str = ""
    """Where the ceilings come from: measured there, or a data sheet."""
    not_counted: tuple[tuple[str, float], ...] = ()
    """Ops that are not modelled with their kernels' time, the longest first."""
    recomputed_flops: float = 0.0
    """FLOPs of forward ops that ran again in backward."""
    by_shape: tuple[DeviceOp, ...] = ()
    """Products, convolutions and attention again, each shape by itself, the longest first."""

    @property
    def flops(self) -> float:
        """Return the FLOPs of all counted ops."""
        return sum(op.flops for op in self.ops)


class DeviceMemory(msgspec.Struct, frozen=True):
    """The accelerator's memory in the window's steps, by the allocator's own record. Bytes."""

    peak: int
    """Most that tensors held at once."""
    reserved: int | None = None
    """Most that the allocator had taken from the driver; null where not recorded."""
    op: str = ""
    """The op that allocated when the peak was reached."""
    where: tuple[Span, ...] = ()
    growth_per_step: float | None = None
    """Bytes that every step leaves allocated, at least; null where there were too few."""
    driver_calls: float = 0.0
    """Allocations and releases per step that went to the driver: a warm allocator makes none."""
    capacity: int | None = None
    since_start: bool = False
    """No totals were recorded: the peak is above what was there when the recording began."""
    resident: int | None = None
    """Most that the process held of the machine's own memory beside it; null where nobody looked."""


class SizedCalls(msgspec.Struct, frozen=True):
    """All collectives of one kind and size. Per step."""

    size: float
    """Bytes of one call, as nccl-tests counts them: of all ranks where they are gathered or scattered."""
    calls: float
    ns: float
    """Time in ns of their kernels, waiting for later ranks included."""
    fastest_ns: float
    """Time in ns if each had been as fast as the fastest of them."""
    bus_bytes: float
    """Bytes times the kind's factor of bus bandwidth."""


class Transfer(msgspec.Struct, frozen=True):
    """All collectives of one kind whose sizes are known. Per step."""

    kind: str
    """all-reduce, all-gather, reduce-scatter, all-to-all, broadcast, reduce, send."""
    sizes: tuple[SizedCalls, ...] = ()
    """The size with most time first."""

    @property
    def calls(self) -> float:
        """How many."""
        return sum(one.calls for one in self.sizes)

    @property
    def bytes(self) -> float:
        """Return the bytes of all of them."""
        return sum(one.size * one.calls for one in self.sizes)

    @property
    def ns(self) -> float:
        """Return the time in ns of their kernels, waiting for later ranks included."""
        return sum(one.ns for one in self.sizes)

    @property
    def fastest_ns(self) -> float:
        """Return the time in ns if each had been as fast as the fastest of its size."""
        return sum(one.fastest_ns for one in self.sizes)

    @property
    def bus_bytes(self) -> float:
        """Bytes times the kind's factor of bus bandwidth."""
        return sum(one.bus_bytes for one in self.sizes)

    @property
    def bus_rate(self) -> float:
        """Bus bandwidth, bytes per second."""
        return self.bus_bytes / self.ns * 1e9 if self.ns else 0.0


class DeviceLedger(msgspec.Struct, frozen=True):
    """The accelerator's side of a step, ns per step. Idle is split by what the host was doing."""

    name: str
    busy_ns: float
    idle_ns: float
    span_busy_share: float
    idle_by_cause: tuple[tuple[str, float], ...] = ()
    exposed_copy_ns: float = 0.0
    copies: tuple[tuple[str, int, float, float], ...] = ()
    """(kind such as 'Memcpy HtoD (Pageable -> Device)', count, bytes, ns) per step."""
    kernels: tuple[tuple[str, float, float, str], ...] = ()
    """(name, calls, ns, class: matmul, convolution, attention, elementwise, reduction, communication, other)."""
    syncs: tuple[tuple[str, float, float, tuple[Span, ...]], ...] = ()
    """(call, calls per step, idle ns it causes, user lines)."""
    host_ops: tuple[tuple[str, float, float, tuple[Span, ...]], ...] = ()
    """(op, calls per step, idle ns per step, user lines) of ops that compute on the host for milliseconds."""
    plain_syncs: tuple[tuple[str, float, float, tuple[Span, ...]], ...] | None = None
    """The same of a plain step, by the window played again at its speed; null where it could not be."""
    lighter: tuple[tuple[float, float], ...] = ()
    """(ns of kernels that go, ns by which the plain step gets shorter) where the window was played again so."""
    longest: tuple[str, float] = ("", 0.0)
    """Name of the kernel that runs longest with nothing beside it, and those ns."""
    short_kernel_share: float = 0.0
    """Share of the kernels that run under 10 us and were launched each by itself, not by a graph."""
    underfilled_share: float | None = None
    """Share of kernel time in kernels with less than one block per multiprocessor: a grid that leaves some of them
    without work. Null where the profiler did not say."""
    tensor_core_ns: float = 0.0
    """In kernels that by their names use matrix units."""
    tensor_core_eligible_ns: float = 0.0
    """In fp32 products and convolutions that by their names do not."""
    capability: str = ""
    exposed_communication_ns: float = 0.0
    transfers: tuple[Transfer, ...] = ()
    """Collectives by kind; empty where the file has no sizes."""
    within_a_host: bool = False
    """All ranks fit in the devices of this host. False: they may be anywhere."""
    unlinked_share: float = 0.0
    """Share of the device's events whose launch was not recorded: in busy time, and in nothing that needs the link."""
    ahead_ns: float = 0.0
    """How long before their launch at least one in twenty kernels begins: the clocks of host and device differ."""
    captured_share: float = 0.0
    """Share of a kernel's launches that go into a graph: they run when it is replayed."""
    unseen_share: float = 0.0
    """Share of launched kernels that the file does not have: it looks idle where they ran."""
    overlap_share: float = 0.0
    """Share of the device's time in which two events of one stream run at once."""
    awaited_ns: float = 0.0
    """For which the host stands in a synchronising call while the device works off what was launched."""
    held_ns: float = 0.0
    """Part of the host's idle in stretches too long to be on the way to a launch."""
    start_up_ns: float = 0.0
    """Idle inside calls that only the device's start-up makes so long."""
    replayed_share: float = 0.0
    """Share of kernel time that graph replay launched: no op and no line owns it."""
    memory: DeviceMemory | None = None
    work: DeviceWork | None = None
    """Null where no shapes were recorded, or nothing is known of the device."""

    @property
    def starved_ns(self) -> float:
        """Idle for want of work. Stalled it has its next work: no host, loader or line could have helped."""
        return max(0.0, self.idle_ns - dict(self.idle_by_cause).get("stalled", 0.0))
