"""Place of the time although no rule names a cause: the account, its largest op, its line."""

from __future__ import annotations

from collections import defaultdict

from gobrrr import units
from gobrrr.ledger.model.accounts import parts
from gobrrr.ledger.model.ledger import Ledger
from gobrrr.recording.model.facts import Span
from gobrrr.rules.model.finding import TINY
from gobrrr.rules.verdict.place import short

OPS = ("inefficiency", "uncounted")
# group -> (its accounts, what they are, to be read after a duration)
GROUPS = {
    "data": (("data_wait",), "goes to waiting for the loader"),
    "host": (("host", "gc", "dispatch"), "goes to Python between ops and to what torch itself costs per op"),
    "ops": (OPS, "is op time above the floor that the machine sets"),
    "communication": (("communication",), "goes to waiting for other ranks"),
    "sync": (("sync",), "goes to synchronisation"),
    "transfer": (("copy",), "goes to copies"),
    "compile": (("compile",), "goes to compilation"),
}


WITHOUT_OPS = "goes to the host, in calls of CUDA and outside them"
UNKNOWN_FLOOR = "is op time of which nobody knows what the machine could do"
MUCH = 0.1
"""Share of a group of accounts from which an op is named."""


def largest(ledger: Ledger) -> tuple[str, float, str]:
    """(bound, ns, what it is) of the group of accounts outside the floors that owns most of the step."""
    sums = {name: sum(map(ledger.account, accounts)) for name, (accounts, _) in GROUPS.items()}
    name = max(sums, key=lambda name: sums[name])
    accounts, what = GROUPS[name]
    what = UNKNOWN_FLOOR if name == "ops" and is_unjudged(ledger) else what
    what = WITHOUT_OPS if name == "host" and ledger.device and "ops" not in ledger.signals else what
    return _bound(ledger, name), sums[name], f"{what}{_split(ledger, accounts)}{_named(ledger, accounts)}"


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


def _split(ledger: Ledger, accounts: tuple[str, ...]) -> str:
    named = [(name, ledger.account(name) / ledger.wall) for name in accounts]
    said = ", ".join(f"{name.replace('_', ' ')} {units.share(share)}" for name, share in named if share >= 0.005)
    return f" ({said})" if len(accounts) > 1 and said else ""


def _named(ledger: Ledger, accounts: tuple[str, ...]) -> str:
    """The op and the line that have most of it."""
    ops: dict[str, float] = defaultdict(float)
    lines: dict[Span, float] = defaultdict(float)
    for group in ledger.ops:
        own = sum(ns for name, ns in parts(group) if name in accounts) if group.phase != "data" else 0.0
        ops[group.name] += own
        if group.where:
            lines[group.where[0]] += own
    for gap in ledger.host if "host" in accounts else ():
        if gap.where:
            lines[gap.where[0]] += gap.ns
    op, op_ns = max(ops.items(), key=lambda item: item[1], default=("", 0.0))
    line, line_ns = max(lines.items(), key=lambda item: item[1], default=(Span("", 0), 0.0))
    whole = sum(map(ledger.account, accounts))
    said = [f"{op.removeprefix('aten::')} {units.share(op_ns / ledger.wall)}"] if op_ns > MUCH * whole else []
    said += [f"{short(line)} {units.share(line_ns / ledger.wall)}"] if line_ns > 0 else []
    return f", most of it in {' and at '.join(said)}" if said else ""
