"""Did the processes that were timed do what the program does? By their accounts, at equal steps.

An edit may know that it is timed, or change its ways where nobody looks any more: so the timed runs themselves are
compared. What two processes of the baseline do not agree on is not asked of the candidate.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property

import numpy as np
from msgspec.structs import replace

from gobrrr.guard.model.account import LEADING_ROWS, Account, Clock, Row, Weights
from gobrrr.guard.model.tensor_digest import distance
from gobrrr.guard.model.verdict import Check
from gobrrr.guard.verdicts import texts

LAST = 3
"""Rows, the last ones, in all of which a count must be behind; proposed: what comes a step later is not missing."""
BUFFERED, WRITTEN = 1 << 13, 0.8
"""Bytes that a file may hold less while they are buffered; share of the baseline's that numbers in text may vary by.
Proposed: one of Python's buffers; sizes of logs in honest edits would settle it."""
MORE = 1.05
"""Factor above which samples are more; proposed: loaders that hand out ahead have less; such loaders' counts"""
NEAR, APART, EARLY = 0.02, 0.2, 50
"""Distance of two runs' weights over the way that they went: of another rounding, of another computation; up to which
step. Proposed: rounding grows from step to step; distances in honest edits of more programs would settle it."""
SETTLING = 8  # steps before weights are compared; proposed: Adam's first updates are signs; distances in early steps
FARTHER = 1.5
"""Factor of the baseline's way, or its inverse, that weights may go where rounding has grown; proposed likewise."""
TELLING = 0.05
"""Share of the whole way that a stretch of it must have to be compared; proposed: less is a training's noise."""
OTHER_START = 0.01
"""Distance of the first weights over their norm that no step explains; proposed: an update moves by less, a seed by 1.
"""
OTHER_OUTPUTS, SAME_WEIGHTS = 0.2, 1e-3
"""Difference of what models give, over its size, while their weights go the same way, and where they are the same or
nothing is learned. Proposed: rounding that grew has less, other code about 1; evaluations of honest edits."""
OTHER_INPUTS, SAME_OUTPUTS = 0.01, 1e-4
"""Difference of what models are given over its size; of what they give, up to which an inference may be given other
numbers: padding cut off, say. Proposed: rounding has 1e-5 and 1e-6, other samples 0.1 and more."""
SLOWER_CLOCK, UNSTEADY = 0.1, 1.5
"""Share of the referee's time that the program's clock may lack beyond so many times what the baseline's does;
proposed: messages take some ms; gaps on crowded machines would settle it."""
LOOKED_AT = 1 + 1 / (1 << (LEADING_ROWS - 1))  # how far behind the last row a process may be
ONE_START = 2.5
"""Factor on LEAST_MOVED where an arm has one start alone, which scatters by some percent (proposed; without it one of
72 edits that change nothing was refused)."""
MOVED, LEAST_MOVED = 0.25, 0.02
"""Shares of the saving, and of a step, that more time between steps may have; proposed: noise of what lies there."""


def checks(
    baseline: Sequence[Account], candidate: Sequence[Account], rows: tuple[float, float] | None = None
) -> Iterator[Check]:
    """One check for each kind of work that differs; one alone where nothing does. `rows`: samples in a call of each, as
    the guard saw them, where an inference is batched otherwise: then they are compared after equal samples."""
    both = [*baseline, *candidate]
    for rank in sorted({each.rank for each in both if each.rows} | {0}):
        ours, theirs = ([each for each in side if each.rows and each.rank == rank] for side in (baseline, candidate))
        for check in _on_a_rank(ours, theirs, rows if not rank else None):
            on = f"on rank {rank}: " if rank and check.reason else ""
            yield replace(check, reason=f"{on}{check.reason}")


def without_texts(accounts: Sequence[Account]) -> tuple[Account, ...]:
    """Return accounts without what was printed and written: numbers in it may be others, lines are counted anyway."""
    return tuple(replace(account, said="", files={}) for account in accounts)


def _on_a_rank(ours: Sequence[Account], theirs: Sequence[Account], rows: tuple[float, float] | None) -> Iterator[Check]:
    if not ours or not theirs:
        yield Check("timed runs", "unverified", "they left no account")
        return
    found: dict[str, Check] = {}
    differences = (check for account in theirs for check in _differences(ours, account, rows))
    for check in (*differences, *_clock(ours, theirs), *_time(ours, theirs)):
        found.setdefault(check.kind, check)
    yield from found.values() or [Check("timed runs", "exact")]


