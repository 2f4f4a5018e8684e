"""When to look closer: from the plain step times of a loop, whether it is steady, and how many steps a window takes."""

from __future__ import annotations

from math import ceil

from gobrrr.recording.model.warmup import median, warmup

SECOND = 1_000_000_000  # ns
MIN_STEPS, MIN_TIME = 6, SECOND // 2  # plain ones; proposed: halves of three; spreads of recordings would settle it
MANY_STEPS = 200  # steps, enough however short; proposed: bounds the wait; fast loops' spread would settle it
SHORT_STEPS = 50
"""Steps of which half of that time is enough: a program of eighty that take 5 ms is over in 0.4 s."""
ENOUGH, FEWEST_STEPS = SECOND, 3
"""Long steps: so many ns of them are enough, or so many steps; proposed: a person waits; spreads of long steps would
settle it."""
PATIENCE_STEPS, PATIENCE_TIME = 24, 3 * SECOND
"""A program of eighty steps on a busy machine is over before two halves agree: unsteady steps are told as such."""
STEADY_BAND = 0.15  # share by which halves may differ; proposed: above usual noise; repeated recordings would settle it
# After a step this much longer than the usual one (a compilation, a checkpoint) the next ones may be of another kind.
OUTLIER = 5
LONG = 10 * SECOND
"""ns of a step from which on two steps are waited for, and one is looked at in each way: such steps vary little beside
their length, and a person waits for minutes."""


def is_steady(walls: list[int], min_time: int = MIN_TIME) -> bool:
    """Whether enough plain steps were seen, and the two halves after the warm-up agree within the band. Patience is
    bounded: after so many steps or so long the windows open on unsteady steps too."""
    warm = walls[warmup(walls) :]
    most = 3 * median(warm) if warm else 0.0  # no step counts for more: a compilation is not patience
    total = sum(min(wall, most) for wall in warm)
    fewest = 2 if walls and median(walls) >= LONG else FEWEST_STEPS
    few = min(MIN_STEPS, max(fewest, ceil(ENOUGH / median(warm)))) if warm else MIN_STEPS
    wanted = min_time / 2 if len(warm) >= SHORT_STEPS else min_time
    if len(warm) < few or (total < wanted and len(warm) < MANY_STEPS):
        return False
    if len(warm) >= PATIENCE_STEPS or total >= PATIENCE_TIME:
        return True
    if any(wall > OUTLIER * median(warm) for wall in warm[-few:]):
        return False
    half = len(warm) // 2
    early, late = median(warm[:half]), median(warm[half:])
    return abs(early - late) <= STEADY_BAND * min(early, late)


def profile_steps(step_ns: float, budget_ns: float) -> int:
    """Steps of the profiled window: at least 2, at most 8, about a second of plain time within the budget."""
    room = min(1.0 * SECOND, budget_ns / 4)
    return int(max(_least(step_ns, 2), min(8, room // max(step_ns, 1) + 1)))


def sample_steps(step_ns: float, budget_ns: float, wanted_ns: float = 1.5 * SECOND) -> int:
    """Steps of the sampled window: at least 3, about `wanted_ns` of plain time within the budget."""
    room = min(wanted_ns, budget_ns / 4)
    return int(max(_least(step_ns, 3), min(2000, room // max(step_ns, 1) + 1)))


def count_steps(step_ns: float) -> int:
    """Return the counting window's number of steps, three: work of every second step only is seen. In long steps it may
    not be."""
    return _least(step_ns, 3)


def settle_steps(step_ns: float, queued: int) -> int:
    """Steps to pass over after a window, in which loaders give what their workers piled up."""
    return _least(step_ns, queued)


def _least(step_ns: float, steps: int) -> int:
    return 1 if step_ns >= LONG else steps


def sample_interval(step_ns: float) -> float:
    """Seconds between two samples: a hundredth of a step, between 1 and 10 ms."""
    return min(0.010, max(0.001, step_ns / 100 / SECOND))
