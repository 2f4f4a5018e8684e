"""The settings of a program's loaders, searched on live arms before the race: one at a time, beside the program as it
is. What is found enters the race as a remedy that is shown to be faster; guard and confirmation come there."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from gobrrr.ledger.loading import loader_model
from gobrrr.remedies.loader.loader import most_said, room
from gobrrr.rules.data.loader_advice import AHEAD, HELD_BYTES, NUM_WORKERS, WORKERS
from gobrrr.trial.race import headroom
from gobrrr.trial.race.loader_settings import LoaderSearch, Setting, Tried
from gobrrr.trial.race.policy import POLICY
from gobrrr.trial.race.race_round import Heat, Stack
from gobrrr.trial.receipt.receipt import Headspace, TrialResult
from gobrrr.units import duration, size

if TYPE_CHECKING:
    from gobrrr.remedies.registry import Options
    from gobrrr.rules.verdict.report import Report
    from gobrrr.trial.race.race import Racing
    from gobrrr.trial.race.search import Race
    from gobrrr.trial.statistics.objective import Objective

MANY, ONE, BATCHED, PINNED = "loader_workers", "one_worker", "batched_fetch", "pin_memory"
STAYING = "persistent_workers"
"""Remedies that a setting is made of; the last is part of each that has workers."""
KEEPERS = ("computed_once", "decoded_once")
"""Remedies that keep what the first epoch computes; each is a setting by itself."""
CODES = ("BRR401", "BRR402", "BRR403", "BRR405", "BRR406", "BRR407")
"""Findings that another number of workers may help."""


class Look(Heat):
    """A heat that asks how much, where a race asks whether, of one setting; `held`: bytes beside the reference's."""

    def __init__(self, stack: Stack, held: Callable[[Stack], int], *, seed: int, objective: Objective) -> None:
        super().__init__((), [stack], seed=seed, objective=objective)
        self._held, self.held = held, 0

    def feed(self, costs: Mapping[Stack, Sequence[float]]) -> None:
        super().feed(costs)
        (stack,) = self.contenders
        self.held = max(self.held, self._held(stack) - self._held(()))  # while both are alive

    def _runs_on(self, arm: Stack) -> bool:
        found = self.standing(arm)
        if self.verdict(arm) == self.objective.worse:
            return False
        return found.num < POLICY.loader_sweeps[0] or (
            found.num < POLICY.loader_sweeps[1] and found.error > POLICY.precise
        )


class Settled(Protocol):
    """Methods of the referee that the search needs."""

    @property
    def options(self) -> Options:
        """Options with which remedies are applied."""

    def give(self, options: Options) -> None:
        """Set the options of remedies for arms that start from now on."""

    def held(self, stack: Stack) -> int:
        """Bytes that an arm and its workers hold now, what they share counted once."""


class Family(NamedTuple):
    """A search and the remedies by which its settings are applied."""

    search: LoaderSearch
    one: str = ONE
    """Remedy that sets a single worker; MANY where the user leaves ONE out."""
    guests: tuple[str, ...] = ()
    """Remedies that are candidates for the search's sake alone."""
    advised: bool = True
    """Whether the loader model advises workers; else only what any loader fix could give, measured, calls for them."""

    def stack(self, setting: Setting) -> Stack:
        """The remedies that apply a setting."""
        now = self.search.now
        base = () if (setting.workers, setting.prefetch) == (now.workers, now.prefetch) else (self._base(setting),)
        parts = (setting.batched, BATCHED), (setting.pinned, PINNED), (setting.kept, setting.kept)
        return (*base, *(name for is_part, name in parts if is_part))

    def _base(self, setting: Setting) -> str:
        return self.one if setting.workers == 1 else MANY

    def options(self, setting: Setting) -> dict[str, dict[str, int]]:
        """Return the options of the remedy that sets the workers."""
        base = self._base(setting)
        if base not in self.stack(setting):
            return {}
        workers = {"workers": setting.workers} if base == MANY else {}
        return {base: {**workers, "prefetch": setting.prefetch}}


def family(report: Report, names: Collection[str], allowed: Callable[[str], bool]) -> Family | None:
    """Return the family where a finding says that workers may help, and the user allows for them; else None. `names`:
    the race's candidates. `allowed`: whether the user lets a remedy be tried."""
    advised = most_said(report, CODES, WORKERS)
    worth = max((finding.saving.ceiling_ns for finding in report.findings if finding.code in CODES), default=0.0)
    if advised is None or not allowed(MANY) or worth < POLICY.loader_worth * report.step.plain_wall_ns:
        return None
    now = Setting(int(most_said(report, CODES, NUM_WORKERS) or 0))
    ahead = int(most_said(report, CODES, AHEAD) or loader_model.PREFETCH)
    now = now._replace(prefetch=ahead if now.workers else loader_model.PREFETCH)
    held = most_said(report, CODES, HELD_BYTES) or 0.0
    search = LoaderSearch(
        now.with_workers(int(advised)) if now.workers else Setting(int(advised)), now, most_workers(report, now),
        room(), batch_bytes=held / ahead, can_batch=BATCHED in names, can_pin=PINNED in names,
        keepers=() if now.workers else tuple(each for each in KEEPERS if each in names),
    )  # fmt: skip
    bases = [each for each in (MANY, ONE) if allowed(each)]
    guests = tuple(each for each in bases if each not in names)
    return Family(search, ONE if ONE in bases else MANY, guests, advised > 0)


