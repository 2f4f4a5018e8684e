"""Search forms that change the numbers: each alone, then with the layers that must stay, then together. Pure.

A point is judged here by one whole run; what is recommended is proven afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from gobrrr.guard.model.gate import ACCEPTED, Gated
from gobrrr.remedies.edits.lossy import FORMS, Part, Point, form
from gobrrr.trial.gate.interval import exactly
from gobrrr.trial.statistics.front import unbeaten

MOST = 20
"""Points that are run at most."""
REFINED = 4
"""So many of these at most go to one form's layers, or to how far it goes."""
RESERVED = 4
"""And so many are left for forms together."""
FASTER = 0.97
"""Share of the program's own time below which a point is taken for faster (proposed: quartiles of calls in two starts
of one program differ by 2 % on a quiet machine)."""


class Seen(NamedTuple):
    """A whole run of a point: its gates after this one run, the time of a call, the bytes of its weights; or why there
    is none."""

    gates: tuple[Gated, ...] = ()
    ns: float = math.inf
    bytes: int = 0
    reason: str = ""

    @property
    def held(self) -> bool:
        """Whether each gate's change, whatever its interval, lies within what it allows."""
        found = (exactly(gate.change, gate.allowed, "<=" in gate.rule) for gate in self.gates)
        return not self.reason and all(each.verdict == ACCEPTED for each in found)


class Means(Protocol):
    """Runs the program."""

    def run(self, point: Point) -> Seen:
        """Run a point whole."""

    def sensitivity(self, part: Part) -> Mapping[str, float]:
        """Return how much each layer that a form changes matters; empty where that cannot be known."""

    def is_over(self) -> bool:
        """Whether the time for the search is spent."""


class Search:
    """The points that were run, in their order."""

    def __init__(self, own_ns: float, means: Means, others: Sequence[Point] = ()) -> None:
        """`others`: edits of the user's own, as points."""
        self.seen: dict[Point, Seen] = {}
        self.left: list[str] = []
        """Forms that there was no time for."""
        self._own_ns, self._means, self._others = own_ns, means, others

    def run(self, names: Sequence[str]) -> list[Point]:
        """Search forms of these names; the points that are faster within their gates, the fastest first."""
        alone = [*self._others, *((Part(name, knob=(form(name).knobs or (None,))[0]),) for name in names)]
        for point in alone:
            if self._try(point) is None:
                self.left.append(point[0].form)
        for point in sorted((each for each in alone if each in self.seen), key=lambda each: self.seen[each].ns):
            if point not in self._others and not form(point[0].form).exact and not self.seen[point].reason:
                self._refine(point[0])
        self._combine()
        return self.best()

    def best(self) -> list[Point]:
        """Points that are faster within their gates, the fastest first."""
        good = [point for point, seen in self.seen.items() if seen.held and self._is_faster(seen)]
        return sorted(good, key=lambda point: self.seen[point].ns)

    def _is_faster(self, seen: Seen) -> bool:
        return seen.ns < FASTER * self._own_ns

    def _try(self, point: Point, most: int = MOST) -> Seen | None:
        """Run it, once; None where there is no time for it, or there were enough."""
        if point not in self.seen:
            if len(self.seen) >= most or self._means.is_over():
                return None
            self.seen[point] = self._means.run(point)
        return self.seen[point]

    def _refine(self, part: Part) -> None:
        """Find how far a form may go, or else the least layers that must stay, where as it is the gate refuses it."""
        known = form(part.form)
        seen = self.seen[part,]

        def holds(other: Part) -> bool | None:
            found = self._try((other,), MOST - RESERVED)
            return None if found is None or found.reason else found.held

        if not seen.held and not self._is_faster(seen):
            return
        if known.knobs is not None:
            _, far, near = known.knobs
            allowed, refused = (part.knob or near, far) if seen.held else (near, part.knob or far)
            for _ in range(REFINED):
                middle = 1 - math.sqrt((1 - allowed) * (1 - refused))
                if (found := holds(part._replace(knob=round(middle, 4)))) is None:
                    return
                allowed, refused = (middle, refused) if found else (allowed, middle)
        elif not seen.held and not self._means.is_over():
            layers = self._means.sensitivity(part)
            by_weight = sorted(layers, key=lambda name: -layers[name])
            fewest(len(by_weight), lambda count: holds(part._replace(keep=tuple(sorted(by_weight[:count])))))

    def _combine(self) -> None:
        """Add to the fastest point what else is held, while that makes it faster."""
        singles = sorted((point for point, seen in self.seen.items() if seen.held), key=lambda each: self.seen[each].ns)
        best: Point = next(iter(self.best()), ())
        for point in singles:
            if not best or set(point) & set(best) or not _go_together(best, point):
                continue
            both = (*best, *point)
            found = self._try(both)
            if found is not None and found.held and found.ns < self.seen[best].ns:
                best = both


def _go_together(one: Point, other: Point) -> bool:
    """Whether no two parts of both are of one form, or take the same for themselves."""
    names = [part.form for part in (*one, *other)]
    taken = [word for each in FORMS for word in each.takes.split() for name in names if name == each.name]
    return len(set(names)) == len(names) and len(set(taken)) == len(taken)


def fewest(most: int, holds: Callable[[int], bool | None]) -> int | None:
    """Return the least count below `most` that holds, where 0 does not and `most` would; None where none is found.

    By halving on a scale of ratios, since few layers matter most, in REFINED tries; one that gives None is the last.
    """
    low, high = 0, most
    for _ in range(REFINED):
        middle = round(math.sqrt((low + 1) * (high + 1))) - 1
        middle = min(max(middle, low + 1), high - 1)
        if not low < middle < high or (found := holds(middle)) is None:
            break
        low, high = (low, middle) if found else (middle, high)
    return high if high < most else None


def front(points: Sequence[Seen]) -> list[bool]:
    """Say of each whether it is held and no other held one is as fast, as small and as good, and better in one."""
    held = [seen for seen in points if seen.held]
    kept = iter(unbeaten([(seen.ns, seen.bytes, *(gate.worse for gate in seen.gates)) for seen in held]))
    return [seen.held and next(kept) for seen in points]
