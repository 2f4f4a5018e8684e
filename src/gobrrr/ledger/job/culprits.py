"""Which ranks do the others wait for, in which phase, and what would a step gain without that?

A step of synchronous training is as long as the longest own time of a rank in it. So what a rank costs is told by
taking its surplus away and asking again which rank would then be the longest: once for ranks that have more in most
steps (always), once for single steps that stand out, once for what is left. Single steps are one rank's (at times), or
now one's, now another's (in turns).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from gobrrr.ledger.job.own_steps import FIELDS, OwnSteps
from gobrrr.recording.model.facts import Span
from gobrrr.recording.model.phases import BACKWARD, FORWARD, NAMES, OPTIMIZER

Floats = npt.NDArray[np.float64]
LATE = 0.05
"""Share of the step by which own time must exceed that of others to be called late."""
LEAST_STEPS = 8
"""Steps that all ranks made and watched, below which nothing is said (proposed)."""
FAR = 10.0
"""Multiple of the median step from which fewer than FEWEST_SPIKES steps are left out and told: they would be most of
any mean (proposed)."""
IN_MOST = 0.7
"""Share of steps in which a rank that is always late has half of its surplus at least (proposed)."""
ONE_RANKS = 0.8
"""Share of the surplus now and then that one rank has, from which it is that rank's and no turn (proposed)."""
OUTLIER = 6.0
"""Median deviations above the median from which a step stands out: four standard deviations of a normal spread."""
FEWEST_SPIKES = 3
"""Steps that must stand out for it to be no chance (proposed)."""
RARE = 0.6
"""Part of `least` from which steps that stand out are told: 3 % of a step, as any finding."""
LONG = 0.5
"""Surplus, as a share of a step, from which a single long step of any rank is the program's (proposed)."""
COMPUTING = (FORWARD, BACKWARD, OPTIMIZER, "")
"""Phases in which a single long step is the machine's."""
MAIN = 0.9
"""Share of what single steps cost that is told of (proposed)."""
ALWAYS, AT_TIMES, IN_TURNS = "always", "at times", "in turns"


