"""Build the Ledger from a Recording and a Machine: the time of each account, op and line. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from gobrrr.ledger.device.device_side import device_ledger, launches
from gobrrr.ledger.device.gauged import gauged
from gobrrr.ledger.device.kernel_work import device_ops, device_work
from gobrrr.ledger.device.waits_replayed import at_plain_speed
from gobrrr.ledger.host.gaps import data_lines
from gobrrr.ledger.host.hot_paths import Frames
from gobrrr.ledger.host.stacks import line_groups
from gobrrr.ledger.loading.lengths import samples_per_step, sequences, steps_per_epoch
from gobrrr.ledger.loading.workers import slow_samples, worker_groups, worker_memory
from gobrrr.ledger.memory import device_memory, memory_ledger
from gobrrr.ledger.model.accounts import accounts, device_accounts, phases
from gobrrr.ledger.model.device import DeviceLedger
from gobrrr.ledger.model.ledger import PHASES, Account, HostGroup, Ledger, LineGroup, OpGroup, StepStats
from gobrrr.ledger.model.op_tables import OpTable
from gobrrr.ledger.ops.op_groups import Grouping, op_groups
from gobrrr.ledger.ops.op_tables import op_tables
from gobrrr.ledger.ops.pricing import Prices, device_roofline, roofline
from gobrrr.ledger.steps.decoding import decoding
from gobrrr.ledger.steps.other_loops import other_loops
from gobrrr.ledger.steps.profiled_window import Profiled
from gobrrr.ledger.steps.scaling import (
    NOTHING_SEEN,
    Scaled,
    Seen,
    at_plain_step,
    factors,
    op_at_plain_step,
    scale,
    seen,
)
from gobrrr.ledger.steps.serving import serving_classes
from gobrrr.ledger.steps.since import since
from gobrrr.ledger.steps.step_stats import step_stats, waited
from gobrrr.ledger.steps.step_windows import step_spans
from gobrrr.machine.model.machine import Machine
from gobrrr.machine.model.peaks import of_device
from gobrrr.recording.model.facts import Facts
from gobrrr.recording.model.trace import CPU_OP, Trace
from gobrrr.recording.run_folder.noted_facts import facts_of
from gobrrr.recording.run_folder.run import Recording
from gobrrr.spans import as_spans, overlap

WAITED = 0.1
"""Share of the time in which threads wanted a core in vain, from which longer steps are no larger ones. Proposed."""
GREW = 1.1
"""Plain step over those around the profiled ones up to which no step does more work than another (proposed): medians of
the same steps differ by as much, and calls are whole numbers (of 74 tensors' sqrt 78 were told)."""
_ELSEWHERE = re.compile(r"AMD|Radeon|Instinct|\bMI\d|Intel", re.I)


def build_ledger(profiled: Profiled, machine: Machine) -> Ledger:
    """The account of the main loop's median plain step. A recording without a window gives steps and phases only."""
    recording, plain = profiled.recording, profiled.plain
    stats = step_stats(recording, plain=plain)
    facts = facts_of(recording, plain)
    # A file does not say how many threads its program had: those of its machine are taken, so that none is missed.
    threads = facts.settings.threads or (machine.threads if recording.offline else recording.start.threads)
    known = machine.fingerprint or (machine.matmul and not recording.offline)
    prices = Prices(machine, threads, facts.settings.matmul_precision) if known else Prices.none(machine)
    data = waited(recording, plain)
    seen_steps, device, launched, waits, tables, stats = _window(profiled, prices, machine, facts, stats)
    if device is not None:
        working, idling = factors(device, stats.plain_wall_ns, recording.offline)
        device = at_plain_step(device, working, idling)
        launched = tuple(op_at_plain_step(op, working) for op in launched)
    scaled = _scaled(seen_steps, device, data, stats, facts)
    lines = waits or _lines(recording, stats)
    found = sequences(facts, stats, scaled.ops or launched)
    samples = samples_per_step(facts, stats, found)
    told, parts = _split(scaled, device, data, stats, facts, lines)
    own = recording.window("sample")
    sampled = [own.samples] if own is not None and own.samples is not None else []
    collates = frozenset(loader.collate.rsplit(".", 1)[-1] for loader in facts.loaders)
    work, wall = device.work if device is not None else None, stats.plain_wall_ns
    served = [step.wall for step in recording.main.steps] if recording.main and recording.serving else []
    return Ledger(
        step=stats, facts=facts, threads=threads, missing=recording.missing, signals=_signals(recording, stats, facts),
        accounts=told, phases=parts, scaled_by=scaled.factor,
        ops=tuple(scaled.ops), host=tuple(_with_libraries(scaled.host, lines)), lines=lines, tables=tables,
        workers=tuple(worker_groups(recording.workers, 0, collates)), worker_memory=worker_memory(recording.workers),
        slow_samples=slow_samples(sampled + [worker.samples for worker in recording.workers]),
        samples_per_step=samples, steps_per_epoch=steps_per_epoch(facts, samples), sequences=found,
        memory=memory_ledger(facts, device.memory if device else None),
        roofline=device_roofline(work, wall) if work is not None else roofline(scaled.ops, wall, prices),
        device=device, device_ops=launched, loops=other_loops(recording),
        gauged=gauged(recording.gauges, recording.events, plain, recording.main.steps if recording.main else ()),
        serving=serving_classes(served, recording.serving) if served else (),
        since=since(recording, plain, facts.held_graphs), decoding=decoding(recording.events),
    )  # fmt: skip


def _split(
    scaled: Scaled, device: DeviceLedger | None, data: float, stats: StepStats, facts: Facts, lines: Sequence[LineGroup]
) -> tuple[tuple[Account, ...], tuple[tuple[str, float], ...]]:
    """The step by account and by phase; the host's phases are not the device's."""
    wall = stats.plain_wall_ns
    if device is not None:
        return device_accounts(device, wall), ()
    if scaled.ops:
        told = accounts(scaled.ops, scaled.host, data, wall, facts.gc_usual_ns or 0.0)
        return told, phases(scaled.ops, scaled.host, data, wall)
    named = [("data_wait", data)] if data else []
    told = tuple(Account(name, ns, ns / (wall or 1.0)) for name, ns in [*named, ("unattributed", wall - data)])
    return told, _phases_by_lines(lines, data, stats)


class _Looked(NamedTuple):
    """Findings of the profiled window. `stats` are those that know what its device does in a step."""

    seen: Seen
    device: DeviceLedger | None
    launched: tuple[OpGroup, ...]
    waits: tuple[LineGroup, ...]
    tables: tuple[OpTable, ...]
    stats: StepStats


def _window(profiled: Profiled, prices: Prices, machine: Machine, facts: Facts, stats: StepStats) -> _Looked:
    recording, window = profiled.recording, profiled.window
    if window is None:
        return _Looked(NOTHING_SEEN, None, (), (), (), stats)
    trace, places = window.trace, window.places
    host = window.host
    name = recording.start.device or (machine.device.name if machine.device else "device")
    capability = _capability(trace) or (machine.device.capability if machine.device else "")
    device, idle = device_ledger(trace, host, places, host.num_steps, name, capability) or (None, None)
    if idle is not None:
        prices = Prices.none(machine)  # the host only launches: this CPU's ceilings say nothing of the work
        host = host.idling(overlap(as_spans(host.ops.start, host.ops.dur), idle))
    updated = {o.kind: float(o.num_elements) for o in facts.optimizers}
    grouping = Grouping.of(host, places, trace, window.origin, recording.fates)
    launched: list[OpGroup] = []
    if device is not None:
        ceilings = of_device(name, machine)
        launched, kernel_ns, tf32, shaped, on_device = device_ops(window, ceilings, updated, grouping)
        work = device_work(launched, kernel_ns, tf32, ceilings, shaped) if ceilings else None
        stats = stats if recording.offline else step_stats(recording, device.busy_ns, profiled.plain)
        played = at_plain_speed(trace, window.kernels, window.host, places, stats.plain_wall_ns)
        device = msgspec.structs.replace(
            device,
            work=work,
            memory=device_memory(trace, host, places, facts),
            plain_syncs=played.syncs if played else None,
            lighter=played.lighter if played else (),
        )
    calls = op_groups(host, trace, places, prices, machine.dispatch.median, updated, grouping)
    frames = Frames.of(trace, np.unique(host.ops.thread).tolist(), places) if recording.offline else None
    waits = data_lines(host, places, idle, frames) if frames is not None else ()
    tables = op_tables(window, calls.priced if device is None else on_device, device is not None)
    return _Looked(
        seen(calls, host, places, machine.dispatch.median, idle, frames), device, tuple(launched), waits, tables, stats
    )


def _capability(trace: Trace) -> str:
    """NVIDIA's compute capability, as the file has it of its first device; other makers count otherwise."""
    first = trace.properties.devices[0] if trace.properties.devices else {}
    major, minor = first.get("computeMajor"), first.get("computeMinor")
    known = isinstance(major, int) and isinstance(minor, int) and not _ELSEWHERE.search(str(first.get("name") or "AMD"))
    return f"{major}.{minor}" if known else ""


def _scaled(steps: Seen, device: DeviceLedger | None, data: float, stats: StepStats, facts: Facts) -> Scaled:
    """Brought to the plain step; where a device works, to what that leaves of it."""
    plain = stats.plain_wall_ns
    if device is None:
        return scale(steps, data, plain, 1.0 if stats.averaged else _grown(stats, facts))
    causes = dict(device.idle_by_cause)
    others = causes.get("sync", 0.0) + causes.get("allocator", 0.0)
    return scale(steps, causes.get("data_wait", 0.0), max(0.0, device.starved_ns - others))


def _grown(stats: StepStats, facts: Facts) -> float:
    """Return how many times the work of the profiled steps later, longer ones do. Where the program's threads waited
    for cores the machine got busier: the same work took longer."""
    waited = (facts.waiting_load or 0.0) + (facts.stolen_load or 0.0)
    if not stats.beside_ns or waited > WAITED * (waited + (facts.process_load or 0.0)):
        return 1.0
    grown = stats.plain_wall_ns / stats.beside_ns
    return grown if grown > GREW else 1.0


def _lines(recording: Recording, stats: StepStats) -> tuple[LineGroup, ...]:
    """Sampled lines, scaled from the sampled steps' mean to the plain median."""
    window = recording.window("sample")
    if window is None or window.samples is None or not window.steps:
        return ()
    groups = line_groups(window.samples, step_spans(recording, window))
    total = sum(group.ns for group in groups)
    factor = stats.plain_wall_ns / total if total else 0.0
    return tuple(
        msgspec.structs.replace(g, ns=g.ns * factor, libraries=tuple((n, ns * factor) for n, ns in g.libraries))
        for g in groups
    )


def _with_libraries(host: Sequence[HostGroup], lines: Sequence[LineGroup]) -> list[HostGroup]:
    """Host time with the library functions that the sampler saw below the same line."""
    below = {line.where[0]: line for line in reversed(lines) if line.where}  # of a line's phases the longest
    found = []
    for group in host:
        line = below.get(group.where[0]) if group.where else None
        named = tuple(name for name, _ in line.libraries[:6]) if line else ()
        library = named[0].split(".")[0] if named else ""
        found.append(msgspec.structs.replace(group, library=library, functions=named))
    return found


def _phases_by_lines(lines: Sequence[LineGroup], data: float, stats: StepStats) -> tuple[tuple[str, float], ...]:
    """The sampled lines outside the wait, at the length that the plain step has outside it."""
    own = [line for line in lines if line.phase != "data"]
    total, rest = sum(line.ns for line in own), stats.plain_wall_ns - data
    sums = dict.fromkeys(PHASES, 0.0) | {"data": data}
    for line in own:
        sums[line.phase] += line.ns * rest / total if total else 0.0
    sums["other"] += 0.0 if total else rest
    return tuple((name, ns) for name, ns in sums.items() if ns > 0.5)


def _signals(recording: Recording, stats: StepStats, facts: Facts) -> frozenset[str]:
    window, sampled = recording.window("profile"), recording.window("sample")
    there = {
        "plain": stats.plain_count > 0,
        "stacks": window is not None and window.lines is not None,
        "samples": sampled is not None and sampled.samples is not None and bool(sampled.samples.t),
        "workers": bool(recording.workers),
        "facts": bool(recording.raw_facts) and facts != Facts(),
        "offline": recording.offline,
        "unmarked": bool(recording.unmarked),
    }
    return frozenset(name for name, told in there.items() if told) | _of_trace(recording.trace)


def _of_trace(trace: Trace | None) -> frozenset[str]:
    if trace is None:
        return frozenset()
    working = np.unique(trace.ops.thread[trace.ops.kind == CPU_OP]).tolist()
    there = {
        "nsys": trace.properties.profiler == "nsys",
        "launches": not len(trace.kernels) and launches(trace).any(),
        "joined": len({trace.threads[i].pid for i in working}) > 1,
    }
    own = {"ops", "shapes", "device", "foreign"}
    return frozenset(name for name, told in there.items() if told) | (trace.signals & own)
