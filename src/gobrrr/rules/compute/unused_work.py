"""BRR106 to BRR108, BRR111, BRR113: gradients, graphs and forwards that nobody uses, or that were there before."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from gobrrr.ledger.model.ledger import Ledger, OpGroup
from gobrrr.machine.model.machine import Machine
from gobrrr.recording.model.facts import ModuleFacts, Span
from gobrrr.recording.trace_files.categories import BACKWARD
from gobrrr.rules.bandwidth.copies import NORMS
from gobrrr.rules.data.loader_advice import LEAST_LOOKS, LOOKS
from gobrrr.rules.memory.memory_use import peak_and_limit
from gobrrr.rules.model.cores import first_span
from gobrrr.rules.model.evidence import count, per_step, ratio, size, time, worth_telling
from gobrrr.rules.model.finding import Cause, rule
from gobrrr.rules.model.lines import made_at
from gobrrr.rules.model.shapes import by_line, costliest_line, shared_lines, total
from gobrrr.rules.model.views import everything, graph_makers, host_side, num_updated, of_phase, stepping
from gobrrr.units import PAGE, duration, share
from gobrrr.units import size as bytes_text

MAKES_OPTIMIZER = r" = (?:\w+\.)*(?:optim\.\w+|SGD|Adam\w*|RMSprop|Adagrad|\w+Optimizer)\("
LARGE = 0.1
"""Share of the parameters of the largest module that the program calls, or of what it updates, from which a line is a
module's own: the line of a smaller one (a softplus that keeps a length positive) is not, nor is the time at it."""
ROOM = 0.7
"""Share of the memory below which a peak is no reason to compute activations again; the batch may vary."""

KEPT = 1 << 20
"""Bytes that a graph keeps for nothing from which it is named, however short its steps are. Proposed: a small model's
caches hold as much; what people mend would settle it."""


