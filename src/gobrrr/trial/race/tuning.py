"""From candidates to a receipt: the race, the guard, the confirmation, within the user's minutes, all kept on disk.

What measures and what guards is handed in, so that all of it runs on a fake clock in tests.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from gobrrr.guard.model.verdict import Guarded
from gobrrr.guard.reference.watched_steps import twin_steps
from gobrrr.rules.model.finding import Saving
from gobrrr.system import files
from gobrrr.trial.race import headroom, loader_search, race
from gobrrr.trial.race.candidates import Candidate, Plan
from gobrrr.trial.race.guard_runs import WITHOUT_DROPOUT
from gobrrr.trial.race.loader_search import Family, Settled, Settling
from gobrrr.trial.race.policy import POLICY
from gobrrr.trial.race.race import Arms, Racing
from gobrrr.trial.race.race_round import Stack
from gobrrr.trial.race.search import Race
from gobrrr.trial.receipt.receipt import (
    MAX_BYTES,
    Headspace,
    Measured,
    Receipt,
    Speedup,
    TrialResult,
    confirmed,
    is_of,
)  # fmt: skip
from gobrrr.trial.sandbox import signature as mark
from gobrrr.trial.statistics.objective import SETTLED, THROUGHPUT, TIME, Objective, adjective

UNCOUNTED = "no DataLoader gave its steps samples that could be counted: all are taken to have equally many"
NO_TIME = "there was no time left to try and to prove it"
UNCHECKED = "the minutes were spent while its numbers were checked"


class Referee(Arms, Settled, Protocol):
    """Runs the arms of the race, compares in fresh processes, and has the guard judge."""

    def measure(self, plan: Plan, seconds: float) -> Measured:
        """Baseline stack against candidate stack, in rounds of fresh processes, in so many seconds at most."""

    def with_account(self, guarded: Guarded, found: Measured, stack: Stack) -> Guarded:
        """The guard's verdict with what the timed runs of an edit did."""

    def pairs(self) -> int:
        """Pairs of processes that a comparison starts beside each other."""

    def guard(self, stack: Stack, milder: Stack = ()) -> Guarded:
        """The numbers of a stack against those of the untouched program. `milder`: what may be asked for next."""


class Listener(race.Listener):
    """Told what happens, as it happens; the live view and the plain lines are two of these."""

    def ended(self, result: TrialResult) -> None:
        """A trial has ended."""

    def headspace(self, found: Headspace) -> None:
        """Take what any loader fix could give: measured, or could not be."""

    def began(self, plan: Plan, number: int) -> None:
        """A comparison of fresh processes begins."""

    def progress(self, done: int, planned: int, so_far: Speedup | None) -> None:
        """Blocks measured so far of the running comparison, and the interval that they give."""

    def guarding(self, stack: Stack) -> None:
        """The numbers of a stack are about to be checked."""


class Line(TrialResult, frozen=True, kw_only=True):
    """A line of the journal: a trial, marked by who measured it."""

    mark: str = ""


class Journal:
    """Finished trials, one JSON line each, in the order in which they ended; only ever appended to."""

    def __init__(self, file: Path, about: str = "") -> None:
        """`about`: the program whose trials these are; another's are none of them."""
        self._file, self._kind = file, f"trial\0{about}"
        self.foreign = 0
        """Lines of the last read() that somebody else wrote, or of another program."""

    def append(self, result: TrialResult) -> None:
        """Write one trial, through to the disk's cache. Raises OSError, for a link too."""
        fields = msgspec.to_builtins(result) | {"mark": mark.of(_canonical(result), self._kind)}
        files.append(self._file, msgspec.json.encode(fields) + b"\n")

    def read(self) -> list[TrialResult]:
        """All whole lines that this user measured on this machine: what others wrote was not measured here, and a last
        line that was cut off is left out. Raises OSError for what is no plain file."""
        if not self._file.exists():
            return []
        lines = [line for each in files.read(self._file, MAX_BYTES).split(b"\n") if (line := _decoded(each))]
        found = [_trial(line) for line in lines if mark.holds(line.mark, _canonical(line), self._kind)]
        self.foreign = len(lines) - len(found)
        return found


def _canonical(result: TrialResult) -> bytes:
    """A trial's bytes without its mark, as they are once it was read back."""
    line = _decoded(msgspec.json.encode(result))
    return msgspec.json.encode(_trial(line)) if line is not None else b""


def _trial(line: Line) -> TrialResult:
    return TrialResult(**{name: getattr(line, name) for name in TrialResult.__struct_fields__})


