"""Threads that wait for others give their core away instead of spinning on it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, ClassVar

from gobrrr.machine.measure import SHORT_WAIT
from gobrrr.remedies.model import Remedy
from gobrrr.rules.model import Saving

if TYPE_CHECKING:
    from gobrrr.remedies.seams import Seams
    from gobrrr.report.model import Report


class ShortWait(Remedy):
    """GOMP_SPINCOUNT and KMP_BLOCKTIME. Beside others an op on all cores takes a scheduler's slice for each thread that
    has none, since those that wait for it spin: the same four transformers at once take steps of 560 ms, or of 9 s."""

    name = "short_wait"
    title = "lets threads that wait sleep soon, where other processes want the cores (CPU)"
    safety = "exact"
    place = "environment"
    codes: ClassVar[tuple[str, ...]] = ("BRR905",)
    by_hand = "GOMP_SPINCOUNT=1000 python train.py  # KMP_BLOCKTIME=0 for Intel's OpenMP"

    def probe(self) -> str:
        import torch

        if "OpenMP" not in torch.__config__.parallel_info():
            return "this torch computes without OpenMP"
        return ""

    def predicts(self, report: Report) -> Saving:
        """All of the step may be waiting, and nobody knows: a doubt has no saving of its own."""
        starved = any(finding.code in self.codes for finding in report.findings)
        return Saving(0.0, 0.0, float(report.step.plain_wall_ns)) if starved and report.threads > 1 else Saving()

    def environment(self) -> dict[str, str]:
        return dict(SHORT_WAIT)

    def apply(self, seams: Seams) -> None:
        if all(os.environ.get(name) == value for name, value in SHORT_WAIT.items()):
            seams.applied(self.name, "threads that wait sleep after microseconds")


REMEDY = ShortWait()
