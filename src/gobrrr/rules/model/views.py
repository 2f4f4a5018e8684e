"""The step where an accelerator works: as the device sees it, as the host does, and as both do together."""

from __future__ import annotations

from collections.abc import Iterator

from gobrrr.ledger.model.ledger import HostGroup, Ledger, OpGroup
from gobrrr.machine.model.machine import UNKNOWN, Machine
from gobrrr.machine.model.peaks import of_device
from gobrrr.recording.model.facts import ModuleFacts, OptimizerFacts, Span
from gobrrr.rules.model.shapes import Key, key


class DeviceView(Ledger, frozen=True):
    """A ledger whose ops are the kernels', with the time and the floors that they have on the device."""

    on_host: Ledger | None = None
    """Return the same step with the ops of the host, each with the device's idle time in it."""


def device_view(ledger: Ledger, machine: Machine) -> tuple[Ledger, Machine] | None:
    """The step as the device sees it: ops with the time of their kernels, phases by them, the device as the machine.
    None where no kernel could be charged to an op."""
    if ledger.device is None or not any(op.ns for op in ledger.device_ops):
        return None
    fields = {name: getattr(ledger, name) for name in ledger.__struct_fields__}
    seen = {"ops": ledger.device_ops, "threads": 1, "of_device": True, "phases": ledger.device_phases}
    return DeviceView(**fields | seen, on_host=ledger), of_device(ledger.device.name, machine) or UNKNOWN


def host_side(ledger: Ledger) -> Ledger:
    """All ops that the host ran, those that launched nothing among them."""
    return ledger.on_host if isinstance(ledger, DeviceView) and ledger.on_host is not None else ledger


def hot(ledger: Ledger) -> tuple[OpGroup, ...]:
    """Ops with the time of what did their work: the device's kernels where one works."""
    return ledger.ops if ledger.device is None else ledger.device_ops


def everything(ledger: Ledger) -> Iterator[OpGroup | HostGroup]:
    """Yield the parts of the step's time: kernels by the op that launched them, then the host's work while the device
    idles. Running less of a line saves both. Without a device, ops and the rest."""
    whole = host_side(ledger)
    if whole.device is not None:
        yield from whole.device_ops
    yield from whole.groups


def of_phase(ledger: Ledger, name: str) -> float:
    """ns per step of one phase, on the device and while it idles."""
    if host_side(ledger).device is None:
        return ledger.phase(name)
    return sum(group.ns for group in everything(ledger) if group.phase == name)


def graph_makers(ledger: Ledger) -> list[ModuleFacts]:
    """Modules that build a graph which no backward uses: called with gradients enabled, in steps that infer."""
    backward = ledger.step.backwards or ledger.phase("backward") or any(op.phase == "backward" for op in ledger.ops)
    if ledger.step.kind != "inference" or backward:
        return []
    return [m for m in ledger.facts.modules if m.grad_enabled and m.trainable_params and m.calls_per_step]


def idle_at(ledger: Ledger, place: Key) -> float | None:
    """The device's idle time at an innermost line, ns per step, what waits for it cause among it; None where the
    profiled steps have nothing there, so that nobody knows."""
    there = [group.ns for group in ledger.groups if key(group.where) == place]
    there += [idle for _, _, idle, where in _syncs(ledger) if key(where) == place]
    return sum(there) if there else None


def waits_for_device(ledger: Ledger, place: Key | None) -> bool:
    """Say whether the host stands at that line until the device is done."""
    return any(key(where) == place for _, _, _, where in _syncs(ledger))


def _syncs(ledger: Ledger) -> tuple[tuple[str, float, float, tuple[Span, ...]], ...]:
    return ledger.device.syncs if ledger.device is not None else ()


def stepping(ledger: Ledger) -> tuple[OptimizerFacts, ...]:
    """Optimizers that step in a usual step; all where none is seen to. Others live beside them: of a training before
    this one, of clients, folds, a population."""
    steps = dict(ledger.step.updates)
    return tuple(each for each in ledger.facts.optimizers if each.id in steps) or ledger.facts.optimizers


def num_updated(ledger: Ledger) -> int:
    """Return the number of elements that optimizers update in a usual step."""
    return sum(optimizer.num_elements for optimizer in stepping(ledger))
