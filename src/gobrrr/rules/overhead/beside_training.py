"""BRR311 and BRR312: what a step does beside training, whatever it is: evaluation, a second model, a metric."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from gobrrr.ledger.model.ledger import HostGroup, Ledger, LineGroup, OpGroup, OtherLoop
from gobrrr.ledger.steps.other_loops import own_share
from gobrrr.machine.model.machine import Machine
from gobrrr.recording.model import event_kinds
from gobrrr.recording.model.facts import Span
from gobrrr.rules.model.cores import first_span
from gobrrr.rules.model.evidence import SLOWED, ratio, slowed, time
from gobrrr.rules.model.finding import Cause, Quantity, rule, whole
from gobrrr.rules.model.lines import Functions, body, is_rare, own_name
from gobrrr.rules.model.views import everything
from gobrrr.rules.overhead.small_op_loops import NEAR
from gobrrr.units import duration, share

HOLDS = 0.10
"""Share of the step from which a line is named (TraceML warns at 10 %)."""
WHOLLY = 0.95
"""Share of a loop that must lie between steps for what it waits for its loader to be told of them."""
ALL = 0.9
"""Share of a step that trains nothing from which a line is the step itself."""
HARDLY = 0.02
"""Share of a line's time in gradients, updates or the loader up to which it has no part in training: clocks and places
of neighbouring ops are off by as much."""
MODEL_ADVICE = (
    "What makes targets or features may compute no more than is read (a backbone ends at the last used layer) and keep "
    "what comes again. All else: "
)
INPUT_ADVICE = (
    "What makes the model's input may be made once where it comes again, or by the loader's workers. All else: "
)
UPDATING = (Functions(("torch.nn.utils.clip_grad.", "torch.amp.grad_scaler.", "torch.optim.")),)
GRADIENT_OPS = ("aten::_foreach_norm", "aten::linalg_vector_norm", "aten::_foreach_mul_", "aten::_foreach_clamp_")
FORWARDS = "forwards of "
"""Begin of the name that ledger.steps.other_loops gives a loop of forwards."""
BACKWARDS = f"{event_kinds.BACKWARDS}:"
"""Begin of the word of a loop of backward passes (recording.model.steps)."""


@dataclass
class Node:
    """A user line as it was reached: what ran at it and below it. ns per step."""

    where: tuple[Span, ...] = ()
    ns: float = 0.0
    """Time outside backward, updates and the loader."""
    forward: float = 0.0
    """Part of `ns` in modules."""
    training: float = 0.0
    """Backward of the work here, updates, and the loader."""
    groups: list[OpGroup | HostGroup] = field(default_factory=list)
    children: dict[tuple[str, int], Node] = field(default_factory=dict)
    lines: tuple[int, int] | None = None
    """First and last, where neighbouring lines were made one."""
    backward: bool = False
    """Whether backward goes through an op of it, however short that is."""
    loss: float = 0.0
    """Part of its time between forward and backward."""

    @property
    def place(self) -> str:
        """Return words for where its time goes."""
        if self.lines is None:
            return "this line and what it calls"
        return f"lines {self.lines[0]} to {self.lines[1]} and what they call"


@rule("BRR311", "host", needs={"plain"})
def work_beside_training(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """A line, with what it calls, that holds a tenth of the step and has no part in forward, backward or update; and
    what holds the training up before an evaluation between its steps, or once it has made its last forward."""
    yield from _around_forwards(ledger)
    for found in _beside(ledger):
        node, step = found.node, whole(ledger, found.rare)
        if _evaluates(ledger, node) or (node.forward == 0 and ledger.step.loop.startswith(BACKWARDS)):
            continue  # no optimizer ends its steps: any line may be the update
        if ledger.step.kind != "training" and found.ns > ALL * step:
            continue  # beside nothing: it is what the loop is for
        is_model = node.forward > 0.5 * node.ns
        yield _at_line(
            ledger,
            found,
            (0.0, 0.5),
            f"{duration(found.ns)} ({share(found.ns / step)} of {'the mean step' if found.rare else 'the step'}) go "
            f"into {node.place}: "
            + ("forwards that get no gradient" if is_model else "no gradient, module, update or loading"),
            (MODEL_ADVICE if is_model else INPUT_ADVICE)
            + "Do it less often, on less, once before the loop, or beside it in another process.",
            {"in_modules": ratio(node.forward / node.ns if node.ns else 0.0)},
            level="note" if slowed(ledger) > SLOWED and found.ns < HOLDS * step * slowed(ledger) else None,
        )


@rule("BRR312", "host", needs={"plain"})
def forwards_without_update(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Evaluation in every step, or so much of it between steps that training waits for it."""
    trains = ledger.step.kind == "training"
    inside = [found for found in _beside(ledger) if trains and _evaluates(ledger, found.node)]
    for found in inside:
        step, of = whole(ledger, found.rare), "the mean step" if found.rare else "every step"
        yield _at_line(
            ledger,
            found,
            (0.3, 0.75),
            f"{duration(found.ns)} ({share(found.ns / step)}) of {of} are forwards of the model that no backward "
            f"follows, in {found.node.place}",
            "Evaluate every few hundred steps or once an epoch, on a part of the data, and in larger batches.",
        )
    if not inside and (between := _most_between(ledger, 0)):
        yield _forwards(ledger, between)


