"""Statistics of a loop's steps: the median plain step (a trace's mean) with interval, spread, drift and waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gobrrr.ledger.model.ledger import StepStats
from gobrrr.ledger.steps.median_interval import mean_interval, median_interval
from gobrrr.ledger.steps.step_windows import alike
from gobrrr.ledger.steps.watching_cost import Watching, watching
from gobrrr.recording.model import event_kinds
from gobrrr.recording.model.steps import LoopSteps, Step
from gobrrr.recording.model.warmup import warmup
from gobrrr.recording.run_folder.run import Recording

MAX_KEPT = 2000  # plain steps kept one by one; proposed: bounds the file; percentiles of longer runs would settle it
DISTORTS = 0.01
"""Share of the step from which the hooks' own time would show in the plain step: as much as is promised at most."""
MIN_OF_A_KIND, APART = 3, 0.10
"""Steps that make a kind, and by how much their medians differ: less is within what unsteady steps differ by."""
AHEAD = 1.02
"""Device's work over the median step of the host, from which on the host must run ahead: no step is shorter than its
work. Proposed: kernels of profiled steps took 1 % longer and less."""
FILLS = 0.8
"""Share of the device's work below which a first step only fills its queue: on an H200 they took 0.3 to 0.5 of it."""
ENOUGH = 10
"""Steps before the profiled window that stand for all: half a second has more of those that a device does quickly."""
BATCHES = 10
"""Batch means of which an interval is made: 10 to 30 are usual (Schmeiser 1982)."""
BEYOND = 1.0
"""Steps beyond a percentile from which it is told: with fewer it is the longest step by another name."""
BESIDE = 5
"""Plain steps on either side of the profiled ones that are held against them."""


def plain_steps(recording: Recording) -> list[Step]:
    """The main loop's plain steps after its warm-up, of the sizes that were profiled."""
    steps = _plain(recording)
    before, _ = around_profiling(recording, steps)
    warm = before[_warm(recording, before) :]
    return warm if len(warm) >= ENOUGH else steps[_warm(recording, steps) :]


def _warm(recording: Recording, steps: list[Step]) -> int:
    """How many are the warm-up; of a file none: the profiler's schedule has left it out."""
    return 0 if recording.offline else warmup([step.wall for step in steps])


def _plain(recording: Recording) -> list[Step]:
    main = recording.main
    if main is None:
        return []
    profiled = {step.sizes for step in main.steps if step.window == event_kinds.PROFILE}
    found = [step for step in main.plain if not profiled or step.sizes in profiled]
    look = recording.look
    looked = [step for step in found if step.start >= look]  # those before a look that was asked for are others
    return looked if len(looked) > MIN_OF_A_KIND else found


def step_stats(recording: Recording, device_ns: float = 0.0, plain: list[Step] | None = None) -> StepStats:
    """Statistics of the main loop; all zero where no step was seen. `device_ns`: a device's work per step. Where the
    host runs ahead of it a step is the mean of whole cycles, no less than that work. `plain`: its steps, if known."""
    main = recording.main
    if main is None:
        return StepStats()
    plain = plain_steps(recording) if plain is None else plain
    walls = np.array([s.wall for s in plain], float)
    ahead = runs_ahead(walls, device_ns)
    if not ahead:
        plain = plain[filling(walls, device_ns) :]
        walls = np.array([s.wall for s in plain], float)
    profiled = [s.wall for s in main.steps if s.window == event_kinds.PROFILE or recording.offline]
    if not len(walls):
        return StepStats(count=len(main.steps), kind=_kind(recording, main), loop=main.word,
                         profiled_count=len(profiled))  # fmt: skip
    cost = watching(recording)
    cycles = whole_cycles(walls, device_ns)
    told = batch_means(cycles) if ahead else _told(recording, walls, cost)
    counted = _counted(recording, plain) if recording.offline else told
    averaged = recording.offline or ahead
    usual, interval = (np.mean, mean_interval) if averaged else (np.median, median_interval)
    middle, low, high = float(usual(counted)), *(interval(counted) if len(counted) > 1 else (0.0, 0.0))
    if ahead:  # what the device is behind with in the end is in no step
        middle, low, high = (max(each, device_ns) for each in (float(cycles.mean()), low, high))
    begins = kinds(recording, plain, walls)
    lower, upper = np.percentile(levelled(walls, begins) if told is walls else told, [25, 75])
    return StepStats(
        count=len(main.steps), plain_count=len(walls) if ahead else len(counted), plain_wall_ns=middle,
        low_ns=low, high_ns=high,
        p95_ns=percentile(told, 0.95), p99_ns=percentile(told, 0.99),
        quartile_spread=float((upper - lower) / (np.median(told) or 1.0)),
        wall_ns=float(np.median(profiled)) if profiled and not recording.offline else middle,
        averaged=averaged,
        profiled_count=len(counted if recording.offline else profiled), warmup_count=_dropped(recording, plain),
        kind=_kind(recording, main),
        loop=main.word, mean_ns=float(walls.mean()),
        outlier_ns=max(0.0, float(walls.mean() - np.median(told if ahead else walls))),
        drift=_drift(levelled(walls, begins)),
        overhead_share=cost.average if cost else _overhead(recording, middle),
        overhead_low=cost.low if cost else None, overhead_high=cost.high if cost else None,
        waits=tuple(float(s.wait) for s in plain[:MAX_KEPT]),
        walls=tuple(walls[:MAX_KEPT].tolist()),
        beside_ns=_beside(main), **_around(recording, plain),
        seen_ns=float(sum(loop.total for loop in recording.loops)),
        process_cpu_ns=_process_cpu(recording), batches=_usual(recording, plain, event_kinds.DATA_END),
        backwards=_usual(recording, plain, event_kinds.BACKWARD), updates=_updates(recording, plain),
        between_share=1 - main.total / main.span if recording.offline and main.span > main.total else 0.0,
        outside_ns=recording.outside_ns,
    )  # fmt: skip


