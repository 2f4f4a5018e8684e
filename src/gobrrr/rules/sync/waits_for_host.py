"""BRR501 to BRR505: an accelerator that waits for the host, priced by its idle time, not by how long calls take."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import compress

from gobrrr.ledger.model.ledger import HostGroup, Ledger
from gobrrr.machine.model.machine import Machine
from gobrrr.recording.model.facts import Span
from gobrrr.rules.model.evidence import count, ratio, time, worth_telling
from gobrrr.rules.model.finding import Cause, Quantity, fitting, is_compiled, rule
from gobrrr.rules.model.lines import WHOLE
from gobrrr.rules.model.shapes import costliest_line, grouped
from gobrrr.units import duration, share, size

EXPOSED = 0.05
"""Share of the step in copies that nothing hides (TraceLens: memcpy > 5 %)."""
IDLE = 0.15
"""Idle share from which launches bind the step (TraceLens 15 %, XProf 15 %)."""
SHORT = 0.5
"""Share of kernels under 10 us from which launching them costs more than running them (TraceLens)."""
LEAST_HERE = 0.1
"""Share of a finding's time that must lie under a line before it stands for it (proposed)."""
LAUNCHING = frozenset({"launch", "dispatch", "overhead", "framework", "host"})
"""Causes of idle time in which the host was on its way to the next launch."""
FROM_PAGEABLE = "Copy from pinned memory (pin_memory=True) with non_blocking=True; a constant once, before the loop."
AHEAD = "DataLoader(..., pin_memory=True) and .to(device, non_blocking=True), one batch ahead."
OF_CUDA = {
    FROM_PAGEABLE: "Copy from pinned memory (cudaHostAlloc) with cudaMemcpyAsync; a constant once, before the loop.",
    AHEAD: "Copy from pinned memory (cudaHostAlloc) with cudaMemcpyAsync, on another stream than the kernels that run.",
    "prefetch": "Move unified memory before the kernels that use it (cudaMemPrefetchAsync).",
    "launches": "Capture the launches in a CUDA graph, or let fewer kernels do more each.",
}
"""What helps likewise in a program that is none of PyTorch's."""
STALLS = frozenset({"aten::item", "aten::_local_scalar_dense", "aten::nonzero", "aten::is_nonzero"})
"""Ops whose result the host must read: on a GPU they wait until everything before them is done."""


