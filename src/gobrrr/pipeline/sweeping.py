"""Which value of a setting serves best, and which still fits: arms of the program with each, measured in turns."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import compress
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, TextIO

import msgspec

from gobrrr import units
from gobrrr.capture.facts.alive import family
from gobrrr.errors import UNMEASURED, GobrrrError
from gobrrr.guard.model.gate import Gated
from gobrrr.guard.model.verdict import Guarded
from gobrrr.machine.gauges import counter
from gobrrr.machine.probe.system_probe import free_memory
from gobrrr.pipeline import first_run, redaction, tuning
from gobrrr.pipeline.file_names import ARMS, DIAGNOSIS, PAGE, SWEEP
from gobrrr.recording.model.out_of_memory import Bounds, Group, Input, OutOfMemory, Process, Role
from gobrrr.report.forms import formats
from gobrrr.report.told import gates
from gobrrr.rules.memory.shortage import shortage
from gobrrr.rules.memory.smaller_inputs import micro_batches
from gobrrr.rules.memory.way import EXACT, Way
from gobrrr.rules.memory.ways import ways
from gobrrr.rules.verdict.report import Report
from gobrrr.system import files
from gobrrr.trial.arm.arm import Arm, ArmError
from gobrrr.trial.edit.setting import Setting
from gobrrr.trial.edit.treatment import EditOnTrial
from gobrrr.trial.gate import pairs
from gobrrr.trial.gate.rule import Gate
from gobrrr.trial.race.referee import LiveReferee, Program
from gobrrr.trial.race.sweep import BLOCK_NS, ROOM, Point, Sweep, next_size
from gobrrr.trial.race.sweep import peaks as arms_peaks
from gobrrr.trial.receipt.swept import Fit, Swept
from gobrrr.trial.sandbox.limits import AT_HOME, Limits
from gobrrr.trial.sandbox.workspace import mark_output
from gobrrr.trial.statistics.front import unbeaten
from gobrrr.trial.statistics.objective import FOOTPRINT, MEMORY, TIME, Objective
from gobrrr.trial.statistics.scaling import DOUBLING, LEAST_SPREAD, Line, between, line

MOST_SIZES = 8
FIRST_LOOK, GATING = 0.3, 0.6
"""Share of the minutes for watching the program once, and of what is left then for gates (proposed)."""
NEAR_BEST = 0.97
"""Share of the best throughput from which the program's own value is told, else the smallest batch: another one is
another training for little."""
NEAR_LARGEST = 0.95
"""Share of the value that would fit by the line from which one that was seen to fit is told (proposed)."""
CHECKS, MOST_CHECKS = 2, 6
"""Starts of the value that is said to fit, and of all such values (proposed)."""
TOLD = 5
"""Rounds between two lines of progress."""
CONTEXT = 512 << 20
"""Bytes that a CUDA context, its kernels and cuBLAS's workspace take beside tensors (300 to 600 MiB by card and
version; PyTorch, CUDA semantics: a cuBLAS workspace is 8 MiB, on Hopper 32). Stated, not measured."""
RETURNED = {"MALLOC_MMAP_THRESHOLD_": "65536"}
"""Environment in which the C library gives freed blocks of 64 KiB and more back at once (mallopt(3)): without it the
peak depends on which sizes of blocks there were before, by 7 to 27 % of the tensors (gpt2, whisper)."""
ROUNDING = 0.03
"""Share that the device's allocator adds: blocks of 512 B and 2 MiB, and what lies between them. Stated."""


class Wanted(NamedTuple):
    """Request of a sweep. `values`: empty for sizes of its own choice."""

    setting: Setting
    values: tuple[str, ...] = ()
    is_batch: bool = True
    latency_ns: float | None = None
    memory: int | None = None
    """Bytes that it must fit into; null where that is not asked."""
    device: bool = False
    """It is an accelerator's: its context and rounding are added to tensors."""
    seconds: float = 300.0
    seed: int = 0
    limits: Limits = AT_HOME
    redact: redaction.Patterns = ()
    price_per_hour: float | None = None
    peaks_alone: bool = False
    objective: Objective = TIME
    gates: tuple[Gate, ...] = ()
    """Measures that each value is held against, beside its speed."""


