"""Savings from the timings of a rehearsal: ns per step with an interval. Pure."""

from __future__ import annotations

import math

import numpy as np
from msgspec.structs import replace

from gobrrr.ledger.steps.median_interval import median_interval
from gobrrr.rehearsal.script import Part, Played, Scene
from gobrrr.rules.model.finding import SLACK, Rehearsed, Saving

FAITHFUL, ALIKE = 0.25, 0.05
"""Shares of what a part changes, and of its own time, by which the stage differs from the step: other neighbours in the
caches, other pages, tensors that come in another format than we read off the order. Proposed;
`python -m benchmarks.rehearsed` says how often they are enough."""
UNSURE, UNLIKE = 3.0, 10.0
"""Factors between the parts' time as timed and as recorded, from which on the stage is too far from the step to promise
anything, or to say anything at all. Twice is what a shared machine does within a minute, and what warm caches spare.
Proposed."""

APART = 0.025
"""Share of the step that two processes in which nothing differs are apart, at 95 %: 1.96 * sqrt(2) times what one of
them is off by, 0.6 to 1.3 % of the step in three programs of four (`python -m benchmarks.process_bias`; a convolution's
pages made it 15 %). No rehearsal sees it, and everybody meets it who tries the remedy."""


def outcome(scene: Scene, played: Played, wall_ns: float) -> Rehearsed | None:
    """Return the saving of a remedy by what was played; None where it was not.

    Two readings: the share of its recorded time that each part loses, and the difference as it was timed, at the
    speed that the machine had during the step (all parts as recorded over all parts as timed). They agree where the
    stage is like the step; where not, low and ceiling hold both, and no ceiling is above what the ops hold.
    Where the profiled step was far longer than the plain one, they hold what the stage says of that as well; and where
    the recording has two readings of a part, the stage says which is expected.
    """
    parts = _parts(scene, played)
    if not parts or unlike(scene, played):
        return None
    recorded = _outcome(scene, played, parts, wall_ns)
    believed = _outcome(scene, played, _believed(scene, played, parts), wall_ns)
    most = _outcome(scene, played, tuple(replace(part, ns=part.upper_ns) for part in parts), wall_ns)
    low = min(recorded.saving.low_ns, believed.saving.low_ns)
    ceiling = max(each.saving.ceiling_ns for each in (recorded, believed, most))
    return replace(believed, saving=replace(believed.saving, low_ns=low, ceiling_ns=ceiling))


def _believed(scene: Scene, played: Played, parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Return the parts with the ns that the stage supports. The profiler's cost was taken from all ops alike; but pages
    that are fresh under the profiler alone make some ops twenty times as long and leave the others as they are: the
    stage tells which. An update's time is known from plain steps as well."""
    share = min(scene.scaled_by, 1 / scene.scaled_by) if scene.scaled_by else 1.0
    timed = [part.calls * _medians(played, i)[0] for i, part in enumerate(parts)]
    return tuple(replace(part, ns=_told(part, ns, share)) for part, ns in zip(parts, timed, strict=True))


def _told(part: Part, timed: float, share: float) -> float:
    """Return the timed ns, as far as the readings of the recording allow."""
    is_update = part.today is not None and part.today["make"] == "optimizer"
    least, most = (part.ns, part.upper_ns) if is_update else (share * part.ns, part.ns / share)
    return max(least, min(timed, most))


def _outcome(scene: Scene, played: Played, parts: tuple[Part, ...], wall_ns: float) -> Rehearsed:
    today = sum(part.ns for part in parts)
    left = scene.left_ns + sum(part.ns for part in scene.parts[len(parts) :])
    more = 1.0 + left / today  # what was left out does as the rest
    speed = today / (_took(played, parts) or today)
    added, shares = (
        [sum(_by_share(p, s, speed) for p, s in zip(parts, each, strict=True) if bool(p.ns) == known)
         for each in played.rounds] for known in (False, True)
    )  # fmt: skip
    timed = [
        speed * sum(part.calls * (today - then) for part, (today, then) in zip(parts, each, strict=True))
        for each in played.rounds
    ]
    scaled = [more * share + cost for share, cost in zip(shares, added, strict=True)]
    sure = [share + cost for share, cost in zip(shares, added, strict=True)]
    expected = float(np.median(scaled))
    margin = FAITHFUL * sum(abs(_by_share(p, _medians(played, i), speed)) for i, p in enumerate(parts)) + ALIKE * today
    low = min(median_interval(sure)[0], median_interval(timed)[0]) - margin - scene.worse_ns
    low = low if 1 / UNSURE <= speed <= UNSURE else 0.0
    high = max(median_interval(scaled)[1], median_interval(timed)[1]) + more * margin + scene.better_ns
    holds = (1.0 + SLACK) * (today + left) + scene.better_ns
    ceiling = max(0.0, min(high, holds, wall_ns))
    saving = Saving(max(0.0, min(low, expected, ceiling)), max(0.0, min(expected, ceiling)), ceiling)
    return Rehearsed(scene.remedy, saving, change_ns=-expected, today_ns=today)


def promised(found: Rehearsed, wall_ns: float) -> Saving:
    """Return the saving that a person who tries the remedy may count on: what its ops save, and what the next process
    is off by. No more than those ops hold."""
    own, change = found.saving, -found.change_ns
    least = change - math.hypot(max(0.0, change - own.low_ns), APART * wall_ns)
    most = change + math.hypot(max(0.0, own.ceiling_ns - change), APART * wall_ns)
    holds = max(own.ceiling_ns, (1.0 + SLACK) * found.today_ns)
    return Saving(max(0.0, min(own.low_ns, least)), own.expected_ns, max(0.0, min(most, holds, wall_ns)))


def unlike(scene: Scene, played: Played) -> str:
    """Say how far the stage was from the step; nothing where it was near enough."""
    parts = _parts(scene, played)
    today, took = sum(part.ns for part in parts), _took(played, parts)
    if not took or 1 / UNLIKE <= today / took <= UNLIKE:
        return ""
    times, word = (took / today, "slower") if took > today else (today / took, "faster")
    return f"its ops ran {times:.0f} times {word} than in the step"


def _parts(scene: Scene, played: Played) -> tuple[Part, ...]:
    """Return the parts that were played; none where no op of the recording is among them."""
    parts = scene.parts[: len(played.rounds[0])] if played.rounds else ()
    whole = any(part.ns for part in parts) and all(len(each) == len(parts) for each in played.rounds)
    return parts if whole else ()


def _took(played: Played, parts: tuple[Part, ...]) -> float:
    """Return the ns per step of the parts of today, as timed."""
    return sum(part.calls * _medians(played, i)[0] for i, part in enumerate(parts))


def _by_share(part: Part, sides: tuple[float, float], speed: float) -> float:
    """The share of its recorded time that a part loses. What it takes more is other work (a copy inside of a pooling's
    backward), of which its recorded time says nothing: that at the speed of the step."""
    today, then = sides
    return part.ns * (1.0 - then / today) if part.ns and 0 < today >= then else speed * part.calls * (today - then)


def _medians(played: Played, part: int) -> tuple[float, float]:
    today, then = np.median([each[part] for each in played.rounds], axis=0)
    return float(today), float(then)
