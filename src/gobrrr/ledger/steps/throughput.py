"""How many samples a step holds, and how long its slow steps are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gobrrr.ledger.model.ledger import Sequences, StepStats
from gobrrr.recording.model.facts import Facts

BEYOND = 1.0
"""Steps beyond a percentile from which it is told: with fewer it is the longest step by another name."""


def samples_per_step(facts: Facts, step: StepStats, found: Sequences | None) -> float | None:
    """Rows of the batches that one step gets, by the loader that serves the steps; None where it does not say."""
    loader = facts.main_loader
    if loader is None or not step.count or not step.batches:
        return None
    size = loader.batch_size or (found.batch_size if found is not None else None)
    return float(size * loader.per_step(step.count)) if size else None


def steps_per_epoch(facts: Facts, samples: float | None) -> float | None:
    """Return the steps per epoch of that loader's data set, where it has a length and is read one sample at a time."""
    loader = facts.main_loader
    if loader is None or not samples or not loader.length or not loader.one_by_one:
        return None
    return loader.length / samples


def percentile(walls: Sequence[float] | np.ndarray, share: float) -> float | None:
    """The length that so large a share of the steps stays below, ns; None of too few steps to tell."""
    return float(np.percentile(walls, 100 * share)) if len(walls) * (1 - share) >= BEYOND else None