def sweep(
    command: Sequence[str], source: Path, folder: Path, wanted: Wanted, stream: TextIO,
    stops: Callable[[Callable[[], None]], object] = lambda _: None,
) -> Swept:  # fmt: skip
    """Watch the program once, then measure its setting's values in turns. `stops` is given what ends the arms at once.

    Raises GobrrrError where nothing could be measured.
    """
    energy = counter.opened() if wanted.objective.own == "energy" else None
    mark_output(folder)
    clock = first_run.Clock(time.monotonic(), wanted.seconds)
    with contextlib.ExitStack() as stack:
        if energy is not None:
            stack.callback(energy.close)
        within, _ = tuning.confined(wanted.limits, source, folder, stack, stream)
        least = wanted.setting.edit(min(wanted.values, key=_number), source) if wanted.peaks_alone else None
        report = first_run.diagnosed(
            least.command(command) if least else command, source, folder / DIAGNOSIS, stream, within, wanted.redact,
            clock._replace(seconds=FIRST_LOOK * wanted.seconds), base=least, rehearsal=False,
        )  # fmt: skip

        def arms(env: Mapping[str, str]) -> Sweep:
            def make(value: str, place: Path) -> Arm:
                edit = wanted.setting.edit(value, source)
                return Arm(edit.command(command), place, (), source=source, env={**env, **edit.env}, within=within,
                           loop=report.step.loop, objective=MEMORY if wanted.device else FOOTPRINT,
                           edit=edit, counter=energy)  # fmt: skip

            made = Sweep(make, tuning.own_folder(folder, ARMS, stack), until=clock.ends, seed=wanted.seed,
                         in_ram=report.device is None, peaks_alone=wanted.peaks_alone,
                         is_batch=wanted.is_batch, block_ns=max(BLOCK_NS, wanted.objective.shortest_ns))  # fmt: skip
            stack.callback(made.close)
            stops(made.stop)
            return made

        gated, unread = dict[str, tuple[Gated, ...]](), dict[str, str]()
        if wanted.gates:
            others = [value for value in wanted.values if value != wanted.setting.now]
            edits = {value: EditOnTrial(wanted.setting.edit(value, source), gates=wanted.gates) for value in others}
            program = Program(tuple(command), source, limits=within, edits=edits)
            place, ends = tuning.own_folder(folder, ARMS, stack), time.monotonic() + GATING * clock.left
            with contextlib.closing(LiveReferee(program, place, until=ends)) as referee:
                stops(referee.stop)
                gated, unread = _gated((referee.whole, referee.is_over), place, others, wanted, ends, stream)
        returns = wanted.peaks_alone and report.device is None and not wanted.device
        points, complete = _measured(arms(RETURNED if returns else {}), wanted, stream)
        as_it_is: list[Point] = []
        with contextlib.suppress(KeyboardInterrupt):
            for value in to_check(points, report, wanted, as_it_is) if returns and complete else ():
                began = time.monotonic()
                as_it_is.append(point := arms({}).first(value))
                told = f"freed memory kept: {point.failed or units.size(point.peak_bytes or 0)}"
                print(f"gobrrr: {wanted.setting.name.lstrip('-')}={value}, {told}", file=stream, flush=True)
                if time.monotonic() - began > clock.left:  # the next would not end in time
                    break
    found = swept(points, report, wanted, as_it_is, gated, unread)
    found = msgspec.structs.replace(found, seconds=round(clock.spent, 1), complete=complete,
                                    command=tuple(redaction.shown(command)), machine=report.machine)  # fmt: skip
    found = redaction.redacted(found, wanted.redact)
    files.write(folder / SWEEP, msgspec.json.encode(found))
    files.write(folder / PAGE, formats.render(found, "html", formats.PLAIN))
    if complete and not any(point.step_ns for point in points):
        why = next((f": {point.failed}" for point in points if point.failed), "")
        raise GobrrrError(
            f"no value of {wanted.setting.name} could be measured{why}",
            "let it run longer, give more --minutes, or run it by itself", UNMEASURED,
        )  # fmt: skip
    return found


