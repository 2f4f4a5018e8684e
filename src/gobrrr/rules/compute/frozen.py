"""BRR113: forwards of layers or models that never train, computed anew from the same inputs in every epoch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from gobrrr.ledger.model.ledger import Ledger, OpGroup
from gobrrr.machine.model.machine import Machine
from gobrrr.recording.model.facts import ModuleFacts
from gobrrr.rules.bandwidth.norms import NORMS
from gobrrr.rules.data.compute_once import LEAST_LOOKS
from gobrrr.rules.model.evidence import count, ratio, time, worth_telling
from gobrrr.rules.model.finding import Finding, finding, rule
from gobrrr.rules.model.shapes import by_line, costliest_line, total
from gobrrr.rules.model.views import host_side
from gobrrr.units import duration, share

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


@rule("BRR113", "frozen-layers-computed-anew", "compute", needs={"ops", "facts"}, on_device=True)
def frozen_layers(ledger: Ledger, machine: Machine) -> Iterator[Finding]:
    """A model of which the first part is frozen, or a model of its own that never trains, such as a trunk or an encoder
    that the program calls before what trains: what it makes of an input is the same in every epoch."""
    if ledger.step.kind != "training" or _is_read_once(ledger):
        return
    frozen, again = _first_part(ledger), _same_inputs(ledger)
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
    if not worth_telling(ledger, expected) or any(map(_differs, frozen)):
        return
    model = max(models, key=lambda m: m.num_params - m.trainable_params)
    part = "the first layers of " if model.trainable_params else ""
    yield finding(
        "BRR113",
        ledger,
        low=0.5 * ns if again and _comes_again(ledger) else 0.0,
        expected=expected,
        ceiling=ns,
        message=f"{duration(ns)} ({share(ns / ledger.wall)} of the step) are forwards of {part}"
        f"{model.kind or 'the model'}, which no gradient passes: while their weights stay as they are the same input "
        f"gives the same output{f', and none of {again} batches drew a random number' if again else ''}"
        f"{'' if _comes_again(ledger) else '; no sample was seen to come again, and a first epoch saves nothing'}",
        advice="Run them once over the data, keep what they give, and train what follows on that"
        + ("." if again else "; where inputs are drawn anew each time, keep a few draws of each."),
        where=costliest_line(frozen),
        evidence={
            "forward_without_gradient": time(ns),
            "frozen_parameters": count(model.num_params - model.trainable_params),
            "trained_share": ratio(model.trainable_params / model.num_params),
        },
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
    whole = [
        m
        for m in called
        if m.num_params
        and not m.trainable_params
        and m.span
        and m.span.place in lines
        and (m.kind, m.num_params) not in trained
    ]
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


def _differs(op: OpGroup) -> bool:
    """It draws, or depends on the rest of the batch: batch norm in training mode."""
    return _draws(op) or (op.name in NORMS and "True" in op.concrete[5:6])


def _draws(op: OpGroup) -> bool:
    return any(each in op.name for each in DRAWS)


def _draws_before(ledger: Ledger, frozen: list[OpGroup]) -> bool:
    """Say whether the step draws random numbers before the last of those ops, at whatever line, on whatever device."""
    last = max((op.order for op in frozen), default=0)
    before = (op for op in host_side(ledger).ops if op.phase in ("forward", "loss", "other") and op.order < last)
    return any(map(_draws, before))


def _comes_again(ledger: Ledger) -> bool:
    """Say whether samples of the loop's loader were seen to come again; of a stream, whether it began anew. True
    without a loader."""
    loader = ledger.facts.main_loader
    return loader is None or (loader.num_epochs > 1 if loader.stream else loader.comes_again)


def _is_read_once(ledger: Ledger) -> bool:
    """A stream in its first epoch: nobody knows whether anything of it comes again."""
    loader = ledger.facts.main_loader
    return loader is not None and loader.stream and not _comes_again(ledger)


def _same_inputs(ledger: Ledger) -> int:
    """Batches of the loaders that were looked at, where there were enough and none drew a random number."""
    loaders = [loader for loader in ledger.facts.loaders if loader.num_looked]
    looks = sum(loader.num_looked for loader in loaders)
    return looks if looks >= LEAST_LOOKS and not any(loader.num_drew for loader in loaders) else 0
