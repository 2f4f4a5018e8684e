"""Base of the remedies that set a loader's workers: what findings tell them, and a DataLoader's arguments."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, ClassVar

from gobrrr.remedies.loader.workers_kept import Renewed
from gobrrr.remedies.model import Remedy
from gobrrr.rules.model.finding import Saving

if TYPE_CHECKING:
    from gobrrr.rules.verdict.report import Report

SHARE = 0.25
"""Share of the free memory that kept or waiting samples may take (proposed: the program grows as well)."""
COUNTED_ELSEWHERE = (
    "what a data set counts or collects in objects of its own it does in the workers, where nobody reads it"
)
"""Where it is seen to write, it is left alone; a method of another object may hide it."""
AFTER_THE_FIRST = "the figures are of the epochs after the first, which takes as long as before"
"""Note of remedies that keep what the first epoch computes; a trial leaves that epoch out."""
WITH_WORKERS_ONLY = ("prefetch_factor", "persistent_workers", "multiprocessing_context", "timeout")
"""Arguments that a DataLoader without workers refuses."""


def most_said(report: Report, codes: Collection[str], name: str) -> float | None:
    """The largest figure of that name in the evidence of findings with these codes; None where none has it."""
    said = [f.evidence[name].value for f in report.findings if f.code in codes and name in f.evidence]
    return max((float(value) for value in said if not isinstance(value, str)), default=None)


def of_the_model(saving: Saving, report: Report, codes: Collection[str], name: str) -> Saving:
    """`saving`, with what the loader model expects, where it was asked (of a trace it is not)."""
    said = most_said(report, codes, name)
    if said is None:
        return saving
    expected = min(said, saving.ceiling_ns)
    return Saving(min(saving.low_ns, expected), expected, saving.ceiling_ns)


def with_workers(kwargs: dict[str, Any], workers: int, prefetch: int | None = None) -> dict[str, Any]:
    """A DataLoader's arguments with so many workers, which stay from epoch to epoch, and so many batches ahead of each;
    None as the program has it."""
    if not workers:
        return without_workers(kwargs)
    renewed = Renewed(True)
    renewed.alone = not kwargs.get("num_workers")
    stay = kwargs.get("persistent_workers") or renewed
    ahead = {} if prefetch is None else {"prefetch_factor": prefetch}
    return {**kwargs, **ahead, "num_workers": workers, "persistent_workers": stay}


def without_workers(kwargs: dict[str, Any]) -> dict[str, Any]:
    """A DataLoader's arguments, less those that are refused where it has none."""
    return {name: each for name, each in kwargs.items() if name not in WITH_WORKERS_ONLY} | {"num_workers": 0}


def memory_room() -> float:
    """Bytes that what is kept may take in this process: a share of the memory that is free, among the job's processes
    on this machine."""
    import psutil

    said = os.environ.get("LOCAL_WORLD_SIZE", "1")
    ranks = int(said) if said.isascii() and said.isdecimal() else 1
    return SHARE * float(psutil.virtual_memory().available) / max(1, ranks)


class Keeper(Remedy):
    """A remedy that keeps what the first epoch computes, in the program's own process."""

    safety = "exact"
    place = "loader"
    late = True
    unseen = AFTER_THE_FIRST
    said: ClassVar[str]
    """Name in a finding's evidence of what it saves from the second epoch on."""

    def predicts(self, report: Report) -> Saving:
        """Return the saving that a finding states; none where no finding does: then it is only tried by name."""
        saving, said = super().predicts(report), most_said(report, self.codes, self.said)
        return Saving() if said is None else Saving(0.0, min(said, saving.ceiling_ns), saving.ceiling_ns)
