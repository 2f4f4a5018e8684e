"""The verdict: what binds the step, in one sentence with a number and an interval."""

from __future__ import annotations

from collections.abc import Sequence

from gobrrr import units
from gobrrr.ledger.device.kernel_names import readable
from gobrrr.ledger.model.device import DeviceLedger
from gobrrr.ledger.model.ledger import Ledger
from gobrrr.rules.model.finding import REGISTRY, WARNING, Finding, whole
from gobrrr.rules.verdict.largest import OPS, is_unjudged, largest
from gobrrr.rules.verdict.place import short
from gobrrr.rules.verdict.report import Verdict
from gobrrr.system.escape import plain

MAJORITY = 0.5
"""Share of the step from which an account alone is what binds it, and of what the machine can do from which a step is
near that."""

NEAR = 0.9
"""Share of the largest expected saving: what comes so near is as good (proposed)."""
BESIDE_IDLE = 2 / 3
"""The same for a device's idle time, where both are measured (proposed)."""
BESIDE = 1 / 3
"""Share of the largest part of the step that a finding elsewhere must hold to be the verdict: a step that is 53 %
Python and dispatch is not bound by the 13 % that it waits for data (tabnet, eight virtual batches), nor one of 48 % by
the 11 % that it waits on a faster chip."""

LABELS = {
    "data": "Data-bound", "host": "Host-bound", "overhead": "Overhead-bound", "sync": "Synchronisation-bound",
    "transfer": "Transfer-bound", "bandwidth": "Bandwidth-bound", "compute": "Compute-bound", "memory": "Memory-bound",
    "communication": "Communication-bound", "compile": "Compile-bound", "balanced": "Balanced",
    "unreliable": "Unreliable", "device": "Device-bound",
}  # fmt: skip
BETWEEN = "Held up between its steps"
WASTED = {"BRR409": "Works on padding"}
"""Instead of the label of a finding's stage where it waits for nothing: work on what no result needs."""
INEFFICIENT = "Inefficient ops"
"""Instead of the label where ops take far more than the roof that their bound is named after."""
UNJUDGED = "Mostly ops"
"""Label where most of their time was held against no roof: nobody knows more than that they are slow."""
ROOFS = {
    "compute": "arithmetic at the ceiling measured here: only fewer or cheaper FLOPs make it faster",
    "bandwidth": "memory traffic at the ceiling measured here: only fewer bytes make it faster",
}


def is_doubt(finding: Finding) -> bool:
    """Band 9: it doubts the measurement, and costs nothing itself."""
    return finding.code.startswith("BRR9")


def is_elsewhere(finding: Finding) -> bool:
    """It says that what the run costs lies in processes that were not seen."""
    return finding.code == "BRR904" and finding.severity == "critical"


def judge(ledger: Ledger, findings: Sequence[Finding]) -> Verdict:
    """Return the verdict of _judge(), after a warning where the machine had no cores for the program. Where its time is
    not in these steps at all, that comes before everything."""
    said = _judge(ledger, findings)
    if any(is_elsewhere(finding) for finding in findings):
        return said
    starved = next((f for f in findings if f.code == "BRR905" and f.severity != "note"), None)
    return Verdict(said.bound, plain(f"Starved: {starved.message}. {said.sentence}")) if starved else said


def _judge(ledger: Ledger, findings: Sequence[Finding]) -> Verdict:
    """Doubt first, then the costliest finding that is more than a note, then the ledger. `findings` sorted by expected
    saving."""
    top = costliest(ledger, findings)
    doubts = [f for f in findings if is_doubt(f) and f.severity == "critical"]
    if top is not None and _stands(ledger, top):
        doubts = [f for f in doubts if f.code != "BRR908"]
    if doubts or ledger.wall <= 0:
        return _verdict("unreliable", _unreliable(ledger, doubts))
    if top is not None and (group := _overshadowing(ledger, top)):
        bound, ns, what = group
        named = f"the costliest cause that a rule names is another: {_told(ledger, top)}"
        return _verdict(bound, f"{_part(ledger, ns)} of the {_step(ledger)} {what}; {named}")
    if top is not None:
        return _verdict(top.bound, _told(ledger, top), _label(ledger, top))
    return _from_ledger(ledger, _none(ledger, findings))


def costliest(ledger: Ledger, findings: Sequence[Finding]) -> Finding | None:
    """The finding that is told first: more than a note, and more is expected back than of others.

    Two so near say nothing of which is more: then what was measured here is surer than an estimate, and of two
    estimates more is what could come back at most."""
    costly = (f for f in findings if f.saving.expected_ns >= WARNING * ledger.wall)
    rivals = [f for f in costly if not is_doubt(f) and f.severity != "note"]
    most = max((f.saving.expected_ns for f in rivals), default=0.0)
    near = [f for f in rivals if f.saving.expected_ns >= NEAR * most]
    return max(near, key=lambda f: (f.basis == "rehearsed", f.saving.ceiling_ns), default=None)


