"""Which own times, spread and collectives of a recorded run is a forecast for more ranks made from?"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import reduce
from itertools import groupby
from statistics import mean, median
from typing import Any

import numpy as np
import numpy.typing as npt

from gobrrr.ledger.job.calls import IN_A_STEP
from gobrrr.ledger.job.calls import NAMES as KINDS
from gobrrr.ledger.job.culprits import steady
from gobrrr.ledger.job.forecast import Planned, Seen
from gobrrr.ledger.job.host_calls import host_calls, in_common
from gobrrr.ledger.job.own_steps import alone, own_steps
from gobrrr.ledger.job.ranks import Job
from gobrrr.recording.model.facts import Facts
from gobrrr.recording.model.phases import BACKWARD, NAMES
from gobrrr.recording.run_folder.noted_facts import facts_of
from gobrrr.recording.run_folder.run import Recording

MOST_SPREAD = 4096
"""Own times that are kept."""
PLANS = ("ddp", "fsdp2")


def of_ranks(recordings: Sequence[Recording], waits: Collection[str]) -> Seen | None:
    """Return the run of several ranks by their recordings; None where an accelerator works or too few steps are told.
    `waits`: phases in which a rank may wait for others."""
    own = [steps for each in recordings if (steps := own_steps(each, waits)) is not None]
    if len(own) < len(recordings) or (kept := steady(own)) is None:
        return None
    parts, walls = kept[0][:, :, : len(NAMES)], np.median(kept[0][:, :, -1], axis=1)
    each, num = parts.sum(axis=2), len(recordings)
    differ = (each - each.mean(axis=1, keepdims=True)) * (num / (num - 1)) ** 0.5  # of so few the mean goes along
    step, mean_own = float(walls.mean()), float(each.mean())
    return Seen(
        ranks=num, steps=len(walls), step_ns=step, own_ns=mean_own,
        backward_ns=float(parts[:, :, NAMES.index(BACKWARD)].mean()),
        exposed_ns=max(0.0, step - float(each.max(axis=1).mean())), plan=_plan(recordings, num),
        how="collectives of the profiled steps", spread=_spread(differ.ravel()), on_host=True,
    )  # fmt: skip


def _plan(recordings: Sequence[Recording], num: int) -> tuple[Planned, ...]:
    """The collectives of the profiled steps that all ranks made; the shortest of each call is its transfer."""
    calls = in_common([host_calls(each, num)[0] for each in recordings])
    tables = [one.groups[0].table() for one in calls if one.groups]
    if len(tables) < num:
        return ()
    common = reduce(np.intersect1d, [table["number"] for table in tables])
    tables = [table[np.searchsorted(table["number"], common)] for table in tables]
    transfer = np.min([table["ns"] for table in tables], axis=0)
    first = tables[0]
    steps = len(np.unique(first["number"] // (IN_A_STEP * (len(KINDS) + 1))))
    rows = sorted(zip(first["kind"].tolist(), first["size"].tolist(), transfer.tolist(), strict=True))
    found = []
    for (kind, size), group in groupby(rows, key=lambda row: row[:2]):
        taken = [ns for _, _, ns in group]
        found.append(Planned(KINDS[kind] if kind >= 0 else "", size, len(taken) / steps, mean(taken)))
    return tuple(found)


def of_one(recording: Recording, plan: str) -> Seen | None:
    """Return the run of one rank, with what it would send by this plan; None of too few steps."""
    walls, backward = alone(recording)
    if len(walls) < 2:
        return None
    facts = facts_of(recording, [])
    return Seen(
        ranks=1, steps=len(walls), step_ns=float(walls.mean()), own_ns=float(walls.mean()), backward_ns=backward,
        plan=_planned(facts, plan), how=f"planned for {plan}: its gradients and weights in pieces of 25 MiB",
        spread=_spread(walls - walls.mean()), on_host=recording.start.device is None,
    )  # fmt: skip


def _planned(facts: Facts, plan: str) -> tuple[Planned, ...]:
    """Return the collectives of a wrapper that shares the parameters of all optimizers: of DDP the gradients, of
    FSDP2 the weights for forward and for backward, and the gradients."""
    kinds = ("all-reduce",) if plan == PLANS[0] else ("all-gather", "all-gather", "reduce-scatter")
    return tuple(
        Planned(kind, float(size), max(1.0, optimizer.micro_steps))  # a wrapper sums in every backward pass
        for optimizer in facts.optimizers
        for size in optimizer.buckets
        for kind in kinds
    )


def of_job(job: Job) -> Seen | None:
    """Return a job by its report: of traces, or of ranks that an accelerator works for; None of fewer than two."""
    read = [rank for rank in job.ranks if not rank.error and rank.step_ns]
    if len(read) < 2:
        return None
    own = np.array([rank.local_ns for rank in read])
    plan = []
    for group in job.groups:
        told = sum(one.calls * one.transfer_ns for one in group.sizes)
        plan += [Planned(one.kind, one.size, group.transfer_ns * one.calls / told, one.transfer_ns)
                 for one in group.sizes if told and one.transfer_ns]  # fmt: skip
    step, factor = median(rank.step_ns for rank in read), (len(read) / (len(read) - 1)) ** 0.5
    return Seen(
        ranks=len(read), steps=min(rank.num_steps for rank in read), step_ns=step, own_ns=float(own.mean()),
        backward_ns=0.5 * float(own.mean()), exposed_ns=max(0.0, step - float(own.max())), plan=tuple(plan),
        how="collectives of the job's report; half of a rank's own time is taken for backward",
        spread=_spread((own - own.mean()) * factor), on_host=not any(rank.device for rank in read),
    )  # fmt: skip


def _spread(values: npt.NDArray[Any]) -> tuple[float, ...]:
    found = np.sort(values)
    if len(found) > MOST_SPREAD:
        found = np.quantile(found, np.linspace(0, 1, MOST_SPREAD))
    return tuple(found.tolist())
