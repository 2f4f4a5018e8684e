"""The referee: two arms in turn, block by block, started anew round by round, until the schedule has what it needs."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psutil

from gobrrr.guard.model.account import Account
from gobrrr.trial.arm.arm import ArmError, cost_of
from gobrrr.trial.arm.side import Side, end, level
from gobrrr.trial.race.policy import POLICY
from gobrrr.trial.receipt.receipt import Measured, Samples, Speedup, StartUp
from gobrrr.trial.statistics import paired
from gobrrr.trial.statistics.objective import BETTER, TIME, Objective
from gobrrr.trial.statistics.rounds import Rounds

ROOM = 1.25
"""A second arm is started beside the first where this many times its memory is free."""
FURTHER = 0.5
"""Share of what a comparison took for which its last processes go on, where there is time (proposed: a proof is to take
minutes; the steps at which edits of strangers change their ways would settle it)."""

Progress = Callable[[int, int, Speedup | None], None]


def measure(
    baseline: Side, candidate: Side, *, seed: int, seconds: float, progress: Progress | None = None,
    free_bytes: Callable[[], int] = lambda: int(psutil.virtual_memory().available),
    rounds: Callable[..., Rounds] = Rounds, objective: Objective = TIME, pairs: int = 1,
) -> Measured:  # fmt: skip
    """Compare two stacks in at most `seconds`, starts and warm-ups among them; three times that where no verdict fits
    in. What goes wrong in an arm is a failed trial with its reason; only Ctrl-C comes through. `pairs`: of processes
    that there are cores and memory for at once; those of later rounds start beside the first and stand still."""
    sides = (baseline, candidate)
    began = time.monotonic()
    pool = ThreadPoolExecutor(len(sides) * pairs)  # an arm dies with the thread that started it (system.processes)
    try:
        if pairs > 1:  # for the first round and later ones
            for started in [pool.submit(side.start_ahead) for _ in range(pairs) for side in sides]:
                started.result()
        ahead_s = time.monotonic() - began if pairs > 1 else 0.0
        _made_ready(sides, pool)
        least = (ROOM - 1) * (baseline.resident() + candidate.resident())
        if (apart := free_bytes() < least) and any(side.ahead for side in sides):
            end(sides, Side.end_ahead)
            apart = free_bytes() < least
        abreast = 1 + min(side.ahead for side in sides)
        schedule = rounds((baseline.step_ns, candidate.step_ns), POLICY.edge_ns, seed=seed, seconds=seconds,
                          apart=apart, spent=time.monotonic() - began, objective=objective, started=abreast,
                          ahead_s=ahead_s)  # fmt: skip
        found = _compared(sides, schedule, progress, apart, pool, objective)
        if found.verdict in BETTER and candidate.accounts and not apart:  # which grow
            spent = time.monotonic() - began
            _look_further(sides, min(FURTHER * spent, 0.9 * (seconds - spent)))
        return found
    except ArmError as error:
        return Measured(verdict="failed", reason=error.reason, accounts=_accounts(sides))
    finally:
        end(sides, Side.close)
        pool.shutdown()


def _made_ready(sides: tuple[Side, Side], pool: ThreadPoolExecutor) -> None:
    """Start them beside each other: most of a start is one thread's work. Raises ArmError, the baseline's first."""
    for bring in (Side.start, Side.warm):
        errors = [brought.exception() for brought in [pool.submit(bring, side) for side in sides]]
        for error, who in zip(errors, ("the program as it is", "with the remedy"), strict=True):
            if isinstance(error, ArmError):
                raise ArmError(f"{who}: {error.reason}") from None
            if error is not None:
                raise error
    level(sides)


def _compared(
    sides: tuple[Side, Side], rounds: Rounds, progress: Progress | None, apart: bool, pool: ThreadPoolExecutor,
    objective: Objective,
) -> Measured:  # fmt: skip
    taken: list[tuple[int, int, int, int, int | None, int | None, float | None]] = []
    while (wanted := rounds.next()) is not None:
        if wanted.fresh:  # other processes: memory and threads lie elsewhere
            end(sides)
        if apart:  # memory for one arm at a time: the other one starts anew when its turn comes
            sides[1 - wanted.arm].end()
        elif wanted.fresh:
            _made_ready(sides, pool)
        number = len(rounds.logs)
        try:
            block = sides[wanted.arm].block(wanted.steps, anew=not rounds.may_end())
        except ArmError as error:
            if not error.over:
                raise
            rounds.ended()
            del taken[len(taken) - len(taken) % 4 :]
            continue
        rounds.feed(block.ns, len(block.walls), cost_of(block, objective))
        taken.append((wanted.arm, len(block.walls), block.ns, number, block.peak_bytes, block.samples, block.joules))
        if progress is not None:
            progress(len(taken), 4 * rounds.quadruples * rounds.planned, _so_far(rounds))
    return _measured(sides, rounds, Samples(*zip(*taken, strict=True)), apart, objective)


def _measured(
    sides: tuple[Side, Side], rounds: Rounds, samples: Samples, apart: bool, objective: Objective
) -> Measured:
    found = rounds.result()
    compared = Speedup(found.median, found.low, found.high)
    baseline, candidate = sides
    start = max(0.0, candidate.warm_seconds - baseline.warm_seconds)
    per_step = samples.step_ns(0) or 0.0, samples.step_ns(1) or 0.0
    reasons = (["one arm at a time: there was no memory for two"] if apart else []) + list(
        filter(None, [rounds.wants()])
    )
    return Measured(
        verdict=objective.word(found.verdict), speedup=_clocked(samples) if objective.own else compared,
        memory=compared if objective.own == "memory" else None,
        energy=compared if objective.own == "energy" else None, p_value=found.p_value,
        reason="; ".join(reasons), blocks_needed=4 * rounds.quadruples * found.needed if found.needed else None,
        starts_needed=found.needed,
        step_ns=per_step, start_up=StartUp(start, paired.break_even(start, *per_step), baseline.program_steps),
        compiled=candidate.compiled, peak_bytes=(baseline.peak_bytes or None, candidate.peak_bytes or None),
        step_peak_bytes=(samples.peak(0), samples.peak(1)),
        step_joules=(samples.energy(0), samples.energy(1)), samples=samples,
        accounts=_accounts(sides),
    )  # fmt: skip


def _look_further(sides: tuple[Side, Side], seconds: float) -> None:
    """Let the last processes go on for so long: an edit may change its ways behind the steps that were timed. Raises
    ArmError where one fails there."""
    until, steps = time.monotonic() + seconds, max(1, int(1e9 / max(side.step_ns for side in sides)))
    try:
        while time.monotonic() < until:
            for side in sides:
                side.block(steps, anew=False)
    except ArmError as error:
        if not error.over:
            raise ArmError(f"behind step {min(each.made for each in sides)}: {error.reason}") from None


def _accounts(sides: tuple[Side, Side]) -> tuple[tuple[Account, ...], tuple[Account, ...]]:
    baseline, candidate = (tuple(account for account in side.all_accounts() if account.rows) for side in sides)
    return baseline, candidate


def _clocked(samples: Samples) -> Speedup:
    """Return the rounds' speedup in time, where another figure decided how many there were."""
    times = [ns / steps for ns, steps in zip(samples.ns, samples.steps, strict=True)]
    logs: dict[int, list[float]] = {}
    for at in range(0, len(times) - 3, 4):
        log = paired.quadruple(*times[at : at + 4])
        logs.setdefault(samples.round[at], []).append(-log if samples.arm[at] else log)
    found = paired.compare_rounds(list(logs.values()))
    return Speedup(found.median, found.low, found.high)


def _so_far(rounds: Rounds) -> Speedup | None:
    if len(rounds.logs[0]) < POLICY.pilot:
        return None
    found = rounds.result()
    return Speedup(found.median, found.low, found.high)