def _differences(ours: Sequence[Account], theirs: Account, regrouped: tuple[float, float] | None) -> Iterator[Check]:
    rows = _Common(ours, theirs, regrouped is not None)
    weights = _Ways(ours, theirs)
    yield from rows.differences(weights.same)
    yield from _end(ours, theirs, regrouped is not None)
    if regrouped is None:
        yield from _data(ours, theirs, weights.near)
    else:
        yield from _batched(theirs, regrouped[1])
    if rows.given() and not weights.near:
        yield _changed("data", f"models are given other numbers by step {rows.last}", ours)
    if step := rows.made(weights.near, weights.same):
        yield _changed("outputs", f"models give other outputs by step {step}", ours)
    yield from weights.differences()
    if regrouped is None and (weights.same or not theirs.rows[-1].updates):
        yield from texts.differences(ours, theirs)


def _changed(kind: str, reason: str, ours: Sequence[Account]) -> Check:
    """A change; what one process of the baseline alone says may be chance."""
    return Check(f"timed {kind}", "changed" if len(ours) > 1 else "unverified", reason, kind=kind)


class _Common:
    """Rows of a candidate at steps that processes of the baseline made too."""

    def __init__(self, ours: Sequence[Account], theirs: Account, regrouped: bool) -> None:
        """`regrouped`: as far as each model was given as many samples, not as many steps."""
        self._ours, self._regrouped = ours, regrouped
        known = [{self._key(row): row for row in account.rows} for account in ours]
        both = [([rows[self._key(row)] for rows in known if self._key(row) in rows], row) for row in theirs.rows]
        self._rows: list[tuple[list[Row], Row]] = [(same, row) for same, row in both if same]

    def _key(self, row: Row) -> object:
        return row.by_model if self._regrouped else row.step

    @property
    def last(self) -> int:
        """The last step of those."""
        return self._rows[-1][1].step if self._rows else 0

    def differences(self, same_weights: bool) -> Iterator[Check]:
        """Say what there is less of, or more; a forward that changes no weight may go."""
        if not self._rows:
            yield Check("timed runs", "unverified", "no step was made by both", kind="steps")
            return
        same, row = self._rows[-1]
        if all(each.batches for each in (row, *same)):  # a loader is read
            yield from self._fewer("samples", "samples", lambda row: row.samples)
            yield from self._fewer_later()
        elif not same_weights:
            rows, elements = (lambda row: row.trained.rows), (lambda row: row.trained.elements)
            yield from self._fewer("samples", "samples given to models", rows, elements)
        yield from self._fewer("updates", "updates", lambda row: row.updates)
        yield from self._evaluation()
        yield from self._fewer("output", "lines printed", lambda row: row.lines)
        yield from self._fewer("files", "files written", lambda row: row.files)
        last = self._rows[-LAST:]
        less = (row.written + BUFFERED * max(1, row.files) < WRITTEN * min(each.written for each in same)
                for same, row in last)  # fmt: skip
        if len(last) == LAST and all(less):
            now, then = last[-1][1].written, last[-1][0][0].written
            yield _changed("files", f"{now:,} of {then:,} bytes are in the files written", self._ours)

    def _fewer_later(self) -> Iterator[Check]:
        """Models are given less of the batches than they were in the first steps, by rows and by elements."""
        early = [(same[0].trained, row.trained) for same, row in self._rows if row.step <= EARLY]
        if not early or not all(calls.rows and calls.elements for calls in early[-1]):
            return
        (then, now), (before, after) = early[-1], (self._rows[-1][0][0].trained, self._rows[-1][1].trained)
        shares = [after.rows * then.rows / (before.rows * now.rows),
                  after.elements * then.elements / (before.elements * now.elements)]  # fmt: skip
        if all(share < 1 / MORE for share in shares):
            said = f"models are given {max(shares):.0%} of the samples that they were given at first"
            yield _changed("samples", said, self._ours)

    def _evaluation(self) -> Iterator[Check]:
        rows, elements = (lambda row: row.evaluated.rows), (lambda row: row.evaluated.elements)
        fewer = list(self._fewer("evaluation", "samples given to models in eval mode", rows, elements))
        without = not any(row.evaluated.elements for same, _ in self._rows for row in same)
        calls = list(self._fewer("evaluation", "calls of models in eval mode", lambda row: row.evaluated.calls))
        yield from calls if calls and (fewer or without) else fewer

    def _fewer(self, kind: str, what: str, *counts: Callable[[Row], int]) -> Iterator[Check]:
        """By each of these counts there are fewer in all of the LAST rows; of samples more is another thing too."""
        each = [self._behind(count) for count in counts]
        now, then = each[0]
        if all(then - now > 0 for now, then in each):
            yield _changed(kind, f"{now:,} of {then:,} {what} by step {self.last}", self._ours)
        elif kind == "samples" and all(now - then > 0 for now, then in each):
            yield _changed(kind, f"{now:,} {what} by step {self.last}, the program as it is has {then:,}", self._ours)

    def _behind(self, count: Callable[[Row], int]) -> tuple[int, int]:
        """Counts of candidate and baseline at the last step; the same twice where they may be the same."""
        known = [(count(same[0]), count(row)) for same, row in self._rows if len({count(each) for each in same}) == 1]
        grows = [b - a for (a, _), (b, _) in itertools.pairwise(known)][:SETTLING]
        slack = 2 * statistics.median(grows) if grows else 0
        last = known[-LAST:]
        fewer = all(then - now > slack for then, now in last)
        ahead = max(0, known[len(known) // 2][1] - known[len(known) // 2][0]) if known else 0  # a loader's lead stays
        more = all(now > MORE * then + LAST * slack or now - then - ahead > slack for then, now in last)
        return (last[-1][1], last[-1][0]) if len(last) == LAST and (fewer or more) else (0, 0)

    def _calls_alike(self, row: Row, first: Row) -> bool:
        calls = [(each.evaluated.calls, each.evaluated.rows, each.trained.calls) for each in (row, first)]
        return self._regrouped or calls[0] == calls[1]

    def given(self) -> bool:
        """Models are given other numbers, in as many calls, where no loader gives them."""
        for at, (same, row) in enumerate(self._rows):
            first = same[0]
            of_a_loader = row.updates and (row.batches or first.batches)
            if row.step > EARLY or of_a_loader or not self._calls_alike(row, first):
                continue
            if not row.updates and first.made[1] and _distance(row.made, first.made) <= SAME_OUTPUTS * first.made[1]:
                continue
            # Code that is made (torch.fx) is called a level deeper: its call counts a step later.
            beside = [each[0].given for each, _ in self._rows[max(0, at - 1) : at + 2]]
            apart = min(_distance(row.given, each) for each in beside)
            steady = len({each.given for each in same}) == 1
            if steady and not apart <= OTHER_INPUTS * first.given[1]:  # or not a number
                return True
        return False

    def made(self, near: bool, same_weights: bool) -> int:
        """Return the step by which models give other outputs in as many calls, from one row to the next, or 0: in a
        program without updates, or while weights are near; much the same ones where these are the same."""
        rows = [([Row(0)] * len(self._ours), Row(0)), *self._rows]
        for (before, start), (same, row) in itertools.pairwise(rows):
            learns, first = bool(same[0].updates), before[0]
            calls = [(each.evaluated.calls - since.evaluated.calls, each.evaluated.rows - since.evaluated.rows)
                     for since, each in ((start, row), (first, same[0]))]  # fmt: skip
            # Before the first update training's outputs are among them.
            if (calls[0] != calls[1] and not self._regrouped) or (learns and not (near and first.updates)):
                continue
            mine = _since(start.made, row.made)
            known = [_since(since.made, each.made) for since, each in zip(before, same, strict=False)]
            most = (OTHER_OUTPUTS if learns and not same_weights else SAME_WEIGHTS) * known[0][1]
            if len(set(known)) == 1 and not _distance(mine, known[0]) <= most:
                return row.step
        return 0


def _since(start: tuple[float, float], end: tuple[float, float]) -> tuple[float, float]:
    return end[0] - start[0], end[1] - start[1]


def _distance(one: tuple[float, float], other: tuple[float, float]) -> float:
    return abs(one[0] - other[0]) + abs(one[1] - other[1])


def _given_rows(row: Row) -> int:
    return row.trained.rows + row.evaluated.rows


def _end(ours: Sequence[Account], theirs: Account, regrouped: bool) -> Iterator[Check]:
    what = "samples given to models" if regrouped else "steps"

    def reached(account: Account) -> int:
        return _given_rows(account.rows[-1]) if regrouped else account.rows[-1].step

    made = {reached(account) for account in ours if account.ended is not None}
    least = min(made, default=max(map(reached, ours)))
    if theirs.ended is not None and reached(theirs) < least:
        often = "" if made else " or more"
        said = f"ended after {reached(theirs):,} {what}, the program as it is makes {least:,}{often}"
        yield _changed("end", said, ours)
    elif len(made) == 1 and reached(theirs) > least:
        yield _changed("end", f"makes {reached(theirs):,} {what}, the program as it is ends after {least:,}", ours)


def _batched(theirs: Account, watched: float) -> Iterator[Check]:
    """A call has as many samples as where it was watched: they are what its time is divided by."""
    last = theirs.rows[-1]
    rows = _given_rows(last) / max(1, last.trained.calls + last.evaluated.calls)
    if not watched / MORE <= rows <= watched * MORE:
        said = f"{rows:.3g} samples a call, where they were compared {watched:.3g}"
        yield Check("timed samples", "unverified", said, kind="samples")


def _data(ours: Sequence[Account], theirs: Account, near: bool) -> Iterator[Check]:
    """Batches are compared by number: a loader may hand them out ahead."""
    known = [{batch.number: batch for batch in account.batches} for account in ours]
    for batch in theirs.batches:
        same = {each[batch.number] for each in known if batch.number in each}
        if len(same) != 1 or batch in same:
            continue
        (first,) = same
        if batch.indices != first.indices:
            yield _changed("order", f"other samples are drawn from batch {batch.number} on", ours)
        elif batch.number > 1 or not near:
            yield _changed("data", f"batches differ from number {batch.number} on", ours)
        else:  # made otherwise from the first on, and the model makes the same of them
            yield Check("timed data", "equivalent", "batches are others, the weights the same", kind="data")
        return


class _Ways:
    """How far a candidate's weights went, and where to, beside those of the baseline."""

    def __init__(self, ours: Sequence[Account], theirs: Account) -> None:
        self._all = ours
        self._ours = [own for account in ours if (own := _of_one_shape(account.weights))]
        self._theirs = _of_one_shape(theirs.weights)
        others, *steady = (len({each.shapes for each in account.weights}) for account in (theirs, *ours))
        self._changes = others > 1 and set(steady) == {1}
        """Its optimizers come to hold other parameters, which those of the baseline do not."""

    @property
    def near(self) -> bool:
        """Whether it goes the baseline's way but for rounding, as far as that can be told."""
        found = [apart for step, apart in self._aparts if SETTLING <= step <= EARLY]
        return bool(found) and max(found) <= NEAR

    @property
    def same(self) -> bool:
        """Whether they are the baseline's own, bit for bit, in all early steps that are looked at."""
        found = [apart for step, apart in self._aparts if step <= EARLY]
        return len(found) >= LAST and not any(found)

    def differences(self) -> Iterator[Check]:
        """Other weights to begin from, another way, or one that is farther or less far."""
        if not self._ours:
            return
        if not self._theirs:
            yield Check("timed weights", "unverified", "no optimizer holds its weights", kind="weights")
            return
        if self._changes:
            reason = "its optimizers hold other parameters after some steps"
            yield Check("timed weights", "unverified", reason, kind="weights")
        if self._begins_otherwise():
            yield _changed("random", "it begins from other weights: of another seed, perhaps", self._all)
        for step, apart in self._aparts:
            if SETTLING <= step <= EARLY and apart > max(APART, 2 * self._own(step)):
                share = f"{apart:.0%}" if apart < math.inf else "infinitely far"
                reason = f"computes otherwise: its weights are {share} of the way apart by step {step}"
                yield _changed("weights", reason, self._all)
                return
        if farther := list(self._farther()):
            yield from farther
            return
        later = [(step, apart) for step, apart in self._aparts if step > EARLY and apart > NEAR + self._own(step)]
        if self.same and later:  # rounding would have shown before
            step, apart = later[0]
            reason = f"computes otherwise later: the same weights at first, {apart:.0%} of the way apart by step {step}"
            yield Check("timed weights", "changed" if later[-1][1] > APART else "unverified", reason, kind="weights")

    def _begins_otherwise(self) -> bool:
        first = self._theirs[min(self._theirs)]
        there = (own[first.step] for own in self._ours if first.step in own)
        others = [each for each in there if each.shapes == first.shapes]
        if not others or any(distance(each.seen, others[0].seen) > 0 for each in others[1:]):
            return False
        return distance(first.seen, others[0].seen) > OTHER_START * max(others[0].seen.norm, 1e-12)

    @cached_property
    def _aparts(self) -> list[tuple[int, float]]:
        """For each step the distance from the nearest process of the baseline, over the length of its way."""
        found = []
        for step in self._theirs:
            each = [_apart(own, self._theirs, step) for own in self._ours]
            if known := [apart for apart in each if apart is not None]:
                found.append((step, min(known)))
        return found

    def _own(self, step: int) -> float:
        """How far two processes of the baseline are apart by then."""
        each = [_apart(a, b, step) for a, b in zip(self._ours, self._ours[1:], strict=False)]
        return max((apart for apart in each if apart is not None), default=0.0)

    def _farther(self) -> Iterator[Check]:
        steps = [step for step in self._theirs if any(step in own for own in self._ours)]
        for start, end in [*((steps[0], step) for step in steps[1:]), *itertools.pairwise(steps)]:
            known = [own for own in self._ours if start in own and end in own]
            if end < SETTLING or not known:
                continue
            way = [distance(own[end].seen, own[start].seen) for own in known]
            whole = distance(known[0][end].seen, known[0][min(known[0])].seen)
            if min(way) < TELLING * whole or max(way) > FARTHER * min(way) or not min(way):
                continue
            ratio = distance(self._theirs[end].seen, self._theirs[start].seen) / statistics.median(way)
            if not 1 / FARTHER <= ratio <= FARTHER:
                reason = f"from step {start} to {end} its weights go {ratio:.2f} times as far as the program's"
                yield _changed("weights", reason, self._all)
                return


_Way = dict[int, Weights]


def _of_one_shape(weights: Iterable[Weights]) -> _Way:
    found = list(weights)
    return {each.step: each for each in found if each.shapes == found[0].shapes}


def _apart(ours: _Way, theirs: _Way, step: int) -> float | None:
    """Distance of two ways from the first step that both made, over the length of ours; None where it is not known."""
    first = min(ours.keys() & theirs.keys(), default=step)
    if step not in ours.keys() & theirs.keys() or step <= first or ours[step].shapes != theirs[step].shapes:
        return None
    if ours[step].seen.digest == theirs[step].seen.digest and ours[first].seen.digest == theirs[first].seen.digest:
        return 0.0
    if ours[step].seen.num_bad != theirs[step].seen.num_bad:
        return math.inf
    way, other = (each[step].seen.values() - each[first].seen.values() for each in (ours, theirs))
    length = float(np.linalg.norm(way))
    return float(np.linalg.norm(other - way)) / length if length else None


def _clock(ours: Sequence[Account], theirs: Sequence[Account]) -> Iterator[Check]:
    """The referee's clock and that of the process, whose time may be set back, or be said to be ours."""
    baseline, candidate = ([clock for account in side for clock in account.clocks] for side in (ours, theirs))
    if not baseline or not candidate:
        return
    for account in theirs:
        told = sum(clock.steps for clock in account.clocks)
        if (made := account.rows[-1].step * LOOKED_AT) < told:
            said = f"its process told of {told:,} steps, and made {made:,.0f} at most"
            yield Check("timed clock", "wrong", said, kind="clock")
            return
    whole = statistics.median(clock.referee_ns / clock.steps for clock in candidate)
    lacking: tuple[Callable[[Clock], int], ...] = (
        lambda clock: clock.referee_ns - clock.whole_ns - clock.own_ns, lambda clock: clock.own_ns,
    )  # fmt: skip
    for lack in lacking:
        own, lacks = (statistics.median(lack(clock) / clock.steps for clock in side) for side in (baseline, candidate))
        if lacks > UNSTEADY * own + SLOWER_CLOCK * whole:
            worst = max(candidate, key=lambda clock: clock.referee_ns - clock.whole_ns)
            said = f"{worst.whole_ns / 1e6:.0f} ms for a block of {worst.referee_ns / 1e6:.0f} ms"
            yield Check("timed clock", "wrong", f"the program's clock says {said}", kind="clock")
            return


def _time(ours: Sequence[Account], theirs: Sequence[Account]) -> Iterator[Check]:
    """Work that has gone from the steps and lies between them now."""
    both = [[account for account in side if account.clocks] for side in (ours, theirs)]
    if not all(both):
        return
    between = [[_per_step(account, lambda clock: clock.whole_ns - clock.ns) for account in side] for side in both]
    steps = [statistics.median(_per_step(account, lambda clock: clock.ns) for account in side) for side in both]
    whole = [statistics.median(_per_step(account, lambda clock: clock.whole_ns) for account in side) for side in both]
    more = statistics.median(between[1]) - statistics.median(between[0])
    moved = LEAST_MOVED * (ONE_START if min(map(len, both)) == 1 else 1)
    least = max(MOVED * (steps[0] - steps[1]), moved * steps[0])
    if steps[1] < steps[0] and more > least and min(between[1]) > max(between[0]) and min(*steps, *whole) > 0:
        faster, in_all = steps[0] / steps[1], whole[0] / whole[1]
        reason = f"the step is {faster:.2f} times as fast, with what lies between steps {in_all:.2f}"
        yield Check("timed time", "changed", reason, kind="time")


def _per_step(account: Account, ns: Callable[[Clock], int]) -> float:
    return sum(ns(clock) for clock in account.clocks) / sum(clock.steps for clock in account.clocks)
