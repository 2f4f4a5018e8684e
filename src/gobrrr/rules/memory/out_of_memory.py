"""Why a program ran out of memory, and what would have made it fit, each way with its bytes; the first that fits leads.

Sizes are of what was alive when the allocation failed. A forward that failed half way keeps more until its end: its
activations are told as they would be there, by the share of layers that it had passed.
"""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Iterator
from functools import cache
from math import prod
from pathlib import Path

import msgspec

from gobrrr.recording.model.facts import HeldGraph
from gobrrr.recording.model.out_of_memory import Group, OutOfMemory
from gobrrr.rules.verdict.place import short as place
from gobrrr.units import several, size

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOM = 0.05
"""Share of the limit that a way must leave free to be said to fit (proposed: allocators keep what is freed, in pieces:
200 MiB of 1.6 GiB after one step of an MLP)."""
FREED = 0.25
"""Share of a micro-batch's activations that the host's allocator keeps in pieces when they are freed (proposed: 180 of
1,016 MB with blocks of 32 MiB, which glibc keeps in its heap)."""
MAIN = 0.5
"""Share of what is in use from which one role, holder or result is the reason (proposed)."""
FORM = 0.25
"""Share of what is missing that the failed result must be for its line's form to be told (proposed)."""
FEW_LAYERS = 0.02
"""Share of the layers passed below which the rest of a forward is not told from them."""
SEGMENT = 64 << 20
"""Bytes beyond a request that the driver must have free before it is called room: torch asks for segments of up to
20 MiB, and contexts keep some."""
SCATTERED = 0.1
"""Share of what torch has reserved that must be free before fragmentation is the reason (proposed: pytorch #35901 and
its like tell of half; a few percent are always between tensors)."""
STATE = {"Adam": 2, "AdamW": 2, "NAdam": 2, "RAdam": 2, "Adamax": 2, "RMSprop": 1, "Adagrad": 1, "Adadelta": 2,
         "SGD": 1, "Adam8bit": 0.5, "AdamW8bit": 0.5, "Lion": 1}  # fmt: skip
"""Optimizer's state in copies of the parameters (torch.optim's documentation; SGD: with momentum)."""
SCORES = ("softmax", "bmm", "mul", "div", "masked_fill", "native_dropout", "dropout", "add", "where", "baddbmm")
LOSSES = ("log_softmax", "nll_loss", "nll_loss_nd", "softmax")


class Way(msgspec.Struct, frozen=True):
    """A change that saves bytes. `fits`: whether it would have been enough; None where that is not known."""

    name: str
    what: str
    saves: int = 0
    fits: bool | None = None
    exact: str = ""
    """What becomes of the numbers."""


class Shortage(msgspec.Struct, frozen=True):
    """Bytes that were missing. `limit`: bytes there were, by `whose`; `used` when it failed; `to_come`: what the step
    would still have taken; `missing`: by how much all of it is above the limit, null where no limit is known."""

    limit: int | None
    whose: str
    used: int
    asked: int
    to_come: int
    missing: int | None


class Diagnosis(msgspec.Struct, frozen=True):
    """An allocation that failed, why it did, and the ways that would have made it fit, the best first."""

    failed: OutOfMemory
    sentence: str
    reason: str
    shortage: Shortage
    ways: tuple[Way, ...] = ()


def diagnosis(oom: OutOfMemory) -> Diagnosis:
    """Return why a program ran out of memory and what would have made it fit."""
    asked = f" {size(oom.asked)} asked" if oom.asked else ""
    name, op = oom.in_backward or ("", "")
    name = oom.layer or name
    layer = f", layer {name}" if name else f", backward of {op}" if op else ""
    at = f" at {place(oom.lines[0])}{layer}" if oom.lines else ""
    first = "in the first step" if oom.phase in ("forward", "backward", "optimizer") else "before the first step"
    step = "" if oom.steps is None else f"after {several('step', oom.steps)}" if oom.steps else first
    when = ", ".join(filter(None, (oom.phase, step)))
    said = f"Out of memory:{asked}{at}{f' ({when})' if when else ''}"
    return Diagnosis(oom, said if said[-1] != ":" else said[:-1], reason(oom), shortage(oom), tuple(ways(oom)))