def _gated(
    means: pairs.Means, place: Path, others: Sequence[str], wanted: Wanted, ends: float, stream: TextIO
) -> tuple[dict[str, tuple[Gated, ...]], dict[str, str]]:
    """The gates of each value, and why others have none; all share the runs of the program as it is. Raises
    GobrrrError where that cannot be judged."""
    gated, unread, known = dict[str, tuple[Gated, ...]](), dict[str, str](), pairs.Known()
    for number, value in enumerate(others):
        seconds = (ends - time.monotonic()) / (len(others) - number)
        try:  # what a setting changes of the work is asked for
            found, _ = pairs.judged(means, place, (value,), wanted.gates, ("samples",), seconds, known)
        except ArmError as error:
            found = Guarded(reasons=(error.reason,))
        if found.gates:
            gated[value] = found.gates
        else:
            unread[value] = found.reasons[0]
        told = "; ".join(map(gates.sentence, found.gates)) or unread[value]
        print(f"gobrrr: {wanted.setting.name.lstrip('-')}={value}: {told}", file=stream, flush=True)
    return gated, unread


def to_check(points: Sequence[Point], report: Report, wanted: Wanted, as_it_is: Sequence[Point]) -> Iterator[str]:
    """Yield the largest value, then each that `as_it_is`, which grows meanwhile, says is the largest that fits: CHECKS
    starts of it, where this machine has room. What the C library keeps differs between sizes and starts."""
    yield max((point.value for point in points if point.peak_bytes), key=_number, default="")
    while wanted.memory is not None and as_it_is[-1].peak_bytes:
        fit = swept(points, report, wanted, as_it_is).fit
        value, free = str(fit.largest) if fit and fit.largest else "", free_memory()
        told = [point for point in as_it_is if point.value == value]
        if len(told) == CHECKS or not value or len(as_it_is) > MOST_CHECKS or (free or 0) < ROOM * wanted.memory:
            return
        yield value


def _measured(arms: Sweep, wanted: Wanted, stream: TextIO) -> tuple[list[Point], bool]:
    """(points in the order of their values, whether none was cut off by Ctrl-C)."""
    values: list[str] = []

    def points() -> list[Point]:
        return sorted((arms.point(value) for value in values), key=lambda point: point.number)

    def look(value: str) -> None:
        values.append(value)
        point = arms.first(value)
        figure = units.size(point.peak_bytes or 0) if wanted.peaks_alone else units.duration(point.step_ns or 0.0)
        told = figure if point.step_ns else point.failed
        print(f"gobrrr: {wanted.setting.name.lstrip('-')}={value}: {told}", file=stream, flush=True)

    try:
        if wanted.values:
            ordered = all(map(_number, wanted.values))
            for value in sorted(dict.fromkeys(wanted.values), key=_number if ordered else lambda _: 0):
                look(value)
        while wanted.peaks_alone and wanted.is_batch and not arms.over and len(values) < MOST_SIZES:
            law, largest = arms_peaks(points()), max(map(_number, values))
            if law is None or law.spread <= LEAST_SPREAD or arms.point(str(round(largest))).failed:
                break  # else they lie on no line yet: another phase of the step has the peak of the small ones
            look(str(2 * round(largest)))
        own = 0 if wanted.values else int(wanted.setting.now)
        while True:  # sizes of its own choice are chosen once more when all are measured better
            while own and (size := next_size(own, points(), MOST_SIZES)) is not None:
                look(str(size))
            for number in arms.rounds():
                if number % TOLD == 0:
                    print(f"gobrrr: measured {number} times in turns", file=stream, flush=True)
            if not own or arms.over or next_size(own, points(), MOST_SIZES) is None:
                return points(), True
    except KeyboardInterrupt:
        return points(), False