def _label(ledger: Ledger, top: Finding) -> str:
    """Return the verdict's name where its bound says too little."""
    if top.bound in ROOFS and _is_lost(ledger, top):
        return INEFFICIENT
    return BETWEEN if top.between else WASTED.get(top.code, "")


def _overshadowing(ledger: Ledger, top: Finding) -> tuple[str, float, str] | None:
    """The group of accounts that owns most of the step where the costliest finding lies elsewhere and is small beside
    it: what that finding says is true, and not what binds the step. A device's own work is not held against the time
    that it idles."""
    bound, ns, what = largest(ledger)
    least = BESIDE if ledger.device is None else BESIDE_IDLE
    most = ledger.device is None or ns > MAJORITY * ledger.wall
    small = max(top.saving.expected_ns, top.holds_ns) < least * ns
    elsewhere = bound in ("host", "overhead") and top.bound not in ("host", "overhead")
    idles = ledger.device is None or top.bound in ("data", "sync", "transfer", "communication")
    return (bound, ns, what) if idles and most and small and elsewhere else None


def _stands(ledger: Ledger, finding: Finding) -> bool:
    """It was seen in plain steps, and what the close look could not charge to anything is not far more than it."""
    seen = finding.code in REGISTRY and "ops" not in REGISTRY[finding.code].needs
    return seen and finding.saving.expected_ns >= MAJORITY * ledger.account("unattributed")


def _is_lost(ledger: Ledger, finding: Finding) -> bool:
    """Most of what it holds is op time above the floor; of the step, where only its line is known."""
    parts = finding.lies or tuple((account.account, account.ns) for account in ledger.accounts)
    lost = sum(ns for account, ns in parts if account in OPS)
    return lost > MAJORITY * (finding.holds_ns or ledger.wall)


def _verdict(bound: str, says: str, label: str = "") -> Verdict:
    label = label or LABELS.get(bound, f"{bound}-bound".capitalize())
    return Verdict(bound, plain(f"{label}: {says}."))


def _unreliable(ledger: Ledger, doubts: Sequence[Finding]) -> str:
    if not doubts:
        return "0 steps were timed without the profiler, so nothing can be said of the step; let it run for more steps"
    first = doubts[0]
    others = f"; more doubts: {len(doubts) - 1}" if len(doubts) > 1 else ""
    settles = f"; to settle it: {_clause(first.advice)}" if first.advice else ""
    return f"{_clause(first.message)}{settles}{others} ({first.code}; {ledger.step.plain_count} plain steps)"


def _clause(sentence: str) -> str:
    """A sentence to go inside another: no full stop, no capital unless its first word is a name."""
    text = sentence.strip().removesuffix(".")
    first = text.split(" ", 1)[0]
    return text[0].lower() + text[1:] if first[1:].islower() or len(first) == 1 else text


def _told(ledger: Ledger, top: Finding) -> str:
    """Say how much of the step a finding holds and what comes back; the second alone where its time is nobody's
    alone."""
    place = f" at {short(top.where[0])}" if top.where else ""
    saving, named = top.saving, f"{top.name} ({top.code}){place}"
    ceiling, expected, low = map(units.duration, (saving.ceiling_ns, saving.expected_ns, saving.low_ns))
    surely = f" (at least {low})" if saving.low_ns > 0 else ""
    back = f"up to {ceiling} could come back, {expected} expected{surely}"
    wait = ledger.account("data_wait")
    if top.rare:
        return f"{named} adds {expected} to the average step of {_mean(ledger)}; {back}"
    if top.bound == "data" and top.code not in WASTED and wait >= saving.expected_ns:
        rest = f" (more than the wait{_also(ledger)})" if saving.ceiling_ns > wait else ""
        back = f"up to {ceiling}{rest} could come back, {expected} expected{surely}"
        return f"the loop waits {_part(ledger, wait)} of its {_step(ledger)} for the loader{place}; {back}"
    if top.between:
        return f"{named} adds {ceiling} to each of the steps of {units.duration(ledger.wall)}, on average; {back}"
    if saving.expected_ns > ledger.wall:
        return f"{named} adds {expected} to the average step of {_mean(ledger)}; {back}"
    if saving.expected_ns <= top.holds_ns <= ledger.wall:
        return f"{named} holds {_part(ledger, top.holds_ns)} of the {_step(ledger)}, {_accounts(top)}; {back}"
    part = _part(ledger, saving.expected_ns)
    return f"{named}; of the {_step(ledger)} {part} is expected to come back, at least {low}, up to {ceiling}"


def _also(ledger: Ledger) -> str:
    """Say what loading on the host costs the rest of the step, as far as that runs there
    (rules.cores.rest_recovers)."""
    loader = ledger.facts.main_loader
    if loader is None or {"device", "offline"} & set(ledger.signals):
        return ""
    workers = "workers take cores from the rest of the step, or " if loader.num_workers else ""
    return f": {workers}the rest of the step finds its caches cold"