def shortage(oom: OutOfMemory) -> Shortage:
    """Return how much memory was missing, the rest of the step included."""
    limit, whose, used = _limit(oom)
    asked, more = oom.asked or 0, to_come(oom)
    missing = None if limit is None else max(asked + used + more - limit, 1)
    return Shortage(limit, whose, used, asked, more, missing)


def _limit(oom: OutOfMemory) -> tuple[int | None, str, int]:
    """(limit, whose it is, bytes in use)."""
    if oom.place != "cpu" or oom.type == "device":
        device = oom.device
        used = (device.allocated or device.in_process or 0) if device else 0
        beside = (device.others or 0) if device else 0
        return (device.total - beside if device and device.total else None), "the device", used
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
        if limit
    ]
    if not known:
        return None, "the machine or its group", resident
    limit, whose, used = min(known, key=lambda each: each[0] - each[2])
    # What failed did not fit: so much was in use, temporaries that went with the failed line included.
    return limit, whose, max(used, min(limit, limit - asked)) if asked < limit else used


def activations(oom: OutOfMemory) -> int:
    """Return the bytes of activations at the end of the forward, as far as it had come."""
    kept = oom.roles().get("activations", 0)
    passed = (oom.layers_before or 0) / oom.num_layers if oom.num_layers else 0.0
    of_steps = bool(oom.summed) or any(held.graph for held in oom.grown)  # they are not of this forward alone
    if oom.phase != "forward" or not kept or passed < FEW_LAYERS or of_steps:
        return kept
    return max(kept, round(kept / passed))


def to_come(oom: OutOfMemory) -> int:
    """Return the bytes that the rest of the step takes beside the failed allocation: activations of the layers that
    were not reached, gradients and the optimizer's state where they are not there yet."""
    roles = oom.roles()
    params, kept = roles.get("parameters", 0), activations(oom)
    rest = max(0, kept - roles.get("activations", 0) - (oom.asked or 0)) + in_backward(oom)
    if not oom.optimizers or oom.phase not in ("forward", "backward", "optimizer"):
        return rest
    state = round(params * STATE.get(oom.optimizers[0], 1))
    grads = max(0, params - roles.get("gradients", 0)) if oom.phase != "optimizer" else 0
    states = max(0, state - roles.get("optimizer state", 0))
    # Gradients come while activations go: of the two the larger is added, and the state comes when both are settled.
    later = max(0, grads + states - kept) if oom.phase != "optimizer" else states
    return max(rest, later) if oom.phase == "forward" else later


def in_backward(oom: OutOfMemory) -> int:
    """Return the bytes of gradients that a backward pass holds beside activations: of one op's result and input."""
    if not oom.training or not oom.optimizers or oom.phase != "forward":
        return 0
    return 2 * round(max((g.num_bytes / max(1, g.count) for g in _groups(oom, "activations")), default=0.0))


def reason(oom: OutOfMemory) -> str:
    """Return in a sentence why it did not fit."""
    short, roles = shortage(oom), oom.roles()
    if oom.type == "killed":
        return "The kernel ended the process: the machine or its group had no memory left."
    if oom.type == "worker" or "DataLoader worker" in oom.text:
        shared = "Bus error" in oom.text or "shared memory" in oom.text
        if shared:
            return (
                "A worker of the loader found no room in shared memory (/dev/shm), through which workers send batches."
            )
        return "A worker of the loader was killed: the machine or its group had no memory left."
    if (told := _of_device(oom)) is not None:
        return told
    if (kept := _grown(oom)) is not None:
        return f"Memory grew: {kept.name} keeps {kept.length:,} tensors, {kept.growth_per_step:.0f} more per step."
    if oom.summed:
        name, terms = oom.summed[0]
        return f"{name} is a sum of {terms:,} results that all keep their graphs."
    total = sum(roles.values())
    if short.limit and short.asked > short.limit:
        return f"This one result is larger than all memory that {short.whose} has."
    if short.used and short.asked > MAIN * (short.used + short.asked):
        return "This one result is larger than all that is in use."
    if total and short.asked > total:
        return "This one result is larger than all tensors and arrays that are alive."
    if total and total < MAIN * (oom.process.resident or 0) and oom.place == "cpu":
        return (
            "Most of it is not seen from Python: temporaries of one op, libraries, or freed memory that malloc keeps."
        )
    role, held = next(iter(roles.items()), ("", 0))
    if total and held > MAIN * total:
        first = _largest(oom, role)
        where = f", most of it in {first.name}" if first and first.name and first.num_bytes > MAIN * held else ""
        return f"{_ROLES.get(role, role.capitalize())} hold {size(held)}{where}: too large from the start."
    if not total:
        return _unseen(oom, short)
    return f"Memory was full: {', '.join(f'{size(held)} {role}' for role, held in list(roles.items())[:3])}."