def waited(recording: Recording, plain: list[Step]) -> float:
    """ns for data in the step that step_stats() tells: the median, of a trace the mean."""
    walls, waits = (np.array([getattr(step, name) for step in plain], float) for name in ("wall", "wait"))
    if not len(waits):
        return 0.0
    return float(waits[alike(walls, waits)].mean() if recording.offline else np.median(waits))


def _counted(recording: Recording, plain: list[Step]) -> np.ndarray:
    """Return a trace's steps whose ops and kernels are in the figures, of which only the mean is what those add up to:
    all of them where a device worked, else those that are alike (host_ops())."""
    walls, waits = (np.array([getattr(step, name) for step in plain], float) for name in ("wall", "wait"))
    device = recording.trace is not None and len(recording.trace.kernels)
    return walls if device else walls[alike(walls, waits)]


def _kind(recording: Recording, main: LoopSteps) -> str:
    """Name the purpose of its steps: backward passes that lead to no weight (attribution) train nothing."""
    passes = recording.events[recording.events[:, 1] == event_kinds.BACKWARD, 3]
    if main.kind == event_kinds.BACKWARDS and len(passes) and float(np.mean(passes)) > 0.5:
        return "inference"
    return event_kinds.LOOPS[main.kind].purpose if main.kind in event_kinds.LOOPS else "loop"


def _process_cpu(recording: Recording) -> float | None:
    read = recording.events[recording.events[:, 1] == event_kinds.CPU, 3]
    return float(read.max()) if len(read) else None


def _usual(recording: Recording, plain: list[Step], kind: int, number: int | None = None) -> int:
    """How many events of a kind (of a loader, optimizer, module) a usual step holds."""
    events = recording.events
    of_kind = (events[:, 1] == kind) & (True if number is None else events[:, 2] == number)
    times = np.sort(events[of_kind, 0])
    starts, ends = (np.array([getattr(step, at) for step in plain]) for at in ("start", "end"))
    return round(float(np.median(np.searchsorted(times, ends) - np.searchsorted(times, starts))))


def _updates(recording: Recording, plain: list[Step]) -> tuple[tuple[int, int], ...]:
    events = recording.events
    optimizers = np.unique(events[events[:, 1] == event_kinds.UPDATE_BEGIN, 2]).tolist()
    found = ((number, _usual(recording, plain, event_kinds.UPDATE_BEGIN, number)) for number in optimizers)
    return tuple((number, count) for number, count in found if count)


def _beside(main: LoopSteps) -> float:
    """Median of the plain steps nearest to the profiled ones."""
    profiled = [i for i, step in enumerate(main.steps) if step.window == event_kinds.PROFILE]
    if not profiled:
        return 0.0
    plain = [(i, step.wall) for i, step in enumerate(main.steps) if step.plain]
    before = [wall for i, wall in plain if i < profiled[0]][-BESIDE:]
    after = [wall for i, wall in plain if i > profiled[-1]][:BESIDE]
    return float(np.median(before + after)) if before or after else 0.0


def _dropped(recording: Recording, plain: list[Step]) -> int:
    """Plain steps before the first that counts: warm-up, and where a device's queue was filled."""
    return sum(step.start < plain[0].start for step in _plain(recording))


def _around(recording: Recording, plain: list[Step]) -> dict[str, Any]:
    """Return what the profiled window does to the steps after it, and whether the plain ones are such."""
    before, after = around_profiling(recording, _plain(recording))
    return {
        "lingering": lingering(before[_warm(recording, before) :], after),
        "attached": bool(after) and plain[-1].start >= after[0].start,
    }


def kinds(recording: Recording, plain: list[Step], walls: np.ndarray) -> np.ndarray:
    """Mark plain steps that begin an epoch, where these are a kind of their own: several, of another length."""
    made = np.sort(recording.events[recording.events[:, 1] == event_kinds.ITER, 0])
    starts, ends = (np.array([getattr(step, at) for step in plain]) for at in ("start", "end"))
    begins = np.searchsorted(made, ends, "left") > np.searchsorted(made, starts, "left")
    few = min(begins.sum(), len(begins) - begins.sum()) < MIN_OF_A_KIND
    if few or abs(np.median(walls[begins]) / np.median(walls[~begins]) - 1) < APART:
        return np.zeros(len(begins), bool)
    return begins