def _at_line(
    ledger: Ledger, found: Beside, parts: tuple[float, float], message: str, advice: str,
    evidence: dict[str, Quantity] | None = None, level: str | None = None,
) -> Cause:  # fmt: skip
    """Return a finding on all work at a line; `parts` of its time come back at least, and are expected to."""
    low, expected = (part * found.ns for part in parts)
    return Cause(
        saving=(low, expected, found.ns), message=message, advice=advice, where=found.node.where,
        evidence={"time": time(found.ns)} | (evidence or {}), of=found.node.groups, holds=found.ns,
        bound=_bound(ledger, found.node), both=True, rare=found.rare, level=level,
    )  # fmt: skip


class Between(NamedTuple):
    """A loop of forwards beside a training, and how much of the watched time is spent on a part of it."""

    loop: OtherLoop
    share: float
    ns: float
    """For each step of the main loop."""


def _most_between(ledger: Ledger, part: int) -> Between | None:
    """Return the loop of forwards that spends most time between the steps of a training of which something was seen, if
    it is much: on the forwards (part 0), after them (1) or before them (2). With a device nobody knows of the latter:
    they may be the forwards' or the update's, waited for. A rollout of reinforcement learning looks like an evaluation;
    a test after the last update lies between none."""
    own, most = own_share(ledger.loops), None
    for loop in ledger.loops if ledger.step.kind == "training" and own > 0 else ():
        after, before = (loop.after, loop.before) if ledger.device is None else (0.0, 0.0)
        spent = (loop.between - after - before, after, before)[part]
        if loop.name.startswith(FORWARDS) and spent >= 2 * HOLDS and (most is None or spent > most.share):
            most = Between(loop, spent, spent / own * ledger.step.mean_ns)
    return most


def _forwards(ledger: Ledger, found: Between) -> Cause:
    loop, cost = found.loop, found.ns
    waits = loop.waits * (loop.between > WHOLLY * loop.share)
    return _between(
        ledger,
        found,
        f"{loop.name} without an update take {share(found.share)} of the watched time: {duration(cost)} for each of "
        f"{loop.beside or ledger.step.count} updates"
        + (f", {duration(waits * cost)} waiting for data" if waits >= HOLDS else ""),
        "If they evaluate, do it less often, on a part of the data or in larger batches (under no_grad they fit)"
        + (". Load ahead there too (num_workers)." if waits >= HOLDS else ".")
        + " If they act, act in larger batches, in which a simulator too makes many steps at once.",
        {"waiting_for_its_loader": time(waits * cost)},
    )


AROUND = (
    (1, "the last forward without update and the next step",
     "See what comes after them (a checkpoint, a plot, a metric over all of it)"),
    (2, "an update and the first forward without one",
     "See what comes before them (histograms, a log, a copy of the weights)"),
)  # fmt: skip
"""(part of a loop of forwards, where that lies, what to look at)."""


def _around_forwards(ledger: Ledger) -> Iterator[Cause]:
    for part, where, look in AROUND:
        if found := _most_between(ledger, part):
            kind, updates = found.loop.name.removeprefix(FORWARDS), found.loop.beside or ledger.step.count
            yield _between(
                ledger,
                found,
                f"{share(found.share)} of the watched time lies between {where} ({kind}): {duration(found.ns)} for "
                f"each of {updates} updates",
                f"{look}. Do it less often, or beside the training in a thread or process.",
            )