def _unseen(oom: OutOfMemory, short: Shortage) -> str:
    """The reason where nobody looked at what was alive."""
    device = oom.device
    if device is None or oom.place == "cpu":
        return "The host's memory, or the process's limit, had no room for it; what held it is not known."
    if not device.allocated:
        return "The device is full, for a library beside torch too; the message has no figures."
    beside = (device.in_process or 0) - (device.reserved or device.allocated)
    more = f"; context and libraries take {size(beside)} more" if beside > 256 << 20 else ""
    return f"The program's tensors hold {size(device.allocated)} of {size(short.limit or device.allocated)}{more}."


_ROLES = {"activations": "Activations kept for backward", "inputs": "Variables of the failed lines",
          "other tensors": "Tensors that the program keeps", "arrays": "Arrays that the program keeps"}  # fmt: skip


def _of_device(oom: OutOfMemory) -> str | None:
    """The reason by an accelerator's own figures, where those say enough."""
    device = oom.device
    if device is None or oom.place == "cpu":
        return None
    asked, total = oom.asked or 0, device.total or 0
    spare = (device.reserved or 0) - (device.allocated or 0)
    outside = others(oom)
    if total and asked > total:
        return "This one result is larger than the whole device."
    if total and (device.allocated or 0) > total:
        return "The driver has moved tensors into the host's memory already: they are more than the device holds."
    if outside and total and outside > 0.25 * total:
        return f"Others hold {size(outside)} of the device's {size(total)}."
    if asked and device.free and device.free > asked + SEGMENT:
        return "The device has room for it: a limit was reached (memory fraction, MIG), or others have left since."
    if asked and spare >= asked and spare > SCATTERED * (device.reserved or 0):
        return f"Torch has {size(spare)} reserved and free, but no block of {size(asked)}: memory is fragmented."
    return None


def others(oom: OutOfMemory) -> int | None:
    """Return the bytes of the device that are not this process's; null where the message does not say."""
    device = oom.device
    if device is None:
        return None
    if device.others is not None:
        return device.others
    if device.total is None or device.free is None:
        return None
    own = device.in_process if device.in_process is not None else device.reserved
    return None if own is None else max(0, device.total - device.free - own)


def _largest(oom: OutOfMemory, role: str) -> Group | None:
    groups = next((each.groups for each in oom.alive.get(oom.place, ()) if each.role == role), ())
    return groups[0] if groups else None


def _groups(oom: OutOfMemory, role: str) -> tuple[Group, ...]:
    return next((each.groups for each in oom.alive.get(oom.place, ()) if each.role == role), ())


def _grown(oom: OutOfMemory) -> HeldGraph | None:
    kept = max(
        oom.grown, key=lambda each: (each.graph, each.growth_per_step * max(each.storage_bytes, 1)), default=None
    )
    if kept is None or (not kept.graph and kept.length * kept.storage_bytes < 0.1 * max(1, oom.process.resident or 1)):
        return None
    return kept


# Ways


def ways(oom: OutOfMemory) -> list[Way]:
    """Return what would have saved memory: ways that fit first, those that change no number before others."""
    short, found = shortage(oom), []
    for way in _ways(oom, short) if oom.alive or oom.type == "worker" else _unmeasured(oom, short):
        if not oom.alive or short.missing is None:
            found.append(way)
        elif way.fits is not None:
            found.append(way)
        elif way.saves > 0:
            found.append(msgspec.structs.replace(way, fits=way.saves >= short.missing + ROOM * (short.limit or 0)))
    return sorted(found, key=lambda way: way.fits is False)


