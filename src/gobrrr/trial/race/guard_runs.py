"""Which runs of a program the guard needs to judge a stack of remedies: each taken once, beside others, untimed."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import msgspec

from gobrrr.guard.model.observation import Observation
from gobrrr.guard.model.verdict import VERDICTS, Guarded
from gobrrr.guard.reference.watched_steps import late_step, twin_steps
from gobrrr.guard.verdicts import edits
from gobrrr.guard.verdicts.closeness import same_numbers
from gobrrr.guard.verdicts.judging import judge
from gobrrr.guard.verdicts.structure import same_data
from gobrrr.trial.arm import protocol
from gobrrr.trial.arm.arm import SPENT, START_S, Arm, ArmError
from gobrrr.trial.arm.side import clear
from gobrrr.trial.edit.treatment import EditOnTrial, Treatment, treatment
from gobrrr.trial.race.candidates import compiles
from gobrrr.trial.race.race_round import Stack

SEEDS = (1, 2)
APART = "ranks: their weights differ after a step, in the program as it is they are the same"
GIVEN = ("data", "epochs", "evaluation")
"""Checks of what a rank is given: reasons for what another rank's gradients become."""
DETAIL_FACTOR = 20.0
"""A watched step takes this many times a plain one, at most: tensors are read, hashed and summed."""


class Watched(NamedTuple):
    """A run of the program that the guard watches. `again`: what the program itself does otherwise the next time.
    `beside`: steps that are looked at begin from the baseline's state, though its remedies may bring other data.
    `parts`: parameters of the baseline that those of an edited program hold."""

    stack: Stack = ()
    float64: bool = False
    again: bool = False
    seed: int = 0
    without_dropout: bool = False
    beside: bool = False
    parts: edits.Parts = ()


PLAIN = Watched()
WITHOUT_DROPOUT = "its numbers were compared without dropout, whose masks it changes"
Judged = Callable[[Observation, Sequence[Observation]], Guarded]
"""The verdict, from a second run of the baseline and from other seeds of it."""


class Means(Protocol):
    """Methods of the referee that the guard needs."""

    def arm(self, folder: Path, stack: Stack) -> Arm:
        """A new arm. Raises ArmError when the time is over."""

    def at_once(self) -> int:
        """Watched runs that there are cores and memory for."""

    def is_over(self) -> bool:
        """Whether the time is."""

    def stop(self) -> None:
        """Kill whatever runs."""