@rule("BRR501", "sync", needs={"plain", "device"})
def synchronisation(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Calls that wait for the device, priced by how long the device then idles until the next kernel."""
    for call, calls, idle, where in sorted(ledger.device.syncs if ledger.device else (), key=lambda s: -s[2]):
        kept = "Keep the value on the device and read it every few hundred steps."
        advice = _advice(ledger, FROM_PAGEABLE) if "HtoD" in call else kept
        told = f"{call} stops the host {calls:.0f} times per step", "until the next kernel comes"
        yield from _idles(ledger, calls, idle, where, told, advice)


def _idles(
    ledger: Ledger, calls: float, idle: float, where: tuple[Span, ...], told: tuple[str, str], advice: str
) -> Iterator[Cause]:
    """Yield what makes the device idle for so long; `told`: what the message says before and after that."""
    if worth_telling(ledger, 0.8 * idle):
        yield Cause(
            saving=(0.3 * idle, 0.8 * idle, idle),
            message=f"{told[0]}, and the device idles {duration(idle)} ({share(idle / ledger.wall)}) {told[1]}",
            advice=advice,
            where=where,
            evidence={"idle_caused": time(idle), "calls_per_step": count(calls)},
        )


@rule("BRR502", "transfer", needs={"plain", "device"}, remedies=("pin_memory", "prefetch"))
def exposed_copies(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Copies between host and device that no kernel hides; from pageable memory they cannot be hidden."""
    device = ledger.device
    if device is None or device.exposed_copy_ns < EXPOSED * ledger.wall:
        return
    copies = [copy for copy in device.copies if "HtoD" in copy[0] or "DtoH" in copy[0]] or list(device.copies)
    pageable = [copy for copy in copies if "Pageable" in copy[0]]
    everything, slow = sum(copy[3] for copy in copies), sum(copy[3] for copy in pageable)
    moved = sum(copy[3] for copy in copies if "Managed" in copy[0])
    num_bytes = sum(copy[2] for copy in copies)
    if not worth_telling(ledger, 0.7 * device.exposed_copy_ns):
        return
    here = machine.device
    rates = {"pinned_rate": here.pinned, "pageable_rate": here.pageable} if here else {}
    part = f", {share(slow / everything)} of them from pageable memory" if slow and everything else ""
    yield Cause(
        saving=((0.4 if slow else 0.2) * device.exposed_copy_ns, 0.7 * device.exposed_copy_ns, device.exposed_copy_ns),
        message=f"copies of {size(num_bytes)} hold up the device for {duration(device.exposed_copy_ns)} "
        f"({share(device.exposed_copy_ns / ledger.wall)}) per step{part}",
        advice=OF_CUDA["prefetch"] if moved > everything / 2 else _advice(ledger, AHEAD),
        where=costliest_line(op for op in ledger.named("aten::_to_copy", "aten::copy_") if op.where),
        evidence={
            "exposed": time(device.exposed_copy_ns),
            "copies": count(sum(copy[1] for copy in copies)),
            "bytes": Quantity(round(num_bytes), "B"),
            "pageable": time(slow),
        }
        | {name: Quantity(round(rate.median), "B/s") for name, rate in rates.items()},
    )


@rule("BRR503", "sync", needs={"ops"}, portability=True)
def would_stall_a_gpu(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """.item(), .tolist(), bool(tensor), nonzero: free on a CPU, a stall on a GPU. Costs nothing here."""
    if ledger.device is not None:
        return  # BRR501 prices them
    reads = (op for op in ledger.ops if op.name in STALLS and op.where and op.phase != "data")
    # item() calls _local_scalar_dense: one stall, not two.
    lines = grouped((op for op in reads if not STALLS & set(op.parents)), lambda op: op.where[0].place)
    found = [(sum(op.calls for op in ops), ops[0].where) for ops in lines.values()]
    for calls, where in sorted(found, key=lambda each: -each[0]):
        yield Cause(
            level="note",
            message=f"this line reads a tensor {max(1.0, calls):.0f} times per step: free here, on a GPU each waits "
            "for all work before it",
            advice="Keep it a tensor; read it every few hundred steps.",
            where=where,
            evidence={"calls_per_step": count(calls)},
            confidence="inferred",
        )


@rule("BRR504", "overhead", needs={"plain", "device"}, remedies=("compile", "compile_reduce_overhead"))
def launch_bound(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """The host launches kernels more slowly than the device runs them: they are short, or torch is late."""
    device, launching = ledger.device, launches(ledger)
    if device is None or not launching:
        return
    where = costliest_line(op for op in ledger.ops if op.where)
    here = _at(ledger, where)
    where = () if 0 < here < LEAST_HERE * launching else where
    calls = sum(kernel[1] for kernel in device.kernels)
    inside = "torch" if "ops" in ledger.signals else "calls of CUDA"
    yield Cause(
        saving=(0.2 * launching, 0.6 * launching, launching),
        message=fitting(
            f"the device idles {share(device.starved_ns / ledger.wall)} of the step, {duration(launching)} of it "
            + (
                f"while the host launches: {share(device.short_kernel_share)} of {calls:.0f} kernels run under 10 us"
                if device.short_kernel_share > SHORT
                else f"while the host is inside {inside}, on its way to {calls:.0f} kernels"
            ),
            f"; {duration(here)} of it under this line" if where and here < WHOLE * launching else "",
        ),
        advice=_fewer_launches(ledger),
        where=where,
        evidence={
            "idle": time(device.starved_ns),
            "idle_launching": time(launching),
            "short_kernel_share": ratio(device.short_kernel_share),
            "kernels_per_step": count(calls),
        }
        | ({"at_line": time(here)} if where else {}),
    )


@rule("BRR505", "host", needs={"plain", "device", "ops"})
def computed_on_host(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """An op on a CPU tensor, random numbers say, that the device waits for."""
    for op, calls, idle, where in ledger.device.host_ops if ledger.device else ():
        advice = "Compute it where it is needed, torch.randn(..., device=device) say, or in a loader's worker."
        told = f"{op.removeprefix('aten::')} computes on the host", "of the step for it"
        yield from _idles(ledger, calls, idle, where, told, advice)


def _advice(ledger: Ledger, advice: str) -> str:
    return OF_CUDA[advice] if "foreign" in ledger.signals else advice


def _fewer_launches(ledger: Ledger) -> str:
    """Advise what is left to do: for a compiled model, its mode."""
    if "foreign" in ledger.signals:
        return OF_CUDA["launches"]
    graphs = 'torch.compile(model, mode="reduce-overhead") (CUDA graphs)'
    if is_compiled(ledger):
        graphs = 'mode="reduce-overhead" of the torch.compile that is there (CUDA graphs)'
    fused = [optimizer.fused for optimizer in ledger.facts.optimizers]
    unfused = ledger.step.kind == "training" and not (fused and all(fused))
    return f"{graphs}, a larger batch" + (", or fused optimizers." if unfused else ".")


def launches(ledger: Ledger) -> float:
    """Idle ns on the way to the next launch, where that binds the step, else 0. Python between ops counts where kernels
    are short, except what a trace shows outside of modules: that is BRR302's, and nothing is of both."""
    device = ledger.device
    if device is None or device.starved_ns < IDLE * ledger.wall:
        return 0.0
    short = device.short_kernel_share > SHORT
    causes = LAUNCHING if short else LAUNCHING - {"host"}
    found = sum(ns for cause, ns in device.idle_by_cause if cause in causes) - device.start_up_ns
    found -= max(sum(group.ns for group in between_launches(ledger)[1]), device.held_ns) if short else 0.0
    return found if found >= SHORT * device.starved_ns and worth_telling(ledger, 0.6 * found) else 0.0


def between_launches(ledger: Ledger) -> tuple[list[HostGroup], list[HostGroup]]:
    """Python between ops that is on the way to the next launch, and the rest. Where kernels are long, or no module is
    known, all of it is the rest, or none."""
    groups = list(ledger.host)
    if ledger.device is None or ledger.device.short_kernel_share <= SHORT:
        return [], groups
    if not any(group.phase == "forward" for group in groups):
        return groups, []
    outside = [group.phase == "other" and bool(group.where) for group in groups]
    return [g for g, out in zip(groups, outside, strict=True) if not out], list(compress(groups, outside))


def _at(ledger: Ledger, where: tuple[Span, ...]) -> float:
    """ns per step of ops and of Python that lie under a line."""
    if not where:
        return 0.0
    ops = [(op.where, op.ns) for op in ledger.ops if op.phase != "data"]
    python = [(group.where, group.ns) for group in between_launches(ledger)[0]]
    return sum(ns for at, ns in ops + python if any(span.place == where[0].place for span in at))
