"""The truth of a remedy: arms of a program with it and as it is, started beside each other, measured in sweeps."""

from __future__ import annotations

import contextlib
import math
import random
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from gobrrr.ledger.steps.median_interval import median_interval
from gobrrr.trial.arm.arm import ArmError
from gobrrr.trial.race.policy import POLICY
from gobrrr.trial.race.race_round import Stack
from gobrrr.trial.race.referee import LiveReferee, Program
from gobrrr.trial.statistics.block_schedule import block_steps

START_S = 110.0
"""For all arms of a program until they are warm."""
FEWEST, ENOUGH, MOST = 6, 10, 30
"""Sweeps that are needed; with which a program that comes to its end is not started again; and at most."""
PLAIN: Stack = ()


class Truth(NamedTuple):
    """Of one remedy: a log ratio of each sweep, the program as it is over the program with it."""

    logs: tuple[float, ...] = ()
    why: str = ""
    """It could not be measured."""

    def ratio(self) -> tuple[float, float, float]:
        """Median of the log ratios, and its interval at 95 %; what two processes are off by is not in it."""
        ordered = sorted(self.logs)
        middle = len(ordered) // 2
        median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
        return median, *median_interval(self.logs)

    def shares(self) -> tuple[float, float, float]:
        """Of the step that is saved."""
        median, low, high = (1 - math.exp(-log) for log in self.ratio())
        return median, low, high

    def figures(self) -> dict[str, Any]:
        """As the result keeps it."""
        if self.why or not self.logs:
            return {"speedup": None, "why": self.why}
        return {"speedup": [math.exp(log) for log in self.ratio()], "num_sweeps": len(self.logs)}


def truths(
    program: Program, remedies: Sequence[str], seconds: float, folder: Path, start_s: float = START_S
) -> dict[str, Truth]:
    """Each remedy alone against one program as it is, in `seconds` of sweeps for each of them. Ops of one thread are
    timed by the CPU time of the arm, as in a rehearsal: what others take of its core is no matter of the remedy."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    referee = LiveReferee(program, folder.resolve())
    stacks: list[Stack] = [(name,) for name in remedies]
    try:
        failed = referee.start([PLAIN, *stacks], start_s)
        if PLAIN in failed:
            return {name: Truth(why=f"the program as it is: {failed[PLAIN]}") for name in remedies}
        live = [stack for stack in stacks if stack not in failed]
        _brought_level(referee, [PLAIN, *live])
        logs = _swept(referee, live, seconds * len(live), failed, program.threads == 1)
    finally:
        referee.close()
        shutil.rmtree(folder, ignore_errors=True)
    return {name: _truth(logs.get((name,), []), failed.get((name,), "")) for name in remedies}


def _brought_level(referee: LiveReferee, stacks: Sequence[Stack]) -> None:
    """All arms stand at the same step: they warm up for as many steps as each needs, and where steps grow (a metric
    over all that was seen so far) a program ten steps ahead of itself is 12 % slower."""
    most = max(referee.field.side(stack).made for stack in stacks)
    for stack in stacks:
        if behind := most - referee.field.side(stack).made:
            referee.block(stack, behind)


def _truth(logs: Sequence[float], why: str) -> Truth:
    few = f"{len(logs)} sweeps, {FEWEST} are needed" if len(logs) < FEWEST else ""
    return Truth(tuple(logs), why or few)


def _swept(
    referee: LiveReferee, live: list[Stack], seconds: float, failed: dict[Stack, str], alone: bool
) -> dict[Stack, list[float]]:
    """Log ratios of the arms, sweep by sweep; an arm that dies joins the failed. A sweep in which one was started anew
    has no CPU time."""
    logs: dict[Stack, list[float]] = {stack: [] for stack in live}
    shortest = min((referee.started(stack)[1] for stack in (PLAIN, *live)), default=1.0)
    steps, draw = block_steps(shortest, POLICY.edge_ns, 2 * POLICY.edge_share), random.Random(0)
    until, num, tried = time.monotonic() + seconds, 0, 0
    while live and num < MOST and tried < 2 * MOST and (time.monotonic() < until or num < FEWEST):
        tried += 1
        order = [PLAIN, *live]
        draw.shuffle(order)
        costs: dict[Stack, list[float]] = {stack: [] for stack in order}
        for stack in (*order, *reversed(order)):
            if stack in failed:
                continue
            try:
                ns = _block(referee, stack, steps, anew=num < ENOUGH, alone=alone)
            except ArmError as error:
                if error.over or stack == PLAIN:
                    return logs
                failed[stack] = error.reason
                live.remove(stack)
                continue
            costs[stack].append(math.log(ns) if ns else math.nan)
        if any(map(math.isnan, (cost for each in costs.values() for cost in each))):
            continue
        num += 1
        for stack in live:
            logs[stack].append(fmean(costs[PLAIN]) - fmean(costs[stack]))
    return logs


def _block(referee: LiveReferee, stack: Stack, steps: int, *, anew: bool, alone: bool) -> float:
    """ns of a step in a block; of CPU time where a thread is alone, 0 where its process is another by then. Raises
    ArmError."""
    before = _cpu_ns(referee, stack)
    block = referee.block(stack, steps) if anew else referee.field.side(stack).block(steps, anew=False)
    after = _cpu_ns(referee, stack)
    if not alone:
        return block.ns / len(block.walls)
    same = before.keys() <= after.keys()
    return (sum(after.values()) - sum(before.values())) / len(block.walls) if same else 0.0


def _cpu_ns(referee: LiveReferee, stack: Stack) -> dict[str, int]:
    """CPU time of each thread of an arm that stands still, by its folder."""
    found = {}
    for process in referee._alive[stack]._members():
        for task in Path(f"/proc/{process.pid}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError):
                found[str(task)] = int(task.read_text().split()[0])
    return found
