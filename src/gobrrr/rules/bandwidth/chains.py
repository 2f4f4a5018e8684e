"""BRR201: expressions computed op by op, each of which passes over the whole tensor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from gobrrr.ledger.model.ledger import Ledger, OpGroup
from gobrrr.machine.model.machine import Machine
from gobrrr.rules.bandwidth.updates import by_hand
from gobrrr.rules.compile.recompiles import left_eager
from gobrrr.rules.model.evidence import count, time, worth_telling
from gobrrr.rules.model.finding import Cause, rule
from gobrrr.rules.model.shapes import FLOATS, costliest_line, float_dtype, grouped, key, kind, line, num_elements, total
from gobrrr.rules.model.views import host_side
from gobrrr.units import duration
from gobrrr.units import size as bytes_text

FUSIBLE = ("elementwise", "reduction")
# What may come between two ops of a chain without parting them: no work of its own.
IDLE = (*FUSIBLE, "view", None)
# One op for whoever calls it, though torch hands it to another.
ALIASES = frozenset(f"aten::{name}{end}" for name in ("relu", "square", "clip", "silu", "abs") for end in ("", "_"))
# Two ops in a row are in every program, three are the squared error that everybody writes; four are an expression.
EXPRESSION = 4
# Shorter chains (x * sigmoid(x), relu(x + y)) are told where one of them by itself is worth it: they are everywhere,
# and next to nothing nearly everywhere.
MIN_CHAIN = 2
# Lines of one expression that a person wrote below each other.
ADJACENT = 2
# Tensors below this stay in a core's own cache, and their chain costs dispatch, not traffic.
MIN_CHAIN_BYTES = 1 << 18


class Chain(msgspec.Struct):
    """Consecutive ops over tensors of one size, on one line or on lines next to each other."""

    ops: list[OpGroup]
    times: float = 0.0
    """How often per step it runs (once per layer, say): set when it is complete."""

    @property
    def elements(self) -> int:
        """Elements of the tensors that it passes over."""
        return num_elements(self.ops[0])

    @property
    def length(self) -> float:
        """Ops per run: an op that occurs twice in the expression counts twice."""
        return sum(op.calls for op in self.ops) / (self.times or self.least_calls())

    def least_calls(self) -> float:
        """Runs of a chain that was met once: every op runs at least once per run, in a loop of its own line many times
        in one."""
        return max(min(op.calls / op.in_a_row for op in self.ops), 1e-9)

    def takes(self, op: OpGroup) -> bool:
        """The op goes on where the last one stopped."""
        last, here = line(self.ops[-1]), line(op)
        near = last and here and last.file == here.file and abs(last.line - here.line) <= ADJACENT
        return bool(near) and num_elements(op) == self.elements

    def lines(self) -> set[tuple[str, int]]:
        """(file, line) of its ops."""
        return {span.place for op in self.ops if (span := line(op))}


class Spent(msgspec.Struct, frozen=True):
    """Cost of a chain with its backward, and of one pass each way instead; ns per step."""

    chain: Chain
    forward: float
    backward: float
    fused: float

    @property
    def saved(self) -> float:
        """Time in ns per step that one pass each way saves."""
        return self.forward + self.backward - self.fused


@rule(
    "BRR201",
    "bandwidth",
    needs={"ops", "shapes"},
    remedies=("compile", "compile_max_autotune", "compile_frozen", "fold_batch_norm", "fused_norm"),
    on_device=True,
)
def unfused_elementwise_chain(ledger: Ledger, machine: Machine) -> Iterator[Cause]:
    """Elementwise ops in a row, each of which reads and writes the whole tensor."""
    every = _all_spent(ledger, machine)
    chains = [
        spent for spent in every
        if spent.saved > 0 and (spent.chain.length >= EXPRESSION or worth_telling(ledger, 0.8 * spent.saved))
    ]  # fmt: skip
    saved, fused = sum(each.saved for each in chains), sum(each.fused for each in chains)
    if not worth_telling(ledger, 0.8 * saved):
        return
    worst = max(chains, key=lambda each: each.saved)
    yield Cause(
        saving=(0.3 * saved, 0.8 * saved, saved + 0.5 * fused),
        message=f"{worst.chain.length:.0f} elementwise ops in a row pass over {bytes_text(_bytes(worst.chain))} each"
        + (f", and {len(chains) - 1} more chains" if len(chains) > 1 else "")
        + f": {duration(saved + fused)} per step with backward, fused {duration(fused)}",
        advice="Put these expressions under torch.compile, or use the library's one op for them.",
        where=costliest_line(worst.chain.ops),
        evidence={
            "ops_in_chain": count(worst.chain.length),
            "chains": count(len(chains)),
            "forward": time(sum(each.forward for each in chains)),
            "backward": time(sum(each.backward for each in chains)),
            "single_passes": time(fused),
        },
    )


def _all_spent(ledger: Ledger, machine: Machine) -> list[Spent]:
    """Return the cost of every chain. Chains over tensors of one size on one line (of a whole trainer) have the same
    ops in backward: each gets its part of their time, in proportion to its forward, and needs a pass of its own."""
    chains = list(_chains(ledger))
    shared = [0.0] * len(ledger.ops)
    undone = [[at for at, op in enumerate(ledger.ops) if _undoes(op, chain)] for chain in chains]
    for chain, rows in zip(chains, undone, strict=True):
        for at in rows:
            shared[at] += total(chain.ops)
    found = []
    for chain, rows in zip(chains, undone, strict=True):
        forward, ops = total(chain.ops), [ledger.ops[at] for at in rows]
        backward = sum(ledger.ops[at].ns * forward / shared[at] for at in rows)
        fused = _fused(chain.ops, chain, ledger, machine) + _fused(ops, chain, ledger, machine)
        found.append(Spent(chain, forward, backward, fused))
    return found


def _chains(ledger: Ledger) -> Iterable[Chain]:
    """Chains of the forward pass; the runs of one expression (in every layer, say) are one chain.

    What torch.compile should have fused is BRR802's, or BRR803's; an optimizer written out is BRR209's.
    """
    meant = {op.order for op in left_eager(ledger)}
    updates = by_hand(host_side(ledger))
    meant |= {op.order for ops in updates.values() for op in ops}
    meant |= {op.order for op in ledger.ops if ledger.of_device and key(op.where) in updates}
    merged: dict[tuple[frozenset[tuple[str, int]], int, bool], Chain] = {}
    for chain in _runs(ledger):
        if chain.length < MIN_CHAIN or ledger.facts.compile.limit_hit or any(op.order in meant for op in chain.ops):
            continue
        alike = (frozenset(chain.lines()), chain.elements, chain.length >= EXPRESSION)
        known = merged.setdefault(alike, Chain([]))
        known.times += chain.least_calls()
        known.ops += chain.ops
    return merged.values()


def _runs(ledger: Ledger) -> Iterator[Chain]:
    """Runs of fusible ops as they came, ended by any other work or by another line."""
    chain: Chain | None = None
    for op in sorted(ledger.ops, key=lambda op: op.order):
        if op.phase not in ("forward", "loss", "other"):
            continue
        fusible = _fusible(op) or (ledger.of_device and _casts(op))
        if chain and fusible and chain.takes(op):
            chain.ops.append(op)
        elif fusible or (num_elements(op) > 1 and kind(op) not in IDLE):  # x * 2.0 makes copies of its number
            if chain:
                yield chain
            chain = Chain([op]) if fusible else None
    if chain:
        yield chain


def _fusible(op: OpGroup) -> bool:
    """An op that a person called on a large tensor, whose time is traffic. In place it makes no tensor to spare; inside
    another op (dropout's mask, a loss) nobody wrote that chain."""
    works = op.ns > max(op.dispatch_ns, 0.25 * op.floor_ns) and op.floor_ns > 0  # not a name for the op inside it
    if op.name.endswith("_") or not works or not _is_large(op):
        return False
    own = all(parent in {op.name, *ALIASES} for parent in op.parents if parent.startswith("aten::"))
    return own and bool(op.where) and kind(op) in FUSIBLE


def _is_large(op: OpGroup) -> bool:
    return num_elements(op) * FLOATS.get(float_dtype(op) or "", 0) >= MIN_CHAIN_BYTES


def _casts(op: OpGroup) -> bool:
    """A cast of a large tensor, which a fused kernel makes in passing. Asked of devices alone: on a CPU casts are
    BRR205's, and chains with casts in them were not measured."""
    formats = set(op.dtypes[:2])
    cast = op.name == "aten::copy_" and len(formats) == 2 and formats <= set(FLOATS)
    return _is_large(op) and cast and bool(op.where) and set(op.parents) <= {"aten::to", "aten::_to_copy"}


def _undoes(op: OpGroup, chain: Chain) -> bool:
    span = line(op)
    here = op.phase == "backward" and span is not None and span.place in chain.lines()
    return here and num_elements(op) == chain.elements and kind(op) in (*FUSIBLE, "copy")


def _bytes(chain: Chain) -> int:
    return chain.elements * FLOATS.get(float_dtype(chain.ops[0]) or "float", 4)


def _fused(ops: list[OpGroup], chain: Chain, ledger: Ledger, machine: Machine) -> float:
    """One pass over two inputs and a result; at least the slowest op, whose arithmetic stays, at most two of it."""
    if not ops:
        return 0.0
    one_pass = 3 * _bytes(chain) / machine.byte_rate(3 * _bytes(chain), ledger.threads) * 1e9
    alike = grouped(ops, lambda op: (op.name, op.shapes)).values()
    slowest = max(total(same) / max(sum(op.calls for op in same), 1e-9) for same in alike)
    return chain.times * max(min(one_pass, 2 * slowest), 1.2 * slowest)