def _between(
    ledger: Ledger, found: Between, message: str, advice: str, evidence: dict[str, Quantity] | None = None
) -> Cause:  # fmt: skip
    """Return a finding on what lies between the steps that were timed: half of it is expected back."""
    return Cause(
        saving=(0.0, 0.5 * found.ns, found.ns), message=message, advice=advice,
        where=first_span(found.loop.where, ledger.facts.eval_span),
        evidence={"share": ratio(found.share), "per_update": time(found.ns)} | (evidence or {}),
        of=(), confidence="inferred", between=True,
    )  # fmt: skip


class Beside(NamedTuple):
    """Work at a line that has no part in training, ns per step: of the mean step where it is rare."""

    node: Node
    ns: float
    rare: bool


def _beside(ledger: Ledger) -> list[Beside]:
    """Lines of weight that have no part in training, the outermost each, with their inclusive time; costliest first.
    Where a device works that is what it does for them and for how long it idles at them."""
    if "offline" in ledger.signals or not {"ops", "stacks"} <= ledger.signals:
        return []
    timed = [(node, _time(ledger, node)) for node in _joined(_pure(ledger, _tree(ledger)))]
    heavy = sorted(((n, ns) for n, ns in timed if ns >= HOLDS * ledger.wall), key=lambda pair: -pair[1])
    rare = [is_rare(ledger, _sampled(ledger, node)) for node, _ in heavy]
    return [
        Beside(node, ns * (whole(ledger, seldom) / ledger.wall), seldom)
        for (node, ns), seldom in zip(heavy, rare, strict=True)
    ]


def _tree(ledger: Ledger) -> Node:
    """User lines by who called them, the program's first line outermost."""
    root = Node()
    for group in everything(ledger):
        node, where = root, group.where
        for depth in range(len(where) - 1, -1, -1):
            place = (where[depth].file, where[depth].line)
            node = node.children.setdefault(place, Node(where[depth:]))
            if group.phase in ("backward", "optimizer", "data"):
                node.training += group.ns
                node.backward |= group.phase == "backward"
                continue
            node.ns += group.ns
            node.groups.append(group)
            node.loss += group.ns if group.phase == "loss" else 0.0
            if group.phase == "forward":
                node.forward += group.ns
                node.training += 0.0 if ledger.step.kind == "training" else group.ns  # the forward is the step
    return root


def _pure(ledger: Ledger, node: Node) -> Iterator[list[Node]]:
    """Siblings, one function's lines each time, that have no part in training; what only forwards is not opened."""
    pure: dict[tuple[str, str], list[Node]] = defaultdict(list)
    for child in node.children.values():
        if child.training <= HARDLY * child.ns and not _trains(ledger, child) and not _is_loss(child):
            if not _updates(ledger, child) and not _is_layer(child, node):
                pure[(child.where[0].file, child.where[0].function)].append(child)
        elif child.forward < (1 - HARDLY) * child.ns and not _makes_output(ledger, child, node):
            yield from _pure(ledger, child)
    yield from pure.values()


def _is_loss(child: Node) -> bool:
    """A part of the loss whose backward is short beside it: a sort's only puts gradients back in their places."""
    return child.backward and child.loss >= (1 - HARDLY) * child.ns


def _is_layer(child: Node, node: Node) -> bool:
    """Part of the forward of what its caller trains: a layer that gets no gradient, such as one that normalises."""
    forwards = own_name(child.where[0].function) == "forward" and child.forward >= (1 - HARDLY) * child.ns
    return forwards and node.forward > 0 and node.training > HARDLY * node.ns


def _makes_output(ledger: Ledger, child: Node, node: Node) -> bool:
    """Where the forward is the step, what a call of the loop does around it makes its output, as a policy samples its
    action: only the loop's own lines stand beside it. What holds all but a tenth of its caller leads to the loop."""
    siblings = sum(other.ns for other in node.children.values())
    return ledger.step.kind != "training" and child.ns < (1 - HOLDS) * siblings


def _joined(siblings: Iterable[list[Node]]) -> Iterator[Node]:
    """Neighbouring lines as one, at the costliest of them: a few lines of an evaluation are one thing."""
    for nodes in siblings:
        cluster: list[Node] = []
        for node in sorted(nodes, key=lambda node: (node.where[0].file, node.where[0].line)):
            last, here = cluster[-1].where[0] if cluster else None, node.where[0]
            if last and not (last.file == here.file and 0 <= here.line - last.line <= NEAR):
                yield _one(cluster)
                cluster = []
            cluster.append(node)
        if cluster:
            yield _one(cluster)