def _unmeasured(oom: OutOfMemory, short: Shortage) -> Iterator[Way]:
    """Ways whose bytes nobody knows: a log alone tells of the failure."""
    if oom.type == "killed":
        yield Way("less_in_memory", "fewer workers, data in files that are mapped, or a larger memory limit of the job")
        return
    yield from _outside(oom, short)
    if (form := _form(oom)) is not None:
        yield Way(str(form["name"]).replace(" ", "_"), f"{form['why']} {form['instead']}")
    if oom.phase == "optimizer":
        yield Way("no_foreach", "optimizer(..., foreach=False) or fused=True: foreach holds a copy of all it updates")
        yield Way("optimizer_8bit", "an 8-bit Adam (torchao.optim.AdamW8bit): its state takes a quarter")
    if oom.phase == "loading a file":
        yield Way("mapped_file", "torch.load(path, mmap=True, map_location='cpu')", exact="exact")
    if oom.phase in ("forward", "backward", ""):
        yield Way(
            "micro_batch",
            "smaller batches; in training accumulate their gradients",
            exact="exact where the loss is a mean",
        )
    if oom.phase == "backward":
        yield Way("activation_checkpointing", "torch.utils.checkpoint around the model's blocks", exact="exact")
    if oom.phase == "forward":
        yield Way("no_grad", "if it is no training: torch.no_grad() around it", exact="exact")


def _ways(oom: OutOfMemory, short: Shortage) -> Iterator[Way]:
    """In the order of preference: what is wrong first, then what is exact, then what costs time or digits."""
    roles = oom.roles()
    kept, inputs = activations(oom), roles.get("inputs", 0)
    asked, missing = short.asked, short.missing or 0
    if oom.type == "worker" or "DataLoader worker" in oom.text:
        yield from _of_workers(oom)
        return
    yield from _outside(oom, short)
    if (held := _grown(oom)) is not None:
        what = (
            "keep numbers, not tensors with a graph: loss.item()" if held.graph else "keep numbers or write them away"
        )
        yield Way("keep_numbers", f"{held.name}: {what}", max(missing, held.length * held.storage_bytes), True, "exact")
    if oom.summed:
        name, terms = oom.summed[0]
        saves = round(roles.get("activations", 0) * (1 - 1 / terms))
        yield Way("keep_numbers", f"add numbers to {name}: loss.item(), or loss.detach()", saves, True, "exact")
    graph = roles.get("activations", 0)
    scores = _scores(oom, kept)
    form = _form(oom) if asked > FORM * missing and not scores else None
    written = Way(
        str(form["name"]).replace(" ", "_"), f"{form['why']} {form['instead']}",
        round(asked * (1 - float(form["keeps"]))), None, "the same values",
    ) if form is not None else None  # fmt: skip
    if written is not None and asked > graph:
        yield written
    if graph and (oom.training is False or not oom.optimizers) and oom.phase in ("evaluation", "forward", ""):
        yield Way("no_grad", "run it under torch.no_grad(): nothing is kept for a backward pass", kept, None, "exact")
    if written is not None and asked <= graph:
        yield written
    if scores:
        yield Way("sdpa", "F.scaled_dot_product_attention: the same values without a score for each pair of tokens",
                  scores, None, "equal up to rounding")  # fmt: skip
    if logits := _logits(oom):
        yield Way("chunked_loss", "compute the loss in 8 pieces (or F.linear_cross_entropy): logits are never whole",
                  logits, None, "equal up to rounding")  # fmt: skip
    if oom.phase == "optimizer":
        yield from _in_update(oom)
    yield from _split(oom, short, kept + inputs)
    yield from _checkpointed(oom, kept)
    if oom.training and kept:
        half = sum(g.num_bytes for g in _groups(oom, "activations") if g.dtype == "float32") * 0.5
        whole = kept / max(1, roles.get("activations", 0))
        yield Way("bf16_autocast", "torch.autocast(device, torch.bfloat16) around the forward", round(half * whole),
                  None, "3 digits in place of 7")  # fmt: skip
    state = max(roles.get("optimizer state", 0), _state_to_come(oom))
    if state and any(name.startswith(("Adam", "NAdam", "RAdam")) for name in oom.optimizers):
        yield Way("optimizer_8bit", "an 8-bit Adam (torchao.optim.AdamW8bit): its state takes a quarter",
                  round(0.75 * state), None, "another rounding of its state")  # fmt: skip
    yield from _kept_data(oom)
    device = oom.place != "cpu"
    fixed = roles.get("parameters", 0) + roles.get("gradients", 0) + state
    if device and fixed > missing:
        yield Way(
            "offload", "shard or offload parameters and state (FSDP2 with CPU offload)", fixed // 2, None, "exact"
        )


