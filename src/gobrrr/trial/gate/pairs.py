"""Run the program whole, as it is and with an edit, seed by seed, until its gates say yes or no."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from gobrrr.errors import UNMEASURED, GobrrrError
from gobrrr.guard.model.account import Measured, Row
from gobrrr.guard.model.gate import ACCEPTED, REFUSED, UNDECIDED, VERDICT_OF, Gated
from gobrrr.guard.model.verdict import Guarded
from gobrrr.guard.verdicts.timed import SAME_OUTPUTS
from gobrrr.trial.arm.arm import ArmError
from gobrrr.trial.arm.side import clear
from gobrrr.trial.arm.whole import Ran, WholeRun
from gobrrr.trial.gate import interval
from gobrrr.trial.gate.rule import WIDEST, Gate, Value

TELLING = 3
"""Different values of the program's own beside which one that is the same in every run of the edit is no measure."""
OTHER_DATA = 1e-3
"""Difference of the sums of what models are given, over their size, that rounding to bfloat16 does not explain: each
element has up to 4e-3, their sums 1e-5 (proposed; sums of honest edits would settle it)."""
OTHER_OUTPUTS = 0.1
"""Difference of the sums of what models give, over their size, beside which a measure that is bitwise the same measures
something else (proposed: int8 and low rank behind a gate of 1 % change them by less)."""
TRAINS = "the program trains anew in each run, then measures: no more is proven than after so many updates"

STRETCHED = 1.4
"""Factor by which the first pairs may take longer: before them no interval is known, behind them comes the timing."""

Stack = tuple[str, ...]
Means = tuple[Callable[[Path, Stack], WholeRun], Callable[[], bool]]
"""A new arm for a whole run, which raises ArmError when the time is over; and whether it is."""
Known = dict[int, tuple[Ran, list[Value]]]
"""Runs of the program as it is, by seed, that several edits are held against."""


class Pair(NamedTuple):
    """One run of each side from one seed, with the value of each gate."""

    rows: tuple[Row, Row]
    values: tuple[tuple[Value, Value], ...]


def judged(
    means: Means, folder: Path, stack: Stack, gates: Sequence[Gate], accepted: Collection[str], seconds: float,
    known: Known | None = None,
) -> tuple[Guarded, tuple[Row, Row] | None]:  # fmt: skip
    """The gates' verdict in so many seconds, and the accounts of the first pair. Raises GobrrrError where a gate cannot
    be read of the program as it is, ArmError where the program does not run with the edit or it cannot be read there.
    `known`: runs that need not be made again, and are added to.
    """
    pairs, known = list[Pair](), {} if known is None else known
    began = time.monotonic()
    while len(pairs) < interval.MOST:
        most = seconds * (STRETCHED if len(pairs) < interval.FEWEST else 1.0)
        if pairs and (time.monotonic() - began) * (1 + 1 / len(pairs)) > most:
            break
        try:
            pairs.append(_pair(means, folder, stack, gates, accepted, len(pairs), began + most, known))
        except ArmError:
            if not means[1]() and time.monotonic() < began + most:
                raise
            break
        if other := other_work(*pairs[-1].rows, accepted):
            return Guarded("changed", (other,)), pairs[0].rows
        if same := _same_beside_others(pairs, gates):
            raise ArmError(f"gate: {same}")
        found = [told(gate, [each.values[number] for each in pairs], _seeds_matter(pairs), pairs[0].rows[0].updates)
                 for number, gate in enumerate(gates)]  # fmt: skip
        if any(each.verdict == REFUSED for each in found) or all(each.verdict == ACCEPTED for each in found):
            break
    if not pairs:
        return Guarded(reasons=("the time was spent before both had run once (--minutes)",)), None
    worst = max((each.verdict for each in found), key=(ACCEPTED, UNDECIDED, REFUSED).index)
    rows = pairs[0].rows
    return Guarded(VERDICT_OF[worst], (TRAINS,) if rows[0].updates else (), gates=tuple(found)), rows


