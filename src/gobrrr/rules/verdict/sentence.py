"""The report's headline: what limits the step, at which line, what a fix would save, and how sure that is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from gobrrr import units
from gobrrr.ledger.device.kernel_names import readable
from gobrrr.ledger.model.accounts import parts
from gobrrr.ledger.model.device import DeviceLedger
from gobrrr.ledger.model.ledger import Ledger
from gobrrr.recording.model.facts import Span
from gobrrr.rules.idioms.table import CODE as IDIOM
from gobrrr.rules.idioms.table import slow_ops
from gobrrr.rules.model.finding import REGISTRY, TINY, WARNING, Finding, whole
from gobrrr.rules.verdict.place import spot
from gobrrr.rules.verdict.report import Confidence, Verdict
from gobrrr.system.escape import plain

MAJORITY = 0.5
"""Share of the step from which an account alone is what binds it, and of what the machine can do from which a step is
near that."""
NEAR = 0.9
"""Share of the largest expected saving: what comes so near is as good (proposed)."""
CHEAPER = ("BRR102", "BRR104")
"""Rules that make the same products cheaper, by another precision."""
NEAR_STAGE = 0.5  # proposed: an idiom is one line of several that make the samples
BESIDE = 1 / 3
"""Share of the largest part of the step that a finding elsewhere must hold to be the verdict: a step that is 53 %
Python and dispatch is not bound by the 13 % that it waits for data (tabnet, eight virtual batches), nor one of 48 % by
the 11 % that it waits on a faster chip."""
BESIDE_IDLE = 2 / 3
"""Share, as BESIDE, of the time that a device idles, where both are measured (proposed)."""
MUCH = 0.1
"""Share of a group of accounts from which an op is named."""
LONGEST_KERNEL = 40
"""Characters of a kernel's name (proposed: what fits a line of the headline)."""

LABELS = {
    "data": "Data loading", "host": "Host-bound", "overhead": "Overhead-bound", "sync": "Synchronisation-bound",
    "transfer": "Transfer-bound", "bandwidth": "Bandwidth-bound", "compute": "Compute-bound", "memory": "Memory-bound",
    "communication": "Communication-bound", "compile": "Compile-bound", "balanced": "Balanced",
    "unreliable": "Unreliable", "device": "Device-bound",
}  # fmt: skip
BETWEEN = "Between steps"
WASTED = {"BRR409": "Works on padding"}
"""Instead of the label of a finding's stage where it waits for nothing: work on what no result needs."""
INEFFICIENT = "Inefficient ops"
"""Instead of the label where ops take far more than the roof that their bound is named after."""
UNJUDGED = "Mostly ops"
"""Label where most of their time was held against no roof: nobody knows more than that they are slow."""
CONTENTION = "BRR905"
"""Code of threads that wait for cores: nothing is promised beside it."""
ORDER = (
    "BRR905", "BRR913", "BRR904", "BRR901", "BRR902", "BRR906", "BRR908", "BRR909", "BRR910", "BRR911", "BRR912",
    "BRR903", "BRR907", "BRR914",
)  # fmt: skip
"""The first of several doubts that are as bad is told: what changes all figures, what hides some, what blurs some
(proposed)."""
UNTIMED = "no step was timed without the profiler"
MORE_STEPS, MORE_OF_A_FILE = "let the program make more steps", "record more steps"
NO_MARKS, MARK_THEM = "the file does not say where a step ends", "call prof.step() after each step and record again"
MARK_IN_NVTX = "put each step into an NVTX range that counts it, and record again"
ROOFS = {"compute": ("arithmetic", "fewer or cheaper FLOPs"), "bandwidth": ("memory traffic", "fewer bytes")}
"""Account of a floor -> (what it is, what alone makes it shorter)."""
OPS = ("inefficiency", "uncounted")
GROUPS = {
    "data": (("data_wait",), "the loop waits {}"),
    "host": (("host", "gc", "dispatch"), "Python and dispatch take {}"),
    "ops": (OPS, "{} above the floor"),
    "communication": (("communication",), "waits for ranks take {}"),
    "sync": (("sync",), "synchronisation takes {}"),
    "transfer": (("copy",), "copies take {}"),
    "compile": (("compile",), "compilation takes {}"),
}
"""Group of accounts outside the floors -> (accounts, how its time is said)."""
IDLE, IDLING = "the device idles {}", ("data", "host", "sync")
"""How the time of these groups is said where a device works."""
UNKNOWN_FLOOR = "{} without a known floor"
ARITHMETIC = ("matmul", "convolution", "attention")


