"""Which rank of a job that failed ended first, and where did the others stand?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import PurePath
from typing import NamedTuple

from gobrrr.recording.model import phases
from gobrrr.recording.model.endings import Ending
from gobrrr.recording.model.facts import Span

APART_NS = 5_000_000
"""By which a rank is over before the others for that to be told (proposed; torchrun looks every 100 ms, and stops the
others then; of ranks that are killed together a large one is over later)."""
STOPPED = "KeyboardInterrupt"
"""Error of a program that somebody stopped."""


class Stood(NamedTuple):
    """One rank at the end."""

    rank: int
    steps: int
    """That it was seen to make."""
    phase: str
    ending: Ending | None
    """None where it was killed: it had no time for last words."""
    lives: bool = False
    """Its process is still there."""
    gone: int = 0
    """ns since the epoch when the kernel said that it is over; 0 where nobody looked."""


def first_to_end(ranks: Sequence[Stood]) -> tuple[str, tuple[str, ...]]:
    """(sentence that names the rank that ended first and where, a line for each rank); of a job in which nobody failed,
    and one that was killed as a whole, the sentence is empty."""
    lines = tuple(f"rank {one.rank} {_how(one)} {_where(one)}" for one in ranks)
    own = [one for one in ranks if one.ending and one.ending.error not in ("", STOPPED) and not one.ending.peer]
    killed = [one for one in ranks if one.ending is None and not one.lives]
    if own:
        first = min(own, key=lambda one: one.ending.ended if one.ending else 0)
        return (
            f"Rank {first.rank} ended first, with {first.ending.error if first.ending else ''} {_where(first)}.",
            lines,
        )
    if killed and len(killed) < len(ranks) and any(one.ending and one.ending.error for one in ranks):
        first = min(killed, key=lambda one: one.steps)
        also = f", as were {len(killed) - 1} more" if len(killed) > 1 else ""
        return f"Rank {first.rank} hung or was killed{also}, last seen {_where(first)}; the others then failed.", lines
    if len(ranks) > 1 and len(killed) == len(ranks) and all(one.gone for one in ranks):
        first, second, *_ = sorted(ranks, key=lambda one: one.gone)
        if second.gone - first.gone >= APART_NS:
            return (
                f"Rank {first.rank} was over first, last seen {_where(first)}.",
                lines,
            )
    left = [one for one in ranks if one.ending and not one.ending.error]
    failed = [one.ending.ended for one in ranks if one.ending and one.ending.peer]
    if left and failed:
        first = min(left, key=lambda one: one.ending.ended if one.ending else 0)
        if first.ending and first.ending.ended < min(failed):
            return (
                f"Rank {first.rank} left first, by an exit or at its end, {_where(first)}; the others then failed.",
                lines,
            )
    behind = min(ranks, key=lambda one: one.steps)
    stopped = all(one.ending is not None and one.ending.error == STOPPED for one in ranks)
    if stopped and any(one.steps > behind.steps or _place(one.ending) != _place(behind.ending) for one in ranks):
        stand = Counter(_place(one.ending) for one in ranks)
        alone = [one for one in ranks if stand[_place(one.ending)] == 1]
        late = behind if any(one.steps > behind.steps for one in ranks) else alone[0] if len(alone) == 1 else None
        apart = [late] if late is not None else alone if len(alone) == len(ranks) == 2 else []
        if apart:
            said = "; ".join(f"rank {one.rank} {_where(one)}" for one in apart)
            return f"Stopped while the ranks stood apart: {said}.", lines
    return "", lines if killed or any(one.ending and one.ending.error for one in ranks) else ()


def _how(one: Stood) -> str:
    if one.ending is None:
        return "still runs, last seen" if one.lives else "hung or was killed"
    return f"ended with {one.ending.error}" if one.ending.error else "left without an error"


def _where(one: Stood) -> str:
    place = _place(one.ending)
    return f"{f'at {place} ' if place else ''}after {one.steps} steps, in {phases.WORDS.get(one.phase, one.phase)}"


def _place(ending: Ending | None) -> str:
    where: Span | None = ending.where if ending is not None else None
    return f"{PurePath(where.file).name}:{where.line}" if where is not None else ""
