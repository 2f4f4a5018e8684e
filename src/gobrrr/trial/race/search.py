"""Heats of a race, and remedies that may be kept: first looks, the winners as one combination, then more on top of it.
Pure; knows no clock, and claims nothing: what it keeps is confirmed in processes of its own.

    race = Race(candidates, step_ns)
    while (heat := race.next(places=4)) is not None:
        ...                                     # run it
        race.feed(heat)
    race.best()                                 # the stack to guard and to confirm
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from gobrrr.trial.arm.arm import unheld
from gobrrr.trial.race import candidates
from gobrrr.trial.race.candidates import NEEDS, PAIRS, SLOWEST, Candidate, is_slow_pair
from gobrrr.trial.race.policy import POLICY
from gobrrr.trial.race.race_round import Heat, Stack
from gobrrr.trial.statistics.anytime import FEWEST
from gobrrr.trial.statistics.objective import BETTER, TIME, Objective, adjective


@dataclass
class Race:
    """Drives the heats. Largest expected saving first; of remedies that exclude each other the later one waits until
    the earlier has lost."""

    candidates: Sequence[Candidate]
    step_ns: float
    seed: int = 0
    objective: Objective = TIME
    leader: Stack = ()
    """The stack that others are now tried on."""
    skipped: dict[str, str] = field(default_factory=dict)
    """Remedies that were not looked at, and why."""
    shown: dict[Stack, float] = field(default_factory=dict)
    """Mean log ratio over the program as it is, of stacks that were shown to be faster."""
    leaning: dict[Stack, float] = field(default_factory=dict)
    """The same of those that may be faster."""
    likely: dict[Stack, bool] = field(default_factory=dict)
    """Combinations of `leaning` that are taken along unproven; whether they lean so far that others may wait."""
    times: dict[Stack, float] = field(default_factory=dict)
    """Mean log ratio of time of those that were looked at: it breaks ties where another figure is compared."""
    refused: set[str] = field(default_factory=set)
    """Remedies that failed, or are guilty of other numbers."""
    _looked: set[tuple[Stack, Stack]] = field(default_factory=set)
    _withdrawn: set[str] = field(default_factory=set)
    _brief: set[Stack] = field(default_factory=set)
    """Combinations that had fewer sweeps, since others waited."""
    _whole: Stack = ()
    """All that is promised."""
    _first: tuple[Stack, ...] = ()
    """`_whole`, and beside it the same without what is doubted, and with a rival where there is room."""
    _wholes: set[Stack] = field(default_factory=set)
    """All of these that there were: that one is faster does not say that each of its parts is."""
    _costly: set[str] = field(default_factory=set)
    """Remedies that cost something alone."""
    _broken: set[Stack] = field(default_factory=set)
    """Stacks of several that failed, which says little of their parts."""
    _joined: bool = False
    _num: int = 0
    _places: int = 0
    """Arms that there was room for in the last heat."""

    def __post_init__(self) -> None:
        self._make(self.candidates)
        self._leans = max(POLICY.effect, self.objective.worth)

    def candidate(self, name: str) -> Candidate:
        """Return the candidate of that name; one that was never given is a plain one."""
        return self._by_name.get(name, Candidate(name))

    def risk(self, stack: Stack) -> int:
        """Return the risk of changing numbers: that of its riskiest remedy."""
        return max((self.candidate(name).risk for name in stack), default=0)

    def limit(self, part: float) -> None:
        """No remedy that works on the step itself can save more than this part of it: the rest waits for a loader."""
        self._make([candidate.within(part * self.step_ns) for candidate in self.candidates])

    def expect(self, name: str, mean: float) -> None:
        """Expect of a remedy in the race what a search saw of it, as a log ratio."""
        seen = (1 - math.exp(-mean)) * self.step_ns
        self._make([replace(each, seen_ns=seen) if each.name == name else each for each in self.candidates])
        self.skipped.pop(name, None)

    def _make(self, candidates: Sequence[Candidate]) -> None:
        self.candidates = candidates
        self._by_name: Mapping[str, Candidate] = {c.name: c for c in candidates}

    def next(self, places: int, fits: Callable[[Stack], bool] = lambda _: True) -> Heat | None:
        """The next heat of so many arms beside the reference, of stacks that fit into the time; None where nothing is
        open."""
        self._places = places
        first = [stack for stack in self._openers() if ((), stack) not in self._looked and fits(stack)]
        if waiting := len(first):
            if self._whole not in self.shown:  # one that won calls for compile
                first = self._spread(candidates.side_by_side(first, self._by_name, self.step_ns))
            return self._heat((), first[:places], brief=len(first[:places]) < waiting)
        if not self.shown and (again := [stack for stack in self._unsettled() if fits(stack)]):
            return self._heat((), again[:places])
        if not self._joined:
            union, front = self.union(), self.front()
            if union not in ((), front) and not fits(union):
                return None
            self._joined, self.leader = True, front
            if union not in ((), front):
                return self._heat(self.leader, [union])
        on_top = [stack for stack in self._on_top() if (self.leader, stack) not in self._looked and fits(stack)]
        return self._heat(self.leader, on_top[:places]) if self.leader and on_top else None

    def fill(self, heat: Heat, failed: Mapping[Stack, str], fits: Callable[[Stack], bool]) -> list[Stack]:
        """Return those that take the places of arms that could not start (`failed`, with why), beside those that could:
        of a BERT three of four never took hold, and no time was left for what brings 1.4. Nothing that compiles: the
        others would have to wait for it."""
        if heat.reference or not set(heat.live) - set(failed):
            return []
        for stack, why in failed.items():
            self.settle((), stack, "failed", 0.0, why=why)
        open_ = [stack for stack in self._openers() if ((), stack) not in self._looked and stack not in heat.contenders]
        waiting = [stack for stack in open_ if not candidates.compiles(stack) and fits(stack)]
        chosen = self._spread(waiting, heat.live)[: len(failed)]
        if heat.most == POLICY.sweeps[2]:
            self._brief.update(chosen)
        return chosen

    def again(self) -> bool:
        """Whether there is still something to race for, now that what led was refused."""
        self.shown = {stack: mean for stack, mean in self.shown.items() if not set(stack) & self.refused}
        self.leader, self._joined = (), False
        self.skipped.clear()  # what conflicted with the refused is free, and what the refused made needless
        self.refused -= self._withdrawn
        self._looked -= {((), (name,)) for name in self._withdrawn}
        self._withdrawn.clear()
        return self.open()

    def open(self) -> bool:
        """Whether there is anything to race for."""
        return bool(self.shown) or any(((), stack) not in self._looked for stack in self._openers())

    def feed(
        self, heat: Heat, failed: Mapping[Stack, str] | None = None, times: Mapping[Stack, float] | None = None
    ) -> None:
        """How a heat ended; `failed` are those that could not run, with why. `times`: mean log ratios of time, where
        another figure is compared."""
        broken, clocked = failed or {}, times or {}
        for stack in heat.contenders:
            found = heat.standing(stack)
            if not found.num and stack not in broken and (heat.reference, stack) in self._looked:
                continue  # a second look that had no time takes nothing back
            said = "failed" if stack in broken else heat.verdict(stack)
            self.settle(heat.reference, stack, said, found.mean, clocked.get(stack, 0.0), broken.get(stack, ""))
            if stack in self.leaning and heat.leans(stack, self._leans, FEWEST):
                self.likely[stack] = heat.leans_far(stack)
        if heat.reference:
            self._climb(heat, broken)

    def settle(self, reference: Stack, stack: Stack, said: str, mean: float, time: float = 0.0, why: str = "") -> None:
        """Take the verdict on a combination: faster, slower, equivalent, inconclusive or failed (`why`). One whose peak
        is equivalent leans all the same: it may cut what is highest once others have cut what is highest now."""
        self._looked.add((reference, stack))
        if reference:
            return
        self.leaning.pop(stack, None)  # a second look has the last word
        self.likely.pop(stack, None)
        self.times[stack] = time
        if said in BETTER:
            self.shown[stack] = mean
        elif (said == "inconclusive" and mean > 0) or (said == "equivalent" and self.objective.is_peak):
            self.leaning[stack] = mean
        elif said == "failed":
            self.refused.update(self._at_fault(stack, why))
            self._broken.update({stack} if len(stack) > 1 else ())
        if len(stack) == 1 and mean <= -POLICY.worth:
            self._costly.update(stack)

    def withdraw(self, name: str) -> None:
        """It is not to be looked at, nor to be part of any stack: what it brings was found out otherwise."""
        if name not in self.refused:
            self._withdrawn.add(name)
        self.refused.add(name)
        self._looked.add(((), (name,)))

    def _at_fault(self, stack: Stack, why: str) -> Stack:
        """Which remedies are out where a stack failed: one alone, unless it may take hold with what it needs; of all
        that is promised the one that did not take hold."""
        hopeful = self.shown.keys() | self.leaning.keys()
        if len(stack) > 1 and stack not in PAIRS:
            return tuple(name for name in stack if name in unheld(why))
        if len(stack) > 1:
            needy = [name for name in stack if NEEDS.get(name) in stack]
            return tuple(name for name in needy if ((), (name,)) in self._looked and (name,) not in hopeful)
        pair = (NEEDS.get(stack[0], ""), stack[0])
        open_ = pair[0] in self._by_name and pair[0] not in self.refused and ((), pair) not in self._looked
        return () if open_ or pair in hopeful else stack

    def front(self) -> Stack:
        """The stack that others are tried on, or would be if they were tried now."""
        kept = {stack: mean for stack, mean in self.shown.items() if not set(stack) & self.refused}
        return self.leader or self._best_of({stack: mean for stack, mean in kept.items() if self._earns_all(stack)})

    def _earns_all(self, stack: Stack) -> bool:
        """No part of it was shown to be hardly slower, or faster, by itself."""
        least = self.shown[stack] - max(self.objective.worth, POLICY.worth)
        return not any(set(other) < set(stack) and mean >= least for other, mean in self.shown.items())

    def union(self) -> Stack:
        """All that was shown to be faster, the best first, as far as it goes together; no stack that a part of it is as
        fast as."""
        found: list[str] = []
        for stack in self._ranked_by(self.shown):
            if set(stack) & self.refused:
                continue
            if self._earns_all(stack) and not any(self._not_both(name, other) for name in stack for other in found):
                without = self._costly if found and stack in self._wholes else ()
                found += [name for name in stack if name not in found and name not in without]
        return tuple(found)

    def best(self) -> Stack:
        """Return what is to be guarded and confirmed; empty where nothing seems to help. Where the time ended before
        what was shown was put together, what very likely helps too comes with it, if no riskier: all of it is
        measured."""
        if self.front():
            return self.leader if self._joined else self._with_likely(self.union())
        return self._with_likely(self._best_of(far)) if (far := self.far()) else self.instead()

    def far(self) -> dict[Stack, float]:
        """Return all that leans far among what is not shown."""
        return {each: self.leaning[each] for each, far in self.likely.items() if far and not set(each) & self.refused}

    def instead(self) -> Stack:
        """The best that is left where what was to be kept was refused: of what was shown, else of what leans."""
        leaning = {stack: mean for stack, mean in self.leaning.items() if mean > self._leans}
        for known in (self.shown, leaning):
            if left := {stack: mean for stack, mean in known.items() if not set(stack) & self.refused}:
                return self._best_of(left)
        return ()

    def _with_likely(self, stack: Stack) -> Stack:
        risk, found = self.risk(stack), list(stack)
        for name, *more in sorted(self.likely, key=lambda each: -self.leaning[each]):
            fits = not more and name not in {*found, *self.refused} and self._by_name[name].risk <= risk
            if fits and not any(self._not_both(name, other) for other in found):
                found.append(name)
        return tuple(found)

    def refuse(self, stack: Stack, hurried: bool = False) -> Stack:
        """The stack without its riskiest remedy, whose numbers are not to be kept, and which is now out; nothing where
        what is left was seen not to help. `hurried`: all that are as risky go at once, where there is no time to look
        for the guilty one."""
        riskiest = self._riskiest(stack)
        risk = self._by_name[riskiest].risk
        guilty = {name for name in stack if self._by_name[name].risk == risk} if hurried and risk else {riskiest}
        self.refused |= guilty
        left = tuple(name for name in stack if name not in guilty)
        helps = ((), left) not in self._looked or left in self.shown or left in self.leaning
        return left if helps else ()

    def milder(self, stack: Stack) -> Stack:
        """Return what would be checked next, were the numbers of this one not to be kept."""
        return tuple(name for name in stack if name != self._riskiest(stack))

    def _riskiest(self, stack: Stack) -> str:
        """Return the riskiest remedy; of equals one that takes hold only with another, then the one that brings
        least."""
        return max(
            stack, key=lambda name: (self._by_name[name].risk, NEEDS.get(name) in stack,
                                     -self.shown.get((name,), 0.0), -self._by_name[name].predicted.expected_ns),
        )  # fmt: skip

    def _heat(self, reference: Stack, contenders: Sequence[Stack], brief: bool = False) -> Heat:
        self._num += 1
        self._brief = self._brief.union(contenders) if brief else self._brief.difference(contenders)
        most = POLICY.sweeps[2] if brief else POLICY.sweeps[-1]
        return Heat(reference, contenders, seed=self.seed + self._num, objective=self.objective, most=most)

    def _unsettled(self) -> list[Stack]:
        """Return those that may be faster and had a brief look, the likeliest first; of a peak one look says all."""
        known = [] if self.objective.is_peak else [each for each in self._brief if each in self.leaning]
        return sorted((each for each in known if not set(each) & self.refused), key=lambda each: -self.leaning[each])

    def _climb(self, heat: Heat, failed: Mapping[Stack, str]) -> None:
        """A stack takes the lead where it is shown to be better; one made of winners alone where it seems no worse."""
        winners = {name for stack in self.shown if self._earns_all(stack) for name in stack}
        better = {}
        for stack in heat.contenders:
            found = heat.standing(stack)
            seems = found.num >= FEWEST and found.mean >= self.objective.worth
            if stack not in failed and (heat.wins(stack) or (set(stack) <= winners and seems)):
                better[stack] = found.mean
        best = self._best_of(better)
        self.leader = next((stack for stack in better if self._as_good(heat, stack, best)), best) or self.leader

    @staticmethod
    def _as_good(heat: Heat, stack: Stack, best: Stack) -> bool:
        """Whether a part of the best stack is shown to be better by itself, and hardly worse than all of it: then the
        rest only rides along, and is tried again on top of that part."""
        if not set(stack) < set(best) or not heat.wins(stack):
            return False
        more = heat.standing(best, stack)
        return more.mean < max(more.error, heat.objective.worth)

    def _spread(self, stacks: list[Stack], beside: Sequence[Stack] = ()) -> list[Stack]:
        """Order by what is promised together, then the others, each for a cause of its own first."""
        first = [stack for stack in stacks if stack in self._first]
        return [*first, *candidates.spread([each for each in stacks if each not in first], self._by_name, beside)]

    def _openers(self) -> list[Stack]:
        """All that is promised, as one; each alone, and known pairs, the largest expected saving first, those last for
        whose cause that one does something; alternatives to a winner are left out."""
        shown = [stack[:2] if is_slow_pair(stack) else stack for stack in self.shown if stack not in self._wholes]
        won = [name for stack in shown for name in stack]
        ranked = [c for c in self._ranked() if c.name not in self.refused and not self._reason(c, won)]
        names = [c.name for c in ranked]
        looked = {name for stack in self._wholes if ((), stack) in self._looked for name in stack}
        rivals = {name for name in names if ((), (name,)) not in self._looked and not self.objective.is_peak} - looked
        earlier = {name: rivals.intersection(names[:n]) for n, name in enumerate(names)}
        late = {name for name, others in earlier.items() if any(self._clash(name, other) for other in others)}
        hopes = self.shown.keys() | self.leaning.keys()
        at_once = candidates.alone(names, late, lambda pair: ((), pair) not in self._looked or pair in hopes)
        return self._behind_whole(at_once, [c for c in ranked if c.name not in late])

    def _behind_whole(self, at_once: list[Stack], open_: Sequence[Candidate]) -> list[Stack]:
        """Put what is promised together, made anew without what was refused or costs, before all else, beside it the
        same without what is doubted. Once it is shown to be faster a pair that compiles is tried with what it goes with
        of it, before its parts are alone."""
        promising = [] if self.objective.is_peak else [c for c in open_ if c.name not in self._costly]
        if ((), self._whole) not in self._looked or set(self._whole) & (self.refused | self._costly):
            whole = candidates.promised(promising, self.step_ns, self._not_both)
            self._whole = next((known for known in self._wholes if set(known) == set(whole)), whole)  # in any order
        if not self._whole or set(self._whole) in map(set, at_once):
            self._whole, self._first = (), ()
            return at_once
        self._first = (self._whole, *candidates.without_doubt(self._whole, self._by_name, self.step_ns))
        if self._places >= POLICY.roomy:
            rivals = candidates.with_rival(self._whole, promising, self._by_name, self.step_ns, self._not_both)
            self._first += tuple(rivals)
        self._wholes.update(stack for stack in self._first if len(stack) > 1)
        others = [stack for stack in at_once if set(stack) not in map(set, self._first)]
        slow = list(filter(is_slow_pair, others))
        covered = partial(candidates.is_covered, self._whole, self._by_name)
        if self._whole not in self.shown:
            others.sort(key=lambda stack: (bool(slow) and stack == (SLOWEST,), covered(stack)))
            return [*self._first, *others]
        joined = [candidates.joined(pair, self._whole, self._not_both) for pair in slow]
        others.sort(key=lambda stack: (SLOWEST in stack, stack == (SLOWEST,), covered(stack)))
        return list(dict.fromkeys([*self._first, *joined, *others]))  # a pair that nothing joins is in both

    def _on_top(self) -> list[Stack]:
        """The leader with those that may still help: all of them together first."""
        likely = sorted(self.leaning, key=lambda stack: -self.leaning[stack])
        names = [s[0] for s in likely if len(s) == 1 and s[0] not in self.leader and s[0] not in self.refused]
        fitting = [name for name in names if not any(self._not_both(name, other) for other in self.leader)]
        together: list[str] = []
        for name in fitting:
            if not any(self._not_both(name, other) for other in together):
                together.append(name)
        groups = [tuple(together)] if len(together) > 1 else []
        return [(*self.leader, *group) for group in (*groups, *((name,) for name in fitting))]

    def _reason(self, candidate: Candidate, won: Sequence[str]) -> str:
        """Why a remedy is not looked at, kept in `skipped`; empty where it is."""
        reason = candidate.too_little(self.step_ns)
        clash = next((name for name in won if self._clash(candidate.name, name)), "")
        if clash and ((), (candidate.name,)) not in self._looked and not self.objective.is_peak:
            reason = f"it conflicts with {clash}, which is {adjective(self.objective.better)}"
        if reason:
            self.skipped[candidate.name] = reason
        return reason

    def _clash(self, name: str, other: str) -> bool:
        return self._names(name, other, lambda c: c.conflicts)

    def _not_both(self, name: str, other: str) -> bool:
        """In one stack."""
        return self._names(name, other, lambda c: c.conflicts | c.overlaps)

    def _names(self, name: str, other: str, others: Callable[[Candidate], frozenset[str]]) -> bool:
        """Whether one of the two has the other among its `others`."""
        pairs = ((name, other), (other, name))
        return any(one in self._by_name and two in others(self._by_name[one]) for one, two in pairs)

    def _best_of(self, means: Mapping[Stack, float]) -> Stack:
        return next(iter(self._ranked_by(means)), ())

    def _ranked_by(self, means: Mapping[Stack, float]) -> list[Stack]:
        """The best first; of those that are less than what is worth it behind, the fastest."""
        left, found = dict(means), []
        while left:
            least = max(left.values()) - self.objective.worth
            tied = [stack for stack, mean in left.items() if mean >= least]
            found.append(max(tied, key=lambda stack: (self.times.get(stack, 0.0), left[stack])))
            del left[found[-1]]
        return found

    def _ranked(self) -> list[Candidate]:
        return sorted(self.candidates, key=lambda c: (-c.hope[0], c.choice, -c.hope[1], c.name))

    def left(self) -> tuple[str, ...]:
        """All that was neither looked at nor skipped; what promises most comes first."""
        looked = {name for _, stack in self._looked if stack not in self._broken for name in stack}
        return tuple(c.name for c in self._ranked() if c.name not in looked | self.refused | self.skipped.keys())
