"""BRR910: figures that cannot be. The one place that looks at everything that is about to be told.

No rate above its ceiling, no share above one, accounts that sum to the step, window and plain steps of the same loop,
no finding above its account, no cause named for more than the step. What breaks this is a defect of gobrrr, or steps
of two kinds, and makes the verdict "unreliable".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from statistics import mean

from gobrrr.ledger.model.ledger import Ledger
from gobrrr.machine.model.machine import Machine
from gobrrr.rules.idioms.table import CODE as IDIOM
from gobrrr.rules.model.evidence import ratio, time
from gobrrr.rules.model.finding import Cause, Finding, finding, rule, slack, whole
from gobrrr.rules.validity.measurement import doubt
from gobrrr.units import duration, share

TOLERANCE = 0.05
"""Difference that two rounded figures of one run may have, as a share (the ledger allows itself 1 %, ceilings spread 2
%)."""
SLOWEST = 30.0
"""Profiled over plain step: with all of its options torch.profiler makes a step of tiny ops 18 times longer (measured);
a window that is longer than this saw other steps."""
FASTEST = 0.5
"""A profiled step of less than half a plain one has not seen what the plain one does (ledger.scaling.MAX_GROWTH)."""
REPORT = "This is a defect of gobrrr, not of the program: please send report.json of the run's folder with an issue."
TWO_KINDS = "Mark what belongs together with `for batch in gobrrr.steps(loader): ...`, so that every step is one kind."


@rule("BRR910", "host")
def figures_contradict(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Contradictions within the ledger; findings are looked at by `against`, when all rules have spoken."""
    if ledger.wall <= 0:
        return
    yield from _rates(ledger)
    yield from _accounts(ledger)
    yield from _windows(ledger)


def against(ledger: Ledger, findings: Iterable[Finding]) -> Iterator[Finding]:
    """Findings that hold more than there is: each against the accounts, those of one code together against the step."""
    if ledger.wall <= 0:
        return
    step = whole(ledger)
    sums: dict[str, float] = defaultdict(float)
    for found in findings:
        if found.between:
            continue  # its time lies between the steps, in no account of theirs
        saving = found.saving.expected_ns
        sums[found.code] += saving
        most = min(step, _account(ledger, found))
        if saving > (1 + TOLERANCE) * most + slack(ledger):
            message = f"{found.code} expects {duration(saving)} of the {duration(most)} that its account has"
            cause = doubt("critical", message, REPORT, {"expected": time(saving), "account": time(most)})
            yield finding("BRR910", ledger, cause)
    for code, total in sums.items():
        if total > (1 + TOLERANCE) * step:
            message = f"the findings of {code} expect {duration(total)} together, of a step of {duration(step)}"
            cause = doubt("critical", message, REPORT, {"expected": time(total), "step": time(step)})
            yield finding("BRR910", ledger, cause)


def _account(ledger: Ledger, found: Finding) -> float:
    """ns per step that a finding can be about at most: the wait for data, or what is neither that nor nobody's."""
    step = ledger.step
    if not ledger.accounts or ledger.device is not None or "ops" not in ledger.signals:
        return whole(ledger)  # a device's findings are capped as they are made
    waits = max(ledger.account("data_wait"), mean(step.waits) if step.waits else 0.0)
    rare = max(0.0, step.mean_ns - ledger.wall)
    loads = found.code.startswith("BRR4") or found.code == IDIOM
    if loads and found.bound == "data" and found.lies[:1] and found.lies[0][0] == "data_wait":
        return waits + rare + ledger.account("inefficiency")  # workers take cores from the step
    collected = ledger.facts.gc_ns_per_step or 0.0 if found.code == "BRR306" else 0.0  # in the loader as well
    return ledger.wall - max(0.0, ledger.account("unattributed")) - ledger.account("data_wait") + rare + collected


def _rates(ledger: Ledger) -> Iterator[Cause]:
    roof, device = ledger.roofline, ledger.device
    if roof.raised > 1 + TOLERANCE:
        yield doubt(
            "warning",
            f"the step beats the ceilings of this machine by {share(roof.raised - 1)}: they were measured at a busy "
            "moment, and are raised",
            "Measure the machine again: gobrrr machine --refresh.",
            {"raised": ratio(roof.raised)},
        )  # fmt: skip
    light = None if device is not None else roof.speed_of_light  # kernels of several streams may overlap
    rates = (("MFU", roof.mfu), ("HFU", roof.hfu), ("the speed of light", light))
    for name, reached in rates:
        if reached is not None and reached > 1 + TOLERANCE:
            message = f"{name} is {share(reached)} of a ceiling: the ceiling is wrong, or the FLOPs are"
            advice = f"Measure the machine again: gobrrr machine --refresh. {REPORT}"
            yield doubt("critical", message, advice, {"rate": ratio(reached)})


def _accounts(ledger: Ledger) -> Iterator[Cause]:
    if not ledger.accounts:
        return
    worst = max(ledger.accounts, key=lambda account: account.share)
    least = min(ledger.accounts, key=lambda account: account.share)
    total = sum(account.ns for account in ledger.accounts) / ledger.wall
    named = {"largest": ratio(worst.share), "least": ratio(least.share), "sum": ratio(total)}
    if worst.share > 1 + TOLERANCE or least.share < -TOLERANCE or abs(total - 1) > TOLERANCE:
        message = f"the accounts sum to {share(total)} of the step ({worst.account} {share(worst.share)})"
        yield doubt("critical", message, REPORT, named)


def _windows(ledger: Ledger) -> Iterator[Cause]:
    step = ledger.step
    if "offline" in ledger.signals or not step.profiled_count or not step.plain_count or step.wall_ns <= 0:
        return
    beside = step.beside_ns or ledger.wall  # where steps grow, a window is like those around it
    least, most = sorted((beside, ledger.wall))
    if FASTEST * least <= step.wall_ns <= SLOWEST * most:
        return
    around = least if step.wall_ns < least else most
    yield doubt(
        "critical",
        f"a step took {duration(step.wall_ns)} under the profiler and {duration(around)} without: these are not steps "
        "of one kind",
        TWO_KINDS,
        {"profiled_step": time(step.wall_ns), "plain_step": time(around)},
    )