def _same_beside_others(pairs: Sequence[Pair], gates: Sequence[Gate]) -> str:
    """Say which measure, found by its name, no run changes while models give clearly other outputs with the edit."""
    if len(pairs) < interval.FEWEST and _seeds_matter(pairs) is not False:  # a seed may give the same by chance
        return ""
    then, now = (row.made for row in pairs[-1].rows)
    apart = max(abs(a - b) / then[1] if then[1] else 0.0 for a, b in zip(then, now, strict=True))
    for number, gate in enumerate(gates):
        values = {value for pair in pairs for value in pair.values[number]}
        if apart > OTHER_OUTPUTS and len(values) == 1 and not gate.measure:
            others = f"while what models give differs by {apart:.0%}: say by --measure where it stands"
            return f"{gate.name} is {next(iter(values))[0]:g} on both sides, {others}"
    return ""


def _pair(
    means: Means, folder: Path, stack: Stack, gates: Sequence[Gate], accepted: Collection[str], seed: int, until: float,
    known: Known
) -> Pair:  # fmt: skip
    """Run both, every other time the edit first. Raises as `judged`."""
    found: Known = {False: known[seed]} if seed in known else {}
    for edited in (False, True) if seed % 2 == 0 else (True, False):
        if edited in found:
            continue
        place = folder / f"gate{seed}{'edited' if edited else ''}"
        with whole(means, place, stack if edited else (), gates, seed, until, edited) as (ran, values):
            found[edited] = ran._replace(printed=""), values
    plain, edit = found[False], found[True]
    known[seed] = plain
    rows = plain[0].row, edit[0].row
    if not other_work(*rows, accepted) and (said := other_measure(plain[0].taken, edit[0].taken, accepted)):
        raise ArmError(f"gate: {said}")
    return Pair(rows, tuple(zip(plain[1], edit[1], strict=True)))


@contextlib.contextmanager
def whole(
    means: Means, place: Path, stack: Stack, gates: Sequence[Gate], seed: int, until: float, edited: bool = True
) -> Iterator[tuple[Ran, list[Value]]]:
    """One whole run and the values of the gates, while its folder is there. Raises as `judged`."""
    arm = means[0](place, stack)
    try:
        try:
            inside = [(gate.name, gate.measure) for gate in gates if gate.inside]
            ran = arm.whole(seed, max(1.0, until - time.monotonic()), inside)
            if ran.trains:
                raise ValueError(f"its evaluation trains: {ran.trains}")
            values = [gate.value(*ran[1:5], ran.source) for gate in gates]
        except (ArmError, ValueError) as error:
            said = getattr(error, "reason", f"gate: {error}")
            if edited or means[1]() or time.monotonic() > until:
                raise ArmError(f"{said} (with the edit)") from None
            hint = "--measure says where its value is" if said.startswith("gate:") else "run it by itself"
            raise GobrrrError(f"the program as it is cannot be judged: {said}", hint, UNMEASURED) from None
        yield ran, values
    finally:
        arm.end()
        clear(place)


def other_measure(plain: Sequence[Measured], edit: Sequence[Measured], accepted: Collection[str]) -> str:
    """Say what a measure that was taken in the process was taken by, or on, with the edit; empty where by the same."""
    for then, now in zip(plain, edit, strict=True):
        if then.source != now.source:
            return f"the edit changes the file in which {now.measure} is: put it into one of its own"
        if then.weight != now.weight and "evaluation" not in accepted:
            counts = f"{now.weight:,.0f} samples with the edit, on {then.weight:,.0f} in the program"
            return f"{now.name} is measured on {counts}"
        if not {"evaluation", "random"} & {*accepted} and _apart(then.given, now.given):
            return f"{now.name} is measured on other data with the edit (--accept random, if it is drawn anew)"
    return ""


def _apart(then: Sequence[float], now: Sequence[float]) -> bool:
    return sum(abs(a - b) for a, b in zip(then, now, strict=True)) > OTHER_DATA * then[1]