class Culprit(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks that others wait for. ns per step."""

    when: str
    """always, at times or in turns."""
    ranks: tuple[int, ...]
    """Positions among the ranks that were given; of a job's report their numbers."""
    phase: str
    """As in phases.NAMES, or gc; empty where none has half of the surplus."""
    cost_ns: float
    """By which the job's step would be shorter without the surplus."""
    share_of_steps: float = 1.0
    """Share of steps that have it."""
    every: float | None = None
    """Steps from one that has it to the next, where that is always the same number."""
    surplus_ns: float = 0.0
    """Surplus in a step that has it, median."""
    where: Span | None = None
    why: str = ""
    """More work, or the same more slowly; empty where the line says it."""


class Shared(msgspec.Struct, frozen=True, kw_only=True):
    """Steps that all ranks made and watched, as means in ns: the job's step is own + imbalance + communication."""

    steps: int
    step_ns: float
    own_ns: float
    """Own time of the median rank; of an even number the shorter one of the middle."""
    imbalance_ns: float
    """By which the longest own time of each step exceeds that."""
    phases: tuple[tuple[float, ...], ...]
    """Own time of each rank by phases.NAMES."""
    left_out: tuple[tuple[int, float], ...] = ()
    """(number, ns) of single steps that were FAR longer."""

    @property
    def communication_ns(self) -> float:
        """Return what is left of the step: transfer, and what it takes to send and receive."""
        return max(0.0, self.step_ns - self.own_ns - self.imbalance_ns)


def is_enough(rank: OwnSteps) -> bool:
    """Say whether a rank watched as many steps as are needed to judge it."""
    return int((~np.isnan(rank.table()).any(axis=1)).sum()) >= LEAST_STEPS


def shared(ranks: Sequence[OwnSteps]) -> tuple[Shared, tuple[Culprit, ...]] | None:
    """Return what the steps say that all these ranks made, and who is waited for, the dearest first; None of fewer than
    two ranks or LEAST_STEPS steps."""
    if (kept := steady(ranks)) is None:
        return None
    table, numbers, left_out = kept
    parts, step = table[:, :, : len(NAMES)], float(np.median(table[:, :, FIELDS.index("wall")], axis=1).mean())
    own = parts.sum(axis=2)
    usual = float(_usual(own.mean(axis=0)))
    found = Shared(
        steps=len(numbers), step_ns=step, own_ns=usual, imbalance_ns=max(0.0, float(own.max(axis=1).mean()) - usual),
        phases=tuple(map(tuple, parts.mean(axis=0).tolist())), left_out=left_out,
    )  # fmt: skip
    return found, tuple(_culprits(table, own, numbers, step))


def steady(
    ranks: Sequence[OwnSteps],
) -> tuple[Floats, npt.NDArray[np.intp], tuple[tuple[int, float], ...]] | None:
    """(steps, ranks, FIELDS) in ns of the steps that all these ranks made and watched, their numbers, and as of
    Shared.left_out; None of fewer than two ranks or LEAST_STEPS steps."""
    first = max((rank.first for rank in ranks), default=0)
    tables = [rank.table()[first - rank.first :].astype(float) for rank in ranks]
    num = min(map(len, tables), default=0)
    if len(ranks) < 2 or num < LEAST_STEPS:
        return None
    table = np.stack([each[:num] for each in tables], axis=1)
    numbers = np.flatnonzero(~np.isnan(table).any(axis=(1, 2)))
    numbers = numbers[_first_steady(table[numbers]) :]
    walls = np.median(table[numbers, :, FIELDS.index("wall")], axis=1)
    far = walls > FAR * np.median(walls) if len(walls) else np.zeros(0, bool)
    if far.sum() >= FEWEST_SPIKES:
        far[:] = False
    left_out = tuple(zip((first + numbers[far]).tolist(), walls[far].tolist(), strict=True))
    numbers = numbers[~far]
    if len(numbers) < LEAST_STEPS:
        return None
    return table[numbers], numbers, left_out


def _usual(own: Floats) -> npt.NDArray[np.float64]:
    """Return the middle one over the ranks, the last axis; of an even number the shorter one."""
    found: npt.NDArray[np.float64] = np.sort(own, axis=-1)[..., (own.shape[-1] - 1) // 2]
    return found


def _first_steady(table: Floats) -> int:
    """Steps at the beginning whose own time is of a start: caches are cold, buckets are made."""
    own = table[:, :, : len(NAMES)].sum(axis=2).max(axis=1)
    return int(np.argmax(own <= 2 * np.median(own))) if len(own) else 0


def _culprits(table: Floats, own: Floats, numbers: npt.NDArray[np.intp], step: float) -> list[Culprit]:
    """Return the ranks whose cure brings more than LATE of the step, the dearest first. `numbers`: of the steps."""
    found: list[Culprit] = []
    least, longest = LATE * step, own.argmax(axis=1)
    slow, surplus = _always(own, least)
    if slow:
        rest = own.copy()
        usual = np.median(np.delete(own, slow, axis=1), axis=1)[:, None]  # no shorter than the others: that is no turn
        rest[:, slow] = np.maximum(own[:, slow] - surplus, np.minimum(own[:, slow], usual))
        cost = float((own.max(axis=1) - rest.max(axis=1)).mean())
        others = [rank for rank in range(own.shape[1]) if rank not in slow]
        parts = table[:, :, : len(NAMES)]
        more = np.median(parts[:, slow].mean(axis=1) - np.median(parts[:, others], axis=1), axis=0)
        if cost > least:
            found.append(Culprit(when=ALWAYS, ranks=tuple(slow), phase=_most(more), cost_ns=cost,
                                 surplus_ns=float(surplus.mean())))  # fmt: skip
        own = rest
    for spikes in (True, False):
        one, own = _at_times(table, own, numbers, step, spikes)
        found += [one] if one is not None else []
    return sorted(_joined(found, longest), key=lambda each: -each.cost_ns)


def _joined(found: Sequence[Culprit], longest: npt.NDArray[np.intp]) -> list[Culprit]:
    """Join what one rank costs in one phase, in steps that stand out and in others: it has more work, of any length.
    `longest`: the rank that is so in each step."""
    joined: dict[tuple[tuple[int, ...], str], Culprit] = {}
    for each in found:
        key = each.ranks, each.phase if len(each.ranks) == 1 and each.every is None else str(id(each))
        if (before := joined.get(key)) is None:
            joined[key] = each
            continue
        share = float((longest == each.ranks[0]).mean())
        when = ALWAYS if ALWAYS in (before.when, each.when) or share >= IN_MOST else AT_TIMES
        joined[key] = Culprit(
            when=when, ranks=each.ranks, phase=each.phase, cost_ns=before.cost_ns + each.cost_ns,
            share_of_steps=1.0 if when == ALWAYS else share,
            surplus_ns=before.cost_ns + each.cost_ns if when == ALWAYS else max(before.surplus_ns, each.surplus_ns),
        )  # fmt: skip
    return list(joined.values())


def _always(own: Floats, least: float) -> tuple[list[int], Floats]:
    """(ranks that are longer at work than the middle one in most steps, by how much)."""
    more = own - _usual(own)[:, None]
    against = np.median(more, axis=0)
    late = (against > least) & ((more >= against / 2).mean(axis=0) >= IN_MOST)
    slow = np.flatnonzero(late).tolist()
    if not slow:
        return [], np.empty(0)
    others = np.median(np.delete(own, slow, axis=1), axis=1)
    return slow, np.median(own[:, slow] - others[:, None], axis=0)


def _at_times(
    table: Floats, own: Floats, numbers: npt.NDArray[np.intp], step: float, spikes: bool
) -> tuple[Culprit | None, Floats]:
    """(surplus of single steps, where the longest rank has more than it has in most; own time without it). `spikes`: of
    steps that stand out from their rank's others, which would be as those; else of all that are left, whose work the
    ranks would share evenly."""
    least, parts = LATE * step, table[:, :, : len(NAMES)]
    last, steps = own.argmax(axis=1), np.arange(len(own))
    if spikes:
        usual, usual_parts = np.median(own, axis=0, keepdims=True), np.median(parts, axis=0, keepdims=True)
        beyond = np.maximum(least, OUTLIER * np.median(np.abs(own - usual), axis=0)[last])
    else:
        usual, usual_parts, beyond = own.mean(axis=1, keepdims=True), parts.mean(axis=1, keepdims=True), least / 2
    more, more_parts = (own - usual)[steps, last], (parts - usual_parts)[steps, last]
    ahead = own[steps, last] - _usual(own)  # what all have at once nobody waits for
    late = (more > beyond) & (ahead > least)
    rest = own.copy()
    rest[late] = np.minimum(own, usual)[late]
    gains = own.max(axis=1) - rest.max(axis=1)
    late = gains >= _dearest(gains)
    is_sure = late.sum() >= FEWEST_SPIKES if spikes else _least(gains) > least
    if not is_sure or gains.mean() <= least * (RARE if spikes else 1.0):
        return None, own
    weights = np.bincount(last[late], ahead[late], minlength=own.shape[1])
    main = int(weights.argmax())
    alone = weights[main] >= ONE_RANKS * weights.sum()
    collected = table[steps[late], last[late], FIELDS.index("gc")].mean()
    one = Culprit(
        when=AT_TIMES if alone else IN_TURNS, ranks=(main,) if alone else tuple(np.flatnonzero(weights).tolist()),
        phase="gc" if collected > more[late].mean() / 2 else _most(more_parts[late].mean(axis=0)),
        cost_ns=float(gains.mean()), share_of_steps=float(late.mean()),
        every=_period(numbers[late]) if spikes else None, surplus_ns=float(np.median(more[late])),
    )  # fmt: skip
    each = [numbers[late & (last == rank)] for rank in one.ranks]
    is_the_programs = alone or not spikes or any(_period(own_steps) for own_steps in each)
    return one if is_the_programs or not _is_the_machines(one, step) else None, rest


def _is_the_machines(one: Culprit, step: float) -> bool:
    """Say whether single long steps of any rank are the machine's: cores that ranks and workers share make one compute
    for longer now and then, or wait a little for its loader."""
    return one.phase in COMPUTING or one.surplus_ns < LONG * step


def _dearest(gains: Floats) -> float:
    """Half of the least of the gains that together have MAIN of them all: the many smaller ones beside are noise."""
    down = np.sort(gains)[::-1]
    return float(down[np.searchsorted(np.cumsum(down), MAIN * down.sum())]) / 2


def _least(gains: Floats) -> float:
    """Mean less two standard errors: what other steps of the program would bring at least."""
    return float(gains.mean() - 2 * gains.std() / np.sqrt(len(gains)))


def _most(more: Floats) -> str:
    """The phase with at least half of the surplus; empty where none has."""
    most = int(np.argmax(more))
    return NAMES[most] if more[most] >= 0.5 * more[more > 0].sum() > 0 else ""


def _period(late: npt.NDArray[np.intp]) -> float | None:
    """Steps from one late step to the next, where most gaps are that many; None of fewer than three."""
    gaps = np.diff(late)
    if len(gaps) < 2:
        return None
    usual = float(np.median(gaps))
    return usual if np.mean(gaps == usual) >= 0.8 else None