class Guarding:
    """Judges stacks against the untouched program, in which a plain step follows another after `step_ns`. Its own runs
    are taken once."""

    def __init__(
        self, means: Means, folder: Path, step_ns: float, on_trial: Mapping[str, EditOnTrial] = MappingProxyType({})
    ) -> None:
        """`on_trial`: edits by their names."""
        self._means, self._folder, self._step_ns, self._edits = means, folder, step_ns, on_trial
        self._late = late_step(twin_steps(step_ns), step_ns) if on_trial else 0
        self._num = itertools.count()
        self._running: list[Arm] = []
        self.seen: dict[Watched, Observation | ArmError] = {}
        self._others: dict[Watched, list[Observation]] = {}
        """What was seen on the other ranks of a job."""
        self._rank = 0
        """The one that is judged now."""

    def _of(self, name: str) -> Treatment:
        return treatment(name, self._edits)

    def rows_per_call(self, stack: Stack) -> tuple[float, float] | None:
        """Return the samples in a call of the program and of it with an edit that batches its inference otherwise."""
        runs = {key.stack: run for key, run in self.seen.items() if isinstance(run, Observation) and not key.float64}
        if not any(name in self._edits for name in stack) or not {(), stack} <= runs.keys():
            return None
        return edits.rows_per_call(runs[()], runs[stack])

    def ahead(self, seconds: float, stacks: Sequence[Stack] = ((),)) -> None:
        """Watch the untouched program now, as each of these stacks will be held against it, for so long at most: where
        that fails it is watched when it is asked for, by itself."""
        wanted = list(dict.fromkeys(map(self._untouched, stacks)))

        def kill() -> None:
            for arm in list(self._running):
                arm.kill()

        late = threading.Timer(seconds, kill)
        late.daemon = True
        late.start()
        try:
            self._beside(wanted, len(wanted))
        finally:  # Ctrl-C too: a timer that waits keeps the command from ending
            late.cancel()

    def judged(self, stack: Stack, milder: Stack = ()) -> Guarded:
        """Judge the numbers of a combination; unverified where the program could not be watched. `milder`, which may be
        asked for next, is watched at once where a core has nothing else to do: a check of its own takes a minute."""
        found = self._judged_on_a_rank(stack, milder)
        try:
            for rank in range(1, 1 + len(self._others.get(self._untouched(stack), ()))):
                self._rank = rank  # of one that is not green too: its sums of gradients may be another rank's fault
                here = self._judged_on_a_rank(stack, ())
                told = tuple(reason for reason in here.reasons if reason not in found.reasons)
                here = msgspec.structs.replace(here, reasons=tuple(f"on rank {rank}: {reason}" for reason in told))
                is_cause = any(map(_is_of_what_is_given, told)) and not any(map(_is_of_what_is_given, found.reasons))
                found = _worse(here, found) if is_cause else _worse(found, here)
        finally:
            self._rank = 0
        return _worse(found, Guarded("changed", (APART,))) if self._drifts_apart(stack) else found

    def _drifts_apart(self, stack: Stack) -> bool:
        """Whether ranks whose weights are the same after each step of the program are not with a combination."""
        plain = self._untouched(stack)
        changed = (key for key in self._others if key.stack == stack and not key.float64)
        runs = [[run, *self._others[key]] for key in (plain, next(changed, plain))
                if isinstance(run := self.seen.get(key), Observation) and self._others.get(key)]  # fmt: skip
        return len(runs) == 2 and _are_alike(runs[0]) and not _are_alike(runs[1])

    def _judged_on_a_rank(self, stack: Stack, milder: Stack) -> Guarded:
        if self._draws_other_masks(milder) != self._draws_other_masks(stack):
            milder = ()
        if not self._draws_other_masks(stack):
            return self._judged(stack, PLAIN, milder)
        found = self._judged(stack, self._untouched(stack), milder)
        verdict = "equivalent" if found.verdict == "exact" else found.verdict
        return msgspec.structs.replace(found, verdict=verdict, reasons=(*found.reasons, WITHOUT_DROPOUT))

    def _judged(self, stack: Stack, plain: Watched, milder: Stack) -> Guarded:
        changed, true = plain._replace(stack=stack), plain._replace(float64=True)
        # Where its remedies promise equal bits nothing is needed beside the combination itself.
        is_exact = all(self._of(name).safety == "exact" for name in stack)
        walks_alone = self._draws_otherwise(stack)
        kept = self._keeps_precision(stack) if not walks_alone else ()
        try:
            if walks_alone:  # it needs no state of the baseline's; of other data no tensor is held against float64
                beside = [changed, plain._replace(again=True)] if plain in self.seen else [plain, changed]
            else:
                self._observe(plain)
                beside = [changed, *([] if is_exact else [true, *self._naive(changed)])]
            beside += [plain._replace(stack=kept)] if kept else []
            idle = milder and not is_exact and plain in self.seen and self._means.at_once() > len(beside)
            self.together([*beside, *([plain._replace(stack=milder)] if idle else [])])
            baseline = self._observe(plain)
            candidate = self._observe(changed)
            if parts := self._parts(stack, baseline, candidate):
                changed = changed._replace(parts=parts)
                candidate = self._observe(changed)
            equal = self._judge(stack, baseline, candidate, again=baseline, reference=baseline)
            if equal.verdict == "exact":  # bit for bit: so the program repeats itself, and other runs can say no more
                return equal
            comparable = not walks_alone or same_data(baseline, candidate)
            if walks_alone and comparable:  # of its own way rounding alone is far after thirty steps
                changed = changed._replace(beside=True)
                self.together([changed, true, *self._naive(changed)])
                candidate = self._observe(changed)
            judged = self._with_references(
                changed, true if comparable or true in self.seen else None, baseline, candidate
            )
            # As if the program made no noise of its own: the strictest. Other runs can only widen its limits.
            equals = (candidate, self._tried(true)) if comparable else ()
            repeats = any(run is not None and same_data(baseline, run) for run in equals)
            if repeats and (found := judged(baseline, ())).green:  # another run was given the same data
                return self._with_kept(found, kept, plain)
            rest = tuple(name for name in stack if not self._draws_otherwise((name,)))
            if comparable or not rest:
                return self._with_kept(self._in_doubt(stack, plain, baseline, candidate, judged), kept, plain)
            # Where its losses go proves little of the rest: beside bucketing a model that heeds no mask was cut.
            strictly = self._judged(rest, plain, ())
            if not strictly.green:
                return strictly
            return _worse(strictly, self._in_doubt(stack, plain, baseline, candidate, judged))
        except ArmError as error:
            return Guarded(reasons=(f"the program could not be watched: {error.reason}",))

    def _with_kept(self, found: Guarded, kept: Stack, plain: Watched) -> Guarded:
        """Judge remedies that keep the precision, in a combination that lowers it, by themselves, as strictly as ever:
        within what bfloat16 explains they could shift a loss by a twentieth, or stop an average of the weights."""
        if not kept or found.verdict != "bounded":  # else it was green without any allowance
            return found
        strictly = self._judged(kept, plain, ())
        return found if strictly.green else _worse(found, strictly)

    def _with_references(
        self, changed: Watched, true: Watched | None, baseline: Observation, candidate: Observation
    ) -> Judged:
        """Judge remedies that lower the precision first as if they did not: on some chips they keep it. `true`: null
        where its data are others than the baseline's, and no tensor can be compared."""
        stack = changed.stack
        precision = next((remedy.precision for name in stack if (remedy := self._of(name)).precision), "")
        plain = partial(
            self._judge, stack, baseline, candidate, reference=self._tried(true) if true is not None else None,
            order_may_change=self._draws_otherwise(stack), regroups=any(self._of(name).regroups for name in stack),
        )  # fmt: skip
        wanted = self._naive(changed)
        naive = next(map(self._tried, wanted), None) if true is not None else None
        if true is not None and wanted and (naive is None or same_numbers(baseline, naive)):
            precision = ""  # nothing says what the precision alone does, or that does nothing on this chip
        lowered = partial(plain, naive=naive, is_naive=not wanted)

        def judged(again: Observation, seeds: Sequence[Observation]) -> Guarded:
            found = plain(again=again, seeds=seeds)
            return found if found.green or not precision else lowered(again=again, seeds=seeds, precision=precision)

        return judged

    def _parts(self, stack: Stack, baseline: Observation, candidate: Observation) -> edits.Parts:
        """Return which parameters of an edited program hold several of the baseline's."""
        renames = {new: old for name in stack if name in self._edits for new, old in self._edits[name].renames.items()}
        return edits.parts(baseline, candidate, renames) if any(name in self._edits for name in stack) else ()

    def _judge(self, stack: Stack, baseline: Observation, candidate: Observation, **runs: Any) -> Guarded:
        """Judge as a remedy, or as an edit where one is in the combination."""
        tried = [self._edits[name].accepted for name in stack if name in self._edits]
        return judge(baseline, candidate, accepted=frozenset().union(*tried) if tried else None, **runs)

    def _in_doubt(
        self, stack: Stack, plain: Watched, baseline: Observation, candidate: Observation, judged: Judged
    ) -> Guarded:
        """Judge with a second run of the baseline, and its other seeds. Raises ArmError."""
        second, *others = plain._replace(again=True), *(plain._replace(seed=seed) for seed in SEEDS)
        self.together([second, *others])
        again = self._observe(second)
        equal = self._judge(stack, baseline, candidate, again=again, reference=baseline)
        if equal.verdict == "exact":  # but for what the program itself does otherwise each time: prints times, say
            return equal
        found = judged(again, ())
        seeds = [run for other in others if (run := self._tried(other)) is not None]
        return found if found.green else judged(again, seeds)

    # the runs

    def together(self, wanted: Sequence[Watched]) -> None:
        """Take these beside each other, as far as there are cores and memory: none is timed. Who fails so, for want of
        memory say, is watched by itself when it is asked for."""
        wanted = [each for each in dict.fromkeys(wanted) if each not in self.seen]
        at_once = min(self._means.at_once(), len(wanted))
        if at_once < 2:
            return
        self._beside(wanted, at_once)

    def _beside(self, wanted: Sequence[Watched], at_once: int) -> None:
        """Watch these, so many at a time, and keep what was seen."""
        with ThreadPoolExecutor(at_once) as pool:
            try:
                found = list(pool.map(self._watched, wanted))
            except BaseException:  # Ctrl-C: arms have sessions of their own and do not hear it
                self._means.stop()
                raise
        self.seen.update((each, run) for each, run in zip(wanted, found, strict=True) if isinstance(run, Observation))

    def _tried(self, wanted: Watched) -> Observation | None:
        """A run that may fail: a program need not be able to compute in float64."""
        try:
            return self._observe(wanted)
        except ArmError:
            return None

    def _observe(self, wanted: Watched) -> Observation:
        """An observation, each taken once. Raises ArmError."""
        if wanted not in self.seen:
            self.seen[wanted] = self._watched(wanted)
        found = self.seen[wanted]
        if isinstance(found, ArmError):
            raise found
        if not self._rank:
            return found
        others = self._others.get(wanted, [])
        if len(others) < self._rank:
            raise ArmError(f"rank {self._rank} left no record")
        return others[self._rank - 1]

    def _watched(self, wanted: Watched) -> Observation | ArmError:
        folder = self._folder / f"guard{next(self._num)}"
        keeps = wanted._replace(without_dropout=False) == PLAIN
        # The baseline's own states, kept by its first watched run; those from other seeds have other ones.
        without = ("without-dropout",) if wanted.without_dropout else ()
        states = self._folder / "-".join((protocol.STATES, *without))
        steps = twin_steps(self._step_ns)
        walks_alone = wanted.seed or (self._draws_otherwise(wanted.stack) and not wanted.beside)
        arm = None
        try:
            arm = self._means.arm(folder, wanted.stack)
            self._running.append(arm)
            found = arm.observe(
                steps, seed=wanted.seed, float64=wanted.float64, without_dropout=wanted.without_dropout,
                late=0 if wanted.seed or wanted.float64 else self._late,
                parts=json.dumps(dict(wanted.parts)) if wanted.parts else None,
                states=None if walks_alone else states, keeps=keeps,
                seconds=START_S + (DETAIL_FACTOR * steps + 2 * self._late) * self._step_ns / 1e9,
            )  # fmt: skip
            self._others[wanted] = arm.others
            for kept in folder.glob(f"{protocol.STATES}*") if keeps else ():
                kept.rename(states.with_name(kept.name.replace(protocol.STATES, states.name, 1)))
            return found
        except ArmError as error:
            return ArmError(SPENT) if self._means.is_over() else error
        finally:
            if arm is not None:
                self._running.remove(arm)
                arm.end()
            clear(folder)

    def _naive(self, changed: Watched) -> list[Watched]:
        """The naive version at a lower precision: those of the remedies that lower it, alone."""
        lowering = [name for name in changed.stack if self._of(name).precision]
        naive = tuple(lowering)
        return [changed._replace(stack=naive, beside=False)] if lowering and naive != changed.stack else []

    def _keeps_precision(self, stack: Stack) -> Stack:
        """Return the remedies that keep the precision, of a combination that lowers it. None that changes the order of
        samples, which is judged by itself, nor one that compiles: in another precision it would be compiled anew, for a
        minute on two cores."""
        lowering = {name for name in stack if self._of(name).precision}
        kept = (name for name in stack if name not in lowering)
        return tuple(n for n in kept if not self._draws_otherwise((n,)) and not compiles((n,))) if lowering else ()

    def _untouched(self, stack: Stack) -> Watched:
        """Return what a combination is held against: where it draws other masks, the program without any."""
        return PLAIN._replace(without_dropout=True) if self._draws_other_masks(stack) else PLAIN

    def _draws_other_masks(self, stack: Stack) -> bool:
        """Whether dropout has other masks with it, for the same data: then only runs without any can be compared."""
        return any(self._of(name).judged_without_dropout for name in stack)

    def _draws_otherwise(self, stack: Stack) -> bool:
        return any(draws_otherwise(self._of(name)) for name in stack)


def _worse(first: Guarded, second: Guarded) -> Guarded:
    """Join both: the worse verdict, all reasons."""
    verdict = max(first.verdict, second.verdict, key=VERDICTS.index)
    return Guarded(verdict, (*first.reasons, *second.reasons), second.first_module, second.evidence | first.evidence)


def _are_alike(ranks: Sequence[Observation]) -> bool:
    """Whether all ranks have the same weights after each step that is looked at."""

    def weights(run: Observation) -> list[dict[str, str]]:
        return [{name: seen.digest for name, seen in step.updates.items()} for step in run.steps if step.updates]

    first = weights(ranks[0])
    return bool(first) and all(weights(run)[: len(first)] == first[: len(weights(run))] for run in ranks[1:])


def _is_of_what_is_given(reason: str) -> bool:
    return reason.startswith(GIVEN)


def draws_otherwise(treatment: Treatment) -> bool:
    """Whether it may change the order of samples or draws: then it walks its own way, from its own weights, since what
    it does with other data at the baseline's weights would say nothing of where it goes."""
    return treatment.safety == "order" and not treatment.judged_without_dropout