def other_work(plain: Row, edit: Row, accepted: Collection[str]) -> str:
    """Say what a whole run with the edit does less of, or more, or to other data; empty where it is the same work."""
    if "samples" in accepted:
        return ""
    if edit.updates > plain.updates:
        return f"work: an optimizer makes {edit.updates:,} updates, in the program as it is {plain.updates:,}"
    counts = [("updates", edit.updates, plain.updates)]
    then, now = (row.trained.rows + row.evaluated.rows for row in (plain, edit))
    if "evaluation" not in accepted:
        counts.append(("samples given to models", now, then))
    if "evaluation" not in accepted and plain.updates:
        counts.append(("samples given to models in eval mode", edit.evaluated.rows, plain.evaluated.rows))
    for name, fewer, before in counts:
        if fewer < before:
            return f"work: {fewer:,} of {before:,} {name}"
    if now > then and not plain.updates:  # nobody knows which of them were there before
        return f"work: {now:,} samples given to models, in the program as it is {then:,} (--accept samples)"
    if then == now and not plain.updates and "random" not in accepted and _apart(plain.given, edit.given):
        return "work: models are given other data (--accept random, if it is random and drawn anew)"
    return ""


def _seeds_matter(pairs: Sequence[Pair]) -> bool | None:
    """Whether the program's models give other outputs from seed to seed; None where that cannot be told."""
    made = [each.rows[0].made for each in pairs]
    if len(made) < 2 or not made[0][1]:
        return None
    return any(abs(a - b) > SAME_OUTPUTS * made[0][1] for each in made for a, b in zip(each, made[0], strict=True))


def told(
    gate: Gate, values: Sequence[tuple[Value, Value]], seeds_matter: bool | None = None, updates: int = 0
) -> Gated:  # fmt: skip
    """A gate after these pairs. Raises as `judged`."""
    plain, edit = ([each[0] for each in side] for side in zip(*values, strict=True))
    percent = values[0][0][1]
    if any(each[1] != percent for pair in values for each in pair):
        raise ArmError(f"gate: {gate.name} is written in another unit with the edit")
    usual = abs(fmean(plain))
    if gate.allowed and abs(gate.allowed) >= WIDEST * (100 if gate.relative and usual else usual):
        raise GobrrrError(f"{gate.name} is {plain[0]:g}: a gate of {gate.allowed:g} lets it become anything",
                          f"--accept '{gate.name} {'<=' if gate.falls else '>='} {gate.allowed:+g}%'", UNMEASURED
                          )  # fmt: skip
    scale = 100 / usual if gate.relative else 1.0
    changes = [(after - before) * scale for before, after in zip(plain, edit, strict=True)]
    exact = _is_exact(gate, plain, edit, seeds_matter)
    found = interval.exactly(changes[0], gate.allowed, gate.falls) if exact else interval.judged(
        changes, gate.allowed, gate.falls, scale * interval.grain([*plain, *edit]))  # fmt: skip
    unit = "%" if gate.relative else "points" if percent else ""
    return Gated(rule=gate.text, name=gate.name, measure=gate.measure, unit=unit, seeds=tuple(range(len(values))),
                 baseline=tuple(plain), candidate=tuple(edit), allowed=gate.allowed, exact=exact, updates=updates,
                 **found._asdict()
                 )  # fmt: skip


def _is_exact(gate: Gate, plain: Sequence[float], edit: Sequence[float], seeds_matter: bool | None) -> bool:
    """Whether no seed changes anything. Raises as `judged` for a value that no run changes."""
    kinds, num = (len(set(plain)), len(set(edit))), len(plain)
    if num >= interval.FEWEST and kinds[1] == 1 and kinds[0] >= TELLING:
        raise ArmError(f"gate: {gate.name} is {edit[0]:g} whatever the seed with the edit: it measures nothing")
    if num >= interval.FEWEST and kinds == (1, 1) and seeds_matter and not gate.inside:
        raise GobrrrError(f"{gate.name} is {plain[0]:g} in each run, though outputs differ: it measures nothing",
                          "name another measure: --accept 'loss <= +1%'", UNMEASURED)  # fmt: skip
    # a function is given the loader's batches, without the noise that the program may add behind it
    told = seeds_matter is False or (num >= interval.FEWEST and (seeds_matter is None or gate.inside))
    return kinds == (1, 1) and num > 1 and told