def _one(nodes: list[Node]) -> Node:
    top = max(nodes, key=lambda node: node.ns)
    groups = [group for node in nodes for group in node.groups]
    lines = [node.where[0].line for node in nodes]
    return Node(top.where, sum(n.ns for n in nodes), sum(n.forward for n in nodes), sum(n.training for n in nodes),
                groups, {(n.where[0].file, n.where[0].line): n for n in nodes},
                (min(lines), max(lines)) if len(lines) > 1 else None)  # fmt: skip


def _updates(ledger: Ledger, node: Node) -> bool:
    """Clipping, scaling and what else belongs to the update."""
    ops = sum(g.ns for g in node.groups if isinstance(g, OpGroup))
    named = sum(g.ns for g in node.groups if isinstance(g, OpGroup) and g.name in GRADIENT_OPS)
    lines = (line for line in body(ledger) if _within(line.where, (node,)))
    below = sum(line.ns for line in lines if any(kind.has(name) for name, _ in line.libraries for kind in UPDATING))
    return named > 0.5 * ops > 0 or below > 0.5 * node.ns


def _time(ledger: Ledger, node: Node) -> float:
    """As sampled in plain steps, where lines were: the profile makes Python longer than it is. What a device does
    meanwhile no sample says."""
    if ledger.device is not None:
        return node.ns
    sampled = sum(line.ns for line in _sampled(ledger, node))
    return min(sampled, ledger.wall) if sampled else node.ns


def _sampled(ledger: Ledger, node: Node) -> list[LineGroup]:
    """Sampled lines at a node and below it."""
    lines = node.children.values() if node.children else ()
    return [line for line in body(ledger) if line.phase != "optimizer" and _within(line.where, (*lines, node))]


def _within(where: tuple[Span, ...], nodes: Iterable[Node]) -> bool:
    places = {(node.where[0].file, node.where[0].line) for node in nodes if node.where}
    return any(span.place in places for span in where)


def _evaluates(ledger: Ledger, node: Node) -> bool:
    """Most of it is forwards, and not of a second model, called here, while the first one is called elsewhere; nor of a
    frozen one that the loss compares with as well: it makes targets (VGG's features of the content and of the output).
    """
    if node.forward <= 0.5 * node.ns:
        return False
    lines = {span.place for group in node.groups for span in group.where}
    called = [m for m in ledger.facts.modules if m.span and m.calls_per_step]
    models = [m for m in called if m.num_params]
    here = [m for m in models if m.span and m.span.place in lines]
    if not here and any(m.span and m.span.place in lines for m in called):
        return False  # modules without weights: an augmentation, a transform
    compares = any(m.calls_per_step > 1.5 and not m.trainable_params for m in models)
    return not compares if not here else len(here) == len(models)


def _trains(ledger: Ledger, node: Node) -> bool:
    """Whether the step's own forward is in here: all models that train are called at these lines, no more often than
    backward. Behind a frozen trunk the gradients of a small head are next to nothing."""
    lines = {span.place for group in node.groups for span in group.where}
    called = [m for m in ledger.facts.modules if m.span and m.calls_per_step and m.trainable_params and m.grad_enabled]
    often = max((m.calls_per_step for m in called), default=0.0)
    here = all(m.span is not None and m.span.place in lines for m in called)
    return ledger.step.kind == "training" and bool(called) and here and often <= max(1, ledger.step.backwards) + 0.5


def _bound(ledger: Ledger, node: Node) -> str:
    """Where its time lies: in work that ops do, in torch's own cost for them, or between them. Where a device works, it
    idles for as long as the host is in an op."""
    between = sum(group.ns for group in node.groups if isinstance(group, HostGroup))
    ops = [group for group in node.groups if isinstance(group, OpGroup)]
    kernels = {id(op) for op in ledger.device_ops}
    dispatch = sum(op.ns if kernels and id(op) not in kernels else op.dispatch_ns for op in ops)
    if between + dispatch >= 0.5 * node.ns:
        return "host" if between >= dispatch else "overhead"
    by_bytes = sum(g.ns for g in node.groups if isinstance(g, OpGroup) and g.bound == "bandwidth")
    return "bandwidth" if by_bytes > 0.5 * (node.ns - between) else "compute"