def most_workers(report: Report, now: Setting) -> int:
    """Return the most workers that are worth a look: by the cores of this machine, and what the model advises."""
    from gobrrr.capture.steps import vitals

    each = vitals.cores() / max(1, report.world_size or 1)  # an arm's ranks are all on this machine
    return max(loader_model.enough(each, now.workers), int(most_said(report, CODES, WORKERS) or 0))


def share(most: Headspace | None) -> float:
    """Return the share of a tuning's time that the search may take, by what a loader can bring."""
    held = most.saved_ns.low / most.step_ns if most is not None and most.saved_ns is not None else 0.0
    return min(POLICY.loader_most, max(POLICY.loader, held))


class Settling:
    """Drives a search, and leaves the race what came of it."""

    def __init__(
        self, family: Family, referee: Settled, racing: Racing, race: Race, keep: Callable[[TrialResult], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """`keep` is given every result."""
        self._family, self._search, self._referee, self._racing = family, family.search, referee, racing
        self._race, self._keep, self._clock = race, keep, clock
        self._before = dict(referee.options)
        self._results: dict[Setting, TrialResult] = {}
        self._longest = 0.0

    def run(self, until: float, most: Headspace | None = None) -> str:
        """All trials; a sentence of what came of them, empty where there was no time for any. `until`: by the clock, no
        trial begins that would last beyond it. `most` that a loader can bring: where a setting does nearly all of it
        the rest are not tried, and none where it is too little."""
        began = self._clock()
        saved, worth = (most.saved_ns, POLICY.loader_worth * most.step_ns) if most is not None else (None, 0.0)
        if saved is not None and saved.high < worth:
            self._without()
            return f"no setting of its loaders was searched for: {duration(saved.high)} at most is there to gain"
        if not self._family.advised and (saved is None or saved.low < worth):
            self._without()
            return ""
        self._search.enough = headroom.enough(most)
        while began + self._longest < until and (setting := self._search.next()) is not None:
            if not self._try(setting):
                break
            self._longest, began = max(self._longest, self._clock() - began), self._clock()
        if not self._results:
            self._without()
        return self._left() if self._results else ""

    def _try(self, setting: Setting) -> bool:
        """One setting against the program as it is; False where that can't be run."""
        stack, options = self._family.stack(setting), self._family.options(setting)
        self._referee.give({**self._before, **options})
        heat = Look(stack, self._referee.held, seed=len(self._results), objective=self._race.objective)
        looked = self._racing.look(heat)
        if looked is None:
            return False
        (found,) = looked.results
        said = f"{setting} ({setting.safety(self._search.now)})"
        reason = f"{said}: {found.reason}" if found.verdict == "failed" else said
        result = msgspec.structs.replace(found, options=options, reason=reason)
        standing = heat.standing(stack)
        if result.verdict == "failed" or standing.num < POLICY.loader_sweeps[0]:
            self._search.fail(setting)
        else:
            self._search.feed(setting, Tried(standing.mean, standing.low, heat.held))
        self._results[setting] = result
        self._keep(result)
        self._racing.let_go()
        return True

    def _settled_by(self, shown: bool) -> tuple[str, ...]:
        """Remedies that the race has not to look at any more."""
        if self._search.has_enough():
            return headroom.LOADERS
        tried = {name for setting in self._results for name in self._family.stack(setting)}
        return (MANY, ONE, STAYING) if shown else (*self._family.guests, *({MANY, ONE} & tried))

    def _without(self) -> None:
        """The race looks at the remedies as it would without a search."""
        self._referee.give(self._before)
        for name in self._family.guests:
            self._race.withdraw(name)

    def _left(self) -> str:
        """Say what the race is left with: the best setting as it stands, or all as it was before."""
        found, num = self._search.likely(), len(self._results)
        told = f"{num} settings of its loaders were tried" if num > 1 else "1 setting of its loaders was tried"
        if self._search.too_large:
            told += f", {len(self._search.too_large)} left out that need more than {size(self._search.room)} of memory"
        if found is None:
            self._without()
            return f"{told}: none is shown to be faster than what is set"
        stack, mean = self._family.stack(found), self._search.tried[found].mean
        self._referee.give({**self._before, **self._family.options(found)})
        shown = self._search.best() is not None
        if shown or len(stack) > 1:
            self._race.settle((), stack, self._results[found].verdict, mean, mean)
        else:  # the race looks longer, and as early as at what a finding promises as much of
            self._race.expect(stack[0], mean)
        if self._search.has_enough():
            told += (
                f": {found} with at least {POLICY.enough:.0%} of what any loader fix could bring: no other was tried"
            )
        else:
            told += f": {found} {'as good as any' if shown else 'may be faster'}"
        for name in {*self._settled_by(shown)} - set(stack):
            self._race.withdraw(name)
        needs = f", {size(self._search.needs(found))} at most" if self._search.needs(found) else ""
        return f"{told} ({found.safety(self._search.now)}{needs})"