def _accounts(top: Finding) -> str:
    """'of that dispatch 45 % and host 22 %': in which accounts the time of a finding lies."""
    named = [f"{name.replace('_', ' ')} {100 * ns / top.holds_ns:.0f} %" for name, ns in top.lies[:2]]
    return f"of that {' and '.join(named)}"


def _part(ledger: Ledger, ns: float) -> str:
    return f"{units.duration(ns)} ({units.share(ns / ledger.wall)})"


def _step(ledger: Ledger) -> str:
    step = ledger.step
    known = 0 < step.low_ns <= step.high_ns
    interval = f" (95 % interval {units.interval(step.low_ns, step.high_ns)})" if known else ""
    return f"{units.duration(ledger.wall)} {_noun(ledger)}{interval}"


def _mean(ledger: Ledger) -> str:
    """Say the mean step, beside the usual one that the table divides and that has nothing rare in it."""
    mean = whole(ledger)
    usual = f" (the usual one takes {units.duration(ledger.wall)})" if mean > ledger.wall else ""
    return f"{units.duration(mean)}{usual}"


def _noun(ledger: Ledger) -> str:
    """Name the thing that the figures are of."""
    return "recording" if "unmarked" in ledger.signals else "step"


def _none(ledger: Ledger, findings: Sequence[Finding]) -> str:
    """Say that no finding has weight, and what the largest gives back, as more may be spoken of in it."""
    told = [f for f in findings if not is_doubt(f) and 0 < f.saving.expected_ns < WARNING * ledger.wall]
    if not told:
        return f"no rule names a cause of {100 * WARNING:.0f} % of it or more"
    most = max(told, key=lambda f: f.saving.expected_ns)
    part = units.share(most.saving.expected_ns / ledger.wall)
    return f"no cause that a rule names is expected to give back {100 * WARNING:.0f} % of it ({most.code}: {part})"


def _from_ledger(ledger: Ledger, none: str) -> Verdict:
    """No finding of weight: near what the machine can do, or else where the time is that is lost."""
    if ledger.device is not None and ledger.device.busy_ns > MAJORITY * ledger.wall:
        return _of_the_device(ledger, ledger.device)
    roofs = {name: ledger.account(name) for name in ROOFS}
    roof = max(roofs, key=lambda name: roofs[name])
    if roofs[roof] > MAJORITY * ledger.wall:
        part = f"{_part(ledger, roofs[roof])} of the {_step(ledger)}"
        return _verdict(roof, f"{part} is {ROOFS[roof]}; {_light(ledger)}")
    bound, ns, what = largest(ledger)
    if sum(roofs.values()) > MAJORITY * ledger.wall:
        lost = f"the largest loss, {_part(ledger, ns)} of the {_step(ledger)}, {what}"
        return _verdict("balanced", f"{_light(ledger)}, and {none}; {lost}")
    label = (UNJUDGED if is_unjudged(ledger) else INEFFICIENT) if bound in ROOFS else ""  # the roofs were asked above
    return _verdict(bound, f"{_part(ledger, ns)} of the {_step(ledger)} {what}; {_light(ledger)}, and {none}", label)


ARITHMETIC = ("matmul", "convolution", "attention")


def _of_the_device(ledger: Ledger, device: DeviceLedger) -> Verdict:
    """The device works: bound by what most of its kernels are bound by, as far as that is known."""
    total = sum(ns for _, _, ns, _ in device.kernels) or 1.0
    arithmetic = sum(ns for _, _, ns, kind in device.kernels if kind in ARITHMETIC) / total
    of = (
        "products, convolutions and attention"
        if arithmetic >= MAJORITY
        else "kernels other than products, convolutions and attention"
    )
    unknown = ledger.account("uncounted") > MAJORITY * min(device.busy_ns, ledger.wall)
    bound = "compute" if arithmetic >= MAJORITY else "device" if unknown else "bandwidth"
    largest = max(device.kernels, key=lambda kernel: kernel[2], default=("", 0.0, 0.0, ""))
    busy = f"the device works {_part(ledger, min(device.busy_ns, ledger.wall))} of the {_step(ledger)}"
    most = units.share(largest[2] / ledger.wall)
    named = f"the longest kernel is {readable(largest[0])[:60]} with {most} of the {_noun(ledger)}"
    part = arithmetic if arithmetic >= MAJORITY else 1 - arithmetic
    return _verdict(bound, f"{busy}, {units.share(part)} of its kernel time in {of}; {named}")


def _light(ledger: Ledger) -> str:
    light = ledger.roofline.speed_of_light
    if light is None:
        return "how near this step is to the speed of light could not be judged"
    return f"this step runs at {100 * light:.0f} % of what the machine can do (speed of light)"
