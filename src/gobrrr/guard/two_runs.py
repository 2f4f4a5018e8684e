"""Two ways of running one training, judged: for tests and notebooks."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Collection
from pathlib import Path

from gobrrr.capture.process.bootstrap import need_torch
from gobrrr.guard.model.observation import Observation
from gobrrr.guard.model.verdict import Guarded
from gobrrr.guard.reference.states import States
from gobrrr.guard.reference.variants import in_float64, shifted
from gobrrr.guard.verdicts.judging import judge

NUM_SEEDS = 2
"""Runs from other seeds; proposed: the fewest with a nearest and a farthest; verdicts with more would settle it."""


def compare(
    baseline: Callable[[], object], candidate: Callable[[], object], *, precision: str = "",
    order_may_change: bool = False, float64: bool = True, accepted: Collection[str] | None = None,
) -> Guarded:  # fmt: skip
    """Run a training as it is (twice, in float64, and from two other seeds) and changed, and judge the change.

    Both callables make their model and train it for at least 30 steps from seeds that they set, in this thread. All
    runs but those from other seeds begin each step from the state of the first; one whose order may change walks its
    own way. `accepted`: the candidate is written otherwise, and may call its models otherwise; changes that are wanted,
    of words.ACCEPTABLE. Raises whatever they raise; only the float64 run may fail, which the verdict says.
    """
    with tempfile.TemporaryDirectory(prefix="gobrrr-states-") as folder:
        plain = observe(baseline, states=States(Path(folder), keeps=True))
        states = States(Path(folder), keeps=False)
        again = observe(baseline, states=states)
        changed = observe(candidate, states=None if order_may_change else states)
        reference = None
        # Of mixed dtypes that the program makes by itself: judged without, and said.
        with contextlib.suppress(RuntimeError, TypeError, ValueError):
            reference = observe(baseline, in_double=True, states=states) if float64 else None
    others = [observe(baseline, seed=number + 1) for number in range(NUM_SEEDS)]
    lowered = "bfloat16" if accepted is not None and "precision" in accepted else ""
    return judge(
        plain, changed, again=again, reference=reference, seeds=others, precision=precision or lowered,
        is_naive=bool(lowered), order_may_change=order_may_change, accepted=accepted,
    )  # fmt: skip


def observe(
    run: Callable[[], object], *, seed: int = 0, in_double: bool = False, states: States | None = None
) -> Observation:
    """One run of it under a witness; random streams begin anew. `states`: of the baseline, kept or begun from.
    Raises TorchMissing, and whatever it raises."""
    need_torch()
    from gobrrr.guard.watch.witness import Witness

    with shifted(seed), Witness(prepare=in_float64 if in_double else None, states=states) as witness:
        run()
    return witness.observation()