def is_doubt(finding: Finding) -> bool:
    """Band 9: it doubts the measurement, and costs nothing itself."""
    return finding.code.startswith("BRR9")


def judge(ledger: Ledger, findings: Sequence[Finding]) -> Verdict:
    """Doubt first, then CPU contention, the costliest finding that is more than a note, the ledger. `findings` sorted
    by expected saving."""
    top, doubts = costliest(ledger, findings), fatal_doubts(ledger, findings)
    if doubts or ledger.wall <= 0:
        says = f"{clause(doubts[0].message)} ({doubts[0].code})" if doubts else f"{UNTIMED}; {_more(ledger)}"
        return _verdict("unreliable", says)
    said = _verdict_of(ledger, top) if top is not None else _from_ledger(ledger, findings)
    contention = next((f for f in findings if f.code == CONTENTION and f.severity != "note"), None)
    if contention is None:
        return said
    head = f"{clause(contention.message).partition(':')[0]} ({CONTENTION})"
    beside = said.sentence.partition(":")[0].lower()
    if top is not None:
        beside = _cause(top) if said.bound == top.bound else f"{beside}; costliest cause: {_named(top)} ({top.code})"
    return _verdict(said.bound, f"{head}; then {beside}", "CPU contention")


def confidence(ledger: Ledger, findings: Sequence[Finding], bound: str) -> Confidence:
    """Low: the verdict is unreliable. Fair, by the first that holds: a finding of band 9 is a warning; the step has no
    interval, or one wider than the saving (the smallest that is told, where no cause is); every step ran under the
    profiler. Else high."""
    doubts = fatal_doubts(ledger, findings) if bound == "unreliable" else worst_doubts(findings)
    if bound == "unreliable" or doubts:
        level = "low" if bound == "unreliable" else "fair"
        if not doubts:
            return Confidence(level, UNTIMED, "", _more(ledger))
        first = doubts[0]
        settle = first.advice if level == "low" else first.advice.partition(". ")[0]
        return Confidence(level, clause(first.message), first.code, clause(settle))
    step, top = ledger.step, costliest(ledger, findings)
    width = (step.high_ns - step.low_ns) / ledger.wall if 0 < step.low_ns <= step.high_ns else None
    saving = top.saving.expected_ns / ledger.wall if top is not None else WARNING
    if width is None and "unmarked" in ledger.signals:
        return Confidence("fair", NO_MARKS, "", MARK_IN_NVTX if "nsys" in ledger.signals else MARK_THEM)
    if width is None:
        said = f"{units.several('timed step', step.plain_count)} without an interval"
        return Confidence("fair", said, "", _more(ledger))
    if width >= saving:
        what = "the saving" if top is not None else "the least saving that is told"
        said = f"the step's 95 % interval is {units.share(width)} wide, {what} {units.share(saving)}"
        return Confidence("fair", said, "", _more(ledger))
    if "offline" in ledger.signals:
        return Confidence("fair", "every step ran under the profiler", "", "time a step without the profiler")
    return Confidence("high", f"{step.plain_count} plain steps, the 95 % interval is {units.share(width)} wide")


def _more(ledger: Ledger) -> str:
    return MORE_OF_A_FILE if "offline" in ledger.signals else MORE_STEPS


