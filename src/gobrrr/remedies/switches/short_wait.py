"""Threads that wait for others give their core away instead of spinning on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gobrrr.machine.measure.command import SHORT_WAIT
from gobrrr.remedies.mechanism.openmp import OpenMP
from gobrrr.rules.model.finding import Saving

if TYPE_CHECKING:
    from gobrrr.rules.verdict.report import Report


class ShortWait(OpenMP):
    """GOMP_SPINCOUNT and KMP_BLOCKTIME. Beside others an op on all cores takes a scheduler's slice for each thread that
    has none, since those that wait for it spin: the same four transformers at once take steps of 560 ms, or of 9 s.
    Loader workers are others too (pictures turned in two workers on two cores: steps of 69 ms, and of 45). Alone it
    costs a wake-up per op: small ops took up to twice as long."""

    name = "short_wait"
    title = "lets threads that wait sleep soon, where other processes want the cores (CPU)"
    codes: ClassVar[tuple[str, ...]] = ("BRR905",)
    by_hand = "GOMP_SPINCOUNT=1000 python train.py  # KMP_BLOCKTIME=0 for Intel's OpenMP"
    variables: ClassVar[dict[str, str]] = SHORT_WAIT
    does = "threads that wait sleep after microseconds"

    def predicts(self, report: Report) -> Saving:
        """All of the step may be waiting, and nobody knows: a doubt has no saving of its own."""
        crowded = any(f.code in self.codes or "loader_workers" in f.remedies for f in report.findings)
        return Saving(0.0, 0.0, float(report.step.plain_wall_ns)) if crowded and report.threads > 1 else Saving()
