"""BRR701 to BRR705: waits for ranks, slow links, gradients summed too often, metrics, many small collectives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod

from gobrrr.ledger.model.device import DeviceLedger, SizedCalls, Transfer
from gobrrr.ledger.model.ledger import Ledger, OpGroup
from gobrrr.ledger.model.sums import sums
from gobrrr.machine.model.links import LARGE, NETWORK, Link, far_below, link_of
from gobrrr.machine.model.machine import Machine
from gobrrr.recording.model.facts import Span
from gobrrr.recording.trace_files.categories import is_communication
from gobrrr.rules.model.cores import micro_steps
from gobrrr.rules.model.evidence import count, time, worth_telling
from gobrrr.rules.model.finding import Cause, Quantity, fitting, rule
from gobrrr.rules.model.lines import loop_line
from gobrrr.rules.model.shapes import costliest_line, total
from gobrrr.units import byte_rate, duration, share, size

EXPOSED = 0.05
"""Share of the step in communication that nothing hides (TraceLens 5 %; tb_plugin 10 % of all communication)."""
WAITED = 0.1
"""Share of a kind's time from which what lies above its fastest calls is told."""
OVERLAP = "Overlap it (larger buckets, gradient_as_bucket_view), send less (bf16, no_sync), and compare the ranks."
OF_WRAPPERS = ("bucket_views", "no_unused_search", "static_graph", "bf16_gradients", "gathered_weights")
"""Remedies of what a wrapper sends."""
REACHED = 0.5
"""Share of the data sheet's rate that a working link may be expected to give (nccl-tests reaches 0.7 and more)."""
ALL_REDUCE = "c10d::allreduce_"
"""Op that DistributedDataParallel calls for each of its buckets."""
WRAPPER = "DistributedDataParallel"
"""The class of nets that send their gradients so."""
TWICE = 1.5
"""Sums of all gradients per update from which they count as summed again; other sums (of metrics, of batch norms) are
small beside them."""
MANY, SMALL, BUCKET = 16, 1 << 20, 25 << 20
"""Collectives of parameters per step, and their mean bytes, from and below which they are many small ones: 1 MiB and 25
are DistributedDataParallel's first bucket and the others."""
ITEM = 4
"""Bytes of an element, as most gradients have."""
WHOLE = 0.5
"""Share of the trained elements that the program's own collectives send, from which these are no metrics (proposed)."""
SIZES = 4
"""Sizes of a kind whose rates are among the evidence."""