def costliest(ledger: Ledger, findings: Sequence[Finding]) -> Finding | None:
    """The finding that is told first: more than a note, and more is expected back than of others.

    Two so near say nothing of which is more: then what was measured here is surer than an estimate, an idiom says more
    than a general rule, half as much of it too where that only says which stage of a loader waits or speeds up the
    same line's work, which need not be done; and of two estimates more is what could come back at most."""
    costly = (f for f in findings if f.saving.expected_ns >= WARNING * ledger.wall)
    rivals = [f for f in costly if not is_doubt(f) and f.severity != "note"]
    most = max((f.saving.expected_ns for f in rivals), default=0.0)
    tops = [f for f in rivals if f.saving.expected_ns == most]
    stage = any(f.code.startswith("BRR4") for f in tops)
    places = {f.where[0].place for f in tops if f.code in CHEAPER and f.where}

    def spares(finding: Finding) -> bool:  # its own line, and where the edit is
        return finding.code == IDIOM and any(each.place in places for each in finding.where[:2])

    def least(finding: Finding) -> float:
        return NEAR_STAGE if spares(finding) or (stage and finding.code == IDIOM) else NEAR

    near = [f for f in rivals if f.saving.expected_ns >= least(f) * most]
    return max(
        near, key=lambda f: (spares(f), f.basis == "rehearsed", f.code == IDIOM, f.saving.ceiling_ns), default=None
    )


def worst_doubts(findings: Sequence[Finding]) -> list[Finding]:
    """Doubts that are more than notes, the one that matters most first."""
    doubts = [f for f in findings if is_doubt(f) and f.severity != "note"]
    return sorted(doubts, key=lambda f: (f.severity != "critical", (*ORDER, f.code).index(f.code)))


def fatal_doubts(ledger: Ledger, findings: Sequence[Finding]) -> list[Finding]:
    """Doubts that make the run unreliable, the worst first: a finding of plain steps stands beside much unattributed
    time."""
    top, doubts = costliest(ledger, findings), [f for f in worst_doubts(findings) if f.severity == "critical"]
    stands = top is not None and _stands(ledger, top)
    return [f for f in doubts if not (stands and f.code == "BRR908")]


def clause(sentence: str) -> str:
    """A sentence to go inside another: no full stop, no capital unless its first word is a name."""
    text = sentence.strip().removesuffix(".")
    first = text.split(" ", 1)[0]
    return text[0].lower() + text[1:] if first[1:].islower() or len(first) == 1 else text


def _verdict(bound: str, says: str, label: str = "") -> Verdict:
    return Verdict(bound, plain(f"{label or LABELS[bound]}: {says}."))


def _stands(ledger: Ledger, finding: Finding) -> bool:
    """It was seen in plain steps, and what is unattributed in the profiled ones is not far more than it."""
    seen = finding.code in REGISTRY and "ops" not in REGISTRY[finding.code].needs
    return seen and finding.saving.expected_ns >= MAJORITY * ledger.account("unattributed")


def _verdict_of(ledger: Ledger, top: Finding) -> Verdict:
    """The costliest finding with its saving; or the group of accounts that owns most of the step, where the finding
    lies elsewhere and is small beside it. A device's own work is not held against the time that it idles."""
    bound, name, ns = largest(ledger)
    least = BESIDE if ledger.device is None else BESIDE_IDLE
    most = ledger.device is None or ns > MAJORITY * ledger.wall
    small = max(top.saving.expected_ns, top.holds_ns) < least * ns
    elsewhere = bound in ("host", "overhead") and top.bound not in ("host", "overhead")
    idles = ledger.device is None or top.bound in ("data", "sync", "transfer", "communication")
    if idles and most and small and elsewhere:
        beside = f"costliest cause: {_named(top)} ({top.code}), {units.rough(top.saving.expected_ns)}"
        return _verdict(bound, f"{_lost(ledger, name, ns)}; {beside}")
    saving, wait = top.saving, ledger.account("data_wait")
    low, high = (units.rough(ns, saving.expected_ns) for ns in (saving.low_ns, saving.ceiling_ns))
    saves = f"a fix would save about {units.rough(saving.expected_ns)} ({low} to {high})"
    if top.rare or top.between or saving.expected_ns > ledger.wall:
        length = units.duration(ledger.wall if top.between else whole(ledger))
        saves += f" per {'' if top.between else 'average '}{length} step"
    elif top.bound == "data" and top.code not in WASTED and wait >= saving.expected_ns:
        saves = f"waits {_part(ledger, wait).rpartition(' ')[0]}, {saves}"  # 'step' would be a 26th word
    else:
        saves += f" of {_step(ledger)}"
    lost = top.bound in ROOFS and _is_lost(ledger, top)
    label = INEFFICIENT if lost else BETWEEN if top.between else WASTED.get(top.code, "")
    return _verdict(top.bound, f"{_cause(top)}; {saves}", label)


