"""Measure a watched run's error in its worst step, tensor by tensor, against float64; name the kinds of tensors in a
step."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Collection, Mapping

from gobrrr.guard.model.observation import Observation, Step
from gobrrr.guard.model.tensor_digest import Seen, distance, scalar

Tensors = dict[str, Seen]
KINDS: dict[str, Callable[[Step], Tensors]] = {
    "outputs": lambda s: {f"{c.model} output {i} of call {n + 1}": o for n, c in enumerate(s.calls)
                          for i, o in enumerate(c.outputs or ())},
    "loss": lambda s: {f"loss {i + 1}": scalar(v) for i, v in enumerate(s.losses)},
    "gradients": lambda s: {n: g for n, g in (s.gradients or {}).items() if g is not None},
    "updates": lambda s: dict(s.updates or {}),
    "buffers": lambda s: dict(s.buffers or {}),
    "optimizer states": lambda s: dict(s.states or {}),
}  # fmt: skip
COINS = ("updates", "optimizer states")
"""Kinds that say nothing of a parameter whose gradient is rounding."""


def parameter(name: str) -> str:
    """The parameter whose state in an optimizer has this name; of a parameter's own name itself."""
    return name.partition(" for ")[2].rpartition(": ")[0] or name


AROUND = 2
"""Steps before and after one that say what a norm usually is there."""
DIP = 0.1
"""Share of that norm below which a step's is a dip: its terms cancel."""
EXCUSED = 4.5
"""Multiple of its own norm that a dip is held against at most: zeroed, doubled or negated it is wrong there too."""
Dips = dict[tuple[int, str, tuple[int, ...]], float]
"""By number of a step, name and shape of a tensor."""


def dips(run: Observation, kind: str, num: int) -> Dips:
    """Tensors whose norm dips in one of the first steps, below a tenth of the median of five steps around it: the norm
    that they are held against there."""
    looks: dict[str, dict[int, Seen]] = {}
    for number, step in enumerate(run.steps[:num]):
        for name, seen in KINDS[kind](step).items():
            looks.setdefault(name, {})[number] = seen
    found: Dips = {}
    for name, each in looks.items():
        sizes = {number: seen.norm / math.sqrt(seen.numel or 1) for number, seen in each.items()}  # whole, or samples
        for number, seen in each.items():
            around = [sizes[at] for at in range(number - AROUND, number + AROUND + 1) if at in sizes]
            middle = statistics.median(around)
            if len(around) == 2 * AROUND + 1 and math.isfinite(middle) and sizes[number] < DIP * middle:
                found[number, name, seen.shape] = EXCUSED * seen.norm
    return found


class Worst:
    """Error of a run in its worst step, relative to a tensor's norm and absolute: by name, and by shape, since samples
    of a tensor err otherwise than all of it."""

    def __init__(
        self, run: Observation | None, reference: Observation | None, kind: str, noise: Mapping[int, frozenset[str]],
        dips: Collection[tuple[int, str, tuple[int, ...]]] = (),
    ) -> None:  # fmt: skip
        """`dips`: where what it errs says nothing of other steps."""
        self._known: dict[tuple[str, tuple[int, ...]], tuple[float, float]] = {}
        self._gradients: Worst | None = None
        if run is None or reference is None:
            return
        for number, without_signal in noise.items():
            if number < min(len(run.steps), len(reference.steps)):
                ours, true = KINDS[kind](run.steps[number]), KINDS[kind](reference.steps[number])
                told = [n for n in ours.keys() & true.keys() if (number, n, ours[n].shape) not in dips]
                for name in (n for n in told if kind not in COINS or parameter(n) not in without_signal):
                    self._take(name, ours[name], true[name])

    def _take(self, name: str, ours: Seen, true: Seen) -> None:
        if math.isfinite(error := distance(ours, true)):
            relative, absolute = self.of(name, ours)
            relative = max(relative, error / (true.norm or math.inf))
            self._known[(name, ours.shape)] = relative, max(absolute, error)

    def no_better_than(self, gradients: Worst) -> None:
        """Count at least the gradients' errors: an update made of a gradient is no more exact than the gradient."""
        self._gradients = gradients

    def of(self, name: str, seen: Seen) -> tuple[float, float]:
        """Relative and absolute; 0 where nothing is known."""
        relative, absolute = self._known.get((name, seen.shape), (0.0, 0.0))
        if self._gradients is not None:
            relative = max(relative, self._gradients.of(parameter(name), seen)[0])
        return relative, absolute
