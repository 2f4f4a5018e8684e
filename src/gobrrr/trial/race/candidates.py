"""Candidates: remedies that may be raced, and which of them, alone or combined, come first and side by side. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from gobrrr.rules.model.finding import Saving
from gobrrr.trial.race.policy import POLICY
from gobrrr.trial.race.race_round import Stack

NOTHING = Saving()


@dataclass(frozen=True)
class Candidate:
    """A remedy that applies, and what is expected of it, ns per step."""

    name: str
    predicted: Saving = NOTHING
    """Rehearsed where it was, else what the ledger allows."""
    conflicts: frozenset[str] = frozenset()
    named: bool = False
    """It is tried whatever the ledger allows: the user asked for it, or it is not time that is to be saved."""
    choice: int = 0
    """Its place among the remedies that the findings name: of two for the same cause the apter one comes first."""
    risk: int = 0
    """Risk of changing numbers: the riskiest is dropped first where the guard is red."""
    overlaps: frozenset[str] = frozenset()
    """Others that bring the same: one of them goes into a stack, the one that is shown to bring more."""
    unseen: str = ""
    """Change that no check of the numbers can see."""
    in_step: bool = False
    """It works on the step itself, and can't shorten the wait for a loader."""
    rehearsed: bool = False
    """Whether the prediction was measured on the run's own ops."""
    cause: str = ""
    """Code of the finding that calls for it; of a staple that none calls for, nothing."""
    reorders: bool = False
    """Samples or draws may come in another order with it: its guard takes a run more."""
    seen_ns: float = 0.0
    """Saving in ns that a search before the race saw of it, though it was not shown."""

    @property
    def hope(self) -> tuple[float, float]:
        """ns that it is expected to bring, and that it may, by what was predicted and by what was seen."""
        return max(self.predicted.expected_ns, self.seen_ns), max(self.predicted.ceiling_ns, self.seen_ns)

    def within(self, most_ns: float) -> Candidate:
        """The same where no more than this is the step's own."""
        told = self.predicted
        if not self.in_step or told.ceiling_ns <= most_ns:
            return self
        return replace(
            self, predicted=Saving(*(min(ns, most_ns) for ns in (told.low_ns, told.expected_ns, told.ceiling_ns)))
        )

    def too_little(self, step_ns: float) -> str:
        """Why it is not worth a look; empty where it is, or was asked for."""
        if self.named or self.hope[1] >= POLICY.worth * step_ns:
            return ""
        gain = f"{100 * self.predicted.ceiling_ns / step_ns:.1f} % of the step"
        return f"rehearsed here, it brings at most {gain}" if self.rehearsed else f"at most {gain} is there to gain"


@dataclass(frozen=True)
class Plan:
    """One comparison in fresh processes: the candidate stack against the baseline stack."""

    baseline: Stack
    candidate: Stack


PAIRS: tuple[Stack, ...] = (
    ("compile", "bf16_autocast"), ("loader_workers", "short_wait"), ("one_worker", "short_wait"),
    ("trim_padding", "bucketing"),
)  # fmt: skip
"""Looked at together from the beginning: alone a lower precision pays for its casts, compiled they are fused away;
workers take cores from ops whose threads spin; and batches of like length are narrower only where they are cut."""
NEEDS = {"bucketing": "trim_padding"}
"""Remedies that may take hold with another alone. Where that one has something to gain they are looked at together
first (a BERT's start of 30 s was spent on the one that could not); that they failed alone says nothing of the two."""
SLOWEST = "compile"
"""Waits until all others were looked at where a pair has it: two arms that compile at once took 70 s of five minutes to
start, and what it brings by itself matters where the pair does not help."""


def alone(names: Sequence[str], late: Collection[str], is_open: Callable[[Stack], bool]) -> list[Stack]:
    """Each alone but those that are late, and pairs, right behind the first of their members. `is_open`: whether a pair
    is still to be looked at, or has shown something."""
    pairs = [pair for pair in PAIRS if set(pair) <= set(names) and not set(pair) & set(late)]
    with_its_need = {pair[1]: pair for pair in pairs if is_open(pair) and NEEDS.get(pair[1]) == pair[0]}
    found: list[Stack] = [with_its_need.get(name, (name,)) for name in names if name not in late]
    for pair in [each for each in pairs if each not in found]:
        at = min((n for n, stack in enumerate(found) if stack[0] in pair), default=len(found))
        found.insert(at + 1, pair)
    if any(SLOWEST in pair for pair in pairs):
        found.sort(key=lambda stack: stack == (SLOWEST,))
    return found