def swept(
    points: Sequence[Point], report: Report, wanted: Wanted, as_it_is: Sequence[Point] = (),
    gated: Mapping[str, tuple[Gated, ...]] = MappingProxyType({}), unread: Mapping[str, str] = MappingProxyType({}),
) -> Swept:  # fmt: skip
    """Return what follows from the points: laws, knee, the best, and what fits. `as_it_is`: values where freed memory
    is not given back, as it was in the points. `gated`, `unread`: as Swept has them."""
    timed = [point for point in points if point.step_ns and not point.failed]
    numbers = [point for point in timed if point.number > 0]
    timed_too = wanted.is_batch and not wanted.peaks_alone
    law = line([(point.number, point.step_ns or 0.0) for point in numbers]) if timed_too else None
    peaks = arms_peaks(numbers, is_batch=wanted.is_batch) if wanted.is_batch or wanted.peaks_alone else None
    roof, tokens = report.roofline, report.decoding.tokens_per_s if report.decoding else None
    tokens = tokens or (report.tokens.per_s if report.tokens else None)
    found = Swept(
        setting=wanted.setting.name.lstrip("-"), where=wanted.setting.where, now=wanted.setting.now,
        is_batch=wanted.is_batch, points=tuple(points), time_law=law, peak_law=peaks, latency_ns=wanted.latency_ns,
        objective=wanted.objective.name, gates=dict(gated), unread=dict(unread),
        knee=_knee(numbers) if timed_too else None, flops=roof.flops if roof.mfu else None,
        ceiling_flop_rate=roof.ceiling_flop_rate, price_per_hour=wanted.price_per_hour,
        tokens=tokens * report.step.plain_wall_ns / 1e9 if tokens else None,
    )  # fmt: skip
    allowed = [each for each in timed if found.accepts(each)]
    best = "" if wanted.peaks_alone else _best(found, allowed)
    within = [each for each in allowed if _is_within(each, wanted.latency_ns)]
    fit = _fit(found, report, wanted, as_it_is) if wanted.memory is not None else None
    return msgspec.structs.replace(
        found, best=best, best_within=_best(found, within) if wanted.latency_ns else "", fit=fit,
        unbeaten=_unbeaten(found, timed),
    )  # fmt: skip


def _rate(found: Swept, point: Point) -> float:
    """Samples per second, or per joule."""
    if found.objective == "energy":
        return 1 / joules if (joules := found.joules(point)) else 0.0
    return found.samples_per_s(point) or 0.0


def _unbeaten(found: Swept, points: Sequence[Point]) -> tuple[str, ...]:
    """Values that no other one beats, by their estimates; at the program's own nothing changes."""
    own = tuple(0.0 for _ in next(iter(found.gates.values()), ()))
    losses = {value: tuple(gate.worse for gate in told) for value, told in found.gates.items()} | {found.now: own}
    costs = {each.value: (-_rate(found, each), *losses[each.value]) for each in points if each.value in losses}
    return tuple(compress(costs, unbeaten([*costs.values()]))) if own else ()


def _best(found: Swept, points: Sequence[Point]) -> str:
    """The value with the most samples per second, or per joule; of batches the smallest that comes near it."""
    rates = {point.value: _rate(found, point) for point in points}
    most = max(rates.values(), default=0.0)
    near = [point for point in points if rates[point.value] >= NEAR_BEST * most]
    if any(point.value == found.now for point in near):
        return found.now
    if found.is_batch:
        return min(near, key=lambda point: point.number, default=Point("")).value
    return max(rates, key=lambda value: rates[value], default="")


def _is_within(point: Point, latency_ns: float | None) -> bool:
    return latency_ns is None or (point.p99_ns is not None and point.p99_ns <= latency_ns)


def _knee(points: Sequence[Point]) -> int | None:
    """The smallest batch whose double takes longer by DOUBLING or more, by the straight lines between what was
    measured."""
    known = [(point.number, point.step_ns or 0.0) for point in points]
    for number, ns in sorted(known):
        twice = between(known, 2 * number)
        if twice is not None and twice >= (1 + DOUBLING) * ns:
            return int(number)
    return None