def _cause(top: Finding) -> str:
    """'too few workers (BRR405) at train.py:42'."""
    return f"{_named(top)} ({top.code})" + (f" at {spot(top.where[0])}" if top.where else "")


def _named(top: Finding) -> str:
    return top.name.replace("-", " ")


def _is_lost(ledger: Ledger, finding: Finding) -> bool:
    """Most of what it holds is op time above the floor; of the step, where only its line is known."""
    parts = finding.lies or tuple((account.account, account.ns) for account in ledger.accounts)
    lost = sum(ns for account, ns in parts if account in OPS)
    return lost > MAJORITY * (finding.holds_ns or ledger.wall)


def _part(ledger: Ledger, ns: float) -> str:
    """'59 of each 178 ms step'."""
    part = units.bare(ns, ledger.wall) if ns > NEAR * ledger.wall else units.rough(ns, ledger.wall)
    return f"{part} of {_step(ledger)}"


def _step(ledger: Ledger) -> str:
    each, what = ("the", "recording") if "unmarked" in ledger.signals else ("each", "step")
    return f"{each} {units.duration(ledger.wall)} {what}"


def _from_ledger(ledger: Ledger, findings: Sequence[Finding]) -> Verdict:
    """No finding of weight: near what the machine can do, or else where the time is that is lost."""
    if ledger.device is not None and ledger.device.busy_ns > MAJORITY * ledger.wall:
        return _of_the_device(ledger, ledger.device)
    light = ledger.roofline.speed_of_light
    reached = "speed of light unknown" if light is None else f"at {100 * light:.0f} % of the speed of light"
    roofs = {name: ledger.account(name) for name in ROOFS}
    roof = max(roofs, key=lambda name: roofs[name])
    if roofs[roof] > MAJORITY * ledger.wall:
        what, less = ROOFS[roof]
        part = f"{what} at the measured ceiling takes {_part(ledger, roofs[roof])}"
        return _verdict(roof, f"{part}; only {less} help")
    bound, name, ns = largest(ledger)
    if sum(roofs.values()) > MAJORITY * ledger.wall:
        return _verdict("balanced", f"{reached}; largest loss: {_lost(ledger, name, ns)}")
    if bound in ("host", "overhead") and ledger.step.outside_ns > MAJORITY * ns:
        where = "most of it between the ranges that mark steps, where the loop gets its next batch"
        return _verdict("data", f"{_lost(ledger, name, ns)}, {where}")
    told = [f for f in findings if not is_doubt(f) and 0 < f.saving.expected_ns < WARNING * ledger.wall]
    most = max(told, key=lambda f: f.saving.expected_ns, default=None)
    op, _ = _worst_op(ledger, GROUPS[name][0], MUCH * ns)
    none = slow_ops().get(op) or (
        f"largest named: {most.code}, {units.rough(most.saving.expected_ns)}"
        if most
        else f"no rule names a cause{'; see the costliest ops' if ledger.ops else ''}"
    )
    label = (UNJUDGED if is_unjudged(ledger) else INEFFICIENT) if bound in ROOFS else ""  # the roofs were asked above
    return _verdict(bound, f"{_lost(ledger, name, ns)}; {none}", label)