@rule("BRR701", "communication", needs={"plain"}, remedies=OF_WRAPPERS)
def exposed_communication(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Collectives that the step waits for. The wait may be for a slow rank: one rank's account cannot tell."""
    small = _many_small(ledger)
    apart = [] if ledger.device is not None else [*small, *(op for op in _of_the_program(ledger) if op not in small)]
    cost = ledger.account("communication") - total(apart)
    if cost < EXPOSED * ledger.wall or not worth_telling(ledger, 0.6 * cost):
        return
    ops = [op for op in ledger.ops if is_communication(op.name) and op not in apart]
    calls = sum(op.calls for op in ops if op.name.startswith("c10d::"))
    yield Cause(
        saving=(0.1 * cost, 0.6 * cost, cost),
        message=fitting(
            f"{duration(cost)} ({share(cost / ledger.wall)}) of the step is exposed communication",
            *_told(ledger.device),
            ", slow ranks included",
        ),
        advice=OVERLAP if "foreign" not in ledger.signals else "Overlap it with kernels, send less, compare the ranks.",
        where=costliest_line(op for op in ops if op.where) or loop_line(ledger),
        evidence={"communication": time(cost), "collectives": count(calls), "op_time": time(total(ops))}
        | _bus(ledger.device),
        confidence="measured",
    )


@rule("BRR702", "communication", needs={"plain"})
def slow_link(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Large collectives that even at their fastest leave a link idle that their devices have, all of them in one host.

    The fastest of a size may have waited for a later rank as well: one rank's file cannot tell, the files of all can.
    """
    device = ledger.device
    link = link_of(device.name) if device is not None else None
    if device is None or link is None or not device.within_a_host:
        return
    large = [(one.kind, size) for one in device.transfers for size in one.sizes if size.size >= LARGE]
    kind, best = max(large, key=lambda one: _at_best(one[1]), default=("", None))
    if best is None or not far_below(link, _at_best(best)):
        return
    # At half of the sheet; of what that frees, the share that nothing hides today.
    fastest = sum(size.fastest_ns for _, size in large)
    freed = fastest - sum(size.bus_bytes for _, size in large) / (REACHED * link.rate) * 1e9
    cost = ledger.account("communication")
    expected = freed * min(1.0, cost / sum(one.ns for one in device.transfers))
    if not worth_telling(ledger, expected):
        return
    yield Cause(
        saving=(0.0, expected, min(cost, freed)),
        message=f"large collectives reach {byte_rate(_at_best(best))} on the bus at best ({kind}s of "
        f"{size(best.size)}), {share(_at_best(best) / link.rate)} of {link.name} ({byte_rate(link.rate)})",
        advice="See what carries them: the host's memory, a network (NCCL_DEBUG=INFO, nvidia-smi topo -m; rocm-smi "
        "--showtopo)? The files of all ranks say whether even the fastest waited for a later one.",
        where=loop_line(ledger),
        evidence={
            "bus_at_best": Quantity(round(_at_best(best)), "B/s"),
            "link": Quantity(round(link.rate), "B/s"),
            "data_sheet": Quantity(link.source),
            "large_time": time(sum(size.ns for _, size in large)),
            "large_at_their_fastest": time(fastest),
        },
        confidence="inferred",
    )


@rule("BRR703", "communication", needs={"plain"}, remedies=("no_sync",))
def gradients_summed_too_often(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Gradients that backward passes add up for one update go around the ranks at every pass."""
    nets = (module for module in ledger.facts.modules if module.kind == WRAPPER and module.calls_per_step)
    cost, once = ledger.account("communication"), sum(net.trainable_params for net in nets)
    ops = [op for op in ledger.ops if op.name == ALL_REDUCE and op.phase == "backward"]
    sent = _elements(ops)
    rounds = min(sent, once + _added_up(ledger)) / once if once else 0.0
    if rounds < TWICE:
        return
    spare = 1 - 1 / rounds
    # Without a device the cores that compute the rest of the pass sum and copy as well: the pass is above its floor.
    rest = (op for op in ledger.ops if op.phase == "backward" and not is_communication(op.name))
    above = sum(max(0.0, op.ns - op.floor_ns) for op in rest)
    beside = spare * above if ledger.device is None else 0.0
    if not worth_telling(ledger, spare * cost):
        return
    yield Cause(
        saving=(0.5 * spare * cost, spare * cost + 0.5 * beside, cost + beside),
        message=f"gradients go around the ranks {rounds:.1f} times per update where once would do: {duration(cost)} "
        f"({share(cost / ledger.wall)}) of the step",
        advice="Put all but the last backward pass before an update, its forward included, under model.no_sync() "
        "(accelerate: accelerator.accumulate(model)). Where a pass needs none of some parameters, "
        "requires_grad_(False) keeps them from being sent.",
        where=costliest_line(op for op in ops if op.where) or loop_line(ledger),
        evidence={
            "communication": time(cost),
            "backward_passes": count(micro_steps(ledger)),
            "elements_sent": count(sent),
            "parameters": count(once),
        },
        confidence="inferred",
    )


@rule("BRR704", "communication", needs={"plain", "ops"}, remedies=("summed_together",))
def collectives_for_metrics(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Collectives that the program calls beside forward and backward: metrics that are reduced, barriers, objects."""
    ops: list[OpGroup] = [] if _sends_parameters(ledger) else _of_the_program(ledger)
    lines: dict[Span, float] = sums((op.where[0], op.ns) for op in ops)
    for line in ledger.lines:  # objects are pickled at the same line
        if line.where and line.where[0] in lines:
            lines[line.where[0]] = max(lines[line.where[0]], line.ns)
    cost = sum(lines.values())
    if ledger.device is not None or not worth_telling(ledger, 0.5 * cost):
        return
    names = sorted({op.name.partition(":")[2].strip(":_") for op in ops})
    first = max(lines, key=lambda line: lines[line])
    yield Cause(
        saving=(0.0, 0.5 * cost, cost),
        message=f"{duration(cost)} ({share(cost / ledger.wall)}) of the step is in collectives beside those of "
        f"gradients ({', '.join(names[:3])}), slow ranks included",
        advice="Reduce metrics every so many steps, several in one tensor; drop barriers between steps: the sums of "
        "gradients hold ranks together already.",
        where=next((op.where for op in ops if op.where and op.where[0] == first), loop_line(ledger)),
        evidence={
            "own_collectives": time(cost),
            "calls": count(sum(op.calls for op in ops)),
            "lines": count(len(lines)),
        },
        confidence="measured",
    )


@rule("BRR705", "communication", needs={"plain", "ops"}, remedies=("bucket_size", "summed_together"))
def many_small_collectives(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Parameters or gradients go around the ranks one by one: each collective pays a trip around them."""
    ops = _many_small(ledger)
    calls = [op for op in ops if op.name.startswith("c10d::")]
    num, cost, each = sum(op.calls for op in calls), total(ops), _fastest(ops)
    sent = ITEM * _elements(calls)
    needed = max(1.0, sent / BUCKET)
    expected = min(cost, (num - needed) * each)
    if not worth_telling(ledger, 0.5 * expected):
        return
    yield Cause(
        saving=(0.0, 0.5 * expected, cost * (1 - needed / num)),
        message=f"{num:.0f} collectives of {size(sent / num)} on average go around the ranks in each step, where "
        f"{needed:.0f} of {size(BUCKET)} would do: {duration(cost)} ({share(cost / ledger.wall)})",
        advice=_bundled({op.name for op in calls}, ledger),
        where=costliest_line(op for op in ops if op.where) or loop_line(ledger),
        evidence={
            "collectives": count(num), "bytes_each": Quantity(round(sent / num), "B"),
            "fastest": time(each), "communication": time(cost),
        },
        confidence="inferred",
    )  # fmt: skip


def _many_small(ledger: Ledger) -> list[OpGroup]:
    """Return the collectives of what is trained where they are many small ones, which the host waits for; else none."""
    own = _of_the_program(ledger)
    every = (op for op in ledger.ops if is_communication(op.name))
    ops = own if _sends_parameters(ledger) else [op for op in every if op not in own]
    calls = [op for op in ops if op.name.startswith("c10d::") and op.shapes]
    num = sum(op.calls for op in calls)
    is_small = num >= MANY and ITEM * _elements(calls) < SMALL * num
    return ops if is_small and ledger.device is None and _fastest(ops) else []


def _fastest(ops: Iterable[OpGroup]) -> float:
    """Return the ns of the fastest collective, by the threads that carry them; 0 where none is seen."""
    return min((op.ns / op.calls for op in ops if not op.name.startswith("c10d::") and op.calls), default=0.0)


def _bundled(names: Iterable[str], ledger: Ledger) -> str:
    by_hand = _sends_parameters(ledger)
    if by_hand and any("broadcast" in name for name in names):
        return "Send weights once, before the first step: ranks that sum gradients make the same updates."
    if by_hand:
        return (
            "Wrap the model in DistributedDataParallel, which sums buckets beside the backward pass; or sum one flat "
            "tensor of all gradients."
        )
    if any("gather" in name or "scatter" in name for name in names):
        return "Call fully_shard() on whole blocks in place of single layers: one gather and one sum for each."
    buckets = [wrapper.bucket_bytes for wrapper in ledger.facts.ranks.wrappers] if ledger.facts.ranks else []
    here = f" (here {size(min(buckets))})" if buckets else ""
    return f"Leave DistributedDataParallel's bucket_cap_mb at 25{here}."


def _sends_parameters(ledger: Ledger) -> bool:
    """Say whether the program's own collectives send most of what is trained."""
    trained = sum(optimizer.num_elements for optimizer in ledger.facts.optimizers)
    own = [op for op in _of_the_program(ledger) if op.name.startswith("c10d::")]
    return 0 < WHOLE * trained <= _elements(own)


def _of_the_program(ledger: Ledger) -> list[OpGroup]:
    """Collectives at lines that call some outside of forward and backward, where wrappers call theirs: the wait for a
    wrapper's may lie behind its pass."""
    ops = [
        op for op in ledger.ops if op.where and op.phase not in ("forward", "backward") and is_communication(op.name)
    ]
    lines = {op.where[0] for op in ops if op.name.startswith("c10d::")}
    return [op for op in ops if op.where[0] in lines]


def _added_up(ledger: Ledger) -> float:
    """Elements that backward adds to gradients that are there already, but for those that were zeroed in between: by
    zero_grad(set_to_none=False), for the default leaves nothing to add to."""
    shapes = {shape for optimizer in ledger.facts.optimizers for shape, _ in optimizer.shapes}
    ours = [op for op in ledger.ops if op.shapes and op.shapes[0] in shapes]
    added = (
        op for op in ours if op.name == "aten::add_" and op.phase == "backward" and op.shapes[:1] == op.shapes[1:2]
    )
    whole = sum(optimizer.num_elements for optimizer in ledger.facts.optimizers)
    at_once = sum(op.calls for op in ledger.ops if op.name == "aten::_foreach_zero_" and op.leaf) * whole
    zeroed = _elements(op for op in ours if op.name == "aten::zero_") + at_once
    return max(0.0, _elements(added) - zeroed)


def _elements(ops: Iterable[OpGroup]) -> float:
    """Return the number of elements per step in the ops' first tensors."""
    return sum(op.calls * prod(op.shapes[0]) for op in ops if op.shapes)


def _at_best(size: SizedCalls) -> float:
    """Bus bandwidth of the fastest call, bytes per second."""
    return size.bus_bytes / size.fastest_ns * 1e9 if size.fastest_ns else 0.0


def _carries(link: Link, one: Transfer) -> bool:
    return all(link.carries(_at_best(sized)) for sized in one.sizes)


def _told(device: DeviceLedger | None) -> Iterator[str]:
    """The dearest kind: its rate on the bus, and what of it was waiting."""
    if device is None or not device.transfers:
        return
    one, link = device.transfers[0], link_of(device.name)
    if link is not None and not _carries(link, one):
        return  # their sizes or ranks are not as the file says
    if one.ns - one.fastest_ns >= WAITED * one.ns:
        yield f"; {share(1 - one.fastest_ns / one.ns)} of {one.kind} time is above the fastest: later ranks"
    yield f"; {one.kind}s reach {byte_rate(one.bus_rate)} on the bus{_of(device, one.bus_rate)}"


def _of(device: DeviceLedger, bus_rate: float) -> str:
    """The link that it can be held against: within the host; else the range that is usual, and no verdict."""
    link = link_of(device.name)
    if link is None or bus_rate > link.rate:
        return ""
    if device.within_a_host:
        return f", {share(bus_rate / link.rate)} of {link.name}"
    low, high = map(byte_rate, NETWORK)
    return f" (networks carry {low} to {high})"


def _bus(device: DeviceLedger | None) -> dict[str, Quantity]:
    """Bus bandwidth by kind, beside the link's data sheet; nothing where the file has no sizes."""
    if device is None or not device.transfers:
        return {}
    found, link = {}, link_of(device.name)
    for one in device.transfers:
        name = one.kind.replace("-", "_")
        found[f"{name}_time"] = time(one.ns)
        found[f"{name}_beyond_fastest"] = time(one.ns - one.fastest_ns)
        if link is not None and not _carries(link, one):
            continue  # their sizes or ranks are not as the file says
        found[f"{name}_bus"] = Quantity(round(one.bus_rate), "B/s")
        for sized in one.sizes[:SIZES]:
            rate = sized.bus_bytes / sized.ns * 1e9 if sized.ns else 0.0
            found[f"{name}_bus_of_{round(sized.size)}_B"] = Quantity(round(rate), "B/s")
    return found | ({"link": Quantity(round(link.rate), "B/s")} if link and device.within_a_host else {})
