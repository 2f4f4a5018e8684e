"""The OutOfMemory noun: which allocation failed, where, and what held memory then. Missing is null, never zero."""

from __future__ import annotations

from typing import Annotated

import msgspec

from gobrrr.recording.model.facts import HeldGraph, Span

Number = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
Text = Annotated[str, msgspec.Meta(max_length=4_096)]


class Group(msgspec.Struct, frozen=True):
    """Equal tensors or arrays of one role."""

    name: Text = ""
    """The layer or parameter that they are of, or the variable that holds them; numbers in it are *."""
    op: Text = ""
    shape: tuple[int, ...] = ()
    dtype: Text = ""
    num_bytes: Number = 0
    count: Number = 0
    shown: float = 1.0
    """Share of their bytes that the views which hold them show."""


class Role(msgspec.Struct, frozen=True):
    """A use of memory: parameters, gradients, optimizer state, activations, variables, arrays and others."""

    role: Text = ""
    num_bytes: Number = 0
    groups: tuple[Group, ...] = ()


class Input(msgspec.Struct, frozen=True):
    """A tensor that the failed call was given."""

    name: Text = ""
    shape: tuple[int, ...] = ()
    dtype: Text = ""
    num_bytes: Number = 0


class Process(msgspec.Struct, frozen=True):
    """Bytes of the process: resident, at most, of its address space, of its data, in swap, before it made anything."""

    resident: Number | None = None
    peak: Number | None = None
    virtual: Number | None = None
    data: Number | None = None
    swap: Number | None = None
    runtime: Number | None = None


class Bounds(msgspec.Struct, frozen=True):
    """Bytes that a process may have: by RLIMIT_AS, RLIMIT_DATA, its group or machine; `free`: still to be had there."""

    address_space: Number | None = None
    data: Number | None = None
    memory: Number | None = None
    free: Number | None = None


class DeviceState(msgspec.Struct, frozen=True):
    """A device's memory as its allocator and its driver tell it, in bytes."""

    name: Text = ""
    number: Number = 0
    total: Number | None = None
    free: Number | None = None
    """By the driver: outside of what torch has reserved."""
    allocated: Number | None = None
    """By tensors."""
    reserved: Number | None = None
    """By torch for tensors, in use or not."""
    peak: Number | None = None
    largest_free_block: Number | None = None
    """Largest part of what is reserved and not in use."""
    in_process: Number | None = None
    """By this process, what is not torch's included."""
    others: Number | None = None
    """By other processes."""
    times: Number = 0
    """How often an allocation failed, the program's caught ones included."""
    retries: Number = 0
    """How often the cache was emptied for one."""


class OutOfMemory(msgspec.Struct, frozen=True):
    """An allocation that failed and ended the program, or the kernel's killing of it (`kind` is "killed")."""

    type: Text = ""
    """Class of the error."""
    text: Text = ""
    kind: Text = ""
    """Memory that ran out: device, cpu, numpy, worker, killed, python."""
    asked: Number | None = None
    """Bytes that were asked for; null where the message does not say."""
    steps: Number | None = None
    """Steps that were done by then; null where a log alone tells."""
    lines: tuple[Span, ...] = ()
    """The user's lines that led to it, the innermost first."""
    function: Text = ""
    """The innermost function, the user's or a library's."""
    phase: Text = ""
    """forward, evaluation, backward, optimizer, loading, loading a file; empty where none of them."""
    model: Text = ""
    layer: Text = ""
    layer_kind: Text = ""
    layers_before: Number | None = None
    num_layers: Number | None = None
    """Modules of the model, and how many stand before the failed one (of one that holds others: half of those too)."""
    training: bool | None = None
    batch_norm: bool = False
    optimizers: tuple[Text, ...] = ()
    """Their classes."""
    optimizer_options: tuple[Text, ...] = ()
    """Options of the first one that are on and make it hold more state: momentum, amsgrad, centered."""
    history_size: Number | None = None
    """Pairs of vectors that LBFGS keeps; null of others."""
    learns: bool = False
    """The function that called the model runs a backward pass too."""
    repeated: Number = 1
    """Optimizers over parameters of the same shapes, where several are alive."""
    repeated_in: Text = ""
    """Holder of the first of these."""
    inputs: tuple[Input, ...] = ()
    carried: Text = ""
    """Argument of the outermost module's forward, or attribute in it, that brings the graph of the steps before."""
    libraries: tuple[Text, ...] = ()
    """Functions of installed packages on the way to the failed line, as 'package/module.function'."""
    masks: tuple[tuple[Text, tuple[int, ...], float], ...] = ()
    """(name, shape, share that is true) of masks with a row for each sample."""
    gradient_graphs: bool = False
    """Gradients have a graph themselves (create_graph=True)."""
    of_model: bool = False
    """The inputs are those that the outermost module's forward was called with."""
    usual: tuple[Input, ...] = ()
    """Inputs of steps before."""
    alive: dict[Text, tuple[Role, ...]] = {}
    """By device (cpu, cuda:0)."""
    in_backward: tuple[Text, Text] | None = None
    """Layer and op that a backward pass had come to."""
    summed: tuple[tuple[Text, Number], ...] = ()
    """(variable, terms) of sums over steps whose terms keep their graphs: total += loss."""
    grown: tuple[HeldGraph, ...] = ()
    notes: tuple[Text, ...] = ()
    settings: dict[Text, Text] = {}
    process: Process = Process()
    limits: Bounds = Bounds()
    device: DeviceState | None = None

    @property
    def on_device(self) -> bool:
        """Say whether an accelerator's memory ran out, not the host's."""
        return self.kind == "device" and self.device is not None

    @property
    def place(self) -> str:
        """Return the device whose memory ran out, as torch names it; the only one that holds tensors, where it has
        another name."""
        if not self.on_device or self.device is None:
            return "cpu"
        named = f"cuda:{self.device.number}"
        return named if named in self.alive else next((each for each in self.alive if each != "cpu"), named)

    def roles(self) -> dict[str, int]:
        """Return the bytes of each role where memory ran out, the largest first."""
        return {role.role: role.num_bytes for role in self.alive.get(self.place, ())}
