"""How long each step of a run took, and what it was: what a page draws where the recording is at hand."""

from __future__ import annotations

from typing import NamedTuple

from gobrrr.recording.model.warmup import warmup
from gobrrr.recording.run_folder.run import Recording

MOST = 2000
"""Steps that are drawn; of longer runs every n-th, and all that are slow."""
SLOW = 1.5
"""Multiple of the median from which a plain step is marked as slow."""
KINDS = ("plain", "slow", "warm-up", "window", "other")


class StepTime(NamedTuple):
    """One step of the main loop."""

    number: int
    """Number of the step in its loop, from 1 on."""
    ns: int
    kind: str
    """plain; slow: a plain one far above the median; warm-up; window: somebody looked closely; other: after a window,
    or of another kind than was profiled."""


def step_times(recording: Recording) -> tuple[StepTime, ...]:
    """Return the steps of the main loop, in order; none for a profiler's trace: all its steps are of its window."""
    main = recording.main
    if main is None or recording.offline:
        return ()
    plain = [step.wall for step in main.plain]
    settled = warmup(plain)
    median = sorted(plain[settled:])[len(plain[settled:]) // 2] if plain[settled:] else 0
    found, seen = [], 0
    for number, step in enumerate(main.steps, 1):
        kind = "window" if step.window else "other"
        if step.plain:
            kind = "warm-up" if seen < settled else "slow" if step.wall > SLOW * median else "plain"
            seen += 1
        elif step.rests:
            kind = "slow" if median and step.wall > SLOW * median else "plain"
        found.append(StepTime(number, step.wall, kind))
    every = -(-len(found) // MOST)
    kept = [step for step in found if step.kind == "slow"][:MOST]
    return tuple(sorted({*found[::every], *kept}))