def _decoded(line: bytes) -> Line | None:
    try:
        return msgspec.json.decode(line, type=Line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


class Tuning:
    """One run of `gobrrr tune` between its diagnosis and its receipt.

    `seconds` is what is left of the user's minutes. The race ends when guard and confirmation are about to take all of
    the rest, by what starts and steps have taken so far.
    """

    def __init__(
        self, candidates: Sequence[Candidate], step_ns: float, referee: Referee, journal: Journal, *,
        seconds: float, seed: int = 0, listener: Listener | None = None, clock: Callable[[], float] = time.monotonic,
        objective: Objective = TIME, family: Family | None = None, waits: bool = False, between_ns: float = 0.0,
    ) -> None:  # fmt: skip
        """`family`: settings of the program's loaders to search first. `waits`: the program waits for its loaders, so
        that what any of them could bring is measured before. `between_ns`: what other loops take between two steps."""
        self.race, self._objective = Race(candidates, step_ns, seed, objective), objective
        self._step_ns, self._referee, self._journal = step_ns, referee, journal
        self._between_ns = between_ns
        self._listener, self._clock = listener or Listener(), clock
        self._began, self._seconds = clock(), seconds
        self._racing = Racing(self.race, referee, self._race_until, self._keep, self._listener, clock)
        self._open = self.race.open()
        self._settling = family and Settling(family, referee, self._racing, self.race, self._keep, clock)
        self._settled, self._waits = "", waits
        self._headroom: Headspace | None = None
        self.results: list[TrialResult] = []
        self.kept: Stack = ()
        self.complete = False
        self._raced = 0.0
        self._likely: Stack = ()
        """Combination that went into guard and confirmation."""
        self._put_off: Stack = ()
        """Combination that would have, with more time."""

    def run(self) -> None:
        """Race, guard, confirm; a KeyboardInterrupt leaves what was finished in `results` and on disk."""
        try:
            if self._waits:
                self._headroom = headroom.measured(self._racing, POLICY.headroom * self._seconds, self._clock)
                self._listener.headspace(self._headroom)
                if (compute := self._headroom.compute_ns) is not None:
                    self.race.limit(compute.high / self._headroom.step_ns)
                    self._open = self.race.open()
            if self._settling is not None:
                until = self._began + loader_search.share(self._headroom) * self._seconds
                self._settled = self._settling.run(until, self._headroom)
                self._open = self.race.open()
            self._heats()
            while not self._confirm(self._affordable(self.race.best())) and self.race.again():
                self._heats()
            self.complete = True
        except KeyboardInterrupt:
            pass
        finally:
            self._referee.end()

    def _heats(self) -> None:
        began = self._clock() if self._raced else self._began
        self._racing.run()
        self._raced += self._clock() - began

    def left(self) -> float:
        """Seconds of the user's minutes."""
        return self._seconds - (self._clock() - self._began)

    def _race_until(self) -> float:
        """When the race must be over, by the clock."""
        hope = self._racing.hope()
        least = POLICY.race if hope else POLICY.seeking
        stack = hope or self.race.best()
        proof = self._proof(stack) + (self._check(stack) if self.race.risk(stack) >= POLICY.risky else 0.0)
        return self._began + self._seconds - min(proof, (1 - least) * self._seconds)

    def _proof(self, stack: Stack, margin: float = POLICY.margin) -> float:
        """Seconds that guard and confirmation of a stack are thought to take."""
        start, step_ns, slack = self._racing.pace(stack)
        starts = math.ceil(POLICY.fewest_rounds / self._referee.pairs()) * start
        longest = max(step_ns, POLICY.edge_ns / POLICY.edge_share, self._objective.shortest_ns)
        blocks = POLICY.fewest_rounds * POLICY.blocks * slack * longest / 1e9
        return margin * (starts + blocks + self._check(stack))

    def _check(self, stack: Stack) -> float:
        """Seconds that the guard is thought to take."""
        start, step_ns, slack = self._racing.pace(stack)
        reorder = [self.race.candidate(name).reorders for name in stack]
        runs = POLICY.guard_runs + any(reorder) + (any(reorder) and not all(reorder))
        watched = twin_steps(self._step_ns + self._between_ns)
        return runs * (start + watched * POLICY.watched * slack * step_ns / 1e9)

    def _affordable(self, stack: Stack) -> Stack:
        """Return what is to be confirmed: of the stack, and those that were shown to be faster or lean far, the best
        for which there is time, the one that takes least where there is time for none; of those that are about as fast
        as the stack, and no riskier, one that takes much less."""
        known = self.race.far() | self.race.shown
        hopes = {each: mean for each, mean in known.items() if each != stack and not set(each) & self.race.refused}
        proofs = {each: self._proof(each, margin=1.0) for each in (stack, *sorted(hopes, key=lambda e: -hopes[e]))}
        if (shown := self.race.shown.get(stack)) is not None:
            risk = self.race.risk(stack)
            alike = [each for each in self.race.shown.keys() & hopes if self.race.shown[each] >= shown - POLICY.effect
                     and proofs[each] <= POLICY.shorter * proofs[stack] and self.race.risk(each) <= risk]  # fmt: skip
            stack = min((stack, *sorted(alike)), key=lambda each: proofs[each])
        fit = (each for each in (stack, *proofs) if proofs[each] <= self.left())
        # Starts scatter: of those that take about as long the first one, not the one that seems shorter by a second.
        least = min((stack, *proofs), key=lambda each: round(proofs[each] / (proofs[stack] or 1.0), 1))
        found = next(fit, least if self.left() > 0 else stack)
        self._put_off = stack if found != stack else ()
        return found

    def take_over(self) -> str:
        """Take over the first looks that an earlier tuning settled; all else is measured again, and what it did for
        another objective. Say so in words."""
        found = [result for result in self._journal.read() 
                 if result.purpose == "add" and not result.onto and not result.options]  # fmt: skip
        looks = [result for result in found if result.objective == self._objective.name]
        others = sorted({result.objective for result in found} - {self._objective.name})
        known = {candidate.name for candidate in self.race.candidates}
        earlier = [result for result in looks if known.issuperset(result.remedies)]
        settled = {result.remedies: result for result in earlier if result.verdict in SETTLED}
        again = {result.remedies for result in earlier} - set(settled)
        for stack, result in settled.items():
            self.results.append(result)
            time = math.log(result.speedup.median) if result.speedup else 0.0
            own = result.memory or result.energy
            mean = math.log(own.median) if own else time
            self.race.settle((), stack, result.verdict, mean, time)
        taken = f"{len(settled)} settled trials are taken over, {len(again)} open or failed are made again"
        passed = f"{len(found) - len(looks)} trials there were for {' and '.join(others)}, which says nothing here"
        return "; ".join([*([taken] if earlier else []), *([passed] if others else [])])

    def _keep(self, result: TrialResult) -> None:
        told: dict[Stack, Saving] = {(each.name,): each.predicted for each in self.race.candidates}
        predicted = None if result.options or self._objective.is_peak else told.get(result.remedies)
        result = msgspec.structs.replace(result, predicted=predicted, objective=self._objective.name)
        self.results.append(result)
        self._journal.append(result)
        self._listener.ended(result)

    def _confirm(self, stack: Stack) -> bool:
        """The guard on a stack, its riskiest remedies left out until it is green, and what else seemed to help where
        none is left; then fresh processes against the program as it is. False where all of it was refused."""
        asked = stack
        while stack:
            self._likely = stack
            began = self._clock()
            guarded = self._guarded(stack)
            if guarded.green:
                self._measure(stack, guarded)
                return True
            if guarded.verdict == "unverified" and self.left() <= 0:
                self._keep(TrialResult(remedies=stack, purpose="final", verdict="inconclusive", reason=UNCHECKED))
                return True
            self._keep(TrialResult(remedies=stack, purpose="guard", verdict=self._objective.better, guard=guarded,
                                   seconds=self._clock() - began))  # fmt: skip
            hurried = self.left() < POLICY.hurry * (self._clock() - began)
            stack = self._affordable(self.race.refuse(stack, hurried) or self.race.instead())
        self._likely = ()
        return not asked

    def _guarded(self, stack: Stack) -> Guarded:
        """Return what the guard says, unverified where the minutes are over before it is asked."""
        if self.left() <= 0:
            return Guarded(reasons=(UNCHECKED,))
        self._listener.guarding(stack)
        return self._referee.guard(stack, self.race.milder(stack))

    def _measure(self, stack: Stack, guarded: Guarded) -> None:
        plan, began = Plan((), stack), self._clock()
        self._listener.began(plan, len(self.results) + 1)
        found = self._referee.measure(plan, max(0.0, self.left()))
        if found.accounts[1]:  # an edit is in it, and what was timed must be what was checked
            guarded = self._referee.with_account(guarded, found, stack)
        self._keep(confirmed(stack, found, guarded, self._clock() - began))
        figure = found.memory or found.energy or found.speedup
        if found.verdict == self._objective.better and guarded.green:
            self.kept = stack
        elif figure is not None and figure.median <= 1.0:
            self._likely = ()  # the race was wrong about it

    def receipt(self) -> Receipt:
        """The receipt of what was finished."""
        final = next((r for r in reversed(self.results) if r.purpose == "final"), None)
        steps = [r.baseline_step_ns for r in (final, *self.results) if r and not r.onto and r.baseline_step_ns]
        return Receipt(
            trials=tuple(self.results), kept=self.kept, complete=self.complete,
            step_ns=steps[0] if steps else self._step_ns, diagnosed_step_ns=self._step_ns,
            objective=self._objective.name, speedup=final.speedup if final and self.kept else None,
            memory=final.memory if final and self.kept else None,
            energy=final.energy if final and self.kept else None, guard=final.guard if final else Guarded(),
            headspace=headroom.reached(self._headroom, self._loaders_brought(final)),
            notes=tuple(self._notes()), left=self._left_open(), likely=self._likely if not self.kept else (),
            measured=not self._open or any(r.verdict in SETTLED or r.speedup is not None for r in self.results),
        )  # fmt: skip

    def _loaders_brought(self, final: TrialResult | None) -> Speedup | None:
        """Return the speedup of the loader remedies kept: confirmed if nothing else was kept, else in the race."""
        kept = [name for name in self.kept if name in headroom.LOADERS]
        if not kept or final is None or set(kept) == set(self.kept):
            return final.speedup if kept and final else None
        given = self._referee.options
        alone = [r for r in self.results if r.purpose == "add" and not r.onto and set(r.remedies) == set(kept)
                 and is_of(r, kept, given)]  # fmt: skip
        return alone[-1].speedup if alone else None

    def _notes(self) -> Iterator[str]:
        if self._racing.broken:
            yield f"the program as it is could not be run: {self._racing.broken}"
        if self._settled:
            yield self._settled
        raced = [result for result in self.results if result.samples.arm]
        if self._objective is THROUGHPUT and raced and not any(result.samples.per_step(0) for result in raced):
            yield UNCOUNTED
        if self.kept and any(WITHOUT_DROPOUT in result.guard.reasons for result in self.results if result.guard):
            yield WITHOUT_DROPOUT
        yield from (
            f"{each.name}: {each.unseen}" for each in self.race.candidates if each.unseen and each.name in self.kept
        )
        if self._put_off and not set(self._put_off) & self.race.refused:
            yield (f"{' + '.join(self._put_off)} may be {adjective(self._objective.better)} still: there was no time "
                   "to check and confirm it")  # fmt: skip
        best = self.race.best()
        start, proof, fewest = self._racing.pace(best).start_s, self._proof(best), POLICY.fewest_rounds
        if start and self._open and not any(result.speedup for result in self.results):
            # Two heats can find something, the candidates and the winners together; blocks take about one start.
            enough = 3 * start + proof
            yield f"a start takes {start:.0f} s here: {math.ceil(enough / 60)} minutes after the diagnosis would do"
        # Unless its rounds scatter, so that it says how long they would take: longer than a proof is thought to.
        elif self._likely and not self.kept and all((r.starts_needed or 0) <= fewest for r in self.results):
            enough = self._raced + proof
            yield (f"the race took {self._raced:.0f} s, and checking and confirming is thought to take {proof:.0f}: "
                   f"{math.ceil(enough / 60)} minutes after the diagnosis would do")  # fmt: skip
        reasons = {**dict.fromkeys(self._left_open(), NO_TIME), **self.race.skipped}
        tried = {result.remedies for result in self.results}  # the search of loaders is none of the race's
        for name, why in reasons.items():
            if (name,) not in tried:
                yield f"{name} was not tried: {why}"

    def _left_open(self) -> tuple[str, ...]:
        """Remedies that there was no time for, not as a setting of a loader either; with those of a pair that was not
        ready in time, which says nothing of them."""
        tried = {name for result in self.results if _is_read(result) for name in result.remedies}
        late = [name for result in self.results if not _is_read(result) for name in result.remedies]
        told = tried | self.race.refused  # those that did not take hold in a stack of several
        return tuple(name for name in dict.fromkeys([*self.race.left(), *late]) if name not in told)


def _is_read(result: TrialResult) -> bool:
    """Whether it says anything of its remedies: several that could not run, or were not ready in time, say nothing."""
    return len(result.remedies) == 1 or result.speedup is not None or result.verdict not in ("inconclusive", "failed")