def levelled(walls: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """The walls with those of the other kind brought to the length of the usual ones: what then differs is noise."""
    if not begins.any():
        return walls
    factor = np.median(walls[~begins]) / (np.median(walls[begins]) or 1.0)
    return np.where(begins, walls * factor, walls)


def _told(recording: Recording, watched: np.ndarray, cost: Watching | None) -> np.ndarray:
    """The steps whose median is told: those of the rests, where hooks make a step longer than we promise."""
    resting = [step.wall for step in rests_told(recording, cost)]
    return np.array(resting, float) if resting else watched


def rests_told(recording: Recording, cost: Watching | None) -> list[Step]:
    """Return the steps of rests, since a look that was asked for, where they are told; else none."""
    main, look = recording.main, recording.look
    if main is None or cost is None or cost.hooked <= DISTORTS:
        return []
    return [step for step in main.resting if step.start >= look]


def _drift(walls: np.ndarray) -> float:
    third = len(walls) // 3
    if third < 3:
        return 0.0
    first, last = float(np.median(walls[:third])), float(np.median(walls[-third:]))
    return last / first - 1 if first else 0.0


def _overhead(recording: Recording, step_ns: float) -> float:
    """The least that watching cost where hooks never rested: hooks called in this run times what a timed part of them
    took, and look-ups as calibrated."""
    costs, main = recording.start.costs, recording.main
    if main is None or not step_ns or not main.steps:
        return 0.0
    noted = [facts["watching"] for facts in recording.raw_facts if isinstance(facts.get("watching"), dict)]
    last = {name: n for name, n in noted[-1].items() if isinstance(n, (int, float))} if noted else {}
    spent = last.get("calls", 0) * last.get("ns_per_call", 0.0) + last.get("lookups", 0) * costs.get("lookup_ns", 0.0)
    num_steps = max(1, sum(len(loop.steps) for loop in recording.loops))
    return float(spent / num_steps / step_ns)


# Which steps say how long one is, where a device works beside the host? Not those after the profiled window, in which
# launches cost more. Not the first ones, in which the host only fills the device's queue. And not single ones at all
# where the host runs ahead of a device that is always behind: its steps are short, and where it must wait, one is all
# the others' work.


def around_profiling(recording: Recording, steps: list[Step]) -> tuple[list[Step], list[Step]]:
    """Steps before the profiled window and after it, where a device works: there the maker's library that records
    kernels stays attached when the profiler is off, and each launch costs more from then on (pytorch's issue 144455;
    on an H200 steps that only launch took 1.2 to 1.4 times as long). Elsewhere none."""
    window, trace = recording.window("profile"), recording.trace
    if window is None or trace is None or not len(trace.kernels):
        return [], []
    return [s for s in steps if s.end <= window.began], [s for s in steps if s.start >= window.ended]


def lingering(before: list[Step], after: list[Step]) -> float:
    """By how much the first steps after the window are longer than the last ones before it, as a share, beyond what
    those became longer themselves; 0 where there are few."""
    if len(before) < 2 * ENOUGH or len(after) < ENOUGH:
        return 0.0
    earlier, last, first = (
        float(np.median([step.wall for step in steps]))
        for steps in (before[-2 * ENOUGH : -ENOUGH], before[-ENOUGH:], after[:ENOUGH])
    )
    return first / last - max(1.0, last / earlier) if last and earlier else 0.0


def runs_ahead(walls: np.ndarray, device_ns: float) -> bool:
    """Whether the usual step is shorter than the device's work in it."""
    return bool(len(walls)) and device_ns > AHEAD * float(np.median(walls))


def filling(walls: np.ndarray, device_ns: float) -> int:
    """How many first steps only fill the queue of a device that is then always behind; none where that is most."""
    short = walls < FILLS * device_ns
    first = int(np.argmin(short)) if not short.all() else 0
    return first if 2 * first < len(walls) else 0


def whole_cycles(walls: np.ndarray, device_ns: float) -> np.ndarray:
    """The steps after the first in which the host waited, up to the last one: what it was ahead by is then the same at
    both ends. All where there are no two of them."""
    waited = np.flatnonzero(walls >= device_ns)
    return walls[waited[0] + 1 : waited[-1] + 1] if len(waited) > 1 else walls


def batch_means(walls: np.ndarray) -> np.ndarray:
    """Means of runs of steps of one length, in order: what one step is late the next is early, so that single steps say
    nothing of how surely their mean is known. What is left over is at the beginning."""
    size = max(1, len(walls) // BATCHES)
    found: np.ndarray = walls[len(walls) % size :].reshape(-1, size).mean(axis=1)
    return found


def percentile(walls: Sequence[float] | np.ndarray, share: float) -> float | None:
    """The length that so large a share of the steps stays below, ns; None of too few steps to tell."""
    return float(np.percentile(walls, 100 * share)) if len(walls) * (1 - share) >= BEYOND else None
