"""When do the hooks stand, and when do they rest? Pure: it is told how long steps were and what watching them cost."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import inf

from gobrrr.recording.model.warmup import median

BAR, BEAT = 0.01, 6_000
"""Share of the program's time that watching costs at most where steps take 1 ms and more; ns that a step costs in a
rest (counter, collector and iterators noted, all cold: benchmarks/overhead.py)."""
LEAST_SHARE, MOST_SHARE = 0.002, 0.006
"""Bounds of what is left for stretches: the counter alone is more than 1 % of the shortest steps (3 % are promised)."""
STRETCH = 32
"""Steps of the first watched stretch: putting hooks in and out costs as much as some ten watched steps."""
SLOWER = 1.01
"""Each stretch is so much longer than the one before: epochs' ends are looked for in longer and longer runs."""
MOST = 256
"""Rests of one run. CPython 3.13 caches nothing more of a class whose attributes were set 1000 times
(MAX_VERSIONS_PER_CLASS)."""
LONG_STEP = 30_000_000
"""ns; longer steps are all watched: hooks of 0.1 ms are no more than 0.3 % of them, which no pairing resolves."""
LONGEST_REST = 2_000_000_000
"""ns of usual steps, of the first: a cost misjudged in a noisy moment is soon judged again."""
KNOWN, KEPT = 3, 15
"""Costs of stretches from which the next one's is expected, and those of late that are."""
LEAST = 20_000.0
"""ns per step that hooks take at least, their code hot: readings on a busy machine may say less than nothing."""
MIN_REST, FIRST_REST = 8, 2
"""Steps of the shortest rest; times the stretch that a rest is long while costs are unknown."""
RESERVE = 4
"""Stretches that may be watched before they are earned, so that epochs' ends are seen when they come."""


def share(step_ns: float) -> float:
    """Return the share of the time that stretches may take where steps are so long."""
    return min(MOST_SHARE, max(LEAST_SHARE, BAR - BEAT / max(step_ns, 1.0)))


class Pacing:
    """The stretches and rests of one loop: a stretch is watched, what it cost is learned from the rest behind it.

    Time is counted in usual steps: neither other processes on the same cores nor a checkpoint earn the hooks time.
    """

    def __init__(self) -> None:
        self.rests = 0
        self.step_ns = 0.0
        """A step in which nobody watches; 0 before the first rest."""
        self._stretch: list[int] = []
        self._costs: deque[float] = deque(maxlen=KEPT)  # ns per watched step, hooks put in and out with it
        self._watched = self._steps = 0

    @property
    def length(self) -> int:
        """Steps of the next stretch."""
        return int(STRETCH * SLOWER**self.rests)

    def again(self) -> None:
        """Something came between: the stretch begins anew."""
        self._watched += len(self._stretch)
        self._steps += len(self._stretch)
        self._stretch = []

    def watched(self, wall: int) -> int:
        """A watched step of `wall` ns has ended: for how many the hooks may rest now, 0 for not yet."""
        self._stretch.append(wall)
        if len(self._stretch) < self.length:
            return 0
        stretch, step = len(self._stretch), self.step_ns or median(self._stretch)
        self.again()
        if step > LONG_STEP:
            return 0
        if len(self._costs) < KNOWN:
            return FIRST_REST * stretch
        most = LONGEST_REST * SLOWER**self.rests / step
        alone, all_of_them = self._owed(stretch, step) - stretch, self._owed(self._watched, step) - self._steps
        return int(max(MIN_REST, min(most, max(alone, all_of_them))))

    def rested(self, walls: Sequence[int], cost: float | None) -> None:
        """The rest that followed is over; `walls` are its steps, `cost` the ns that each watched step before it was
        longer, None where it was too short to tell."""
        self.rests += 1
        self._steps += len(walls)
        if len(walls) >= MIN_REST:  # fewer still feel the change of hooks, or an epoch's begin
            self.step_ns = median(walls)
        if cost is not None:
            self._costs.append(cost)

    def earliest(self) -> float:
        """Steps after which the rest that begins may end early, with what was not watched until now to spare; never
        before it tells what its stretch cost."""
        if len(self._costs) < KNOWN:
            return inf
        owed = self._owed(self._watched + (1 - RESERVE) * self.length, self.step_ns) - self._steps
        return max(owed, self.length + MIN_REST)

    def _owed(self, watched: int, step: float) -> float:
        """Steps in all of which so many watched ones are the share."""
        return max(LEAST, median(self._costs)) * watched / (share(step) * max(1.0, step))
