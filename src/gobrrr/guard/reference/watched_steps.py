"""Which steps of a watched run are looked at whole, and before which of them it begins from the baseline's state. Pure.

Every step is looked at: of small programs whole, of large ones by samples of each tensor, and whole in the first step,
in the last, and in some that are drawn; a remedy that goes wrong after its warm-up must not find nobody looking.
"""

from __future__ import annotations

import random

TWIN_STEPS, FEWEST_TWINS = 30, 12
"""Steps of a watched run, and of one whose steps are long."""
TWIN_SECONDS = 6.0
"""Seconds that those steps take the plain program, where it may make fewer: a guard watches four runs, in doubt seven,
float64's twice as long, and five minutes must hold a race and a confirmation too."""
MOST_ELEMENTS = 1_000_000_000
"""Looked at in whole steps of one run, all together: 7 s at the 7 ns that one takes."""
MOST_SEEN = 24_000
"""Tensors kept of whole steps of one run, 4 KiB each."""
FEWEST = 4
"""Whole steps at least: the first, the last and two that are drawn."""
LATE_TWINS = 3  # steps looked at late; proposed: an update shows in the second; faults that only later ones show
LATE_SECONDS = 10.0
"""Seconds of a plain program that pass unwatched before those; proposed: some hundred steps, an epoch of small data;
the epochs of real programs would settle it."""
_SEED = 1  # draws the steps that are looked at whole, the same in all runs; any number will do


def twin_steps(step_ns: float) -> int:
    """Steps of a watched run of a program in which a plain step follows another after so long; 0 where that is not
    known."""
    affordable = int(TWIN_SECONDS * 1e9 / step_ns) if step_ns > 0 else TWIN_STEPS
    return max(FEWEST_TWINS, min(TWIN_STEPS, affordable))


def late_step(steps: int, step_ns: float) -> int:
    """Number of the step from which an edited program is looked at once more after the first ones, drawn anew each time
    so that no program can know it; 0 where its steps are too long for that."""
    affordable = int(LATE_SECONDS * 1e9 / step_ns) if step_ns > 0 else 0
    return steps + random.SystemRandom().randint(1, affordable) if affordable > 1 else 0


def whole_steps(expected: int, elements: int, tensors: int) -> frozenset[int]:
    """Numbers of the steps, of `expected`, that are looked at whole; `elements` and `tensors` are those of one step."""
    most = min(MOST_ELEMENTS // max(1, elements), MOST_SEEN // max(1, tensors))
    if most >= expected:
        return frozenset(range(expected))
    last = max(1, expected - 1)
    drawn = random.Random(_SEED).sample(range(1, last), max(0, min(last - 1, max(FEWEST, most) - 2)))
    return frozenset((0, last, *drawn))


def kept_before(whole: frozenset[int], affordable: int) -> frozenset[int]:
    """Before which whole steps the baseline's state is kept, where there is room for `affordable` of them: before the
    last one first, then before others at equal distances."""
    later = sorted(whole - {0}, reverse=True)
    if affordable >= len(later):
        return frozenset(later)
    return frozenset(later[i * len(later) // max(1, affordable)] for i in range(affordable))