def _outside(oom: OutOfMemory, short: Shortage) -> Iterator[Way]:
    """What is not the program's own tensors: other processes, fragmentation, limits."""
    device = oom.device
    if device is None or oom.place == "cpu":
        return
    outside, asked = others(oom), short.asked
    spare = (device.reserved or 0) - (device.allocated or 0)
    if outside and device.total and outside > 0.25 * device.total:
        fits = _enough(oom, outside + (device.free or 0) + max(0, spare) >= asked + short.to_come)
        yield Way("end_others", f"end what else runs on the device (nvidia-smi names it): {size(outside)}", outside,
                  fits, "exact")  # fmt: skip
    if asked and spare >= asked and "expandable_segments:True" not in " ".join(oom.settings.values()):
        yield Way("expandable_segments", "PYTORCH_ALLOC_CONF=expandable_segments:True: free blocks are joined", spare,
                  _enough(oom, spare >= asked + short.to_come), "exact")  # fmt: skip


def _enough(oom: OutOfMemory, fits: bool) -> bool | None:
    """What fits where the rest of the step is known; else None."""
    return fits if oom.alive else None


def _of_workers(oom: OutOfMemory) -> Iterator[Way]:
    if "Bus error" in oom.text or "shared memory" in oom.text:
        yield Way("shared_memory", "give the container more shared memory (docker run --shm-size=8g)")
    yield Way("fewer_workers", "fewer workers, or a smaller prefetch_factor: each holds its batches")
    yield Way("arrays", "samples in one array or file, not in lists of Python objects: forked workers copy those")


def _state_to_come(oom: OutOfMemory) -> int:
    if not oom.optimizers:
        return 0
    return round(oom.roles().get("parameters", 0) * STATE.get(oom.optimizers[0], 1))


