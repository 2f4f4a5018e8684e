"""How much memory was missing when an allocation failed, the rest of the step included."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gobrrr.recording.model.facts import HeldGraph
from gobrrr.recording.model.out_of_memory import Group, OutOfMemory

FEW_LAYERS = 0.02
"""Share of the layers passed below which the rest of a forward is not told from them."""
UNTOLD = 0.25
"""Share of a limit that may be free, beside what was asked for, for it to be the one that was met: temporaries of the
failed line are gone by the time of the look (proposed)."""
OTHERS = 0.25
"""Share of a device from which what others hold is the reason (proposed)."""
KEEPS = 0.1
"""Share of what is in use from which tensors that a container keeps are a reason (proposed)."""
STATE = {"Adam": 2, "AdamW": 2, "NAdam": 2, "RAdam": 2, "Adamax": 2, "RMSprop": 1, "Adagrad": 1, "Adadelta": 2,
         "Adam8bit": 0.5, "AdamW8bit": 0.5, "Lion": 1}  # fmt: skip
"""Optimizer's state in copies of the parameters (torch.optim's documentation); others, SGD without momentum: none."""


ROOM = 0.05
"""Share of the limit that a way must leave free to be said to fit (proposed: allocators keep what is freed, in pieces:
200 MiB of 1.6 GiB after one step of an MLP)."""


class Shortage(msgspec.Struct, frozen=True):
    """Bytes that were missing. `limit`: bytes there were, by `whose`; `used` when it failed; `to_come`: what the step
    would still have taken; `missing`: by how much all of it is above the limit. Null where that is not known."""

    limit: int | None
    whose: str
    used: int
    asked: int
    to_come: int | None
    missing: int | None

    @property
    def needed(self) -> float:
        """Return the bytes that a way must save to be said to fit; 0 where what is missing is not known."""
        return 0.0 if self.missing is None else self.missing + ROOM * (self.limit or 0)


def shortage(oom: OutOfMemory) -> Shortage:
    """Return how much memory was missing, the rest of the step included."""
    limit, whose, used = _limit(oom)
    more = to_come(oom) if oom.alive else None
    if limit is None or oom.asked is None or more is None:
        return Shortage(limit, whose, used, oom.asked or 0, more, None)
    used = max(used, limit - oom.asked)  # it did not fit: so much was in use, with what the failed line itself held
    return Shortage(limit, whose, used, oom.asked, more, max(oom.asked + used + more - limit, 1))


def _limit(oom: OutOfMemory) -> tuple[int | None, str, int]:
    """(limit, whose it is, bytes in use); a limit is only told where so little was left that it was met."""
    if oom.on_device:
        device = oom.device
        if device is None or not device.total:
            return None, "the device", 0
        limit = device.total - (others(oom) or 0)
        if device.free is not None:
            return limit, "the device", limit - device.free - spare(oom)
        return limit, "the device", device.in_process or device.reserved or device.allocated or 0
    process, limits, asked = oom.process, oom.limits, oom.asked or 0
    resident = process.resident or 0
    machine = limits.memory if limits.free is None else resident + limits.free
    known = [
        (limit, whose, used)
        for limit, whose, used in (
            (limits.address_space, "the process (ulimit -v)", process.virtual or 0),
            (limits.data, "the process (ulimit -d)", process.data or 0),
            (machine, "the machine or its group", resident),
        )
        if limit and limit - used <= asked + UNTOLD * limit
    ]
    return min(known, key=lambda each: each[0] - each[2], default=(None, "the machine or its group", resident))


def activations(oom: OutOfMemory) -> int | None:
    """Return the bytes of activations at the end of the forward, as far as it had come; null where it had not come far
    enough to say."""
    kept = oom.roles().get("activations", 0)
    # Those that earlier steps left are not of this forward alone.
    of_steps = bool(oom.summed or oom.carried or oom.gradient_graphs) or any(held.graph for held in oom.grown)
    if oom.phase != "forward" or of_steps or not oom.training:
        return kept
    passed = (oom.layers_before or 0) / oom.num_layers if oom.num_layers else 0.0
    return round(kept / passed) if passed >= FEW_LAYERS and kept else None


def to_come(oom: OutOfMemory) -> int | None:
    """Return the bytes that the rest of the step takes beside the failed allocation: activations of the layers that
    were not reached, gradients and the optimizer's state where they are not there yet."""
    roles, kept = oom.roles(), activations(oom)
    if kept is None:
        return None
    rest = max(0, kept - roles.get("activations", 0) - (oom.asked or 0)) + in_backward(oom)
    if not oom.optimizers or oom.phase not in ("forward", "backward", "optimizer"):
        return rest
    states = state_to_come(oom)
    if oom.phase == "optimizer":
        return states
    # Gradients come while activations go: of the two the larger is added, and the state comes when both are settled.
    grads = max(0, roles.get("parameters", 0) - roles.get("gradients", 0))
    return max(rest if oom.phase == "forward" else 0, grads + states - kept, 0)


def state_to_come(oom: OutOfMemory) -> int:
    """Return the bytes of the optimizer's state that its first step makes; none after it."""
    if not oom.optimizers or oom.steps:
        return 0
    copies = STATE.get(oom.optimizers[0], 0) + len(oom.optimizer_options)
    state = round(oom.roles().get("parameters", 0) * copies)
    return max(0, state - oom.roles().get("optimizer state", 0))


def in_backward(oom: OutOfMemory) -> int:
    """Return the bytes of gradients that a backward pass holds beside activations: of one op's result and input."""
    if not oom.training or not oom.optimizers or oom.phase != "forward":
        return 0
    return 2 * round(max((g.num_bytes / max(1, g.count) for g in groups(oom, "activations")), default=0.0))


def spare(oom: OutOfMemory) -> int:
    """Return the bytes of a device that torch has reserved and no tensor uses."""
    device = oom.device
    return max(0, (device.reserved or 0) - (device.allocated or 0)) if device is not None else 0


def others(oom: OutOfMemory) -> int | None:
    """Return the bytes of the device that are not this process's; null where the message does not say."""
    device = oom.device
    if device is None or device.others is not None:
        return device.others if device is not None else None
    own = device.in_process if device.in_process is not None else device.reserved
    if device.total is None or device.free is None or own is None:
        return None
    return max(0, device.total - device.free - own)


def crowded(oom: OutOfMemory) -> int:
    """Return the bytes that others hold of the device, where those are the reason; else 0."""
    held, total = others(oom) or 0, oom.device.total if oom.device is not None else None
    return held if total and held > OTHERS * total else 0


def unseen(oom: OutOfMemory) -> int:
    """Return the bytes of the process that no tensor or array holds, nor the interpreter and torch from the start."""
    if oom.on_device:
        return 0
    return max(0, (oom.process.resident or 0) - sum(oom.roles().values()) - (oom.process.runtime or 0))


def groups(oom: OutOfMemory, role: str) -> Sequence[Group]:
    """Return the groups of a role, the largest first."""
    return next((each.groups for each in oom.alive.get(oom.place, ()) if each.role == role), ())


def kept_by_container(oom: OutOfMemory) -> HeldGraph | None:
    """Return the container that grew and keeps a part worth telling; null where none does."""
    kept = max(oom.grown, key=lambda each: (each.graph, each.growth_per_step * each.storage_bytes), default=None)
    in_use = max(1, oom.process.resident or sum(oom.roles().values()))
    if kept is None or (not kept.graph and kept.length * kept.storage_bytes < KEEPS * in_use):
        return None
    return kept