@rule("BRR106", "compute", needs={"ops", "facts"}, remedies=("freeze_unused",), on_device=True)
def gradients_never_used(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Parameters that receive gradients and are in no optimizer: their share of the backward pass is for nothing."""
    orphans = ledger.facts.orphans
    backward = ledger.phase("backward")
    if orphans is None or not orphans.num_elements or not backward:
        return
    part = orphans.num_elements / (orphans.num_elements + num_updated(ledger))
    # Weight gradients are half of backward; the other half, the gradients of inputs, goes too where no updated
    # parameter lies before the orphans. A frozen backbone under a new head is that case.
    if not worth_telling(ledger, 0.8 * part * backward):
        return
    ops = [op for op in ledger.ops if op.phase == "backward"]
    where = first_span(orphans.span) or costliest_line(ops)
    names = ", ".join([*orphans.names[:2], *(["..."] if orphans.num_tensors > 2 else [])]) or "unnamed"
    yield Cause(
        # which saves activations for it
        saving=(0.3 * part * backward, 0.8 * part * backward, backward + 0.5 * ledger.phase("forward")),
        message=f"{orphans.num_elements:,} parameters ({share(part)} of those with gradients, {names}) get "
        f"gradients and are in no optimizer; backward takes {duration(backward)} per step",
        advice="Call requires_grad_(False) on them, or run that part under torch.no_grad().",
        where=(*made_at(ledger, where, MAKES_OPTIMIZER), *where),
        evidence={
            "orphan_elements": count(orphans.num_elements),
            "orphan_share": ratio(part),
            "orphan_gradients": size(orphans.num_bytes),
            "backward": time(backward),
        },
        cost_bytes=orphans.num_bytes,
        confidence="inferred",
    )


@rule("BRR107", "compute", needs={"ops", "facts"}, remedies=("no_grad_evaluation", "compile_frozen"))
def inference_builds_a_graph(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Forwards with gradients enabled and no backward: every op makes a node, every activation is kept."""
    modules = graph_makers(ledger)
    if not modules:
        return
    ops = [op for op in ledger.ops if op.phase != "data"]
    nodes = sum(op.calls for op in ops) * machine.dispatch.median
    faults = idle_graph_pages(ledger) * machine.fresh_page.median
    if ledger.device is not None:  # what is beside kernels costs nothing
        nodes = min(nodes, total(ops))
    # Measured: an add takes 0.9 us more with a node than without, of 1.2; a third of the ops that a profile shows is
    # differentiable. Pages: what is kept till the end cannot be used again by the next op.
    expected = 0.3 * nodes + 0.8 * faults
    module, saved = max(modules, key=lambda m: m.num_params), ledger.facts.saved_total
    slow = worth_telling(ledger, expected)
    # What an optimizer is made for may be a backward that comes later.
    if not slow and ((saved or 0) < KEPT or ledger.facts.optimizers):
        return
    kept = f"{bytes_text(saved)} of activations" if saved else "its activations"
    every_fault = (ledger.facts.minor_faults_per_step or 0.0) * machine.fresh_page.high
    spare = sum(max(0.0, op.ns - op.floor_ns - op.dispatch_ns) for op in ops)
    yield Cause(
        saving=(0.3 * expected, expected, 1.2 * nodes + max(1.3 * every_fault, spare if slow else 0.0)),
        message=f"{module.kind or 'The model'} runs with gradients enabled and no backward follows: "
        f"{sum(op.calls for op in ops):.0f} ops per step build a graph that keeps {kept}",
        advice="Run it under torch.inference_mode() or torch.no_grad(); eval() does not do that.",
        where=first_span(module.span) or costliest_line(ops),
        evidence={"ops": count(sum(op.calls for op in ops)), "kept_bytes": size(saved or 0),
                  "page_faults": count(ledger.facts.minor_faults_per_step or 0)},
        cost_bytes=saved,
    )  # fmt: skip


def idle_graph_pages(ledger: Ledger) -> float:
    """Page faults per step that a graph explains which no backward uses; 0 where there is one, and where what it keeps
    is a device's memory."""
    if ledger.device is not None or not graph_makers(ledger):
        return 0.0
    return min(ledger.facts.minor_faults_per_step or 0.0, (ledger.facts.saved_total or 0) / PAGE)


@rule("BRR108", "compute", needs={"ops", "facts"})
def same_forward_twice(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """A module called again, with the very tensors that it was given before and the weights that it had then."""
    updated = [optimizer.num_elements for optimizer in stepping(ledger)]
    largest = max((*updated, *(module.num_params for module in ledger.facts.modules)), default=0)
    for module in ledger.facts.modules:
        repeats = _repeats(ledger, module)
        if repeats < 0.5 or module.num_params < LARGE * largest:
            continue
        again = _again(ledger, module, repeats)
        if not worth_telling(ledger, 0.85 * again):
            continue
        yield Cause(
            saving=(0.5 * again, 0.85 * again, 1.3 * again),
            message=f"{module.kind or 'A module'} runs {module.calls_per_step:.0f} times a step, {repeats:.0f} of them "
            f"on inputs that it was given before, with the same weights: {duration(again)} per step",
            advice="Keep the result of the first call and use it here; detach() it where no gradient is wanted.",
            where=first_span(module.repeated_span, module.span),
            evidence={"calls": count(module.calls_per_step), "repeated_calls": count(repeats), "time": time(again)},
            both=True,
        )


def _repeats(ledger: Ledger, module: ModuleFacts) -> float:
    """Repeated calls per step. Micro-batches may reuse each other's memory: one call per backward pass is no repeat."""
    tensors = sum(optimizer.num_tensors for optimizer in stepping(ledger))
    gradients = sum(op.calls for op in ledger.named("torch::autograd::AccumulateGrad"))
    passes = max(1.0, gradients / tensors) if tensors else 1.0
    return min(module.repeated_inputs, module.calls_per_step - passes)


def _again(ledger: Ledger, module: ModuleFacts, repeats: float) -> float:
    """Nanoseconds of the repeated calls: what was seen below their line, at most their share of all calls' time."""
    calls = sum(m.calls_per_step for m in ledger.facts.modules)
    evenly = (of_phase(ledger, "forward") or of_phase(ledger, "other")) * repeats / calls if calls else 0.0
    every = ledger.ops if ledger.device is None else tuple(everything(ledger))
    there = [group for group in every if module.repeated_span and below(group.where, module.repeated_span)]
    if not there:
        return evenly
    forward = sum(group.ns for group in there if group.phase != "backward")
    # What plain steps spend at the line: fresh memory and the release of what was saved, which no op of a profile has.
    sampled = ledger.lines if ledger.device is None else ()
    at_line = [line for line in sampled if module.repeated_span and below(line.where, module.repeated_span)]
    forward = max(forward, sum(line.ns for line in at_line if line.phase != "backward"))
    backward = sum(group.ns for group in there if group.phase == "backward")
    part = repeats / (module.repeated_span_calls or module.calls_per_step)
    if module.repeated_share is not None:  # calls of one line may differ in size: a picture, and fifty copies of it
        part = min(part, module.repeated_share)
    return min(1.0, part) * (forward + backward)


def below(where: tuple[Span, ...], span: Span) -> bool:
    """Say whether a place lies at or below a line."""
    return any(frame.place == span.place for frame in where)


@rule("BRR111", "compute", needs={"ops"}, remedies=("keep_activations",), on_device=True)
def recomputed_with_room(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Activations are computed again in backward although memory has room to keep them."""
    ops = [op for op in ledger.ops if op.recomputed]
    # The Python between the ops that run again: what the nodes that call it take beyond their dispatch (hooks, random
    # states and modules; in a Llama of trl's it was 10 ms beside 20 of ops).
    nodes = {name for op in ops for name in op.parents if not name.startswith(BACKWARD)} - {op.name for op in ops}
    theirs = [op for op in ledger.ops if op.phase == "backward" and op.name in nodes and not ledger.of_device]
    again = total(ops) + sum(max(0.0, op.ns - op.dispatch_ns) for op in theirs)
    peak, limit = peak_and_limit(ledger, machine)
    # What they read and write is more than what would be kept: where that fits, their results do.
    kept = sum(op.bytes or 0.0 for op in ops)
    if not peak or not limit or peak + kept > ROOM * limit or not worth_telling(ledger, 0.9 * again):
        return
    yield Cause(
        saving=(0.5 * again, 0.9 * again, max(1.2 * again, ledger.phase("forward"))),
        message=f"{sum(op.calls for op in ops):.0f} ops of forward run again in backward ({duration(again)}, "
        f"{share(again / ledger.wall)} of the step), and the peak is {bytes_text(peak)} of {bytes_text(limit)}",
        advice="Keep the activations: no torch.utils.checkpoint around these layers, or around fewer of them.",
        where=shared_lines(ops) or costliest_line(ops),
        evidence={"recomputed": time(again), "most_kept_bytes": size(kept), "peak": size(peak), "limit": size(limit)},
    )


LEAST = 0.02
"""Share of a model's parameters that is frozen from which it has a frozen part: a table of positions is none. Trunks of
convolutions are small beside a head of products."""
TWIN = 0.5
"""Share of the frozen FLOPs in ops that run as often with a gradient from which it is the same network once more: a
teacher that follows its student, labels that it makes for itself."""
ELSEWHERE = 0.1
"""Share of the frozen FLOPs in gradients at lines without a forward of their own, from which these may be the gradients
of the frozen part; a loss has few."""
DRAWS = ("bernoulli", "dropout", "rand", "normal_", "uniform_", "multinomial", "rrelu")


@rule("BRR113", "compute", needs={"ops", "facts"}, on_device=True)
def frozen_layers_computed_anew(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """A model of which the first part is frozen, or a model of its own that never trains, such as a trunk or an encoder
    that the program calls before what trains: what it makes of an input is the same in every epoch."""
    loader = ledger.facts.main_loader  # its samples were seen to come again, or as a stream it began anew
    again_seen = loader is None or (loader.num_epochs > 1 if loader.stream else loader.comes_again)
    if ledger.step.kind != "training" or (loader is not None and loader.stream and not again_seen):
        return  # a stream in its first epoch: nobody knows whether anything of it comes again
    loaders = [each for each in ledger.facts.loaders if each.num_looked]
    looks = sum(each.num_looked for each in loaders)
    again = looks if looks >= LEAST_LOOKS and not any(each.num_drew for each in loaders) else 0
    frozen = _first_part(ledger)
    models = _frozen_models(ledger, frozen)
    if not models or any(m.compiled for m in models):
        return
    if any(m.frozen_moved is None for m in models):
        again = 0
    if _draws_before(ledger, frozen):  # noise that a teacher is given, an augmentation in the loop
        again, models = 0, [m for m in models if m.trainable_params]
        if not models:
            return
    ns = total(frozen)
    expected = (0.9 if again else 0.5) * ns
    # What draws, or depends on the rest of the batch (batch norm in training mode), differs each time.
    differs = any(_draws(op) or (op.name in NORMS and "True" in op.concrete[5:6]) for op in frozen)
    if not worth_telling(ledger, expected) or differs:
        return
    model = max(models, key=lambda m: m.num_params - m.trainable_params)
    part = "first layers of " if model.trainable_params else ""
    yield Cause(
        saving=(0.5 * ns if again and again_seen else 0.0, expected, ns),
        message=f"{per_step(ledger, ns, False)} goes into frozen {part}{model.kind or 'the model'}, whose output per "
        f"sample never changes{'' if again_seen else '; no sample came again yet'}",
        advice="Run them once over the data, keep what they give, and train what follows on that"
        + ("." if again else ". Where inputs are drawn anew each time, keep a few draws of each."),
        where=costliest_line(frozen),
        evidence={
            "forward_without_gradient": time(ns),
            "frozen_parameters": count(model.num_params - model.trainable_params),
            "trained_share": ratio(model.trainable_params / model.num_params),
        }
        | ({LOOKS: count(again)} if again else {}),
        of=frozen,
        holds=ns,
        confidence="inferred",
    )


def _frozen_models(ledger: Ledger, frozen: list[OpGroup]) -> list[ModuleFacts]:
    """Called by the program, with parameters that do not train. A wholly frozen one only where those ops are its own,
    batches of a loader are what it gets (a simulator never shows the same twice), and no model of its size trains: a
    teacher that follows its student is frozen too, and changes in every step (where two looks saw that, at once)."""
    called = [m for m in ledger.facts.modules if m.calls_per_step and not m.frozen_moved]
    part = [m for m in called if m.trainable_params and m.num_params - m.trainable_params >= LEAST * m.num_params]
    lines = {span.place for op in frozen for span in op.where}
    trained = {(m.kind, m.num_params) for m in called if m.trainable_params}
    frozen_only = [m for m in called if m.num_params and not m.trainable_params and m.span and m.span.place in lines]
    whole = [m for m in frozen_only if (m.kind, m.num_params) not in trained]
    return [*part, *(whole if ledger.step.batches else ())]


def _first_part(ledger: Ledger) -> list[OpGroup]:
    """Forward ops at lines that no gradient passes, before all that one passes. None where gradients are computed at
    lines of their own (an autograd Function, compiled code, a checkpoint), for then no line says what is frozen, nor
    where the same network runs once more."""
    lines = list(by_line(op for op in ledger.ops if op.phase in ("forward", "backward")).values())
    passed = [ops for ops in lines if any(op.phase == "backward" for op in ops)]
    trained = [op for ops in passed for op in ops if op.phase == "forward" and op.flops]
    first = min((op.order for op in trained), default=0)
    frozen = [ops for ops in lines if ops not in passed and _flops(ops, "forward")]
    found = [op for ops in frozen for op in ops if op.where and op.order < first]
    elsewhere = sum(_flops(ops, "backward") for ops in passed if not _flops(ops, "forward"))
    hidden = elsewhere > ELSEWHERE * _flops(found, "forward") or any(op.recomputed for ops in lines for op in ops)
    return [] if hidden or _twin(found, trained) >= TWIN else found


def _flops(ops: list[OpGroup], phase: str) -> float:
    return sum(op.flops or 0.0 for op in ops if op.phase == phase)


def _twin(frozen: list[OpGroup], trained: list[OpGroup]) -> float:
    """Share of the frozen FLOPs in ops of a name and shapes that run as often with a gradient."""
    calls: defaultdict[tuple[object, ...], float] = defaultdict(float)
    for op in trained:
        calls[(op.name, op.shapes)] += op.calls
    twins = [op for op in frozen if calls[(op.name, op.shapes)] >= op.calls]
    return _flops(twins, "forward") / (_flops(frozen, "forward") or 1.0)


def _draws(op: OpGroup) -> bool:
    return any(each in op.name for each in DRAWS)


def _draws_before(ledger: Ledger, frozen: list[OpGroup]) -> bool:
    """Say whether the step draws random numbers before the last of those ops, at whatever line, on whatever device."""
    last = max((op.order for op in frozen), default=0)
    before = (op for op in host_side(ledger).ops if op.phase in ("forward", "loss", "other") and op.order < last)
    return any(map(_draws, before))
