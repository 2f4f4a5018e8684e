"""The Finding noun, and how a rule is declared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from gobrrr.ledger.model.accounts import held
from gobrrr.ledger.model.ledger import HostGroup, Ledger, OpGroup
from gobrrr.machine.model.machine import Machine
from gobrrr.recording.model.facts import Span
from gobrrr.rules.model.cores import starved
from gobrrr.rules.model.views import graph_makers

BOUNDS = ("data", "host", "overhead", "sync", "transfer", "bandwidth", "compute", "memory", "communication", "compile")
SEVERITIES = ("note", "warning", "critical")
# Share of the step that the expected saving must reach. Sources: XProf classes input-bound at 5 and 20 %, launch-bound
# at 3 and 15 %; TraceML warns at 10 % and calls 20 % critical.
NOTE, WARNING, CRITICAL = 0.03, 0.10, 0.20
FAR = 0.1
"""Share of its time that traffic must need at the ceiling for memory to bind it."""
TINY = 10.0
"""An op under this many times the cost of dispatching one is tiny (proposed: how much step time a larger batch adds at
each multiple would settle it; at 10 us on a GPU's kernels TraceLens draws the same line)."""


WORDS = 25
"""Words of a finding's message at most, so that one glance is enough (proposed: what readers recall of longer ones
would settle it)."""
SLACK = 0.10
"""Share of a ceiling that is added to it at most for what the run cannot resolve. On the planted programs half the
interval of the step is less (decision 0005); on a busy machine it is as long as the step."""


class Saving(msgspec.Struct, frozen=True):
    """Nanoseconds per step that a remedy may give back: low <= expected <= ceiling. The ceiling is the ledger's."""

    low_ns: float = 0.0
    expected_ns: float = 0.0
    ceiling_ns: float = 0.0


class Rehearsed(msgspec.Struct, frozen=True):
    """Saving of one remedy when this run's own ops were played as they are and as it runs them (rehearsal/)."""

    remedy: str
    saving: Saving
    """All zero where it loses."""
    change_ns: float = 0.0
    """Growth of the step: above zero it loses."""
    today_ns: float = 0.0
    """ns per step of the ops that were played."""


class Quantity(msgspec.Struct, frozen=True):
    """A figure of the evidence with its unit (ns, B, 1, FLOP/s, ...)."""

    value: float | int | str
    unit: str = ""


class Finding(msgspec.Struct, frozen=True):
    """One cause, with its cost in this very run."""

    code: str
    name: str
    bound: str
    severity: str
    saving: Saving
    message: str
    """One sentence with a number: what is wrong here."""
    advice: str = ""
    """One sentence: what to do by hand."""
    where: tuple[Span, ...] = ()
    evidence: dict[str, Quantity] = {}
    remedies: tuple[str, ...] = ()
    cost_bytes: int | None = None
    confidence: str = "measured"
    """measured, derived or inferred: how the saving was come by."""
    lies: tuple[tuple[str, float], ...] = ()
    """(account, ns per step), the largest first: in which accounts of the ledger the time lies that it speaks of; empty
    where only its line is known."""
    basis: str = "estimated"
    """estimated from the ledger, or rehearsed: the remedy was tried on this run's own ops, on this machine."""
    rehearsed: tuple[Rehearsed, ...] = ()
    """Remedies that were, winners and losers; losers are not among `remedies`."""
    between: bool = False
    """It lies between the steps, and is no part of their time."""
    rare: bool = False
    """It lies in slow steps that come now and then: the mean step has it, the usual one does not."""

    @property
    def holds_ns(self) -> float:
        """Nanoseconds per step that it speaks of; 0 where that is not known."""
        return sum(ns for _, ns in self.lies)


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule has found; `finding` makes a Finding of it.

    The ceiling is what it holds and what goes with it: what the run cannot resolve is added there, for all rules alike.
    """

    message: str
    saving: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Low, expected and ceiling, ns per step."""
    advice: str = ""
    where: tuple[Span, ...] = ()
    evidence: dict[str, Quantity] = {}
    cost_bytes: int | None = None
    confidence: str = "derived"
    level: str | None = None
    """Severity, where its share of the step does not say it."""
    of: Iterable[OpGroup | HostGroup] | None = None
    """The time that it speaks of, where that is known and not only the line."""
    part: float = 1.0
    """The part of `of` that it speaks of."""
    holds: float | None = None
    """How long that is in plain steps, where the profile does not say it best: no more than that comes back."""
    rare: bool = False
    """It is about slow steps that only the mean holds."""
    between: bool = False
    """It is about what lies between the steps."""
    bound: str | None = None
    """What binds the step, where that is not the rule's."""
    both: bool = False
    """Where an accelerator works, it counts its kernels and the idle time."""
    name: str = ""
    """The rule's, where empty."""
    remedies: tuple[str, ...] | None = None
    """The rule's, where null."""
    vain: tuple[str, ...] = ()
    """Remedies of the rule that do not help here."""


Check = Callable[[Ledger, Machine], Iterable[Cause]]


class Rule(msgspec.Struct, frozen=True):
    """A rule: a pure function from (Ledger, Machine) to Findings, with the signals that it cannot do without."""

    code: str
    name: str
    bound: str
    check: Callable[[Ledger, Machine], Iterable[Finding]]
    needs: frozenset[str] = frozenset()
    remedies: tuple[str, ...] = ()
    portability: bool = False
    """Costs nothing on this device; shown under --portability only."""
    on_device: bool = False
    """Where an accelerator works it is asked of its kernels, at its ceilings, instead of what the host launches."""


OF_THE_HOST = ("host", "overhead", "data", "sync")
"""Bounds of host work, which costs nothing while a device works: findings of these can bring back its idle time at
most."""
OF_WORK = ("compute", "bandwidth")
"""Bounds of work: their rules, where not asked of kernels, know the host's ops alone, which there include the idle
time."""
REGISTRY: dict[str, Rule] = {}


def rule(
    code: str, bound: str, *, needs: Iterable[str] = (), remedies: Iterable[str] = (), portability: bool = False,
    on_device: bool = False,
) -> Callable[[Check], Callable[[Ledger, Machine], Iterator[Finding]]]:  # fmt: skip
    """Register a check under `code`, by its own name; raises ValueError where the code is taken."""

    def register(check: Check) -> Callable[[Ledger, Machine], Iterator[Finding]]:
        if code in REGISTRY:
            raise ValueError(f"{code} is {REGISTRY[code].name} already")

        def found(ledger: Ledger, machine: Machine) -> Iterator[Finding]:
            return (finding(code, ledger, cause) for cause in check(ledger, machine))

        name = check.__name__.replace("_", "-")
        REGISTRY[code] = Rule(code, name, bound, found, frozenset(needs), tuple(remedies), portability, on_device)
        return found

    return register


def severity(saving_ns: float, wall_ns: float) -> str:
    """Severity by the share of the step that is expected back."""
    share = saving_ns / wall_ns if wall_ns else 0.0
    return "critical" if share >= CRITICAL else "warning" if share >= WARNING else "note"


def finding(code: str, ledger: Ledger, cause: Cause) -> Finding:
    """A finding of rule `code`: orders the saving, caps it at the step, and derives the severity from its share.

    Where threads wait for cores, part of all time is that wait: so much less is sure to come back.
    """
    declared = REGISTRY[code]
    low, expected, ceiling = cause.saving
    most = ceiling if cause.between else whole(ledger, cause.rare)
    if ledger.device is not None and not cause.both:
        if ledger.of_device:
            most, low, expected = ledger.device.busy_ns, low * device_share(ledger), off_the_step(ledger, expected)
        elif declared.bound in OF_THE_HOST or (declared.bound in OF_WORK and not declared.on_device):
            slow_steps = max(0.0, ledger.step.mean_ns - ledger.wall) if cause.rare else 0.0
            most = min(most, ledger.device.starved_ns + slow_steps)
    if cause.holds is not None:
        most = min(most, cause.holds)
    ceiling = max(0.0, min(ceiling + min(slack(ledger), SLACK * ceiling), most))
    expected = max(0.0, min(expected, ceiling))
    low = max(0.0, min(low * (1 - (starved(ledger) or 0.0)), expected))
    loads = (cause.bound or declared.bound) == "data"
    time = tuple(cause.of) if cause.of is not None else () if loads else tuple(_below(ledger, cause.where))
    lies = held(time) if cause.of is not None else _wait(ledger) if loads else ()
    total = sum(ns for _, ns in lies)
    part = cause.part * (cause.holds / total if cause.holds is not None and total else 1.0)
    offered = _offered(declared.remedies, ledger) if cause.remedies is None else cause.remedies
    return Finding(
        code, cause.name or declared.name, cause.bound or _bound(declared.bound, time),
        cause.level or severity(expected, whole(ledger, cause.rare)), Saving(low, expected, ceiling), cause.message,
        cause.advice, cause.where, cause.evidence, tuple(name for name in offered if name not in cause.vain),
        cause.cost_bytes, cause.confidence, tuple((account, ns * part) for account, ns in lies),
        between=cause.between, rare=cause.rare,
    )  # fmt: skip


def whole(ledger: Ledger, rare: bool = True) -> float:
    """ns of the step that shares are of: the mean one where a finding is about slow steps, which only that holds."""
    return max(ledger.wall, ledger.step.mean_ns) if rare else ledger.wall


def is_compiled(ledger: Ledger) -> bool:
    """Say whether every model that the program calls is compiled."""
    models = [module.compiled for module in ledger.facts.modules if module.num_params]
    return bool(models) and all(models)


def _offered(remedies: tuple[str, ...], ledger: Ledger) -> tuple[str, ...]:
    """Return the remedies, less those that compile where the program is compiled already, and the one that freezes the
    weights where gradients of them are recorded: it takes no hold; none where the program is none of PyTorch's."""
    if "foreign" in ledger.signals:
        return ()
    vain = "compile" if is_compiled(ledger) else "compile_frozen" if graph_makers(ledger) else None
    return tuple(name for name in remedies if vain is None or not name.startswith(vain))


def amended(
    found: Cause, *, message: str = "", advice: str = "", after: str = "", evidence: dict[str, Quantity] | None = None
) -> Cause:  # fmt: skip
    """Return the cause with more: `message` follows its own where that stays short, `advice` goes before its own and
    `after` behind it."""
    said = " ".join(filter(None, (advice, found.advice, after)))
    every, short = found.evidence | (evidence or {}), fitting(found.message, message)
    return msgspec.structs.replace(found, message=short, advice=said, evidence=every)


def fitting(message: str, *more: str) -> str:
    """Return the message with those of the clauses that keep it within `WORDS`; the evidence has all their figures."""
    for clause in more:
        message = message + clause if len((message + clause).split()) <= WORDS else message
    return message


def device_share(ledger: Ledger) -> float:
    """Share of the step that the device works: freed kernels shorten the step by that much at least."""
    return min(1.0, ledger.device.busy_ns / ledger.wall) if ledger.device and ledger.wall else 0.0


def off_the_step(ledger: Ledger, freed: float) -> float:
    """Return by how many ns the step gets shorter where kernels of `freed` ns go: as the window was played without
    them; else in full as long as the host waits for the device, and beyond that by the share that the device works."""
    if ledger.device is not None and ledger.device.lighter:
        return min(freed, _between(ledger.device.lighter, freed))
    waited = min(freed, ledger.device.awaited_ns) if ledger.device else 0.0
    return waited + (freed - waited) * device_share(ledger)


def _between(points: tuple[tuple[float, float], ...], at: float) -> float:
    """On the line through (0, 0) and these points; beyond the last as much as there."""
    x = y = 0.0
    for gone, shorter in points:
        if at <= gone:
            return y + (shorter - y) * (at - x) / ((gone - x) or 1.0)
        x, y = gone, shorter
    return y


def slack(ledger: Ledger) -> float:
    """Half the 95 % interval of the median step: what this run cannot resolve."""
    step = ledger.step
    if "offline" in ledger.signals:
        return 0.0  # of these very steps, not of others like them
    return max(0.0, step.high_ns - step.low_ns) / 2 if 0 < step.low_ns <= step.high_ns else 0.0


def _bound(bound: str, time: tuple[OpGroup | HostGroup, ...]) -> str:
    """A rule of op work whose time here is mostly between ops, or in ops that are mostly torch's own cost, is bound by
    that: a family says what a rule looks at, not where the time of this run lies."""
    if bound not in OF_WORK:
        return bound
    between = sum(group.ns for group in time if isinstance(group, HostGroup))
    tiny = sum(op.ns for op in time if isinstance(op, OpGroup) and op.ns < TINY * op.dispatch_ns)
    total = sum(group.ns for group in time)
    floors = sum(op.floor_ns for op in time if isinstance(op, OpGroup))
    far = bound == "bandwidth" and floors < FAR * total and any(getattr(group, "bound", None) for group in time)
    if between + tiny <= 0.5 * total and not far:
        return bound
    return "overhead" if total - between >= between else "host"


def _wait(ledger: Ledger) -> tuple[tuple[str, float], ...]:
    wait = ledger.account("data_wait")
    return (("data_wait", wait),) if wait > 0 else ()


def _below(ledger: Ledger, where: tuple[Span, ...]) -> Iterator[OpGroup | HostGroup]:
    """Yield the work at the innermost of these lines and in what it calls, outside the loader."""
    if where:
        place = (where[0].file, where[0].line)
        for group in ledger.groups:
            if group.phase != "data" and any(span.place == place for span in group.where):
                yield group
