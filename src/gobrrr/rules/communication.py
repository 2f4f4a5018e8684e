"""BRR701: waiting for other ranks."""

from __future__ import annotations

from collections.abc import Iterator

from gobrrr.ledger.model import Ledger
from gobrrr.machine.model import Machine
from gobrrr.recording.categories import is_communication
from gobrrr.rules.cores import micro_steps
from gobrrr.rules.evidence import count, time, worth_telling
from gobrrr.rules.lines import loop_line
from gobrrr.rules.model import Finding, finding, rule
from gobrrr.rules.shapes import costliest_line, total
from gobrrr.units import duration, share

EXPOSED = 0.05
"""Share of the step in communication that nothing hides (TraceLens 5 %; tb_plugin 10 % of all communication)."""


@rule(
    "BRR701",
    "exposed-communication",
    "communication",
    needs={"plain"},
)
def exposed_communication(ledger: Ledger, machine: Machine) -> Iterator[Finding]:
    """Collectives that the step waits for. The wait may be for a slow rank: one rank's account cannot tell."""
    cost = ledger.account("communication")
    if cost < EXPOSED * ledger.wall or not worth_telling(ledger, 0.6 * cost):
        return
    ops = [op for op in ledger.ops if is_communication(op.name)]
    calls = sum(op.calls for op in ops if op.name.startswith("c10d::"))
    micro = micro_steps(ledger)
    skip = f" Wrap all but the last of {micro:.0f} micro-steps in model.no_sync()." if micro > 1 else ""
    yield finding(
        "BRR701",
        ledger,
        low=0.1 * cost,
        expected=0.6 * cost,
        ceiling=cost,
        message=f"{duration(cost)} ({share(cost / ledger.wall)}) of the step goes to collectives that nothing hides, "
        "a slow rank's delay included",
        advice="Overlap it (larger buckets, gradient_as_bucket_view), send less (bf16, no_sync), and compare the ranks."
        + skip,
        where=costliest_line(op for op in ops if op.where) or loop_line(ledger),
        evidence={"communication": time(cost), "collectives": count(calls), "op_time": time(total(ops))},
        confidence="measured",
    )