def _in_update(oom: OutOfMemory) -> Iterator[Way]:
    """Temporaries of an update: of foreach, torch's default on devices, copies of all parameters; elsewhere two of the
    largest one."""
    if oom.place != "cpu":
        what = "optimizer(..., foreach=False) or fused=True: foreach holds a copy of all that it updates"
        yield Way("no_foreach", what, oom.roles().get("parameters", 0), None, "exact")
        return
    largest = max((group.num_bytes // max(1, group.count) for group in _groups(oom, "parameters")), default=0)
    what = "optimizer(..., fused=True): an update without temporaries as large as a parameter"
    yield Way("fused_optimizer", what, 2 * largest, None, "equal up to rounding")


def _split(oom: OutOfMemory, short: Shortage, scales: int) -> Iterator[Way]:
    """The same batch in smaller parts. A result that failed scales with the batch as activations do."""
    sizes = [each.shape[0] for each in oom.inputs if each.shape and each.shape[0] > 1]
    kept = next((group.shape[0] for group in _groups(oom, "activations") if group.shape), 0)
    batch = kept if kept in sizes else next(iter(sizes), 0)
    if not batch or not (scales or oom.phase in ("forward", "evaluation", "backward")):
        return
    parts = scales + in_backward(oom) + short.asked * (oom.phase in ("forward", "evaluation", "backward"))
    needed = (short.missing or 0) + ROOM * (short.limit or 0)
    if short.missing is None or parts <= needed:
        splits = 2
    else:
        freed = FREED if oom.place == "cpu" else 0.0
        enough = (2**n for n in range(1, 11) if parts * (1 - (1 + freed) / 2**n) >= needed)
        splits = next(enough, 0)
    if not splits or splits > batch:
        return
    saves = round(parts * (1 - 1 / splits))
    smaller = -(-batch // splits)
    if oom.training is False or not oom.optimizers:
        yield Way("smaller_batch", f"batches of {smaller} in place of {batch}", saves, None, "exact")
        return
    exact = "not exact: BatchNorm sees smaller batches" if oom.batch_norm else "exact where the loss is a mean"
    yield Way("micro_batch", f"{splits} micro-batches of {smaller}, gradients accumulated, in place of {batch}", saves,
              None, exact)  # fmt: skip


def _checkpointed(oom: OutOfMemory, kept: int) -> Iterator[Way]:
    """Blocks that repeat (layers.*.): of each its input is kept, and one block's activations at a time."""
    groups, now = _groups(oom, "activations"), oom.roles().get("activations", 0)
    families: dict[str, list[Group]] = {}
    for group in groups:
        prefix, star, _ = group.name.partition(".*")
        if star:
            families.setdefault(prefix, []).append(group)
    if not families or not oom.training:
        return
    name, members = max(families.items(), key=lambda item: sum(group.num_bytes for group in item[1]))
    num = max(group.count for group in members)
    inside = sum(group.num_bytes for group in members) * kept / max(1, now)
    each = [group.num_bytes / max(1, group.count) for group in members]
    smallest = min((size for size in each if size > 0.02 * sum(each)), default=0.0)
    saves = inside - num * smallest - inside / num
    if num > 1:
        what = f"torch.utils.checkpoint around each of {name}.*: computed again in backward"
        yield Way("activation_checkpointing", what, round(saves), None, "exact; a third more computing")


def _scores(oom: OutOfMemory, kept: int) -> int:
    """Return the bytes of attention scores (..., length, length) among the activations."""
    now = max(1, oom.roles().get("activations", 0))
    found = [group for group in _groups(oom, "activations") if len(group.shape) in (3, 4) and group.op in SCORES
             and group.shape[-1] == group.shape[-2] >= 64 and prod(group.shape[:-2]) > 1]  # fmt: skip
    return round(sum(group.num_bytes for group in found) * kept / now) if any(g.op == "softmax" for g in found) else 0


def _logits(oom: OutOfMemory) -> int:
    """Return the bytes that a loss in pieces saves: log-probabilities and the logits' gradient beside them."""
    found = [group for group in _groups(oom, "activations") if group.op in LOSSES and len(group.shape) >= 2
             and group.shape[-1] >= 4096 and not group.name.count("attn")]  # fmt: skip
    whole = max((group.num_bytes for group in found), default=0)
    if not whole and oom.asked and oom.function in ("cross_entropy", "log_softmax", "nll_loss"):
        whole = oom.asked
    beside = 2 if oom.phase in ("forward", "") else 1
    return round(whole * (1 + beside) * 7 / 8)


def _kept_data(oom: OutOfMemory) -> Iterator[Way]:
    for role in ("other tensors", "arrays"):
        group = _largest(oom, role)
        if group is not None and group.num_bytes > 0.05 * sum(oom.roles().values()):
            kind = "tensor" if role == "other tensors" else "array"
            what = f"{several(kind, group.count)} in {group.name or 'the program'}"
            yield Way("free_references", f"{what}: drop them when they are used up, or keep them in a file (memmap)",
                      group.num_bytes, None, "exact")  # fmt: skip


@cache
def _forms() -> list[dict[str, str | float]]:
    text = (Path(__file__).parent / "large_results.toml").read_text(encoding="utf-8")
    forms: list[dict[str, str | float]] = tomllib.loads(text)["form"]
    return forms


def _form(oom: OutOfMemory) -> dict[str, str | float] | None:
    """Return the known form that the failed line is written in."""
    if not oom.lines:
        return None
    line = linecache.getline(oom.lines[0].file, oom.lines[0].line)
    return next((form for form in _forms() if re.search(str(form["form"]), line)), None)