def _of_the_device(ledger: Ledger, device: DeviceLedger) -> Verdict:
    """The device works: bound by what most of its kernels are bound by, as far as that is known."""
    total = sum(ns for _, _, ns, _ in device.kernels) or 1.0
    arithmetic = sum(ns for _, _, ns, kind in device.kernels if kind in ARITHMETIC) / total
    mostly = arithmetic >= MAJORITY
    unknown = ledger.account("uncounted") > MAJORITY * min(device.busy_ns, ledger.wall)
    part, of = (arithmetic, "in") if mostly else (1 - arithmetic, "outside")
    name, ns = device.longest
    kernel = readable(name)[:LONGEST_KERNEL].partition(" ")[0].rstrip(",")
    longest = f"; longest kernel: {kernel}, {units.rough(ns)}" if ns else ""
    return _verdict(
        "compute" if mostly else "device" if unknown else "bandwidth",
        f"the device works {_part(ledger, min(device.busy_ns, ledger.wall))}, {100 * part:.0f} % {of} products, "
        f"convolutions and attention{longest}",
    )


def largest(ledger: Ledger) -> tuple[str, str, float]:
    """(bound, name, ns) of the group of accounts outside the floors that owns most of the step."""
    sums = {name: sum(map(ledger.account, accounts)) for name, (accounts, _) in GROUPS.items()}
    name = max(sums, key=lambda name: sums[name])
    return _bound(ledger, name), name, sums[name]


def is_unjudged(ledger: Ledger) -> bool:
    """Most op time was held against no floor: no shapes, no ceilings of that machine, ops that are not modelled."""
    return ledger.account("uncounted") > sum(map(ledger.account, OPS)) / 2


def _bound(ledger: Ledger, name: str) -> str:
    """Return the bound of most of a group's time: ops so small that torch's own cost for them rules are bound by
    that."""
    if name == "host":
        between = ledger.account("host") + ledger.account("gc")
        return "overhead" if ledger.account("dispatch") >= between else "host"
    if name != "ops":
        return name
    above: dict[str, float] = defaultdict(float)
    for op in ledger.ops:
        bound = "overhead" if op.ns < TINY * op.dispatch_ns else op.bound or "compute"
        above[bound] += op.ns - op.floor_ns - op.dispatch_ns
    return max(above, key=lambda bound: above[bound], default="compute")


def _lost(ledger: Ledger, name: str, ns: float) -> str:
    """'49 of each 100 ms step above the floor, most in sort at rank.py:7': a group's time, and where most is."""
    accounts, said = GROUPS[name]
    said = IDLE if ledger.device is not None and name in IDLING else said
    said = UNKNOWN_FLOOR if name == "ops" and is_unjudged(ledger) else said
    op, lines = _worst_op(ledger, accounts, MUCH * ns)
    for gap in ledger.host if "host" in accounts else ():
        if gap.where:
            lines[gap.where[0]] += gap.ns
    line, line_ns = max(lines.items(), key=lambda item: item[1], default=(Span("", 0), 0.0))
    most = f" in {op.removeprefix('aten::')}" if op else ""
    most += f" at {spot(line)}" if line_ns > 0 else ""
    return said.format(_part(ledger, ns)) + (f", most{most}" if most else "")


def _worst_op(ledger: Ledger, accounts: Sequence[str], least: float) -> tuple[str, dict[Span, float]]:
    """Return the op that has most of these accounts, more than `least` ns of it, else none; and the lines of all ops
    with their ns."""
    ops: dict[str, float] = defaultdict(float)
    lines: dict[Span, float] = defaultdict(float)
    for group in ledger.ops:
        own = sum(ns for name, ns in parts(group) if name in accounts) if group.phase != "data" else 0.0
        ops[group.name] += own
        if group.where:
            lines[group.where[0]] += own
    op, ns = max(ops.items(), key=lambda item: item[1], default=("", 0.0))
    return (op if ns > least else ""), lines