def promised(ranked: Sequence[Candidate], step_ns: float, clash: Callable[[str, str], bool]) -> Stack:
    """All of which a finding promises something, as far as it goes together, what promises most first: as an expert
    turns on at once what he knows to help. One by one, each with a start of its own and then all together, a BERT's
    five minutes went by with the first. One for each cause: promises for the same do not add up. Nothing that compiles:
    the others would wait for it. `ranked`: what may be looked at, in order."""
    names = {each.name for each in ranked}
    quick = [c for c in ranked if not compiles((c.name,))]
    found: list[str] = []
    causes = {""}
    for each in quick:
        if each.predicted.expected_ns < POLICY.promised * step_ns or each.cause in causes:
            continue
        rivals = [c for c in quick if c.cause == each.cause and c.predicted.expected_ns >= POLICY.promised * step_ns]
        # Those for one cause by the most they may bring: alone a GPT's bf16 pays for fresh pages at its casts, and
        # promised 104 ms where bf16 inside of products alone did 123; beside malloc's thresholds it made 2.3, that 2.0.
        for remedy in sorted(rivals, key=lambda each: -each.predicted.ceiling_ns):
            # What it needs has nothing to gain where it is no candidate: batches are cut already, say.
            needed = NEEDS.get(remedy.name)
            stack = dict.fromkeys((needed, remedy.name) if needed in names else (remedy.name,))
            if not any(clash(name, other) for name in stack for other in found):
                found += [name for name in stack if name not in found]
                causes.add(each.cause)
                break
    return tuple(found) if len(found) > 1 else ()


def without_doubt(whole: Stack, known: Mapping[str, Candidate], step_ns: float) -> list[Stack]:
    """The same without the remedy that may bring most of those that may bring nothing, to be looked at beside it; none
    where all is sure to bring something."""
    unsure = [known[name] for name in whole if known[name].predicted.low_ns < POLICY.worth * step_ns]
    needed = {NEEDS[name] for name in whole if name in NEEDS}
    doubted = max((c for c in unsure if c.name not in needed), key=lambda c: c.predicted.ceiling_ns, default=None)
    return [tuple(name for name in whole if name != doubted.name)] if doubted else []


def with_rival(
    whole: Stack, ranked: Sequence[Candidate], known: Mapping[str, Candidate], step_ns: float,
    clash: Callable[[str, str], bool],
) -> list[Stack]:  # fmt: skip
    """The same with another remedy instead of one that brings the same, the riskiest first: a lower precision. Once
    others have made a device's part of the step short, what autocast launches counts, and no promise of one alone holds
    that: a BERT whose padding was cut on an H200 was at 1.23 (0.84 to 1.79) with float16 and at 1.67 (1.17 to 2.38)
    without; TF32 launches nothing more. Nothing that compiles, as above."""
    for rival in sorted(ranked, key=lambda each: -each.risk):
        replaced = [name for name in whole if name in rival.overlaps or rival.name in known[name].overlaps]
        promising = rival.name not in whole and rival.predicted.expected_ns >= POLICY.promised * step_ns
        if not promising or len(replaced) != 1 or compiles((rival.name,)):
            continue
        if not any(clash(rival.name, name) for name in whole if name not in replaced):
            return [tuple(rival.name if name in replaced else name for name in whole)]
    return []


def is_covered(whole: Stack, known: Mapping[str, Candidate], stack: Stack) -> bool:
    """Whether the whole has a part of the stack, or another remedy for the same cause."""
    causes = {known[name].cause for name in whole} - {""}
    return any(name in whole or known[name].cause in causes for name in stack)


def joined(pair: Stack, whole: Stack, clash: Callable[[str, str], bool]) -> Stack:
    """A pair with what it goes with of the whole."""
    more = [name for name in whole if name not in pair]
    return (*pair, *(name for name in more if not any(clash(name, other) for other in pair)))


def compiles(stack: Stack) -> bool:
    """Whether anything of it compiles."""
    return any(name.startswith(SLOWEST) for name in stack)


def is_slow_pair(stack: Stack) -> bool:
    """Whether it compiles, and more."""
    return SLOWEST in stack and len(stack) > 1


def side_by_side(openers: Sequence[Stack], known: Mapping[str, Candidate], step_ns: float) -> list[Stack]:
    """Return those that start beside each other: with what promises most no compiling that it would have to wait for,
    where none is called for by it (minutes went by until compile was ready, beside dropout masks that promised 1.3).
    What a rehearsal has shown to gain comes before it: a fused update of 1.1 was left open beside it and then lost."""
    calls = any(set(openers[0]) <= set(pair) for pair in PAIRS if SLOWEST in pair)
    quick = [stack for stack in openers if SLOWEST not in stack]
    sure = [stack for stack in quick if is_sure([known[name] for name in stack], step_ns)]
    if sure and SLOWEST in openers[0]:
        return [*sure, *(stack for stack in quick if stack not in sure)]
    return list(openers) if calls or not quick else quick


def is_sure(stack: Iterable[Candidate], step_ns: float) -> bool:
    """Whether a rehearsal says that it gains more than is worth a look."""
    return any(each.rehearsed and each.predicted.low_ns >= POLICY.worth * step_ns for each in stack)


def spread(openers: Sequence[Stack], known: Mapping[str, Candidate], beside: Iterable[Stack] = ()) -> list[Stack]:
    """One remedy of each cause first, then the others for it: three for a BERT's padding never took hold one after
    the other, while two of five minutes went by. What compiles with another is no other remedy for the same."""
    causes = {_cause(stack, known) for stack in beside}
    later = []
    for stack in openers:
        cause = "" if SLOWEST in stack else _cause(stack, known)
        if cause and cause in causes:
            later.append(stack)
        causes.add(cause)
    return [*(stack for stack in openers if stack not in later), *later]


def _cause(stack: Stack, known: Mapping[str, Candidate]) -> str:
    """Return the cause of its first remedy that has one."""
    return next((cause for name in stack if (cause := known[name].cause)), "")
