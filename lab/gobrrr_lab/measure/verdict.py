"""Does the claim hold here? The measured interval against the range that was named before."""

from __future__ import annotations

from gobrrr_lab.measure.experiment import Experiment
from gobrrr_lab.measure.result import Figure

REPRODUCED, NOT_HERE, INVERTED, INCONCLUSIVE, CANNOT = (
    "reproduced", "not here", "inverted", "inconclusive", "cannot run here",
)  # fmt: skip
VERDICTS = (REPRODUCED, NOT_HERE, INVERTED, INCONCLUSIVE, CANNOT)


def judged(experiment: Experiment, factor: Figure) -> str:
    """reproduced: the interval lies in the range. inverted: it lies on the other side of 1. not here: it lies outside
    the range. inconclusive: it reaches over the range's edge, or is no number."""
    low, high = experiment.reproduced
    if not factor.low <= factor.value <= factor.high:  # not a number either
        return INCONCLUSIVE
    if low <= factor.low and factor.high <= high:
        return REPRODUCED
    if experiment.inverts and (factor.high < 1 if low >= 1 else factor.low > 1):
        return INVERTED
    return NOT_HERE if factor.high < low or factor.low > high else INCONCLUSIVE