def _fit(swept: Swept, report: Report, wanted: Wanted, as_it_is: Sequence[Point]) -> Fit:
    """Return what fits into the memory that was asked about. Of a device the tensors of a run on the CPU are taken for
    its own: what the process held before it made any is left out, context and rounding are added."""
    memory, runtime = wanted.memory or 0, report.memory.runtime or 0
    law, added, keeps, peaks = swept.peak_law, 0, 0.0, swept.peak_law
    unchanged = {each.number: each.peak_bytes for each in as_it_is if each.peak_bytes}
    if peaks is not None and unchanged and not wanted.device:
        number, peak = list(unchanged.items())[-1]
        used = next((each.peak_bytes for each in swept.points if each.number == number), None) or peaks.at(number)
        keeps = max(0.0, (peak - used) / (used - runtime)) if used > runtime else 0.0
        law = peaks.scaled(1 + keeps, peaks.fixed + keeps * max(0.0, peaks.fixed - runtime))
        if wanted.is_batch and len(unchanged) > 1:
            law = arms_peaks(as_it_is) or law
    if peaks is not None and (wanted.device or report.device is not None):
        added = CONTEXT
        tensors = peaks.fixed - (runtime if report.device is None else 0)
        law = peaks.scaled(1 + ROUNDING, max(0.0, tensors) * (1 + ROUNDING) + CONTEXT)
    now = Point(wanted.setting.now).number
    low, high = law.around(now) if law is not None and now else (None, None)
    if law is not None and (peak_now := between(list(unchanged.items()), now)):  # nearer than the line
        wide = max(LEAST_SPREAD, 2 * law.spread) * peak_now
        low, high = peak_now - wide, peak_now + wide
    held = report.memory
    # What goes with the value was seen at the least one, if at all; else the line says how much it is.
    seen = _number(min(wanted.values, key=_number)) if wanted.peaks_alone and wanted.values else now
    grows = now / seen if now and seen else 1.0
    grown, less = (law.at(n) - law.fixed if law is not None else 0.0 for n in (now, seen))
    kept = held.activations * (grown / less if less and grown else grows) if held.activations else grown
    sizes = (("parameters", held.parameters), ("gradients", held.gradients), ("optimizer state", held.optimizer_state),
             ("activations", kept), ("inputs", held.inputs and held.inputs * grows))  # fmt: skip
    roles = tuple((name, round(size)) for name, size in sizes if size)
    found = Fit(
        memory, _largest(law, memory, as_it_is) if law else None, law, low, high, added, roles,
        as_it_is=tuple(as_it_is), keeps=keeps, largest_returned=peaks.largest(memory) if keeps and peaks else None,
    )  # fmt: skip
    if high is None or high <= memory:
        return found
    told = _ways(report, roles, int(now) if wanted.is_batch else 1, high, memory)
    if law is not None and found.largest and wanted.is_batch:  # the line knows better than the bytes of roles
        smaller = next(-(-int(now) // 2**n) for n in range(1, 64) if -(-int(now) // 2**n) <= found.largest)
        trains = report.step.kind == "training"
        what = micro_batches(int(now), smaller) if trains else f"batches of {smaller} in place of {int(now)}"
        exact = "exact where the loss is a mean and no BatchNorm sees the batch" if trains else EXACT
        split = Way("micro_batch", what, round(law.each * (now - smaller)), True, exact)
        told = [split, *(way for way in told if way.name not in ("micro_batch", "smaller_batch"))]
    return msgspec.structs.replace(found, ways=tuple(told))


def _largest(law: Line, memory: int, as_it_is: Sequence[Point]) -> int | None:
    """Return the largest value that fits: by the law, but below any that was seen not to, and one that was seen to fit
    where that is near."""
    most = law.largest(memory)
    fails = min((each.number for each in as_it_is if (each.peak_bytes or 0) > memory), default=math.inf)
    fits = max((int(each.number) for each in as_it_is[1:] if each.peak_bytes and each.number < fails), default=0)
    if most is None or (fits and (fits >= NEAR_LARGEST * most or len(as_it_is) > MOST_CHECKS)):
        return most and fits
    return most if most < fails else int(fails) - 1


def _ways(report: Report, roles: Sequence[tuple[str, int]], now: int, need: float, memory: int) -> list[Way]:
    """Return what would make the program's own value fit: judged as a failure with all that it would hold."""
    seen = max(1, sum(each.num_bytes for each in report.saved))
    grows = dict(roles).get("activations", 0) / seen  # those that are told are the largest: all go with the batch
    saved = tuple(
        Group(family(each.module), each.op, (), "float32", round(each.num_bytes * grows), each.count)
        for each in report.saved
    )
    alive = tuple(Role(name, size, saved if name == "activations" else ()) for name, size in roles)
    held = dict(roles)
    optimizer = "AdamW" if held.get("optimizer state", 0) > 1.5 * held.get("parameters", 0) else "SGD"
    asked = OutOfMemory(
        kind="cpu", asked=0, steps=1, phase="backward", training=report.step.kind == "training", alive={"cpu": alive},
        optimizers=(optimizer,) if report.step.kind == "training" else (), process=Process(resident=round(need)),
        inputs=(Input("batch", (now,)),) if now > 1 else (), limits=Bounds(memory=memory),
    )  # fmt: skip
    return [way for way in ways(asked, shortage(asked)) if way.name != "return_freed"]  # it is told by itself


def _number(value: str) -> float:
    return Point(value).number
