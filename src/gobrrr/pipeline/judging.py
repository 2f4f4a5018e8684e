"""Recording, ledger, findings, report: what every verb does with a recording."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gobrrr.ledger.model.ledger import Ledger
from gobrrr.machine.model.machine import Machine
from gobrrr.recording.run_folder.run import Recording
from gobrrr.rehearsal.perform import SECONDS
from gobrrr.rules.verdict.report import Report


def judged(
    recording: Recording,
    machine: Machine,
    /,
    *,
    portability: bool = False,
    stage: str = "",
    rehearsal_s: float = SECONDS,
    also: Sequence[str] = (),
    **told: Any,
) -> tuple[Ledger, Report]:
    """Account, judge, report. `told` goes into the report as it is.

    `stage`: the Python that rehearses what the findings promise, in `rehearsal_s` at most, and the remedies `also`;
    without one they stay estimated.
    """
    from gobrrr.ledger.build import build_ledger
    from gobrrr.pipeline.simulation import simulated
    from gobrrr.rehearsal.findings import Rehearsal
    from gobrrr.rules import judge
    from gobrrr.rules.verdict.build import build

    ledger = simulated(build_ledger(recording, machine))
    play = Rehearsal(ledger, machine, recording.start, stage, rehearsal_s, also) if stage else None
    findings, skipped = judge(ledger, machine, portability=portability, rehearsed=play)
    known = machine if machine.fingerprint else None
    return ledger, build(ledger, known, findings, skipped=skipped, portability=portability,
                         rehearsed=play.outcomes if play else (), **told)  # fmt: skip
